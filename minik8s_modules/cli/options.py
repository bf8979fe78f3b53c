"""Options that several commands share, so that each is spelled and explained once."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import TypeAlias

from minik8s_modules.client.api import ApiClient

Command = Callable[[ApiClient, argparse.Namespace], int]
# argparse gives the type no public name, and it is generic for type checkers only
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001
KUBECONFIG_HELP = "default: $KUBECONFIG, ~/.kube/config, then the admin's"
_TIME = re.compile(r"(\d{1,9}[smh])+")
_UNITS_S = {"s": 1, "m": 60, "h": 3600}
CONTEXT_HELP = "the kubeconfig's context to use instead of its current one"


class Help(argparse.RawDescriptionHelpFormatter):
    """Keeps the line breaks of descriptions and examples, leaves room for long options, names what they take once."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34, width=116)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        default = self._get_default_metavar_for_optional(action)
        return f"{', '.join(action.option_strings)} {self._format_args(action, default)}"


def add(
    commands: Subparsers,
    name: str,
    command: Command,
    summary: str,
    *,
    usage: str = "",
    examples: str = "",
    connects: bool = True,
) -> argparse.ArgumentParser:
    """Return the parser of a new command.

    ``examples`` are lines of ``command   what it does``; ``connects`` is False for one that asks no cluster.
    """
    parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        usage=f"minik8s {usage}" if usage else None,
        epilog=f"examples:\n{_indented(examples)}" if examples else None,
        formatter_class=Help,
    )
    parser.set_defaults(command=command, offline=not connects, refuse=parser.error)
    if not connects:
        return parser
    # before or after the command; without a default here, which would undo the one before it
    connection = parser.add_argument_group("connection")
    connection.add_argument("--kubeconfig", default=argparse.SUPPRESS, metavar="FILE", help=KUBECONFIG_HELP)
    connection.add_argument("--context", default=argparse.SUPPRESS, metavar="NAME", help=CONTEXT_HELP)
    return parser


def _indented(text: str) -> str:
    return textwrap.indent(textwrap.dedent(text).strip(), "  ")


def add_words(parser: argparse.ArgumentParser, metavar: str, about: str = "") -> None:
    """Let the command take words: types and names."""
    parser.add_argument("words", nargs="*", metavar=metavar, help=about or argparse.SUPPRESS)


def add_namespace(parser: argparse.ArgumentParser) -> None:
    """Add -n."""
    parser.add_argument(
        "-n", "--namespace", metavar="NAME", help="namespace (default: that of the kubeconfig's context, or `default`)"
    )
    parser.set_defaults(namespace_given=False)  # parse tells it, before a default is found


def seconds_of(text: str) -> int | None:
    """Return the seconds that ``text`` says (90s, 1h30m), at least one; None where it says none."""
    found = re.findall(r"(\d+)([smh])", text) if _TIME.fullmatch(text) else []
    return sum(int(number) * _UNITS_S[unit] for number, unit in found) or None


def add_filename(parser: argparse.ArgumentParser, *, required: bool, kustomize: bool = False) -> None:
    """Add -f and what goes with it, -k where the command takes kustomizations, too."""
    files = parser.add_mutually_exclusive_group(required=required)
    files.add_argument("-f", "--filename", action="append", metavar="FILE", help="file, folder or - (repeatable)")
    if kustomize:
        files.add_argument(
            "-k", "--kustomize", default="", metavar="FOLDER", help="what `kubectl kustomize FOLDER` prints"
        )
    parser.add_argument("-R", "--recursive", action="store_true", help="with -f: folders, and all folders in them")


def refuse_any(given: argparse.Namespace, names: Sequence[str], why: str) -> None:
    """Refuse options that would mean nothing on this command line; ``why`` says so, and what to do."""
    used = [f"--{name.replace('_', '-')}" for name in names if getattr(given, name)]
    if used:
        given.refuse(f"{', '.join(used)}: {why}")


def add_token(parser: argparse.ArgumentParser) -> None:
    """Add what a machine joins by: a token, or a file of it, and hashes of the authority."""
    token = parser.add_mutually_exclusive_group()
    token.add_argument(
        "--token", default="", metavar="ID.SECRET", help="from `minik8s token create`; for the first start"
    )
    token.add_argument("--token-file", default="", metavar="FILE", help="the same from a file; - is standard input")
    parser.add_argument(
        "--discovery-token-ca-cert-hash", "--ca-hash", dest="pins", action="append", default=[],
        metavar="sha256:HEX", help="hash of the cluster's authority (repeatable)",
    )  # fmt: skip


def add_log_level(parser: argparse.ArgumentParser) -> None:
    """Add --log-level, for commands that run until they are ended."""
    parser.add_argument(
        "--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR"), help="default: %(default)s"
    )

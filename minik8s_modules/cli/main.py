"""The ``minik8s`` command: a kubectl-like view of the cluster, and what kubectl cannot show: plan and drift."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import TypeAlias

from minik8s_modules import __version__
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import KINDS
from minik8s_modules.base.errors import Minik8sError
from minik8s_modules.cli import output, reading, writing
from minik8s_modules.cli.connection import connect
from minik8s_modules.client.api import ApiClient

KUBECONFIG_HELP = "default: $KUBECONFIG, ~/.kube/config, then the admin's"
Command = Callable[[ApiClient, argparse.Namespace], int]

EPILOG = """examples:
  minik8s get pods -A                 every pod
  minik8s apply -f web.yml            create or update what the file declares
  minik8s plan -f web.yml             what that would change, on every node, before it does
  minik8s drift                       what differs on the nodes from what is declared
  minik8s describe pod web            the pod, its events, and the cause when it does not run

exit codes: 0 done, 1 refused or failed, 2 wrong usage; with --detailed-exitcode of plan and drift: there are changes"""


def version(client: ApiClient, _options: argparse.Namespace) -> int:
    """Print the versions of this command and of the server."""
    server = json.loads(client.raw("GET", "/version").data)
    print(f"Client: {__version__}\nServer: {server.get('gitVersion', 'unknown')}")
    return 0


def api_resources(_client: ApiClient, _options: argparse.Namespace) -> int:
    """Print every resource type."""
    rows = [
        [
            kind.plural,
            ",".join(kind.short_names),
            kind.api_version,
            str(kind.namespaced).lower(),
            kind.kind,
        ]
        for kind in KINDS.all()
    ]
    print(output.aligned(["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"], rows))
    return 0


def build_parser() -> argparse.ArgumentParser:
    """Return the whole command line."""
    parser = argparse.ArgumentParser(
        prog="minik8s",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kubeconfig", default="", help=KUBECONFIG_HELP)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _reading_commands(commands)
    _writing_commands(commands)
    _planning_commands(commands)
    _add(commands, "version", version, "versions of this command and of the server")
    _add(commands, "api-resources", api_resources, "the resource types there are")
    return parser


# argparse gives the type no public name, and it is generic for type checkers only
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001


def _add(commands: Subparsers, name: str, command: Command, summary: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=summary, description=summary)
    parser.set_defaults(command=command)
    # before or after the command; without a default here, which would undo the one before it
    parser.add_argument("--kubeconfig", default=argparse.SUPPRESS, help=KUBECONFIG_HELP)
    return parser


def _namespace_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--namespace", default="default", help="namespace (default: %(default)s)")


def _reading_commands(commands: Subparsers) -> None:
    for name, command, summary in (
        ("get", reading.get, "print objects as tables, YAML, JSON or names"),
        ("describe", reading.describe, "print objects with their events and the cause of what is wrong"),
    ):
        parser = _add(commands, name, command, summary)
        parser.usage = f"minik8s {name} [options] (TYPE[,TYPE ...] [NAME ...] | TYPE/NAME ...)"
        parser.add_argument("words", nargs="*", metavar="TYPE", help="resource type, as `pods`; `all` for several")
        _namespace_option(parser)
        parser.add_argument("-A", "--all-namespaces", action="store_true", help="of every namespace")
        parser.add_argument("-l", "--selector", default="", help="label selector, as in app=web,tier!=db")
        if name == "get":
            parser.add_argument(
                "-o",
                "--output",
                default="",
                choices=["", *reading.FORMATS],
                metavar="|".join(reading.FORMATS),
            )
            parser.add_argument("-w", "--watch", action="store_true", help="go on printing changes")


def _writing_commands(commands: Subparsers) -> None:
    parser = _add(commands, "apply", writing.apply, "create or update the objects of files")
    _filename_option(parser, required=True)
    _namespace_option(parser)
    parser.add_argument("--dry-run", action="store_true", help="let the server check it, but store nothing")
    parser = _add(commands, "delete", writing.delete, "delete objects, by file or by name")
    parser.usage = "minik8s delete [options] (-f FILE | TYPE NAME ... | TYPE/NAME ...)"
    parser.add_argument("words", nargs="*", metavar="TYPE NAME")
    _filename_option(parser, required=False)
    _namespace_option(parser)
    parser.add_argument(
        "--grace-period", type=int, default=None, metavar="SECONDS", help="time to end by itself; 0: at once"
    )
    parser.add_argument("--ignore-not-found", action="store_true", help="an object that is not there is no error")
    parser.add_argument("--no-wait", dest="wait", action="store_false", help="do not wait until the objects are gone")


def _planning_commands(commands: Subparsers) -> None:
    parser = _add(
        commands, "plan", writing.plan, "show what applying files would change on every node; changes nothing"
    )
    _filename_option(parser, required=True)
    _namespace_option(parser)
    parser.add_argument("--delete", action="store_true", help="plan the deletion of the files' objects")
    _exitcode_option(parser)
    parser = _add(commands, "drift", writing.drift, "show how nodes differ from what is declared; changes nothing")
    parser.add_argument("words", nargs="*", metavar="NODE", help="default: all nodes")
    _exitcode_option(parser)


def _exitcode_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--detailed-exitcode", action="store_true", help="exit with 2 when there are changes")


def _filename_option(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument(
        "-f",
        "--filename",
        action="append",
        required=required,
        metavar="FILE",
        help="file, folder or - (repeatable)",
    )


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the parsed command line; exits with 2 when it is wrong.

    Names may stand on either side of options, as in ``get pod -n shop web``, which argparse alone does not take.
    """
    parser = build_parser()
    options, rest = parser.parse_known_args(argv)
    unknown = [word for word in rest if word.startswith("-")]
    if unknown or (rest and not hasattr(options, "words")):
        parser.error(f"unrecognized arguments: {' '.join(unknown or rest)}")
    if rest:
        options.words = [*options.words, *rest]
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    options = parse(argv)
    try:
        return int(options.command(connect(options.kubeconfig), options))
    except (StatusError, Minik8sError) as error:
        print(output.Paint(sys.stderr)(f"error: {error}", output.RED), file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())

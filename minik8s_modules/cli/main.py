"""The ``minik8s`` command: a kubectl-like view of the cluster, and what kubectl cannot show: plan, drift and why."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from minik8s_modules.api.errors import StatusError
from minik8s_modules.base.errors import Minik8sError
from minik8s_modules.cli import (
    commands,
    completing,
    configuring,
    generators,
    joining,
    machines,
    options,
    output,
    rollout,
    tokens,
)
from minik8s_modules.cli.connection import connect
from minik8s_modules.cli.options import Subparsers

EPILOG = """examples:
  minik8s get pods -A                 every pod
  minik8s apply -f web.yml            create or update what the file declares
  minik8s plan -f web.yml             what that would change, on every node, before it does
  minik8s drift                       what differs on the nodes from what is declared
  minik8s describe pod web            the pod, its events, and the cause when it does not run
  source <(minik8s completion bash)   let the shell complete commands, types and names

`minik8s COMMAND --help` explains a command.
exit codes: 0 done, 1 refused or failed, 2 wrong usage; with --detailed-exitcode of plan and drift: there are changes"""
COMPLETE = "__complete"


def build_parser() -> argparse.ArgumentParser:
    """Return the whole command line."""
    parser = argparse.ArgumentParser(
        prog="minik8s",
        description="A kubectl-like view of the cluster, and what kubectl cannot show: plan, drift and why.",
        usage="minik8s [--kubeconfig FILE] [--context NAME] COMMAND ...",
        epilog=EPILOG,
        formatter_class=options.Help,
    )
    parser.add_argument("--kubeconfig", default="", metavar="FILE", help=options.KUBECONFIG_HELP)
    parser.add_argument("--context", default="", metavar="NAME", help=options.CONTEXT_HELP)
    known = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", prog="minik8s")
    commands.reading_commands(known)
    generators.create_commands(known)
    commands.writing_commands(known)
    rollout.declare(known)
    commands.planning(known)
    commands.discovery(known)
    tokens.declare(known)
    joining.declare(known)
    machines.declare(known)
    _config(known)
    shells = _offline(known, "completion", completing.script, "print the completion script of a shell", (
        "source <(minik8s completion bash)                     in ~/.bashrc\n"
        "minik8s completion zsh > \"${fpath[1]}/_minik8s\"\n"
        "minik8s completion fish | source                      in ~/.config/fish/config.fish"
    ))  # fmt: skip
    shells.add_argument("shell", choices=tuple(completing.SCRIPTS))
    return parser


def _offline(
    known: Subparsers, name: str, command: Callable[[argparse.Namespace], int], summary: str, examples: str = ""
) -> argparse.ArgumentParser:
    """Return the parser of a command that asks no server."""
    parser = options.add(known, name, lambda _client, given: command(given), summary, examples=examples)
    parser.set_defaults(offline=True)
    return parser


def _config(known: Subparsers) -> None:
    parser = options.add(
        known, "config", lambda *_: 0, "look at the kubeconfig, choose a context",
        usage="config (view | current-context | get-contexts | use-context | set-context | delete-context) ...",
    )  # fmt: skip
    inner = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", prog="minik8s config")
    view = _offline(inner, "view", configuring.view, "print the kubeconfig, without its keys")
    view.add_argument("--raw", action="store_true", help="with keys and certificates")
    view.add_argument("--minify", action="store_true", help="what the context needs, alone")
    view.add_argument("-o", "--output", default="yaml", choices=("yaml", "json"), help="default: %(default)s")
    _offline(inner, "current-context", configuring.current_context, "print the name of the current context")
    listed = _offline(inner, "get-contexts", configuring.get_contexts, "print the contexts")
    listed.add_argument("names", nargs="*", metavar="NAME")
    listed.add_argument("-o", "--output", default="", choices=("", "name"), metavar="name", help="names alone")
    listed.add_argument("--no-headers", action="store_true", help="rows alone, for scripts")
    used = _offline(inner, "use-context", configuring.use_context, "make a context the current one")
    used.add_argument("name", metavar="NAME")
    changed = _offline(inner, "set-context", configuring.set_context, "change cluster, user or namespace of a context")
    changed.add_argument("name", nargs="?", default="", metavar="NAME")
    changed.add_argument("--current", action="store_true", help="the current one")
    for field in ("cluster", "user", "namespace"):
        changed.add_argument(f"--{field}", default=None, metavar="NAME")
    deleted = _offline(inner, "delete-context", configuring.delete_context, "remove a context")
    deleted.add_argument("name", metavar="NAME")


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the parsed command line; exits with 2 when it is wrong.

    Names may stand on either side of options, as in ``get pod -n shop web``, which argparse alone does not take. What
    stands behind ``--`` is the command of a container.
    """
    parser = build_parser()
    words = list(sys.argv[1:] if argv is None else argv)
    tail: list[str] = []
    if "--" in words:
        words, tail = words[: words.index("--")], words[words.index("--") + 1 :]
    given, rest = parser.parse_known_args(words)
    unknown = [word for word in rest if word.startswith("-")]
    if unknown or (rest and not hasattr(given, "words")):
        parser.error(f"unrecognized arguments: {' '.join(unknown or rest)}")
    if rest:
        given.words = [*given.words, *rest]
    if tail and hasattr(given, "words"):
        given.words = [*given.words, *tail]
    given.tail = tail
    options.settle_original_names(given)
    return given


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == [COMPLETE]:
        print("\n".join(completing.candidates(build_parser(), words[1:])))
        return 0
    given = parse(words)
    try:
        client = None if given.offline else connect(given)
        return int(given.command(client, given))
    except (StatusError, Minik8sError) as error:
        output.fail(error)
        return 1
    except BrokenPipeError:
        sys.stderr.close()  # the interpreter would complain at its end that nobody reads
        return 0
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())

"""The commands that are not kubectl's, and their options, declared; what they do is in the modules they name."""

from __future__ import annotations

import argparse

from minik8s_modules import __version__
from minik8s_modules.cli import completing, initializing, joining, machines, options, tokens, virtual_nodes
from minik8s_modules.cli.mesh import canary, looking, rolling_updates
from minik8s_modules.cli.options import Subparsers, add, add_filename, add_namespace, add_words
from minik8s_modules.cli.simulating import command as simulating
from minik8s_modules.client.api import ApiClient

EPILOG = """all other commands are kubectl's: `minik8s get pods` is `kubectl get pods`, and `kubectl help` lists them.
Files may be written as for the original MiniK8s; `apply --dialect original -f FILE` says so where they do not show it.

examples:
  minik8s plan -f web.yml             what applying it would change, of objects and on every node
  minik8s apply -f web.yml            create or update what the file declares (--plan: ask first)
  minik8s drift                       what differs on the nodes from what is declared
  minik8s why pods -A --faults        what keeps pods from running (the same: get pods -A --why --faults)
  minik8s describe pod web            the cause when it does not run, above what kubectl describes
  minik8s advise --for 5m             what containers use, compared with what they request
  minik8s simulate FILE               how full nodes would be, with --nodes and --replicas changed
  minik8s rollout status deploy/web   a picture that moves, on a terminal
  source <(minik8s completion bash)   let the shell complete commands, types and names

`kubectl minik8s COMMAND` is the same. `minik8s help COMMAND` explains a command.
exit codes: 0 done, 1 refused or failed, 2 wrong usage; with --detailed-exitcode of plan and drift: there are changes"""


def plan(client: ApiClient, given: argparse.Namespace) -> int:
    """Plan, or plan and apply; its module says more."""
    from minik8s_modules.cli.plans import applying  # noqa: PLC0415 - one command of four, 20 ms each

    return applying.plan(client, given)


def drift(client: ApiClient, given: argparse.Namespace) -> int:
    """Show drift; its module says more."""
    from minik8s_modules.cli.plans import drifting  # noqa: PLC0415 - one command of four, 20 ms each

    return drifting.drift(client, given)


def why(client: ApiClient, given: argparse.Namespace) -> int:
    """Tell causes; its module says more."""
    from minik8s_modules.cli.causes.why import why as command  # noqa: PLC0415 - see plan

    return command(client, given)


def trace(client: ApiClient, given: argparse.Namespace) -> int:
    """Tell where a request goes; its module says more."""
    from minik8s_modules.cli.causes.trace import trace as command  # noqa: PLC0415 - see plan

    return command(client, given)


def advise(client: ApiClient, given: argparse.Namespace) -> int:
    """Show what is used beside what is requested; its module says more."""
    from minik8s_modules.cli import advising  # noqa: PLC0415 - see plan

    return advising.advise(client, given)


def inject(given: argparse.Namespace) -> int:
    """Print manifests with sidecars; its module says more."""
    from minik8s_modules.cli import injecting  # noqa: PLC0415 - see plan

    return injecting.inject(given)


def build_parser() -> argparse.ArgumentParser:
    """Return the command line of all commands but kubectl's."""
    parser = argparse.ArgumentParser(
        prog="minik8s",
        description=(
            "kubectl, and what kubectl cannot do: plan, drift, why, trace, advise, simulate, inject, nodes, tokens."
        ),
        usage="minik8s [--kubeconfig FILE] [--context NAME] COMMAND ...",
        epilog=EPILOG,
        formatter_class=options.Help,
    )
    parser.add_argument("--version", action="version", version=f"minik8s {__version__}")
    parser.add_argument("--kubeconfig", default="", metavar="FILE", help=options.KUBECONFIG_HELP)
    parser.add_argument("--context", default="", metavar="NAME", help=options.CONTEXT_HELP)
    known = parser.add_subparsers(title="own commands", required=True, metavar="COMMAND", prog="minik8s")
    _planning(known)
    _explaining(known)
    _advising(known)
    _injecting(known)
    initializing.declare(known)
    simulating.declare(known)
    tokens.declare(known)
    joining.declare(known)
    machines.declare(known)
    rolling_updates.declare(known)
    virtual_nodes.declare(known)
    canary.declare(known)
    looking.declare(known)
    shells = add(
        known, "completion", lambda _client, given: completing.script(given), "print the completion script of a shell",
        examples="""
        source <(minik8s completion bash)                     in ~/.bashrc
        minik8s completion zsh > "${fpath[1]}/_minik8s"
        minik8s completion fish | source                      in ~/.config/fish/config.fish""",
        connects=False,
    )  # fmt: skip
    shells.add_argument("shell", choices=tuple(completing.SCRIPTS))
    return parser


def _planning(commands: Subparsers) -> None:
    parser = add(
        commands, "plan", plan, "show what applying files would change in the API and on every node; changes nothing",
        usage="plan (-f FILE | -k FOLDER) [options]",
        examples="""
        minik8s plan -f web.yml             objects, Pods, and how much each node would do
        minik8s plan -f web.yml --full      with every field, and how rules, names and files would differ
        minik8s plan --delete -f web.yml    the same of deleting its objects
        minik8s plan -k overlays/test       of a kustomization, as kubectl renders it
        minik8s apply --plan -f web.yml     the same, then ask, and apply exactly that""",
    )  # fmt: skip
    add_filename(parser, required=True, kustomize=True)
    parser.add_argument(
        "--dialect",
        default="",
        choices=("original", "kubernetes"),
        help="read files as the original MiniK8s does, or as Kubernetes does",
    )
    add_namespace(parser)
    parser.add_argument("--delete", action="store_true", help="plan the deletion of the files' objects")
    parser.add_argument("--full", action="store_true", help="every field, step and difference")
    parser.add_argument(
        "-o", "--output", default="", choices=("json", "markdown"), help="json: for programs; markdown: for reviews"
    )
    parser.add_argument("--apply", action="store_true", help="then ask, and apply exactly that (as `apply --plan`)")
    parser.add_argument("--yes", action="store_true", help="with --apply: without asking")
    _exitcode_option(parser, "something to change")
    parser = add(
        commands, "drift", drift, "show how nodes differ from what is declared; changes nothing",
        usage="drift [options] [NODE ...]",
        examples="""
        minik8s drift            of all nodes
        minik8s drift --heal     have it put right now, not at the next observation
        minik8s drift --history  what was found and put right in the last hour""",
    )  # fmt: skip
    add_words(parser, "NODE", "default: all nodes")
    parser.add_argument("--full", action="store_true", help="every step and difference")
    parser.add_argument(
        "--heal", action="store_true", help="then heal the differences, including those that are only reported"
    )
    parser.add_argument("--history", action="store_true", help="show what drift was found and put right before")
    _exitcode_option(parser, "drift")


def _advising(commands: Subparsers) -> None:
    parser = add(
        commands, "advise", advise, "compare what containers use with what they request; changes nothing",
        usage="advise [options]",
        examples="""
        minik8s advise --for 30m -A       of all Pods, measured for half an hour
        minik8s advise -l app=web         of some, for five minutes
        minik8s advise --for 0 -o yaml    what is known now, for programs""",
    )  # fmt: skip
    add_namespace(parser)
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="in all namespaces")
    parser.add_argument("-l", "--selector", metavar="SELECTOR", help="label selector, as in app=web,tier!=db")
    parser.add_argument(
        "--for",
        dest="time",
        default="5m",
        metavar="TIME",
        help="how long to measure, such as 90s or 1h30m; ^C ends it (default: %(default)s)",
    )
    parser.add_argument("-o", "--output", default="", choices=("json", "yaml"), help="for programs")


def _injecting(commands: Subparsers) -> None:
    parser = add(
        commands, "inject", lambda _client, given: inject(given), "print files with a sidecar beside each Pod",
        usage="inject -f FILE",
        examples="""
        minik8s inject -f web.yml | minik8s apply -f -    Pods, and templates of workloads
        minik8s inject -f - <web.yml >meshed.yml""",
        connects=False,
    )  # fmt: skip
    add_filename(parser, required=True)


def _exitcode_option(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--detailed-exitcode", action="store_true", help=f"exit with status 2 if there is {what}")


def _explaining(commands: Subparsers) -> None:
    parser = add(
        commands, "why", why, "print why objects are not as they should be, and what to run next",
        usage="why [options] (TYPE [NAME ...] | TYPE/NAME ... | -f FILE | -k FOLDER | connect POD TARGET:PORT)",
        examples="""
        minik8s why pod/web               the cause, and the next command
        minik8s why pods -A --faults      what is wrong anywhere
        minik8s get pods --why            one line each, without the commands
        minik8s why connect web db:5432   which NetworkPolicy lets a Pod's connection through, or holds it back""",
    )  # fmt: skip
    add_words(parser, "TYPE")
    add_namespace(parser)
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="in all namespaces")
    parser.add_argument("-l", "--selector", metavar="SELECTOR", help="label selector, as in app=web,tier!=db")
    parser.add_argument("--field-selector", metavar="SELECTOR", help="field selector, as in status.phase=Running")
    add_filename(parser, required=False, kustomize=True)
    parser.add_argument("--faults", action="store_true", help="only objects with a fault")
    parser.add_argument("--one-line", action="store_true", help="the causes alone, as `get --why` prints them")
    parser = add(
        commands, "trace", trace, "print the way of a request: name, ingress, service, endpoints",
        usage="trace [options] URL | HOST[:PORT][/PATH] | TYPE/NAME[:PORT]",
        examples="""
        minik8s trace shop.example.test/web          where a host and path lead to
        minik8s trace front --from-namespace shop    the same, as pods of a namespace find it
        minik8s trace web.default                    the same from the name of a service
        minik8s trace svc/web -n shop                what a Service leads to
        minik8s trace pod/web -n shop                whether a Pod answers, and which Services lead to it
        minik8s trace http://web:80/ --from client   what the sidecar of a Pod does with it
        minik8s trace apiservice/v1.example.com      how the API server reaches an extension""",
    )  # fmt: skip
    text = (
        "a URL, or its host, port and path alone (the port counts for addresses, Services and Pods); "
        "or a Service, Pod, APIService or webhook configuration, as TYPE/NAME"
    )
    parser.add_argument("place", metavar="URL", help=text)
    parser.add_argument(
        "--from", dest="pod", default="", metavar="POD", help="through the sidecar of this Pod (-n: its namespace)"
    )
    add_namespace(parser)
    parser.add_argument(
        "--from-namespace",
        default="",
        metavar="NAME",
        help="find names as pods of this namespace do (default: that of -n); not with --from",
    )

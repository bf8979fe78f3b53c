"""The commands and their options, declared; what they do is in the modules they name."""

from __future__ import annotations

import argparse

from minik8s_modules.cli import (
    access,
    changing,
    deleting,
    discovering,
    editing,
    logs,
    planning_commands,
    printing,
    reading,
    trace,
    writing,
)
from minik8s_modules.cli.options import (
    Command,
    Subparsers,
    add,
    add_dry_run,
    add_filename,
    add_manager,
    add_namespace,
    add_original_names,
    add_result,
    add_selectors,
    add_words,
)

_NAMED = "(TYPE NAME ... | TYPE/NAME ... | -f FILE)"


def reading_commands(commands: Subparsers) -> None:
    """Declare get, describe, why and logs."""
    parser = add(
        commands, "get", reading.get, "print objects as tables, YAML, JSON, names, columns or values",
        usage="get [options] (TYPE[,TYPE ...] [NAME ...] | TYPE/NAME ... | -f FILE)",
        examples="""
        minik8s get pods -A -o wide                           every pod, with its node and address
        minik8s get pods -l app=web -w                        go on printing changes
        minik8s get pod web -o jsonpath='{.status.podIP}'     one value
        minik8s get pods -o custom-columns=POD:.metadata.name,IMAGE:.spec.containers[*].image
        minik8s get all --sort-by=.metadata.creationTimestamp""",
    )  # fmt: skip
    add_words(parser, "TYPE", "resource type, as `pods`; `all` for several")
    _collections(parser)
    parser.add_argument("-o", "--output", default="", metavar="FORM", help=" | ".join(printing.FORMATS))
    parser.add_argument("-w", "--watch", action="store_true", help="go on printing changes")
    parser.add_argument("--watch-only", action="store_true", help="print changes only")
    parser.add_argument("--sort-by", default="", metavar="PATH", help="order by a JSONPath, as .metadata.name")
    parser.add_argument("--show-labels", action="store_true", help="labels as the last column")
    parser.add_argument("--no-headers", action="store_true", help="rows alone, for scripts")
    parser.add_argument("--show-managed-fields", action="store_true", help="keep metadata.managedFields in documents")
    parser.add_argument("--ignore-not-found", action="store_true", help="an object that is not there is no error")
    parser.add_argument("--raw", default="", metavar="PATH", help="print what the server answers to GET PATH")
    parser = add(
        commands, "describe", reading.describe, "print objects with their events and the cause of what is wrong",
        usage="describe [options] (TYPE [NAME ...] | TYPE/NAME ... | -f FILE)",
    )  # fmt: skip
    add_words(parser, "TYPE")
    _collections(parser)
    add_original_names(parser)
    parser = add(
        commands, "why", reading.why, "print in one line what keeps objects from being as wished",
        usage="why [options] (TYPE [NAME ...] | TYPE/NAME ... | -f FILE)",
        examples="minik8s why pods -A --faults      what is wrong anywhere",
    )  # fmt: skip
    add_words(parser, "TYPE")
    _collections(parser)
    parser.add_argument("--faults", action="store_true", help="leave out what is as it should be")
    parser = add(
        commands, "trace", trace.trace, "print the way of a request: name, ingress, service, endpoints",
        usage="trace [options] HOST[/PATH]",
        examples="""
        minik8s trace shop.example.test/web      where a host and path lead to
        minik8s trace front --from-namespace shop    the same, as pods of a namespace find it
        minik8s trace web.default                the same from the name of a service""",
    )  # fmt: skip
    parser.add_argument("place", metavar="HOST[/PATH]", help="as in a URL; a scheme, port and query are left out")
    parser.add_argument(
        "--from-namespace", default="default", metavar="NAME", help="whose pods ask: names differ (default: `default`)"
    )
    _logs(commands)


def _collections(parser: argparse.ArgumentParser) -> None:
    add_namespace(parser, everywhere=True)
    add_selectors(parser)
    add_filename(parser, required=False)


def _logs(commands: Subparsers) -> None:
    parser = add(
        commands,
        "logs",
        logs.logs,
        "print what a pod's container has printed",
        usage="logs [options] POD [-c CONTAINER]",
    )
    add_words(parser, "POD")
    add_namespace(parser)
    add_selectors(parser)
    parser.add_argument("-c", "--container", default="", metavar="NAME", help="needed where a pod has several")
    parser.add_argument("--all-containers", action="store_true", help="of every container, one after the other")
    parser.add_argument("-f", "--follow", action="store_true", help="go on printing")
    parser.add_argument("-p", "--previous", action="store_true", help="of the container before the last restart")
    parser.add_argument("--tail", type=int, default=-1, metavar="LINES", help="the last lines only")
    parser.add_argument("--since", default="", metavar="TIME", help="no older lines, as in 90s or 1h")
    parser.add_argument("--limit-bytes", type=int, default=0, metavar="BYTES", help="no more than this")
    parser.add_argument("--timestamps", action="store_true", help="when each line was printed")


def writing_commands(commands: Subparsers) -> None:
    """Declare apply, edit, patch, scale, label, annotate and delete (create: in generators)."""
    parser = add(
        commands, "apply", writing.apply, "create or update the objects of files",
        usage="apply [options] -f FILE",
        examples="""
        minik8s apply -f web.yml                              create or update what the file declares
        minik8s apply -f folder/ --dry-run=server             what would be stored, without storing it
        cat web.yml | minik8s apply -f -                      from standard input
        minik8s apply --server-side -f web.yml                the server merges, and knows who owns which field""",
    )  # fmt: skip
    add_filename(parser, required=True, dialect=True)
    add_namespace(parser)
    parser.add_argument("--server-side", action="store_true", help="let the server merge, and keep who owns what")
    parser.add_argument("--force-conflicts", action="store_true", help="with --server-side: take over what others own")
    _written(parser, "client", "server")
    parser = add(
        commands, "edit", editing.edit, "change objects in an editor ($EDITOR)", usage=f"edit [options] {_NAMED}"
    )
    _objects(parser)
    _written(parser, result=False)
    parser = add(
        commands, "patch", changing.patch, "change some fields of objects",
        usage=f"patch [options] {_NAMED} (-p PATCH | --patch-file FILE)",
        examples="""
        minik8s patch deploy web -p '{"spec": {"replicas": 3}}'
        minik8s patch pod web --type json -p '[{"op": "remove", "path": "/metadata/labels/tier"}]'""",
    )  # fmt: skip
    _objects(parser)
    parser.add_argument("-p", "--patch", default="", metavar="PATCH", help="JSON or YAML")
    parser.add_argument("--patch-file", default="", metavar="FILE", help="file with the patch")
    parser.add_argument("--type", default="strategic", choices=("strategic", "merge", "json"), help="how it is merged")
    parser.add_argument(
        "--subresource", default="", choices=("", "status", "scale"), metavar="status|scale", help="patch this part"
    )
    _written(parser)
    parser = add(
        commands, "scale", changing.scale, "set the number of replicas", usage=f"scale [options] {_NAMED} --replicas N",
        examples="minik8s scale deploy web --replicas 3",
    )  # fmt: skip
    _objects(parser)
    parser.add_argument("--all", action="store_true", help="all of the type")
    parser.add_argument("--replicas", type=int, required=True, metavar="N", help="how many there are to be")
    parser.add_argument("--current-replicas", type=int, default=None, metavar="N", help="only if there are so many now")
    _written(parser)
    _mark_command(commands, "label", changing.label, "set or remove labels", "tier=front")
    _mark_command(commands, "annotate", changing.annotate, "set or remove annotations", "contact=ops@example.test")
    _delete(commands)


def _objects(parser: argparse.ArgumentParser) -> None:
    add_words(parser, "TYPE NAME")
    add_namespace(parser)
    add_selectors(parser)
    add_filename(parser, required=False)


def _written(parser: argparse.ArgumentParser, *modes: str, result: bool = True) -> None:
    add_dry_run(parser, *modes)
    add_manager(parser)
    if result:
        add_result(parser)


def _mark_command(commands: Subparsers, name: str, command: Command, summary: str, example: str) -> None:
    parser = add(
        commands, name, command, summary, usage=f"{name} [options] {_NAMED} KEY=VALUE ... KEY- ...",
        examples=f"""
        minik8s {name} pod web {example}
        minik8s {name} pods -l app=web {example} --overwrite
        minik8s {name} pod web {example.partition("=")[0]}-             remove it""",
    )  # fmt: skip
    _objects(parser)
    parser.add_argument("--all", action="store_true", help="all of the type")
    parser.add_argument("--overwrite", action="store_true", help="also where there is another value")
    parser.add_argument("--list", action="store_true", help="print what there is")
    _written(parser)


def _delete(commands: Subparsers) -> None:
    parser = add(
        commands, "delete", deleting.delete, "delete objects, by file, name or selector",
        usage="delete [options] (-f FILE | TYPE NAME ... | TYPE/NAME ... | TYPE -l SELECTOR | TYPE --all)",
        examples="""
        minik8s delete pod web db
        minik8s delete -f web.yml
        minik8s delete pods -l app=web --grace-period 5
        minik8s delete pod -p shop -n web                     the original MiniK8s' form: namespace shop, name web""",
    )  # fmt: skip
    add_words(parser, "TYPE NAME")
    add_namespace(parser, everywhere=True)
    add_original_names(parser)
    add_selectors(parser)
    add_filename(parser, required=False)
    parser.add_argument("--all", action="store_true", help="all of the type")
    parser.add_argument(
        "--grace-period", type=int, default=None, metavar="SECONDS", help="time to end by itself; 0: at once"
    )
    parser.add_argument("--now", action="store_true", help="a grace period of 1 s")
    parser.add_argument("--force", action="store_true", help="at once, without waiting for its node")
    parser.add_argument(
        "--cascade", default="background", choices=tuple(deleting.CASCADES), help="what becomes of what it owns"
    )
    parser.add_argument("--ignore-not-found", action="store_true", help="an object that is not there is no error")
    parser.add_argument("--wait", action=argparse.BooleanOptionalAction, default=True, help="until it is gone")
    parser.add_argument("--timeout", type=float, default=0, metavar="SECONDS", help="how long to wait; 0: for ever")
    parser.add_argument("-o", "--output", default="", choices=("", "name"), metavar="name", help="print TYPE/NAME only")


def planning(commands: Subparsers) -> None:
    """Declare plan and drift."""
    parser = add(
        commands, "plan", planning_commands.plan, "show what applying files would change on every node; changes nothing"
    )
    add_filename(parser, required=True, dialect=True)
    add_namespace(parser)
    parser.add_argument("--delete", action="store_true", help="plan the deletion of the files' objects")
    _exitcode_option(parser)
    parser = add(
        commands, "drift", planning_commands.drift, "show how nodes differ from what is declared; changes nothing",
        usage="drift [options] [NODE ...]",
    )  # fmt: skip
    add_words(parser, "NODE", "default: all nodes")
    parser.add_argument("--heal", action="store_true", help="then have it put right at once")
    _exitcode_option(parser)


def _exitcode_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--detailed-exitcode", action="store_true", help="exit with 2 when there are changes")


def discovery(commands: Subparsers) -> None:
    """Declare api-resources, api-versions, explain, auth and version."""
    parser = add(commands, "api-resources", discovering.api_resources, "the resource types there are")
    parser.add_argument("-o", "--output", default="", choices=("", "wide", "name"), metavar="wide|name", help="form")
    parser.add_argument("--api-group", default=None, metavar="GROUP", help="of this group; '' is the core group")
    parser.add_argument("--namespaced", default=None, choices=("true", "false"), help="with or without namespace")
    parser.add_argument("--verbs", default="", metavar="VERB,...", help="that know these verbs")
    parser.add_argument("--no-headers", action="store_true", help="rows alone, for scripts")
    add(commands, "api-versions", discovering.api_versions, "the groups and versions there are")
    parser = add(
        commands, "explain", discovering.explain, "what a type or one of its fields is for",
        usage="explain [options] TYPE[.FIELD ...]",
        examples="minik8s explain pod.spec.containers.resources",
    )  # fmt: skip
    add_words(parser, "TYPE")
    parser.add_argument("--recursive", action="store_true", help="all fields below, without descriptions")
    parser.add_argument("--api-version", default="", metavar="GROUP/VERSION", help="of this version")
    parser = add(commands, "auth", access.can_i, "who you are, and what you may do", usage="auth (can-i | whoami) ...")
    _auth(parser.add_subparsers(title="commands", required=True, metavar="COMMAND"))
    add(commands, "version", discovering.version, "versions of this command and of the server")


def _auth(commands: Subparsers) -> None:
    parser = add(
        commands, "can-i", access.can_i, "whether you may do something: yes or no",
        usage="auth can-i [options] (VERB TYPE[/NAME] | VERB PATH | --list)",
        examples="""
        minik8s auth can-i create pods -n shop
        minik8s auth can-i get pods --subresource log
        minik8s auth can-i --list""",
    )  # fmt: skip
    add_words(parser, "VERB TYPE")
    add_namespace(parser, everywhere=True)
    parser.add_argument("--subresource", default="", metavar="NAME", help="as log, exec, scale")
    parser.add_argument("--list", action="store_true", help="all that you may do in the namespace")
    parser.add_argument("-q", "--quiet", action="store_true", help="the exit code alone")
    parser.add_argument("--no-headers", action="store_true", help="rows alone, for scripts")
    parser = add(commands, "whoami", access.whoami, "user name and groups, as the server sees you")
    add_result(parser)

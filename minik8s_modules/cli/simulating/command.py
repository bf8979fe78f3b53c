"""``simulate``: reads a description, settles it, changes it, settles it again and prints both; asks no cluster.

With ``--snapshot`` it prints a description of the cluster instead, for a file.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator

from minik8s_modules.base.clock import SystemClock
from minik8s_modules.cli.connection import connect
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.options import Subparsers, add, add_filename, add_namespace, add_words, refuse_any
from minik8s_modules.client.api import ApiClient


def declare(commands: Subparsers) -> None:
    """Declare the command."""
    parser = add(
        commands, "simulate", simulate,
        "show how full groups of nodes would be, and which Pods would find no node; changes nothing",
        usage="simulate [options] (FILE ... | --snapshot)",
        examples="""
        minik8s simulate --snapshot >cluster.json              the cluster, names and sizes only
        minik8s simulate cluster.json                          how full it is
        minik8s simulate cluster.json --nodes worker=-10       with ten nodes fewer
        minik8s simulate cluster.json --replicas 'shop/*=x2'   with twice the replicas in a namespace
        minik8s simulate nodes.yml web.yml -f new.yml          with another file applied""",
    )  # fmt: skip
    parser.set_defaults(offline=True)
    add_words(parser, "FILE", "descriptions: groups of nodes, and manifests; - is standard input")
    parser.add_argument("--snapshot", action="store_true", help="print a description of the cluster instead")
    parser.add_argument(
        "--nodes", action="append", default=[], metavar="GROUP=AMOUNT",
        help="change how many nodes a group has: 12, +3, -3 or x1.5 (repeatable)",
    )  # fmt: skip
    parser.add_argument(
        "--replicas", action="append", default=[], metavar="NAME=AMOUNT",
        help="change replicas of workloads of that name, or namespace/name; * stands for any text (repeatable)",
    )  # fmt: skip
    add_filename(parser, required=False)
    add_namespace(parser)
    parser.add_argument("-o", "--output", default="", choices=("json",), help="for programs")


def simulate(_client: ApiClient, options: argparse.Namespace) -> int:
    """Print what a change would do, or the snapshot.

    Raises:
        UsageError: the command line or a file is wrong.
        StatusError: ``--snapshot``, and something may not be read.
    """
    if options.snapshot:
        _snapshot(options)
    elif options.words:
        _simulate(options)
    else:
        raise UsageError("simulate: name a FILE that describes a cluster; `--snapshot >FILE` writes one")
    return 0


def _snapshot(options: argparse.Namespace) -> None:
    from minik8s_modules.cli.simulating.snapshots import snapshot  # noqa: PLC0415 - see _simulate

    refuse_any(options, ("namespace", "recursive"), "--snapshot prints the whole cluster, and takes no such option")
    if options.words or options.filename or options.nodes or options.replicas or options.output:
        raise UsageError(
            "--snapshot: it only prints the cluster; write that to a FILE and `simulate FILE` with changes"
        )
    print('{"apiVersion": "v1", "kind": "List", "items": [')
    print(",\n".join(snapshot(connect(options))))
    print("]}")


def _simulate(options: argparse.Namespace) -> None:
    # imported here: one command of many, and these are 200 ms
    from minik8s_modules.cli.simulating import changes, description, reports  # noqa: PLC0415
    from minik8s_modules.cli.simulating.cluster import Simulation  # noqa: PLC0415

    now = SystemClock().now()
    nodes = [changes.parse("--nodes", text) for text in options.nodes]
    replicas = [changes.parse("--replicas", text) for text in options.replicas]
    space = options.namespace or "default"
    told = description.read(options.words, space, now, recursive=options.recursive)
    more = description.read(options.filename or (), space, now, recursive=options.recursive)
    simulation = Simulation(told.objects, now)
    ended = simulation.settle()
    before, after = reports.state(simulation), None
    if nodes or replicas or options.filename:
        for obj in more.objects:
            simulation.put(obj)
        for change in replicas:
            changes.change_replicas(simulation, change)
        for change in nodes:
            changes.change_nodes(simulation, change)
        ended = simulation.settle() and ended
        after = reports.state(simulation)
    notes = [*_notes(Counter(told.left_out) + Counter(more.left_out), simulation.strays(), ended=ended)]
    if options.output:
        print(json.dumps(reports.as_json(before, after, simulation.lost, notes), indent=2))
    else:
        print(reports.table(before, after, simulation.lost, notes))


def _notes(left_out: Counter[str], strays: int, *, ended: bool) -> Iterator[str]:
    if strays:
        yield f"left out: {strays} Pods on nodes that are not described"
    if left_out:
        yield f"left out: {', '.join(f'{count} {kind}' for kind, count in sorted(left_out.items()))}"
    if not ended:
        yield "it was not followed to its end: it has too many steps"

"""``plan`` and ``drift``: what would change on the nodes, asked of the server; rendered in ``planning``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import NODE, PLAN
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import rfc3339_micro
from minik8s_modules.cli import planning
from minik8s_modules.cli.manifests import read_manifests
from minik8s_modules.cli.output import Paint
from minik8s_modules.client.api import ApiClient

OBSERVE = "minik8s.io/observe"
"""Annotation of a Node: when it changes, the reconciler observes the whole node at once (reconcile/loop/shard.py)."""


def plan(client: ApiClient, options: argparse.Namespace) -> int:
    """Print what applying (or deleting) the files would change on every node; 2 with --detailed-exitcode if any."""
    found = read_manifests(options.filename, options.namespace, recursive=options.recursive, dialect=options.dialect)
    spec: JsonObject = {"deleted" if options.delete else "objects": found}
    return _show(client, spec, detailed=options.detailed_exitcode)


def drift(client: ApiClient, options: argparse.Namespace) -> int:
    """Print how the nodes differ from what is declared; returns 2 with --detailed-exitcode when one does."""
    spec: JsonObject = {"objects": []}
    if options.words:
        spec["nodes"] = [objects.name(client.get(NODE, name)) for name in options.words]
    result = _show(client, spec, detailed=options.detailed_exitcode)
    if options.heal:
        _heal(client, spec.get("nodes") or [objects.name(node) for node in client.list(NODE).items])
    return result


def _heal(client: ApiClient, nodes: Sequence[str]) -> None:
    """Have nodes looked at as a whole now, and not at their next turn; what differs is put right by that."""
    for name in nodes:
        client.patch(NODE, name, "", {"metadata": {"annotations": {OBSERVE: rfc3339_micro(datetime.now(UTC))}}})
        print(f"node {name} is being healed")


def _show(client: ApiClient, spec: JsonObject, *, detailed: bool) -> int:
    body: JsonObject = {
        "apiVersion": PLAN.api_version,
        "kind": PLAN.kind,
        "metadata": {"name": "plan"},
        "spec": spec,
    }
    status = client.create(PLAN, body).get("status", {})
    print(planning.render(status, Paint()))
    if not status.get("nodes"):
        return 1
    return 2 if detailed and planning.has_changes(status) else 0

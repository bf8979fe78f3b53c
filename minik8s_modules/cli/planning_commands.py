"""``plan``: what would change on the nodes, asked of the server; rendered in ``planning``."""

from __future__ import annotations

import argparse

from minik8s_modules.api.kinds import PLAN
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli import planning
from minik8s_modules.cli.manifests import read_manifests
from minik8s_modules.cli.output import Paint
from minik8s_modules.client.api import ApiClient


def plan(client: ApiClient, options: argparse.Namespace) -> int:
    """Print what applying (or deleting) the files would change on every node; 2 with --detailed-exitcode if any."""
    found = read_manifests(options.filename, options.namespace, recursive=options.recursive, dialect=options.dialect)
    spec: JsonObject = {"deleted" if options.delete else "objects": found}
    return _show(client, spec, detailed=options.detailed_exitcode)


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

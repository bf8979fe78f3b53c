"""``plan``: what files would change, asked of the server; its forms are in ``planning`` and ``plan_markdown``."""

from __future__ import annotations

import argparse
import json

from minik8s_modules.api.kinds import PLAN
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.original.manifests import read_chosen
from minik8s_modules.cli.output import Paint, fail, progress
from minik8s_modules.cli.plans import planning
from minik8s_modules.cli.plans.plan_markdown import markdown
from minik8s_modules.client.api import ApiClient


def plan(client: ApiClient, options: argparse.Namespace) -> int:
    """Print what applying (or deleting) the files would change; 2 with --detailed-exitcode if anything.

    1 where an object would be refused, or no node answered.
    """
    found = read_chosen(options)
    status = asked(client, {"deleted" if options.delete else "objects": found})
    print(form(status, options))
    return exit_code(status, detailed=options.detailed_exitcode)


def asked(client: ApiClient, spec: JsonObject) -> JsonObject:
    """Return the status of a plan."""
    body: JsonObject = {
        "apiVersion": PLAN.api_version,
        "kind": PLAN.kind,
        "metadata": {"name": "plan"},
        "spec": spec,
    }
    with progress("objects are planned and nodes are asked"):
        status: JsonObject = client.create(PLAN, body).get("status", {})
    return status


def form(status: JsonObject, options: argparse.Namespace) -> str:
    """Return the plan in the form that is asked for."""
    if options.output == "json":
        shown = {"apiVersion": PLAN.api_version, "kind": PLAN.kind, "summary": planning.summary(status)}
        return json.dumps({**shown, "status": status}, indent=2, ensure_ascii=False)
    if options.output == "markdown":
        return markdown(status)
    return (planning.render if options.full else planning.brief)(status, Paint())


def exit_code(status: JsonObject, *, detailed: bool) -> int:
    """Return the exit code, and say which objects would be refused."""
    if found := planning.refused(status):
        fail(f"{len(found)} of the objects would be refused: {', '.join(map(planning.called, found))}")
        return 1
    if not status.get("nodes"):
        return 1
    return 2 if detailed and planning.has_changes(status) else 0

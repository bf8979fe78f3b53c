"""``plan``: what files would change, asked of the server; its forms are in ``planning`` and ``plan_markdown``."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence

from minik8s_modules.api import objects
from minik8s_modules.api.errors import StatusError, from_status
from minik8s_modules.api.kinds import PLAN
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli import kubectl
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.original.manifests import Manifest, read_manifests
from minik8s_modules.cli.output import Paint, fail, progress
from minik8s_modules.cli.plans import planning
from minik8s_modules.cli.plans.plan_markdown import markdown
from minik8s_modules.client.api import ApiClient

_PLACE = re.compile(r"spec\.(?:objects|deleted)\[(\d+)\]: ")


def plan(client: ApiClient, options: argparse.Namespace) -> int:
    """Print what applying (or deleting) the files would change; 2 with --detailed-exitcode if anything.

    1 where an object would be refused, or no node answered.
    """
    found = read_chosen(options)
    status = asked(client, "deleted" if options.delete else "objects", found)
    print(form(status, options))
    return exit_code(status, detailed=options.detailed_exitcode)


def read_chosen(options: argparse.Namespace) -> list[Manifest]:
    """Return the objects of the files that a command line names; ``-n`` must fit them, as in kubectl.

    Raises:
        UsageError: see ``read_manifests`` and ``kubectl.kustomized``.
    """
    folder = options.kustomize
    if folder and (options.recursive or options.dialect):
        raise UsageError("-R and --dialect say how the files of -f are read: leave them out with -k")
    return read_manifests(
        options.filename or (),
        options.namespace,
        only=options.namespace_given,
        recursive=options.recursive,
        dialect=options.dialect,
        more=[(f"kustomization {folder}", kubectl.kustomized(folder))] if folder else (),
    )


def asked(client: ApiClient, field: str, manifests: Sequence[Manifest]) -> JsonObject:
    """Return the status of a plan; ``field`` is ``objects`` or ``deleted``.

    Raises:
        StatusError: as the API does; of an object that cannot be read, with its file.
    """
    body: JsonObject = {
        "apiVersion": PLAN.api_version,
        "kind": PLAN.kind,
        "metadata": {"name": "plan"},
        "spec": {field: [one.object for one in manifests]},
    }
    try:
        with progress("objects are planned and nodes are asked"):
            status: JsonObject = client.create(PLAN, body).get("status", {})
    except StatusError as error:
        if (found := _PLACE.match(error.message)) is None:
            raise
        one = manifests[int(found[1])]
        key = objects.key(one.object)  # as text, whatever stands there: a name that is a number may be what is wrong
        who = planning.called({"kind": one.object["kind"], "namespace": key.namespace, "name": key.name})
        text = f"{one.where}: {who}: {error.message[found.end() :]}"
        raise from_status({**error.status(), "message": text}) from error
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

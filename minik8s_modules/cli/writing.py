"""``apply``, ``delete``, ``plan`` and ``drift``."""

from __future__ import annotations

import argparse
import sys
import time

from minik8s_modules.api import apply as merging
from minik8s_modules.api import objects
from minik8s_modules.api.errors import AlreadyExists, Conflict, NotFound, StatusError
from minik8s_modules.api.kinds import KINDS, NODE, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli import planning
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.manifests import Manifest, read_manifests
from minik8s_modules.cli.output import RED, Paint
from minik8s_modules.cli.resources import Target, parse_targets
from minik8s_modules.client.api import ApiClient

# an update that lost a race is tried again on the newer object this often before the person hears of it
CONFLICT_TRIES = 5
POLL_S = 0.2


def apply(client: ApiClient, options: argparse.Namespace) -> int:
    """Create or update every object of the files; returns 1 when one was refused, after trying all."""
    failed = False
    for manifest in read_manifests(options.filename, options.namespace):
        name = f"{manifest.kind.singular_name}/{manifest.object['metadata'].get('name', '')}"
        try:
            print(f"{name} {_apply_one(client, manifest, dry_run=options.dry_run)}")
        except (StatusError, UsageError) as error:
            failed = True
            print(Paint(sys.stderr)(f"{manifest.where}: {name}: {error}", RED), file=sys.stderr)
    return int(failed)


def _apply_one(client: ApiClient, manifest: Manifest, *, dry_run: bool) -> str:
    note = " (dry run)" if dry_run else ""
    kind, wanted = manifest.kind, manifest.object
    for _ in range(CONFLICT_TRIES):
        try:
            live = client.get(kind, wanted["metadata"].get("name", ""), wanted["metadata"].get("namespace", ""))
        except NotFound:
            try:
                client.create(kind, merging.annotated(wanted), dry_run=dry_run)
            except AlreadyExists:
                continue
            return f"created{note}"
        try:
            after = client.update(kind, merging.next_object(kind, live, wanted), dry_run=dry_run)
        except Conflict:
            continue
        same = after["metadata"]["resourceVersion"] == live["metadata"]["resourceVersion"]
        return f"unchanged{note}" if same and not (dry_run and after != live) else f"configured{note}"
    name = wanted["metadata"].get("name")
    raise UsageError(f"{kind.plural} {name!r} was changed by others {CONFLICT_TRIES} times meanwhile; apply again")


def delete(client: ApiClient, options: argparse.Namespace) -> int:
    """Delete what the words or files name, and wait until it is gone unless told not to."""
    wanted = list(_delete_targets(options))
    failed = False
    for kind, namespace, name in wanted:
        try:
            client.delete(kind, name, namespace, grace_s=options.grace_period)
        except NotFound as error:
            failed = failed or not options.ignore_not_found
            if not options.ignore_not_found:
                print(Paint(sys.stderr)(str(error), RED), file=sys.stderr)
            continue
        print(f'{kind.singular_name} "{name}" deleted')
    if options.wait:
        _wait_gone(client, wanted)
    return int(failed)


def _delete_targets(options: argparse.Namespace) -> list[tuple[Kind, str, str]]:
    if options.filename:
        if options.words:
            raise UsageError("give either --filename or a resource type with names, not both")
        found = read_manifests(options.filename, options.namespace)
        return [(m.kind, m.object["metadata"].get("namespace", ""), m.object["metadata"]["name"]) for m in found]
    targets: list[Target] = parse_targets(options.words)
    if any(not target.names for target in targets):
        raise UsageError("name what to delete, as in `minik8s delete pod web`")
    return [
        (target.kind, options.namespace if target.kind.namespaced else "", name)
        for target in targets
        for name in target.names
    ]


def _wait_gone(client: ApiClient, wanted: list[tuple[Kind, str, str]]) -> None:
    for kind, namespace, name in wanted:
        while True:
            try:
                client.get(kind, name, namespace)
            except NotFound:
                break
            time.sleep(POLL_S)


def plan(client: ApiClient, options: argparse.Namespace) -> int:
    """Print what applying (or deleting) the files would change on every node; 2 with --detailed-exitcode if any."""
    manifests = read_manifests(options.filename, options.namespace)
    spec: JsonObject = {"deleted" if options.delete else "objects": [manifest.object for manifest in manifests]}
    return _show_plan(client, spec, detailed=options.detailed_exitcode)


def drift(client: ApiClient, options: argparse.Namespace) -> int:
    """Print how the nodes differ from what is declared; returns 2 with --detailed-exitcode when one does."""
    spec: JsonObject = {"objects": []}
    if options.words:
        spec["nodes"] = [objects.name(client.get(NODE, name)) for name in options.words]
    return _show_plan(client, spec, detailed=options.detailed_exitcode)


def _show_plan(client: ApiClient, spec: JsonObject, *, detailed: bool) -> int:
    kind = KINDS.by_kind("minik8s.io", "v1", "Plan")
    if kind is None:
        raise UsageError("the cluster serves no plans")
    body: JsonObject = {
        "apiVersion": "minik8s.io/v1",
        "kind": "Plan",
        "metadata": {"name": "plan"},
        "spec": spec,
    }
    status = client.create(kind, body).get("status", {})
    print(planning.render(status, Paint()))
    if not status.get("nodes"):
        return 1
    return 2 if detailed and planning.has_changes(status) else 0

"""``plan``; and ``apply --plan``: what was shown is asked for and written exactly so, or nothing is.

Before the first write the plan is made again and must be the same, objects, pods and nodes. Each write then names the
resourceVersion that was shown, so that nobody's change in between is lost.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict, StatusError
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.merging.apply import annotated, difference, next_object
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.options import refuse_any
from minik8s_modules.cli.output import fail
from minik8s_modules.cli.plans import planning, planning_commands
from minik8s_modules.cli.plans.planning_commands import asked, exit_code, form, read_chosen
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.discovery import kind_at

# kubectl's own, so that either tool goes on where the other has stopped
_MANAGER = "kubectl-client-side-apply"
_DONE = {"create": "created", "update": "configured"}
_Place = tuple[str, str, str, str]


def plan(client: ApiClient, options: argparse.Namespace) -> int:
    """Show what would change, and with --apply have it so; returns the exit code."""
    if not options.apply:
        refuse_any(options, ("yes",), "it goes with --apply")
        return planning_commands.plan(client, options)
    if options.delete:
        raise UsageError("--apply is for objects that are written; delete with `minik8s delete -f FILE`")
    refuse_any(options, ("detailed_exitcode",), "plan alone has it; with --apply, 0 says that it was applied")
    return _apply(client, options)


def _apply(client: ApiClient, options: argparse.Namespace) -> int:
    """Show, ask, apply; returns 1 where anything keeps the whole plan from being applied."""
    found = read_chosen(options)
    status = asked(client, "objects", found)
    print(form(status, options), flush=True)
    if (code := exit_code(status, detailed=False)) or not planning.has_changes(status):
        return code
    if (status.get("hidden") or {}).get("objects"):
        raise UsageError("nothing was applied: the plan has changes to objects that you may not read")
    if not options.yes and not _confirmed():
        print("nothing was applied")
        return 1
    if asked(client, "objects", found) != status:
        raise UsageError("nothing was applied: the cluster has changed since this plan was made; plan again")
    return _written(client, status["objects"], {_place(one.object): one.object for one in found})


def _confirmed() -> bool:
    """Ask the person at the terminal, also where standard input is the file."""
    try:
        with open("/dev/tty", "r+", encoding="utf-8") as terminal:  # noqa: PTH123 - reads and writes
            terminal.write("Apply exactly this? Only `yes` is accepted: ")
            terminal.flush()
            return terminal.readline().strip() == "yes"
    except OSError as error:
        raise UsageError("nothing was applied: there is no terminal to ask on; --yes applies without asking") from error


def _written(client: ApiClient, rows: Sequence[JsonObject], manifests: Mapping[_Place, JsonObject]) -> int:
    waiting = list(rows)
    while waiting:
        row = waiting[0]
        try:
            _write(client, row, manifests[_place(row)])
        except StatusError as error:
            fail(error, planning.called(row))
            left = ", ".join(map(planning.called, waiting))
            print(f"not applied: {left}", file=sys.stderr)
            return 1
        print(f"{planning.called(row)} {_DONE[row['action']]}")
        waiting.pop(0)
    return 0


def _write(client: ApiClient, row: JsonObject, manifest: JsonObject) -> None:
    """Write what a row shows.

    Raises:
        Conflict: the object is another than that which was shown.
        StatusError: the server refuses.
    """
    kind = _kind_of(client, row)
    if row["action"] == "create":
        client.create(kind, annotated(manifest), field_manager=_MANAGER)
        return
    live = client.get(kind, row["name"], row["namespace"])
    if row.get("resourceVersion", objects.resource_version(live)) != objects.resource_version(live):
        raise Conflict(kind, row["name"])
    patch = difference(live, next_object(kind, live, manifest))
    patch.setdefault("metadata", {})["resourceVersion"] = objects.resource_version(live)
    client.patch(kind, row["name"], row["namespace"], patch, field_manager=_MANAGER)


def _kind_of(client: ApiClient, row: JsonObject) -> Kind:
    kind = kind_at(client, row["apiVersion"], row["kind"])
    if kind is None:
        raise UsageError(f"{row['kind']} of {row['apiVersion']}, which the plan shows, is not served; apply again")
    return kind


def _place(obj: JsonObject) -> _Place:
    """Return what tells an object, or the row about it, from others."""
    named = obj.get("metadata") or obj
    return str(obj["apiVersion"]), str(obj["kind"]), str(named.get("namespace") or ""), str(named.get("name") or "")

"""``why``: what keeps objects from being as they should be; the same above what kubectl's ``describe`` prints."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound, StatusError
from minik8s_modules.api.field_selectors import exactly
from minik8s_modules.api.kinds import EVENT, NODE, SERVICE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import Minik8sError
from minik8s_modules.cli import kubectl, output, translating
from minik8s_modules.cli.causes import diagnosis
from minik8s_modules.cli.causes.route_causes import route_causes
from minik8s_modules.cli.causes.service_endpoints import Behind, absentees, behind
from minik8s_modules.cli.connection import client_for
from minik8s_modules.client.api import ApiClient

_APART = frozenset({"-", "-h", "--help"})
"""Where nothing is told above: standard input is kubectl's to read, and help is no description."""


class About(NamedTuple):
    """What is known around an object; in the order of ``diagnosis.find_cause``."""

    events: list[JsonObject]
    node_of: diagnosis.NodeOf
    pods: list[JsonObject]
    found: Behind | None
    ways: list[str]


def why(client: ApiClient, options: argparse.Namespace) -> int:
    """Print the cause of each named object that is not as it should be; returns 1 when one was not found."""
    found, complete = kubectl.objects_of(translating.as_get(options.argv))
    told = [[objects.namespace(obj), _named(obj), diagnosis.find_cause(obj, *_about(client, obj))] for obj in found]
    rows = [[*row[:2], row[2] or "as it should be"] for row in told if row[2] or not options.faults]
    if rows:
        print(output.aligned(["NAMESPACE", "OBJECT", "CAUSE"], rows, output.Paint()))
    elif complete:
        print("nothing is wrong")
    return int(not complete)


def tell_causes(argv: Sequence[str]) -> None:
    """Print what is wrong with the objects of a ``describe``; kubectl, which comes next, says what cannot be read."""
    if not translating.own_connection(argv) or _APART & set(argv):
        return
    try:
        found, _ = kubectl.objects_of(translating.as_get(argv), quiet=True)
        client = client_for(argv)
        lines = [line for obj in found for line in causes_of(client, obj, named=len(found) > 1)]
    except (StatusError, Minik8sError):
        return
    if lines:
        print("\n".join(lines))


def _named(obj: JsonObject) -> str:
    return f"{str(obj['kind']).lower()}/{objects.name(obj)}"


def causes_of(client: ApiClient, obj: JsonObject, *, named: bool = False) -> Iterator[str]:
    """Yield the lines that stand above the description of an object: its causes, and the pods that are no endpoints."""
    about = _about(client, obj)
    who = f"{_named(obj)}: " if named else ""
    told = about.ways or [cause for cause in (diagnosis.find_cause(obj, *about),) if cause]
    yield from (f"{'Cause:':<18}{who}{cause}" for cause in told)
    if about.found is not None:
        for pod, absence in absentees(obj, about.found, lambda pod: diagnosis.find_cause(pod, (), about.node_of)):
            yield f"{'No endpoint:':<18}{who}pod {pod}: {absence}"


def _about(client: ApiClient, obj: JsonObject) -> About:
    """Return what ``causes`` wants to know besides the object."""
    events = events_of(client, obj)

    def node_of(name: str) -> JsonObject | None:
        return _node(client, name)

    ways = route_causes(client, obj, events, lambda pod: diagnosis.find_cause(pod, (), node_of))
    return About(events, node_of, diagnosis.pods_of(client, obj), _behind(client, obj), ways)


def _behind(client: ApiClient, obj: JsonObject) -> Behind | None:
    """Return what is behind a Service, None for other kinds and where it may not be read."""
    if (obj.get("apiVersion"), obj.get("kind")) != (SERVICE.api_version, SERVICE.kind):
        return None
    try:
        return behind(client, obj)
    except StatusError:
        return None


def _node(client: ApiClient, name: str) -> JsonObject | None:
    try:
        return client.get(NODE, name)
    except NotFound:
        return None


def events_of(client: ApiClient, obj: JsonObject) -> list[JsonObject]:
    """Return the Events whose involvedObject is ``obj``, oldest first; [] where they may not be read."""
    metadata = obj["metadata"]
    selector = exactly(involvedObject__name=metadata["name"], involvedObject__uid=metadata.get("uid", ""))
    try:
        found = client.list(EVENT, metadata.get("namespace", ""), field_selector=selector).items
    except StatusError:
        return []
    return sorted(found, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))

"""``drift``: how nodes differ from what they had as declared; what could not be realized is listed apart from that."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Forbidden, NotFound
from minik8s_modules.api.field_selectors import exactly
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import EVENT, NODE, PLAN
from minik8s_modules.api.network.gateway_api import GATEWAY_KINDS
from minik8s_modules.api.nodes.drift_policies import DRIFT
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import rfc3339_micro
from minik8s_modules.cli.options import refuse_any
from minik8s_modules.cli.output import BOLD, RED, YELLOW, Paint, aligned
from minik8s_modules.cli.plans import planning
from minik8s_modules.client.api import ApiClient
from minik8s_modules.controllers.network.gateways import differences

OBSERVE = "minik8s.io/observe"
"""Annotation of a Node: when it changes, the reconciler observes the whole node at once (reconcile/loop/shard.py)."""
REASONS = ("DriftHealed", "DriftFound")
"""Of Events about drift (reconcile/loop/drift_events.py)."""


def drift(client: ApiClient, options: argparse.Namespace) -> int:
    """Print how the nodes differ from what is declared; returns 2 with --detailed-exitcode when one does."""
    if options.history:
        refuse_any(
            options, ("full", "heal", "detailed_exitcode"), "--history shows what was found before, and does no more"
        )
    names = [objects.name(client.get(NODE, name)) for name in options.words]
    if options.history:
        print(history(_events(client), names) or "no drift was found in the last hour, for which Events are kept")
        return 0
    spec: JsonObject = {"objects": [], **({"nodes": names} if names else {})}
    body = {"apiVersion": PLAN.api_version, "kind": PLAN.kind, "metadata": {"name": "plan"}, "spec": spec}
    status = client.create(PLAN, body).get("status", {})
    print(render(status, Paint(), full=options.full))
    by_hand = [] if names else [*edited(client)]
    if by_hand:
        print("\n".join([Paint()("changed by hand in the cluster:", BOLD), *(f"  ! {text}" for text in by_hand)]))
    if options.heal:
        _heal(client, names or [objects.name(node) for node in client.list(NODE).items])
    if not status.get("nodes"):
        return 1
    return 2 if options.detailed_exitcode and (differs(status) or by_hand) else 0


def edited(client: ApiClient) -> Iterator[str]:
    """Yield which objects that Gateways run as stand otherwise: controllers revert that at once, while they run."""

    def get(kind: Kind, name: str, namespace: str) -> JsonObject | None:
        try:
            return client.get(kind, name, namespace)
        except (NotFound, Forbidden):
            return None

    try:
        gateways = client.list(GATEWAY_KINDS.gateways).items
    except (NotFound, Forbidden):
        return
    for gateway in gateways:
        yield from (f"Gateway {objects.key(gateway)}: {text}" for text in differences(gateway, get))


def render(status: JsonObject, paint: Paint, *, full: bool) -> str:
    """Return the readable form of the answer: what differs, and after it what was never realized."""
    found = [
        (node, fault) for node, part in sorted(status.get("nodes", {}).items()) for fault in part.get("faults", [])
    ]
    broken = [_line(node, fault, paint, RED) for node, fault in found if fault.get("drifted")]
    never = [_line(node, fault, paint, YELLOW) for node, fault in found if not fault.get("drifted")]
    parts = [planning.render(status, paint) if full else planning.brief(status, paint)]
    if reported := [step for part in status.get("nodes", {}).values() for step in part["steps"] if step.get("policy")]:
        parts.append(f"reported only ({DRIFT}), until drift --heal: {planning.counted(len(reported), 'step')}")
    if broken:
        parts += [paint("changed by hand and cannot be corrected:", BOLD), *broken]
    if never:
        parts += [paint("not realized, which is no drift:", BOLD), *never]
    return "\n".join(parts)


def _line(node: str, fault: JsonObject, paint: Paint, colour: str) -> str:
    about = fault.get("about") or [{}]
    whose = "/".join(str(about[0][part]) for part in ("kind", "namespace", "name") if about[0].get(part))
    key = f"{fault.get('section')} {fault.get('key')}"
    return paint(f"  ! node {node}: {whose}: {key}: {fault.get('reason')}: {fault.get('message')}", colour)


def differs(status: JsonObject) -> bool:
    """Return whether any node has drifted: an object that could never be realized is no reason for alarm."""
    parts = status.get("nodes", {}).values()
    return planning.has_changes(status) or any(one.get("drifted") for part in parts for one in part.get("faults", []))


def _heal(client: ApiClient, nodes: Sequence[str]) -> None:
    """Have nodes looked at as a whole now, and not at their next turn; what differs is put right by that."""
    for name in nodes:
        client.patch(NODE, name, "", {"metadata": {"annotations": {OBSERVE: rfc3339_micro(datetime.now(UTC))}}})
        print(f"node {name} is being healed")


def _events(client: ApiClient) -> Iterator[JsonObject]:
    for reason in REASONS:
        yield from client.list(EVENT, field_selector=exactly(involvedObject__kind=NODE.kind, reason=reason)).items


def history(events: Iterator[JsonObject], nodes: Collection[str]) -> str:
    """Return what Events tell of the drift of ``nodes`` (none: all), oldest first; "" when there is nothing to tell."""
    rows = [
        (str(event.get("lastTimestamp") or ""), name, str(event.get("reason")), str(event.get("message")))
        for event in events
        if (name := str(objects.dig(event, "involvedObject", "name"))) in nodes or not nodes
    ]
    return aligned(("SEEN", "NODE", "REASON", "WHAT"), sorted(rows)) if rows else ""

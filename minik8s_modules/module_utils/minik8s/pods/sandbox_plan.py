"""What a pass over sandboxes will do, from what there is: the pure part of section ``sandboxes``.

An attempt's image, names, DNS and kind of network are those of its creation; link, address and route are compared with
the kernel, and plugins are asked. What a plugin attached goes before its pause container does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..core import labels
from ..core.section import Context, Facets, Plan, Step
from ..network import pod_plugins
from ..network.attachment import Attachment, declared_attachment, link_name, own_address
from ..network.netlink import Link
from . import sandbox_parts as parts

LIVE = ("running", "paused", "restarting")


class ObservedSandboxes(NamedTuple):
    """Inspections by key (newest attempt last), attachments by container id, links of ours without a pod."""

    containers: dict[str, list[dict[str, Any]]]
    attachments: dict[str, Attachment]
    strays: dict[str, list[Link]]
    parts: parts.Parts = parts.Parts()
    unguarded: frozenset[str] = frozenset()
    """The keys of pods that could send with other addresses than their own."""


def _describe(state: str, attempt: int, image: str, attachment: Attachment) -> Facets:
    facets = {"state": state, "attempt": str(attempt), "image": image}
    for name, value in attachment._asdict().items():
        if value:
            facets[name] = str(value)
    return facets


def attempt_of(inspect: Mapping[str, Any]) -> int:
    """Return the attempt a pause container is of."""
    return labels.attempt_of(inspect["Config"]["Labels"])


def _plan_unplug(plan: Plan, key: str, observed: ObservedSandboxes, keep: str = "") -> None:
    """Plan away what a plugin attached, unless it is of the container ``keep``."""
    record = observed.parts.records.get(key)
    if record is not None and record.container != keep:
        found = (each for each in observed.containers.get(key, []) if each["Id"] == record.container)
        plan.steps.append(
            Step("unplug", key, f"{record.plugin['driver']} {record.address}", (record, next(found, None)))
        )
        plan.differs(key, {"attached": record.address}, None)


def plan_removal(plan: Plan, key: str, observed: ObservedSandboxes) -> None:
    """Plan away everything of an undeclared pod."""
    _plan_unplug(plan, key, observed)
    for each in observed.containers.get(key, []):
        attachment = observed.attachments.get(each["Id"], Attachment())
        plan.steps.append(Step("remove_pod", key, each["Name"].lstrip("/"), (each, attachment)))
        state = each["State"]["Status"]
        plan.differs(key, _describe(state, attempt_of(each), each["Config"]["Image"], attachment), None)
    for link in observed.strays.get(key, []):
        plan.steps.append(Step("unlink", key, link.name, link))
        plan.differs(key, {"link": link.name}, None)
    if rows := observed.parts.ports.rows.get(key):
        plan.steps.append(Step("unports", key, ", ".join(sorted(map(str, rows)))))
        plan.differs(key, {**(plan.before.get(key) or {}), "host ports": plan.steps[-1].detail}, None)
    if key in observed.parts.cgroups_left:
        plan.steps.append(Step("uncgroup", key, f"cgroup of pod {key}"))
        plan.differs(key, {**(plan.before.get(key) or {}), "cgroup": "empty"}, None)


def plan_sandbox(plan: Plan, context: Context, key: str, entry: Mapping[str, Any], observed: ObservedSandboxes) -> None:
    """Plan one declared sandbox: other attempts go, this one exists, runs and is attached."""
    current: dict[str, Any] | None = None
    for each in observed.containers.get(key, []):
        if attempt_of(each) == entry["attempt"] and current is None and not _wrong_network(each, entry):
            current = each
    keep = current["Id"] if current else ""
    _plan_unplug(plan, key, observed, keep)
    for each in observed.containers.get(key, []):
        if each["Id"] != keep:
            plan.steps.append(Step("remove", key, each["Name"].lstrip("/"), each["Id"]))
    for link in observed.strays.get(key, []):
        plan.steps.append(Step("unlink", key, link.name, link))
    plan.steps.extend(_next_steps(context, key, entry, current, observed))
    if plan.steps and plan.steps[-1].key == key:
        _show(plan, key, entry, observed, current)


def _wrong_network(inspect: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    if (inspect["HostConfig"]["NetworkMode"] == "host") != entry["host_network"]:
        return True
    return inspect["State"]["Status"] not in LIVE and not pod_plugins.is_for(inspect, entry)


def _next_steps(
    context: Context, key: str, entry: Mapping[str, Any], current: dict[str, Any] | None, observed: ObservedSandboxes
) -> list[Step]:
    if current is None:
        return [Step("create", key, labels.sandbox_name(entry["pod"], entry["attempt"]), entry)]
    name, state = current["Name"].lstrip("/"), current["State"]["Status"]
    if state == "paused":
        return [Step("unpause", key, name, current["Id"])]
    if state == "created" or (state != "running" and context.unattended):
        return [Step("start", key, name, (current["Id"], entry))]
    attached = observed.attachments.get(current["Id"])
    if attached is None or not pod_plugins.is_for(current, entry):
        return []  # what lives keeps the network it was made for
    if fault := observed.parts.faults.get(current["Id"]):
        return [Step("plug", key, f"{entry['plugin']['driver']}: {fault}", (current, entry))]
    known = pod_plugins.resolved(entry, observed.parts.records.get(key))
    steps = [Step(action, key, name, (current, known)) for action in parts.missing(key, known, current, observed.parts)]
    if entry.get("plugin") is None and attached != declared_attachment(key, entry):
        steps.insert(0, Step("attach", key, f"{link_name(key)} {own_address(entry)}", (current, entry, attached)))
    elif key in observed.unguarded:
        steps.insert(0, Step("guard", key, f"{link_name(key)} sends as {own_address(entry)} alone", (current, entry)))
    return steps


def _show(
    plan: Plan, key: str, entry: Mapping[str, Any], observed: ObservedSandboxes, current: dict[str, Any] | None
) -> None:
    had = current or next(iter(reversed(observed.containers.get(key, []))), None)
    before = None
    if had is not None:
        attachment = observed.attachments.get(had["Id"], Attachment())
        before = _describe(had["State"]["Status"], attempt_of(had), had["Config"]["Image"], attachment)
        before |= parts.facets(had, key, observed.parts)
    image = current["Config"]["Image"] if current else entry["image"]
    known = pod_plugins.resolved(entry, observed.parts.records.get(key))
    after = _describe("running", entry["attempt"], image, declared_attachment(key, known))
    plan.differs(key, before, after | parts.declared_facets(known))

"""What a plan asks of a node, and what it makes of the answer. Pure; ``plan.py`` asks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import DNS, INGRESS, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.core.sections import SECTIONS
from minik8s_modules.module_utils.minik8s.names.ingress_entries import ANY
from minik8s_modules.reconcile.feeds.plan_subjects import Note, Subjects, of_node, of_pod, rows
from minik8s_modules.reconcile.loop import section_changes
from minik8s_modules.reconcile.loop.basis import Basis
from minik8s_modules.reconcile.loop.section_changes import Confirmed, Request
from minik8s_modules.reconcile.planning.simulated_services import PlannedServices
from minik8s_modules.reconcile.planning.simulation import PlannedState
from minik8s_modules.reconcile.values.images import OURS, default_policy, normalized, present
from minik8s_modules.reconcile.values.items import Outcome
from minik8s_modules.reconcile.values.sealing import blob, values_of
from minik8s_modules.reconcile.values.values import Entry, NodeDocument, PodDecision

NOTHING: Mapping[str, Request] = {}
NO_UNITS: Mapping[str, JsonObject] = {}


def deltas(
    known: Mapping[str, Confirmed | None], wanted: NodeDocument, again: Mapping[str, AbstractSet[str]]
) -> dict[str, Request]:
    """Return what leads from what a node confirmed to ``wanted``, and looks at ``again``; the rest is left out."""
    requests = {}
    for section in SECTIONS:
        confirmed = known.get(section)
        request = (
            section_changes.full(wanted[section])
            if confirmed is None
            else section_changes.delta(wanted[section], confirmed, again.get(section, frozenset()))
        )
        if request is not None:
            requests[section] = request
    return requests


def with_blob(
    requests: dict[str, Request],
    decisions: Iterable[PodDecision],
    secrets: Mapping[str, JsonObject],
    found: PlannedState | None = None,
) -> dict[str, Request]:
    """Return the requests with the values of the secrets that they name, in the place they travel in."""
    if "secrets" in requests:
        options = requests["secrets"].options
        entries = options.get("entries") or options.get("upsert") or {}
        values: dict[str, Mapping[str, bytes]] = {}
        for decision in decisions:
            values |= decision.sealed
        changed = {
            key: obj for (kind, key), obj in (found.overlay if found else {}).items() if kind == "Secret" and obj
        }
        values |= {key: values_of(obj) for key, obj in {**secrets, **changed}.items()}
        options["blob"] = blob({key: value for key, value in values.items() if key in entries})
    return requests


def readable(outcome: Outcome | None, subjects: Subjects) -> JsonObject | None:
    """Return the diff, by section and key, and the steps that a node answered, with what they are about.

    None when it did not answer.
    """
    if outcome is None or outcome.status != "ok":
        return None
    sections = {section: outcome.sections[section] for section in SECTIONS if section in outcome.sections}
    diff = {section: result["differences"] for section, result in sections.items() if result["changed"]}
    return {
        "diff": diff,
        "about": {
            section: {key: rows(subjects.of(section, key)) for key in sorted({*each["before"], *each["after"]})}
            for section, each in diff.items()
        },
        "steps": [
            {"section": section, **step, "about": rows(subjects.of(section, str(step["key"])))}
            for section, result in sections.items()
            for step in result["steps"]
        ],
    }


def _made_first(requests: Mapping[str, Request]) -> frozenset[str]:
    """Return the keys of volumes whose folders the same item makes before them, which a check cannot see yet."""
    folders, volumes = (_entries(requests.get(section)) for section in ("folders", "volumes"))
    made = {f"{each['root']}/{each['name']}" for each in folders.values() if each["state"] == "present"}
    return frozenset(key for key, each in volumes.items() if each.get("path") in made)


def _entries(request: Request | None) -> dict[str, JsonObject]:
    return {key: each for key, each in (request.options.get("entries") or {}).items() if each} if request else {}


def troubles(
    name: str, outcome: Outcome | None, subjects: Subjects, requests: Mapping[str, Request] = NOTHING
) -> list[Note]:
    """Return what to tell of a node's answer besides, but of volumes that the same item makes before."""
    if outcome is None:
        return []
    notes, made = [], _made_first(requests)
    if outcome.status != "ok":
        notes.append(Note(f"node {name}: {outcome.message or outcome.status}", of_node(name), name))
    asked = {section for section, request in requests.items() if request.keys is None}
    if whole := [section for section, result in outcome.sections.items() if section in asked and result.get("changed")]:
        text = f"it is not known what it has of {', '.join(whole)}, as after a pass that failed"
        notes.append(Note(f"node {name}: {text}; what is undone there is shown, too", node=name))
    for section, result in outcome.sections.items():
        if result.get("base_mismatch"):
            notes.append(Note(f"node {name}: {section} kept changing while it was asked; ask again", node=name))
        for key, error in sorted((result.get("errors") or {}).items()):
            if section == "volumes" and key in made and error.get("reason") == "FailedMount":
                continue
            text = f"node {name}: {section} {key}: {error.get('reason')}: {error.get('message')}"
            notes.append(Note(text, subjects.of(section, key), name))
    return notes


def normalized_names(image: str) -> tuple[str, ...]:
    """Return an image's whole name, () where it is none."""
    try:
        return (normalized(image),)
    except ValueError:
        return ()


def pull_message(pod: JsonObject, image: str, node: str, images: AbstractSet[str]) -> list[Note]:
    """Say that a node with ``images`` would pull one more; [] where it would not."""
    policies = {
        one.get("imagePullPolicy") or default_policy(image)
        for _, _, one in objects.all_containers(pod)
        if one["image"] == image
    }
    here = any(present(name, images) for name in normalized_names(image))
    if any(name.startswith(OURS) for name in normalized_names(image)):
        text = f"Pod {objects.key(pod)}: image {image} is not on node {node}, and is never pulled"
        return [] if here else [Note(text, of_pod(pod))]
    if "Always" not in policies and (here or policies == {"Never"}):
        return []
    return [Note(f"Pod {objects.key(pod)}: image {image} would be pulled to node {node}", of_pod(pod))]


def obstacles(decision: PodDecision) -> list[tuple[str, Any]]:
    """Return what keeps a pod's containers from running, besides that they are not made yet."""
    usual = {"ContainerCreating", "PodInitializing"}
    return [(name, why) for name, why in decision.waiting.items() if why.reason not in usual or why.message]


class Answer(NamedTuple):
    """What a node said: a diff with steps (None: nothing), what to tell besides, and whether it knew another base."""

    plan: JsonObject | None
    notes: tuple[Note, ...] = ()
    outdated: bool = False
    before: tuple[Note, ...] = ()
    """What there was to tell before it was asked."""


def silent(name: str) -> Answer:
    """Return the answer of a node that gives none."""
    return Answer(None, (Note(f"node {name} does not answer; what would change there is not known", node=name),))


def awaiting(seen: PlannedServices) -> list[Note]:
    """Say of how many pods a plan of Services takes for granted that they become ready."""
    if not seen.awaited:
        return []
    pods = "1 new pod is" if len(seen.awaited) == 1 else f"{len(seen.awaited)} new pods are"
    return [Note(f"rules, names and paths are shown as they will be when {pods} ready")]


def joined(
    names: Iterable[str],
    answers: Iterable[Answer],
    messages: list[Note],
    order: Iterable[JsonObject] = (),
    units: Mapping[str, JsonObject] = NO_UNITS,
) -> JsonObject:
    """Return the answers of the nodes ``names``, and what there is to tell, as one; ``units`` are virtual nodes'."""
    nodes = dict(units)
    for name, answer in zip(names, answers, strict=True):
        messages += (*answer.before, *answer.notes)
        if answer.plan is not None:
            nodes[name] = answer.plan
    steps = [*order]
    return {"nodes": nodes, "messages": [each.row() for each in messages], **({"order": steps} if steps else {})}


def with_host(network: Mapping[tuple[str, str], JsonObject | None], host: str) -> Iterator[tuple[Kind, JsonObject]]:
    """Yield the DNS and Ingress objects of a plan that would have the host."""
    for (name, _), obj in network.items():
        kind = {DNS.kind: DNS, INGRESS.kind: INGRESS}.get(name)
        if kind is not None and obj is not None:
            rules = objects.spec(obj).get("rules") or []
            if host in {objects.spec(obj).get("host"), *(rule.get("host") or ANY for rule in rules)}:
                yield kind, obj


def containers_of(basis: Basis, requests: Mapping[str, Request]) -> Mapping[str, Entry]:
    """Return the entries of containers that would stand, or go."""
    confirmed, request = basis.confirmed["containers"], requests.get("containers")
    return {**(confirmed.entries if confirmed else {}), **(request.entries if request else {})}


def there(basis: Basis, found: PlannedState) -> list[JsonObject]:
    """Return the pods that would be on the node."""
    pods: dict[str, JsonObject | None] = {objects.uid(pod): pod for pod in basis.pods}
    name = objects.name(basis.node)
    return [pod for pod in (pods | dict(found.pods)).values() if pod and objects.spec(pod).get("nodeName") == name]

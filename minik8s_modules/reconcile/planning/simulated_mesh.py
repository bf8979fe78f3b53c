"""Where sidecars would send requests if objects were applied: decided as the pilot does, before and after. Pure.

Told is what changes of the ports that a VirtualService splits, or would split; where none does, requests go to a
Service's Pods, and what becomes of those is shown by the rules of the nodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD, SERVICE, SUBSET, VIRTUAL_SERVICE
from minik8s_modules.api.network.subsets import with_pods
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.sidecars import has_sidecar
from minik8s_modules.mesh.mapping import Branch, Declared, Mapped, Port, Verdict, decide_mapping
from minik8s_modules.reconcile.feeds.plan_subjects import MESH_KINDS, Note, of
from minik8s_modules.reconcile.planning.simulated_services import Cluster, PlannedServices
from minik8s_modules.reconcile.planning.simulation import Question, is_gone

NOWHERE = "nobody (503)"


def mesh_notes(question: Question, seen: PlannedServices, cluster: Cluster) -> list[Note]:
    """Return what is to be told of sidecars' routes, and of VirtualServices that would have no effect."""
    asked = {objects.namespace(each.object) for each in question.operations if each.object.get("kind") in MESH_KINDS}
    spaces = asked | {key.partition("/")[0] for key in seen.services}
    return [note for space in sorted(spaces) for note in _of_namespace(space, question, seen, cluster)]


def _of_namespace(space: str, question: Question, seen: PlannedServices, cluster: Cluster) -> Iterator[Note]:
    pods = [pod for pod in cluster.pods if objects.namespace(pod) == space]
    before = _with_pods(_within(space, cluster.mesh), pods)
    after = _with_pods(_changed(space, before, question), pods)
    if not any(each["kind"] == VIRTUAL_SERVICE.kind for each in (*before, *after)):
        return
    services = {str(objects.key(one)): one for one in cluster.services if objects.namespace(one) == space}
    of_space = {key: one for key, one in seen.services.items() if key.partition("/")[0] == space}
    then = {key: one for key, one in {**services, **of_space}.items() if one is not None}
    now = _mapped(services, {key: cluster.slices(key) for key in services}, before)
    planned = _mapped(
        then, {key: seen.slices[key] if key in seen.slices else cluster.slices(key) for key in then}, after
    )
    about = (of(VIRTUAL_SERVICE, space), of(SUBSET, space), of(SERVICE, space), of(POD, space))
    number = sum(has_sidecar(objects.spec(pod)) for pod in pods)
    whose = f"{number} sidecar{'s' if number != 1 else ''} of namespace {space}"
    for place in sorted({*now.split_by, *planned.split_by}):
        old, new = now.ports.get(place), planned.ports.get(place)
        if old != new and (change := _change(old, new)):
            name = f"{(new or old or _NO_PORT).service}:{place.rpartition(':')[2]}"
            yield Note(f"{whose} would send requests to {name} otherwise: {change}", about)
    for each in after:
        name = objects.name(each)
        if each["kind"] == VIRTUAL_SERVICE.kind and each not in before:
            verdict = planned.verdicts[name]
            yield from (Note(f"VirtualService {space}/{name}: {why}", about) for why in _faults(verdict))


_NO_PORT = Port("", "", 0, ())


def _within(space: str, found: Iterable[JsonObject]) -> list[JsonObject]:
    return [each for each in found if objects.namespace(each) == space]


def _with_pods(found: Iterable[JsonObject], pods: Sequence[JsonObject]) -> list[JsonObject]:
    """Return them, Subsets with the Pods that there are of their labels, as the controllers name them."""
    return [with_pods(each, pods) if each["kind"] == SUBSET.kind else each for each in found]


def _changed(space: str, before: Iterable[JsonObject], question: Question) -> list[JsonObject]:
    """Return the VirtualServices and Subsets of a namespace once the operations are done."""
    found = {(each["kind"], objects.name(each)): each for each in before}
    for each in question.operations:
        obj, kind = each.object, str(each.object.get("kind"))
        if kind in MESH_KINDS and objects.namespace(obj) == space:
            old = found.pop((kind, objects.name(obj)), None)
            if not is_gone(each):
                # one that is new is the youngest: an older one keeps its port
                meta = {"creationTimestamp": "9999", **obj["metadata"], **_born(old)}
                found[kind, objects.name(obj)] = {**obj, "metadata": meta}
    return [*found.values()]


def _born(old: JsonObject | None) -> JsonObject:
    return {"creationTimestamp": objects.metadata(old).get("creationTimestamp")} if old is not None else {}


def _mapped(
    services: Mapping[str, JsonObject], slices: Mapping[str, list[JsonObject]], mesh: Sequence[JsonObject]
) -> Mapped:
    virtual = [each for each in mesh if each["kind"] == VIRTUAL_SERVICE.kind]
    subsets = [each for each in mesh if each["kind"] == SUBSET.kind]
    return decide_mapping(
        Declared([*services.values()], [one for of in slices.values() for one in of], virtual, subsets)
    )


def _faults(verdict: Verdict) -> Iterator[str]:
    for why in (verdict.refused, verdict.broken):
        if why is not None:
            yield f"{why[0]}: {why[1]}"


def _change(old: Port | None, new: Port | None) -> str:
    before, after = _ways(old), _ways(new)
    changes = [f"{before} → {after}"] if before != after else []
    policies = [{} if each is None else each.policy or {} for each in (old, new)]
    for field in sorted({*policies[0], *policies[1]}):
        one, other = (json.dumps(each[field]) if field in each else "none" for each in policies)
        changes += [f"{field} {one} → {other}"] if one != other else []
    return "; ".join(changes)


def _ways(port: Port | None) -> str:
    return "; ".join(map(_way, port.branches)) if port is not None else "not by the mesh"


def _way(branch: Branch) -> str:
    whole = sum(each.weight for each in branch.endpoints)
    shares = [f"{each.pod or each.ip} {each.weight / whole:.0%}" for each in branch.endpoints if each.weight]
    chosen = [f"{name}: {value}" for name, value in branch.headers]
    chosen += [f"path ~ {branch.url}"] if branch.url is not None else []
    return f"{', '.join(chosen)}{' to ' if chosen else ''}{', '.join(shares) or NOWHERE}"

"""What a plan says of Pods on virtual nodes. Pure.

A virtual node has no document, and nobody to ask in check mode. Where a Pod becomes a unit of systemd, the unit is made
here as the provider ``ansible`` makes it, and shown as a node's own difference. Of all other Pods a plan says that it
does not know what their providers will do, so that silence does not look like "no change"; of results of Slurm jobs,
which ConfigMap they would be copied to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.nodes.virtual_nodes import is_virtual
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.slurm import PARTITION, InvalidResults, Wish, wish_of
from minik8s_modules.api.pods.units import GROUP, USERS, NoUnit, declared_unit, is_unit
from minik8s_modules.module_utils.minik8s.core.schema import schema_of, with_defaults
from minik8s_modules.module_utils.minik8s.entries.units import UnitEntry
from minik8s_modules.module_utils.minik8s.units.folders import folder_of, home_of
from minik8s_modules.module_utils.minik8s.units.texts import unit_name, unit_text
from minik8s_modules.reconcile.feeds.plan_subjects import Note, of_pod, rows
from minik8s_modules.reconcile.planning.simulated_services import Cluster

SECTION = "units"
_NAMED = 3
_ENDED = frozenset({"Succeeded", "Failed"})
_UNKNOWN = "UID"
_SCHEMA = schema_of(UnitEntry)
Pods = Mapping[str, JsonObject | None]


class Shown(NamedTuple):
    """A unit: its name, and what a person wants to see of it."""

    name: str
    facets: JsonObject


def on_virtual_nodes(pods: Pods, nodes: Iterable[JsonObject]) -> Iterator[Note]:
    """Yield what to tell of changed ``pods`` (by uid; None: gone) that would run on virtual nodes."""
    virtual = {objects.name(node): node for node in nodes if is_virtual(node)}
    found: dict[str, list[JsonObject]] = {}
    for pod in pods.values():
        name = str(objects.spec(pod).get("nodeName") or "") if pod is not None else ""
        if pod is None or name not in virtual:
            continue
        if not _makes_units(virtual[name], pod):
            found.setdefault(name, []).append(pod)
        elif isinstance(refused := _shown(pod, virtual[name], known=False), NoUnit):
            yield Note(f"Pod {objects.key(pod)}: node {name} does not take it: {refused}", of_pod(pod))
    for name, there in sorted(found.items()):
        text = f"node {name} is virtual: what its provider does about Pod {_named(there)} is unknown"
        yield Note(text, tuple(about for pod in there for about in of_pod(pod)))
        if objects.labels(virtual[name]).get(PARTITION):
            yield from _results(name, there)


def _named(pods: Iterable[JsonObject]) -> str:
    names = sorted(str(objects.key(pod)) for pod in pods)
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _results(node: str, pods: Iterable[JsonObject]) -> Iterator[Note]:
    """Yield where results of Pods on a Slurm partition would be copied to; that stands in the Pods themselves."""
    found: dict[tuple[str, Wish], list[JsonObject]] = {}
    for pod in pods:
        if objects.status(pod).get("phase") in _ENDED:
            continue
        try:
            wish = wish_of(pod)
        except InvalidResults as error:
            yield Note(f"Pod {objects.key(pod)}: node {node} does not take it: {error}", of_pod(pod))
        else:
            if wish is not None:
                found.setdefault((objects.namespace(pod), wish), []).append(pod)
    for (namespace, wish), there in sorted(found.items()):
        text = (
            f"files {', '.join(wish.patterns):.200} of Pod {_named(there)} would be copied to ConfigMap "
            f"{namespace}/{wish.config_map} once the program has ended, if that takes results"
        )
        yield Note(text, tuple(about for pod in there for about in of_pod(pod)))


def unit_plans(pods: Pods, cluster: Cluster, only: Collection[str] = ()) -> dict[str, JsonObject]:
    """Return the units that would come and go, by node, as a node's own answer has them; of ``only``, if given."""
    now = {objects.uid(pod): pod for pod in cluster.pods}
    nodes = {objects.name(node): node for node in cluster.nodes if is_virtual(node)}
    plans: dict[str, JsonObject] = {}
    for uid, pod in sorted(pods.items()):
        before, known = now.get(uid), uid in now
        name = str(objects.spec(pod or before or {}).get("nodeName") or "")
        if name not in nodes or (only and name not in only):
            continue
        was, will = (
            _shown(each, nodes[name], known=known) if each is not None and _makes_units(nodes[name], each) else None
            for each in (before, None if pod is None or objects.is_deleting(pod) else pod)
        )
        if isinstance(was, Shown) or isinstance(will, Shown):
            _add(plans.setdefault(name, _nothing()), (pod or before or {}), was, will)
    return {name: plan for name, plan in plans.items() if plan["steps"]}


def _nothing() -> JsonObject:
    return {"diff": {SECTION: {"before": {}, "after": {}}}, "about": {SECTION: {}}, "steps": []}


def _add(plan: JsonObject, pod: JsonObject, was: object, will: object) -> None:
    """Add one Pod's unit: it comes or goes; one that stays is not changed."""
    one = will if isinstance(will, Shown) else was
    if not isinstance(one, Shown) or (isinstance(was, Shown) and isinstance(will, Shown)):
        return
    about, key = rows(of_pod(pod)), str(objects.key(pod))
    for side, shown in (("before", was), ("after", will)):
        plan["diff"][SECTION][side][key] = shown.facets if isinstance(shown, Shown) else None
    plan["about"][SECTION][key] = about
    actions = ("write", "start") if isinstance(will, Shown) else ("stop", "remove")
    plan["steps"] += [
        {"section": SECTION, "action": action, "key": key, "detail": one.name, "about": about} for action in actions
    ]


def _makes_units(node: JsonObject, pod: JsonObject) -> bool:
    return bool(objects.labels(node).get(GROUP) and objects.annotations(node).get(USERS)) and is_unit(pod)


def _shown(pod: JsonObject, node: JsonObject, *, known: bool) -> Shown | NoUnit:
    """Return a Pod's unit, or why it is none; without ``known`` its uid is not the one that it will have."""
    try:
        asked = declared_unit(_with_names(pod), objects.annotations(node)[USERS].split(","))
    except NoUnit as error:
        return error
    uid = objects.uid(pod) if known else _UNKNOWN
    text = unit_text(with_defaults(asked.entry, _SCHEMA), folder_of(home_of(objects.name(node)), uid))
    facets = {"host": asked.host or f"one of the group {objects.labels(node)[GROUP]}", "unit": text}
    if not objects.containers(pod)[0].get("envFrom"):  # which $(NAME) are variables is not known then
        facets["program"] = asked.entry["script"]
    names = sorted(asked.environment)
    return Shown(unit_name(uid), {**facets, **({"variables": ", ".join(names)} if names else {})})


def _with_names(pod: JsonObject) -> JsonObject:
    """Return the Pod with its variables' names, and the values that it says itself: others are not looked up."""
    containers = [
        {**one, "env": [{"name": each["name"], "value": each.get("value")} for each in one.get("env") or []]}
        for one in objects.containers(pod)
    ]
    return {**pod, "spec": {**objects.spec(pod), "containers": containers}}

"""What an object uses of ResourceQuotas, and which quotas it counts for. Pure; amounts are exact Decimals.

The API server charges a quota with what is new in the same write (apiserver/admission/quotas.py), the controller
counts again (controllers/policy/quotas.py). Source: kubernetes ``pkg/quota/v1/evaluator/core`` and
``staging/.../apiserver/pkg/quota/v1``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from decimal import Decimal

from minik8s_modules.api import objects, quantities
from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kinds import PERSISTENT_VOLUME_CLAIM, POD, SERVICE, Kind
from minik8s_modules.api.objects import JsonObject, all_containers, metadata, namespace, spec, status
from minik8s_modules.api.pods import resources
from minik8s_modules.base.clock import parse_rfc3339

Amounts = dict[str, Decimal]

# kinds that were counted before every kind was, under names of their own (object_count/evaluator.go)
_NAMED = frozenset({"configmaps", "secrets", "replicationcontrollers", "resourcequotas"})
# what a pod's containers must say where a quota limits it (validationSet)
_REQUIRED = frozenset({"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"})
_UNPREFIXED = ("cpu", "memory", "ephemeral-storage")
_STORAGE_CLASS = "storageclass.storage.k8s.io"
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_BYTES = ("memory", "storage")
_NANO = Decimal("1e-9")


def usage(kind: Kind, obj: JsonObject, now: datetime) -> Amounts:
    """Return what ``obj`` uses, under every name a quota may give it."""
    found: Amounts = {f"count/{kind.resource}": Decimal(1)}
    if not kind.group and kind.plural in _NAMED:
        found[kind.plural] = Decimal(1)
    special = _SPECIAL.get(kind.id)
    if special is not None:
        found |= special(obj, now)
    return found


def _pod(pod: JsonObject, now: datetime) -> Amounts:
    """A pod that has ended, or should have by its grace, uses nothing but its place in the store."""
    if status(pod).get("phase") in {"Succeeded", "Failed"} or _overdue(pod, now):
        return {}
    found: Amounts = {"pods": Decimal(1)}
    for side in ("requests", "limits"):
        for name, amount in _pod_side(pod, side).items():
            found[f"{side}.{name}"] = amount
            if side == "requests" and (name in _UNPREFIXED or name.startswith("hugepages-")):
                found[name] = amount
    return found


def _overdue(pod: JsonObject, now: datetime) -> bool:
    meta = metadata(pod)
    if not meta.get("deletionTimestamp") or meta.get("deletionGracePeriodSeconds") is None:
        return False
    # the timestamp is the end of the grace
    return parse_rfc3339(str(meta["deletionTimestamp"])) < now


def _pod_side(pod: JsonObject, side: str) -> Amounts:
    def of(container: JsonObject) -> dict[str, int]:
        declared = (container.get("resources") or {}).get(side) or {}
        return {name: int(quantities.parse(amount) / _NANO) for name, amount in declared.items()}

    overhead = spec(pod).get("overhead") or {}
    plain = {**pod, "spec": {**spec(pod), "overhead": {}}}
    found = {name: Decimal(amount) * _NANO for name, amount in resources.pod_amounts(plain, of).items()}
    for name, amount in overhead.items():
        if side == "requests" or name in found:
            found[name] = found.get(name, Decimal(0)) + quantities.parse(amount)
    return found


def _service(service: JsonObject, _now: datetime) -> Amounts:
    declared = spec(service)
    ports = Decimal(len(declared.get("ports") or []))
    found = {"services": Decimal(1), "services.nodeports": Decimal(0), "services.loadbalancers": Decimal(0)}
    if declared.get("type") == "NodePort":
        found["services.nodeports"] = ports
    elif declared.get("type") == "LoadBalancer":
        found["services.loadbalancers"] = Decimal(1)
        if declared.get("allocateLoadBalancerNodePorts") is not False:
            found["services.nodeports"] = ports
    return found


def _claim(claim: JsonObject, _now: datetime) -> Amounts:
    storage = quantities.parse(((spec(claim).get("resources") or {}).get("requests") or {}).get("storage", "0"))
    found = {"persistentvolumeclaims": Decimal(1), "requests.storage": storage}
    # in the order of ``storage.claims.class_of``, by which claims are bound
    of_class = objects.annotations(claim).get(_CLASS_ANNOTATION) or spec(claim).get("storageClassName")
    if of_class:
        found |= {f"{of_class}.{_STORAGE_CLASS}/{name}": amount for name, amount in found.items()}
    return found


_SPECIAL: Mapping[tuple[str, str], Callable[[JsonObject, datetime], Amounts]] = {
    POD.id: _pod,
    SERVICE.id: _service,
    PERSISTENT_VOLUME_CLAIM.id: _claim,
}
CHANGING = frozenset({SERVICE.id, PERSISTENT_VOLUME_CLAIM.id})
"""Kinds whose updates may use more than before; of all others only creations do, and a pod's resize."""


def is_resize(kind: Kind, new: JsonObject, old: JsonObject) -> bool:
    """Return whether the update of ``old`` changes what a pod's containers ask for."""
    if kind.id != POD.id or spec(new) == spec(old):
        return False
    return [one.get("resources") for _, _, one in all_containers(new)] != [
        one.get("resources") for _, _, one in all_containers(old)
    ]


def counts(quota: JsonObject, kind: Kind, obj: JsonObject) -> bool:
    """Return whether ``obj``, in the quota's namespace, is of the quota's scopes: all are, where it has none."""
    declared = spec(quota)
    wanted = [{"scopeName": scope, "operator": "Exists"} for scope in declared.get("scopes") or []]
    wanted += (declared.get("scopeSelector") or {}).get("matchExpressions") or []
    return not wanted or (kind == POD and all(_in_scope(each, obj) for each in wanted))


def _in_scope(wanted: JsonObject, pod: JsonObject) -> bool:
    name, declared = str(wanted.get("scopeName")), spec(pod)
    if name in {"Terminating", "NotTerminating"}:
        deadline = declared.get("activeDeadlineSeconds")
        return bool(deadline is not None and deadline >= 0) == (name == "Terminating")
    if name in {"BestEffort", "NotBestEffort"}:
        return (resources.qos_class(pod) == "BestEffort") == (name == "BestEffort")
    if name == "CrossNamespacePodAffinity":
        return _crosses_namespaces(pod)
    return _of_class(wanted, declared.get("priorityClassName") or "") if name == "PriorityClass" else False


def _of_class(wanted: JsonObject, called: str) -> bool:
    operator, values = str(wanted.get("operator")), wanted.get("values") or []
    if operator in {"Exists", "DoesNotExist"}:
        return bool(called) == (operator == "Exists")
    return bool(called and called in values) == (operator == "In")


def _crosses_namespaces(pod: JsonObject) -> bool:
    affinity = spec(pod).get("affinity") or {}
    for side in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(side) or {}
        found = list(terms.get("requiredDuringSchedulingIgnoredDuringExecution") or [])
        weighted = terms.get("preferredDuringSchedulingIgnoredDuringExecution") or []
        found += [each.get("podAffinityTerm") or {} for each in weighted]
        if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in found):
            return True
    return False


def unsaid(limited: Iterable[str], pod: JsonObject) -> str:
    """Return which of the ``limited`` amounts the pod's containers do not say; "" when none is missing.

    What the pod says for all of them together they need not say. Upstream asks them for nothing at all then
    (``podEvaluator.Constraints``), so that one request of CPU would let in a pod without any limit of memory.
    """
    own = resources.pod_level(pod)
    missing: dict[str, list[str]] = {}
    for resource in sorted(_REQUIRED.intersection(limited)):
        side, _, name = resource.rpartition(".")
        if name in (own.get(side or "requests") or {}):
            continue
        for _, _, container in all_containers(pod):
            if name not in ((container.get("resources") or {}).get(side or "requests") or {}):
                missing.setdefault(resource, []).append(str(container.get("name")))
    return "; ".join(f"{resource} for: {','.join(sorted(names))}" for resource, names in missing.items())


def counted_kinds(quota: JsonObject, kinds: Iterable[Kind]) -> list[Kind]:
    """Return the kinds whose objects ``quota`` counts."""
    hard = set(spec(quota).get("hard") or {})
    return [kind for kind in kinds if kind.namespaced and _names(kind, hard)]


def of_others(quota: JsonObject, kinds: Iterable[Kind]) -> set[str]:
    """Return the counts of objects in other groups than those of ``kinds``: what an extension keeps, or nobody."""
    known = {f"count/{kind.resource}" for kind in kinds}
    named = (name for name in spec(quota).get("hard") or {} if name.startswith("count/") and "." in name)
    return {*named} - known


def _names(kind: Kind, hard: set[str]) -> bool:
    if f"count/{kind.resource}" in hard or (not kind.group and kind.plural in _NAMED & hard):
        return True
    if kind == SERVICE:
        return any(name == "services" or name.startswith("services.") for name in hard)
    if kind == PERSISTENT_VOLUME_CLAIM:
        return any(_of_claims(name) for name in hard)
    return kind == POD and any(
        not name.startswith("count/")
        and not _of_claims(name)
        and not name.startswith("services")
        and name not in _NAMED
        for name in hard
    )


def _of_claims(name: str) -> bool:
    return name in {"persistentvolumeclaims", "requests.storage"} or f".{_STORAGE_CLASS}/" in name


def total(quota: JsonObject, found: Iterable[tuple[Kind, JsonObject]], now: datetime) -> dict[str, str]:
    """Return the ``status.used`` that the objects ``found`` in the quota's namespace make."""
    used = dict.fromkeys(spec(quota).get("hard") or {}, Decimal(0))
    for kind, obj in found:
        if namespace(obj) == namespace(quota) and counts(quota, kind, obj):
            for name, amount in usage(kind, obj, now).items():
                if name in used:
                    used[name] += amount
    return {name: text(name, amount) for name, amount in used.items()}


def charged(quota: JsonObject, kind: Kind, new: JsonObject, old: JsonObject | None, now: datetime) -> JsonObject | None:
    """Return the quota with what ``new`` uses more than ``old``; None where that is nothing to it.

    Raises:
        Forbidden: it would be exceeded, ``new`` does not say what it limits, or what is used is not known yet.
    """
    if not counts(quota, kind, new):
        return None
    # what the controller has not counted yet limits nobody, as in Kubernetes
    hard = status(quota).get("hard") or {}
    _refuse_unsaid(quota, kind, new)
    asked, before = usage(kind, new, now), usage(kind, old, now) if old is not None else {}
    more = {resource: asked[resource] - before.get(resource, Decimal(0)) for resource in asked if resource in hard}
    more = {resource: amount for resource, amount in more.items() if amount}
    return _with(quota, kind, new, more) if more else None


def _refuse_unsaid(quota: JsonObject, kind: Kind, new: JsonObject) -> None:
    missing = unsaid(status(quota).get("hard") or {}, new) if kind == POD else ""
    if missing:
        raise Forbidden(kind, objects.name(new), f"failed quota: {objects.name(quota)}: must specify {missing}")


def _with(quota: JsonObject, kind: Kind, new: JsonObject, more: Mapping[str, Decimal]) -> JsonObject:
    counted = status(quota)
    hard, used = counted.get("hard") or {}, counted.get("used") or {}
    unknown = sorted(resource for resource in more if resource not in used)
    if unknown:
        message = f"status unknown for quota: {objects.name(quota)}, resources: {','.join(unknown)}"
        raise Forbidden(kind, objects.name(new), message)
    sums = {resource: quantities.parse(used[resource]) + amount for resource, amount in more.items()}
    over = sorted(r for r, amount in sums.items() if more[r] > 0 and amount > quantities.parse(hard[r]))
    if over:
        parts = (
            ",".join(f"{r}={text(r, more[r])}" for r in over),
            ",".join(f"{r}={used[r]}" for r in over),
            ",".join(f"{r}={hard[r]}" for r in over),
        )
        message = "exceeded quota: {}, requested: {}, used: {}, limited: {}".format(objects.name(quota), *parts)
        raise Forbidden(kind, objects.name(new), message)
    after = {**used, **{resource: text(resource, amount) for resource, amount in sums.items()}}
    return {**quota, "status": {**counted, "used": after}}


def text(resource: str, amount: Decimal) -> str:
    """Return an amount as a quantity: bytes in units of 1024 where that is exact, all else in decimal ones."""
    whole = amount == amount.to_integral_value()
    if whole and amount and resource.rpartition(".")[2].endswith(_BYTES) and not amount % 1024:
        return quantities.format_bytes(int(amount))
    return quantities.canonical(f"{amount:f}")

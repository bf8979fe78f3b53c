"""The terms by which pods want to be near other pods, or far from them, parsed once for all pods that are alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.errors import BadRequest
from minik8s_modules.api.nodes.node_affinity import REQUIRED
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.selectors import NOTHING, LabelSelector, Requirement, from_label_selector

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
Namespaces = Mapping[str, Mapping[str, str]]
"""Labels by namespace."""


@dataclass(frozen=True, slots=True)
class Term:
    """One affinity term: which pods it speaks of, and within which domains."""

    key: str
    selector: LabelSelector
    named: frozenset[str]
    spaces: LabelSelector | None
    weight: int = 0
    """Of a preferred term; negative for one that wants distance."""

    def matches(self, pod: JsonObject, namespaces: Namespaces) -> bool:
        """Return whether the term speaks of ``pod``."""
        space = objects.namespace(pod)
        here = space in self.named
        if not here and self.spaces is not None:
            here = self.spaces.empty or self.spaces.matches(namespaces.get(space, {}))
        return here and self.selector.matches(objects.labels(pod))


@dataclass(frozen=True, slots=True)
class Terms:
    """All terms of a pod."""

    near: tuple[Term, ...] = ()
    far: tuple[Term, ...] = ()
    preferred: tuple[Term, ...] = ()
    social: bool = False
    """Whether there is any."""


_NONE = Terms()


def terms_of(pod: JsonObject) -> Terms:
    """Return the terms of ``pod``."""
    affinity = objects.spec(pod).get("affinity") or {}
    if not affinity.get("podAffinity") and not affinity.get("podAntiAffinity"):
        return _NONE
    near, far = (
        tuple(_term(pod, one) for one in (affinity.get(kind) or {}).get(REQUIRED) or ())
        for kind in ("podAffinity", "podAntiAffinity")
    )
    return Terms(near, far, tuple(_preferred(pod, affinity)), social=True)


def _preferred(pod: JsonObject, affinity: Mapping[str, Any]) -> Iterator[Term]:
    for kind, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
        for one in (affinity.get(kind) or {}).get(PREFERRED) or ():
            yield _term(pod, one["podAffinityTerm"], sign * int(one["weight"]))


def _term(owner: JsonObject, term: Mapping[str, Any], weight: int = 0) -> Term:
    named, spaces = frozenset(term.get("namespaces") or ()), term.get("namespaceSelector")
    if not named and spaces is None:
        named = frozenset({objects.namespace(owner)})
    parsed = selector(spaces) if spaces is not None else None
    return Term(str(term.get("topologyKey") or ""), with_keys(owner, term), named, parsed, weight)


def selector(declared: JsonObject | None) -> LabelSelector:
    """Return a label selector; one stored before such were checked selects nothing."""
    try:
        return from_label_selector(declared)
    except BadRequest:
        return NOTHING


def with_keys(owner: JsonObject, term: Mapping[str, Any]) -> LabelSelector:
    """Return a term's selector with what ``matchLabelKeys`` and ``mismatchLabelKeys`` take from the owner's labels."""
    found, labels = selector(term.get("labelSelector")), objects.labels(owner)
    more = [
        Requirement(key, operator, frozenset({labels[key]}))
        for field, operator in (("matchLabelKeys", "in"), ("mismatchLabelKeys", "notin"))
        for key in term.get(field) or []
        if key in labels
    ]
    return LabelSelector((*found.requirements, *more), found.nothing)

"""Who owns what: adoption and release by the controlling owner reference, and conditions. Pure.

Two selectors may overlap: an object belongs to the one whose reference it carries, and is never fought over. Source:
kubernetes ``pkg/controller/controller_ref_manager.go`` (``ClaimObject``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.selectors import LabelSelector, as_label_selector, from_label_selector
from minik8s_modules.controllers.core.steps import Adopt, Release


class Claim(NamedTuple):
    """What is the owner's after ``steps``: what it controls already, and orphans that it adopts."""

    owned: list[JsonObject]
    steps: list[Adopt | Release]


def selector_of(owner: JsonObject) -> LabelSelector:
    """Return the selector of a workload."""
    return from_label_selector(as_label_selector(objects.spec(owner).get("selector")))


def claim(owner: JsonObject, selector: LabelSelector, kind: Kind, found: Iterable[JsonObject]) -> Claim:
    """Return which of the objects ``found`` are ``owner``'s, and the steps that make it so.

    An owner that is being deleted adopts and releases nothing; nor is anything adopted that is being deleted.
    """
    owned: list[JsonObject] = []
    steps: list[Adopt | Release] = []
    deleting = objects.is_deleting(owner)
    for obj in found:
        controller, matches = objects.controller_of(obj), selector.matches(objects.labels(obj))
        if controller is not None:
            if controller.get("uid") != objects.uid(owner):
                continue
            if matches or deleting:
                owned.append(obj)
            else:
                steps.append(Release(kind, obj))
        elif matches and not selector.empty and not deleting and not objects.is_deleting(obj):
            owned.append(obj)
            steps.append(Adopt(kind, obj))
    return Claim(owned, steps)


def with_condition(conditions: Iterable[JsonObject], wanted: JsonObject) -> list[JsonObject]:
    """Return the conditions with ``wanted`` in the place of its type's.

    One that has the same status and reason stays as it is; one that only has the same status keeps its
    lastTransitionTime (``SetDeploymentCondition``, ``SetCondition``).
    """
    known = list(conditions)
    old = next((each for each in known if each.get("type") == wanted["type"]), None)
    if old is not None and (old.get("status"), old.get("reason")) == (wanted["status"], wanted["reason"]):
        return known
    if old is not None and old.get("status") == wanted["status"] and "lastTransitionTime" in old:
        wanted = {**wanted, "lastTransitionTime": old["lastTransitionTime"]}
    return [*without_condition(known, wanted["type"]), wanted]


def without_condition(conditions: Iterable[JsonObject], kind: str) -> list[JsonObject]:
    """Return the conditions of all other types."""
    return [each for each in conditions if each.get("type") != kind]

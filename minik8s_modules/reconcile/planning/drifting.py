"""The answer to ``drift``: what somebody changed on a node, and, apart from that, what could not be realized. Pure.

A check of a whole node shows every difference. Those of keys that the node never had as they are declared are no drift:
they are faults of the objects (a hostPath that is not there, a limit that no runtime takes) or not done yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.core.section import TIDY
from minik8s_modules.reconcile.feeds.plan_subjects import Subjects, rows
from minik8s_modules.reconcile.loop.basis import Basis
from minik8s_modules.reconcile.loop.drift_holds import NO_HOLD, holds
from minik8s_modules.reconcile.loop.drifts import drifted
from minik8s_modules.reconcile.loop.section_changes import Request
from minik8s_modules.reconcile.planning.plan_requests import Answer, readable, troubles
from minik8s_modules.reconcile.values.items import Outcome

_PENDING = {"reason": "Pending", "message": "it is declared and not yet realized"}


def drift_of(name: str, outcome: Outcome, requests: Mapping[str, Request], basis: Basis, subjects: Subjects) -> Answer:
    """Return what the node ``name`` answered, with its ``faults``: section, key, reason, message and about.

    A fault with ``drifted`` was once realized as it is declared, so somebody changed what it needs. A step with
    ``policy`` is not done by itself; of what is to be ignored nothing is told.
    """
    plan = readable(outcome, subjects)
    if plan is None:
        return Answer(None, tuple(troubles(name, outcome, subjects)))
    faults = []
    pods = {objects.uid(pod): pod for pod in basis.pods}
    held = holds(basis.node, pods.get, {section: request.entries for section, request in requests.items()})
    for section, result in outcome.sections.items():
        errors: Mapping[str, JsonObject] = result.get("errors") or {}
        steps = {str(step["key"]) for step in result["steps"] if step["action"] != TIDY}
        realized = basis.realized.get(section)  # missing for a section that was never looked at: all may be drift
        drift = steps if realized is None else drifted(section, steps, errors, requests[section].entries, realized)
        ignored = held.get(section, NO_HOLD).ignored & drift
        for key in sorted(({*errors} | (steps - drift)) - ignored):
            fault = {"section": section, "key": key, **_why(section, key, errors, basis)}
            again = {"drifted": True} if key in drift else {}
            faults.append({**fault, **again, "about": rows(subjects.of(section, key))})
        _keep(plan, section, drift - errors.keys() - ignored)
    for step in plan["steps"]:
        if step["key"] in held.get(step["section"], NO_HOLD).keys:
            step["policy"] = "report"
    return Answer({**plan, "faults": faults} if faults else plan)


def _why(section: str, key: str, errors: Mapping[str, JsonObject], basis: Basis) -> JsonObject:
    """Return reason and message: the key's own, or another one's of its pod."""
    known = errors.get(key) or basis.errors.get(f"{section}/{key}")
    uid = key.partition("/")[0]
    others = (error for place, error in sorted(basis.errors.items()) if place.split("/")[1] == uid)
    error = known or next(others, _PENDING)
    return {"reason": error.get("reason"), "message": error.get("message")}


def _keep(plan: JsonObject, section: str, keys: Set[str]) -> None:
    """Leave the section's steps and differences of ``keys`` alone in ``plan``."""
    plan["steps"] = [step for step in plan["steps"] if step["section"] != section or step["key"] in keys]
    diff = plan["diff"].pop(section, None)
    if diff is None:
        return
    left = {when: {key: one for key, one in diff[when].items() if key in keys} for when in ("before", "after")}
    if left["before"] or left["after"]:
        plan["diff"][section] = left

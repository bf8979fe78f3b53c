"""Which nodes a pod may have, by nodeSelector and the required terms of its node affinity. Pure.

Source: kubernetes ``component-helpers/scheduling/corev1/nodeaffinity``. The scheduler asks, and the controller of
DaemonSets, which plays the scheduler's part in deciding where its pods are to be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.selectors import Requirement

_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!", "Gt": "gt", "Lt": "lt"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def matches_node(pod: JsonObject, node: JsonObject) -> bool:
    """Return whether the node has the labels of ``nodeSelector`` and fits a required term of the node affinity."""
    labels = objects.labels(node)
    if any(labels.get(key) != value for key, value in (objects.spec(pod).get("nodeSelector") or {}).items()):
        return False
    required = objects.dig(pod, "spec", "affinity", "nodeAffinity", REQUIRED)
    return required is None or any(term_fits(term, node) for term in required.get("nodeSelectorTerms") or [])


def term_fits(term: Mapping[str, Any], node: JsonObject) -> bool:
    """Return whether the node fits a term; an empty one fits nothing."""
    labels, fields = objects.labels(node), {"metadata.name": objects.name(node)}
    wanted = [(one, labels) for one in term.get("matchExpressions") or []]
    wanted += [(one, fields) for one in term.get("matchFields") or []]
    return bool(wanted) and all(_requirement(one).matches(values) for one, values in wanted)


def _requirement(expression: Mapping[str, Any]) -> Requirement:
    """Return an expression as a requirement; one stored before such were checked may be one that is never met."""
    operator, values = _OPERATORS.get(expression.get("operator", ""), "in"), expression.get("values") or ()
    if operator in {"gt", "lt"} and len(values) != 1:
        operator, values = "in", ()
    return Requirement(str(expression.get("key") or ""), operator, frozenset(values))

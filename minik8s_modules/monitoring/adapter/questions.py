"""What a request for a custom metric asks, and the PromQL that answers it. Pure.

A metric of the API is one of Prometheus' whose series have the label ``namespace``, and a label that names the
object: ``pod``, ``service``, ``deployment`` and the like. Of a counter ``x_total`` the API has ``x``: its rate a
second over two minutes, as prometheus-adapter's default rules have it (its ``docs/walkthrough.md``). Names and values
of labels reach PromQL only as checked names and as quoted text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from minik8s_modules.api.errors import BadRequest, NotFound
from minik8s_modules.api.selectors import LabelSelector, Requirement, parse_label_selector

GROUP = "custom.metrics.k8s.io"
RATE_WINDOW_S = 120
LABELS = {
    "pods": "pod",
    "services": "service",
    "nodes": "node",
    "deployments.apps": "deployment",
    "replicasets.apps": "replicaset",
    "statefulsets.apps": "statefulset",
    "daemonsets.apps": "daemonset",
    "jobs.batch": "job_name",
    "cronjobs.batch": "cronjob",
    "ingresses.networking.k8s.io": "ingress",
    "persistentvolumeclaims": "persistentvolumeclaim",
}
"""The label that names an object, by its resource."""
_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class MetricQuery(NamedTuple):
    """A question. ``resource`` is "" for what a whole namespace has; ``name`` is ``*`` for all that are selected."""

    namespace: str
    resource: str
    name: str
    metric: str
    selector: LabelSelector
    of_series: LabelSelector

    @property
    def label(self) -> str:
        """The label that names the objects; "" for the namespace as a whole."""
        return LABELS[self.resource] if self.resource else ""


def asked(parts: Sequence[str], selector: str, of_series: str) -> MetricQuery:
    """Return what a path asks, split below ``/apis/custom.metrics.k8s.io/<version>``.

    Raises:
        NotFound: there is no such path, or no label is known that names objects of this resource.
        BadRequest: a selector or the metric's name cannot be used.
    """
    match parts:
        case ["namespaces", namespace, "metrics", metric]:
            where = (namespace, "", namespace)
        case ["namespaces", namespace, resource, name, metric]:
            where = (namespace, resource, name)
        case [resource, name, metric]:
            where = ("", resource, name)
        case _:
            raise NotFound.path(
                f"a metric has a path such as namespaces/NAMESPACE/pods/*/METRIC, not {'/'.join(parts)}"
            )
    if where[1] and where[1] not in LABELS:
        raise NotFound.path(f"there are no metrics of {where[1]}: of {', '.join(LABELS)} there can be")
    if not _METRIC.fullmatch(metric):
        raise BadRequest(f"{metric[:200]!r} is not a valid metric name in Prometheus")
    return MetricQuery(*where, metric, parse_label_selector(selector), parse_label_selector(of_series))


def expression(question: MetricQuery, names: Sequence[str]) -> str:
    """Return the PromQL for the sum of each of the objects ``names``, as gauge or as rate of a counter.

    Raises:
        BadRequest: a label of the series is none of Prometheus, or is compared by order.
    """
    matchers = [f"namespace={_quoted(question.namespace)}"] if question.namespace else []
    if question.label:
        matchers.append(f"{question.label}=~{_quoted('|'.join(map(_literal, names)))}")
    matchers += [_matcher(each) for each in question.of_series.requirements]
    inside = "{" + ",".join(matchers) + "}"
    by = f" by ({question.label})" if question.label else ""
    name = question.metric
    return f"sum{by} ({name}{inside}) or sum{by} (rate({name}_total{inside}[{RATE_WINDOW_S}s]))"


def _matcher(requirement: Requirement) -> str:
    if not _LABEL.fullmatch(requirement.key):
        raise BadRequest(f"{requirement.key!r} is not a valid label name in Prometheus")
    values = _quoted("|".join(map(_literal, sorted(requirement.values))))
    known = {"in": f"=~{values}", "notin": f"!~{values}", "exists": '!=""', "!": '=""'}
    if requirement.operator not in known:
        raise BadRequest(f"series are not selected by order: {requirement.key}")
    return requirement.key + known[requirement.operator]


def _literal(text: str) -> str:
    return re.sub(r"([^a-zA-Z0-9_-])", r"\\\1", text)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'

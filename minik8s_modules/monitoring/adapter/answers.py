"""What the API answers of samples: discovery, and MetricValueLists in both versions. Pure.

Source: ``k8s.io/metrics/pkg/apis/custom_metrics``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.monitoring.adapter.questions import GROUP, MetricQuery

VERSIONS = ("v1beta2", "v1beta1")
_KINDS = {
    "": ("v1", "Namespace"),
    "pods": ("v1", "Pod"),
    "services": ("v1", "Service"),
    "nodes": ("v1", "Node"),
    "persistentvolumeclaims": ("v1", "PersistentVolumeClaim"),
    "deployments.apps": ("apps/v1", "Deployment"),
    "replicasets.apps": ("apps/v1", "ReplicaSet"),
    "statefulsets.apps": ("apps/v1", "StatefulSet"),
    "daemonsets.apps": ("apps/v1", "DaemonSet"),
    "jobs.batch": ("batch/v1", "Job"),
    "cronjobs.batch": ("batch/v1", "CronJob"),
    "ingresses.networking.k8s.io": ("networking.k8s.io/v1", "Ingress"),
}


class Sample(NamedTuple):
    """One element of an instant vector."""

    labels: Mapping[str, str]
    at_s: float
    value: float


def values(version: str, question: MetricQuery, samples: Sequence[Sample]) -> JsonObject:
    """Return the MetricValueList; a value that is not a number is left out."""
    items = [_value(version, question, each) for each in samples if abs(each.value) < float("inf")]
    return {"kind": "MetricValueList", "apiVersion": f"{GROUP}/{version}", "metadata": {}, "items": items}


def _value(version: str, question: MetricQuery, sample: Sample) -> JsonObject:
    api_version, kind = _KINDS[question.resource]
    name = sample.labels.get(question.label, "") if question.label else question.namespace
    space = {"namespace": question.namespace} if question.namespace and question.resource else {}
    metric = {"metric": {"name": question.metric}} if version == "v1beta2" else {"metricName": question.metric}
    return {
        "describedObject": {"kind": kind, **space, "name": name, "apiVersion": api_version},
        **metric,
        "timestamp": rfc3339(datetime.fromtimestamp(sample.at_s, UTC)),
        "value": f"{round(sample.value * 1000)}m",
    }


def resources(version: str, metrics: Sequence[str]) -> JsonObject:
    """Return what discovery shows: the metrics of pods, as ``pods/NAME``."""
    listed = [
        {
            "name": f"pods/{name}",
            "singularName": "",
            "namespaced": True,
            "kind": "MetricValueList",
            "verbs": ["get"],
        }
        for name in metrics
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{version}", "resources": listed}


def group() -> JsonObject:
    """Return the APIGroup."""
    versions = [{"groupVersion": f"{GROUP}/{each}", "version": each} for each in VERSIONS]
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": GROUP,
        "versions": versions,
        "preferredVersion": versions[0],
    }

"""What a workload does, read from upstream's YAML: a case's operations with the numbers of one workload in them.

All is checked before anything is done: an operation or a field that is not understood is refused by its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from minik8s_modules.api.objects import JsonObject


class NotUnderstood(ValueError):
    """A case that cannot be run as it is written; the message says which field of which operation."""


class PerfOperation(NamedTuple):
    """One step: ``fields`` has its fields, ``count`` among them as a number."""

    number: int
    code: str
    fields: JsonObject

    @property
    def namespace(self) -> str:
        """Return the namespace that it works in: its own, unless it names one."""
        return str(self.fields.get("namespace") or f"namespace-{self.number}")

    @property
    def times(self) -> int:
        """Return how many times."""
        return int(self.fields.get("count") or 0)


class PerfCase(NamedTuple):
    """One workload to run; ``folder`` is what its templates are named relative to."""

    name: str
    folder: Path
    operations: tuple[PerfOperation, ...]
    pod_template: str = ""
    features: Mapping[str, bool] = {}
    """Feature gates that upstream sets for it; the scheduler that runs is measured as it is."""

    def templates(self) -> list[str]:
        """Return the files of all pods and other objects that it makes."""
        listed = [one.fields for one in self.operations]
        listed += [inner for one in listed if (inner := one.get("createPodsOp"))]
        named = [one.get(field) for one in listed for field in ("podTemplatePath", "templatePath")]
        churned = [path for one in listed for path in one.get("templatePaths") or ()]
        return sorted({path for path in (*named, *churned, self.pod_template) if path})


VOLUMES = ("persistentVolumeTemplatePath", "persistentVolumeClaimTemplatePath")
_PODS = {"count", "countParam", "namespace", "podTemplatePath", "collectMetrics", "skipWaitToCompletion", *VOLUMES}
_ALLOCATABLE = {"nodeAllocatable", "csiNodeAllocatable", "migratedPlugins"}
_ANY = {"namespace", "templatePath", "count", "countParam"}
FIELDS: Mapping[str, frozenset[str]] = {
    "createNodes": frozenset(
        {
            "count",
            "countParam",
            "nodeTemplatePath",
            "labelNodePrepareStrategy",
            "uniqueNodeLabelStrategy",
            "nodeAllocatableStrategy",
        }
    ),
    "createNamespaces": frozenset({"count", "countParam", "prefix", "namespaceTemplatePath"}),
    "createPods": frozenset(_PODS),
    "createPodSets": frozenset({"count", "countParam", "namespacePrefix", "createPodsOp"}),
    "deletePods": frozenset({"namespace", "labelSelector", "skipWaitToCompletion", "deletePodsPerSecond"}),
    "churn": frozenset({"mode", "number", "intervalMilliseconds", "namespace", "templatePaths"}),
    "createAny": frozenset(_ANY),
    "updateAny": frozenset(_ANY | {"updatePerSecond", "subresources"}),
    "barrier": frozenset({"namespaces", "labelSelector", "stageRequirement"}),
    "sleep": frozenset({"duration", "durationParam"}),
    "startCollectingMetrics": frozenset({"name", "namespaces", "labelSelector"}),
    "stopCollectingMetrics": frozenset(),
}
"""The operations that are understood, and their fields."""

_REQUIRED: Mapping[str, tuple[str, ...]] = {
    "createNodes": ("count",), "createNamespaces": ("count", "prefix"), "createPods": ("count",),
    "createPodSets": ("count", "namespacePrefix", "createPodsOp"), "deletePods": ("namespace",),
    "churn": ("mode", "templatePaths"), "createAny": ("templatePath",), "updateAny": ("templatePath",),
    "sleep": ("duration",), "startCollectingMetrics": ("namespaces",),
}  # fmt: skip
_CASE = {
    "name", "defaultPodTemplatePath", "workloadTemplate", "workloads", "labels", "featureGates",
    "defaultThresholdMetricSelector",
}  # fmt: skip
_CHOICES = {"mode": ("create", "recreate"), "stageRequirement": ("Attempted", "Scheduled")}
_DURATION, _UNITS_S = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)"), {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def read(file: Path, case: str, workload: str, other: Mapping[str, int] = {}) -> PerfCase:
    """Return a workload of a configuration, with ``other`` numbers for some of its parameters.

    Raises:
        NotUnderstood: there is none of these names, or something in it is not understood.
    """
    cases = {str(one.get("name")): one for one in yaml.safe_load(file.read_text(encoding="utf-8"))}
    if case not in cases:
        raise NotUnderstood(f"{file} has no case {case}; there are {', '.join(cases)}")
    found = cases[case]
    if unknown := found.keys() - _CASE:
        raise NotUnderstood(f"{case}: {_names(unknown)} not understood")
    workloads = {str(one.get("name")): one for one in found["workloads"]}
    if workload not in workloads:
        raise NotUnderstood(f"{case} has no workload {workload}; there are {', '.join(workloads)}")
    params = {**(workloads[workload].get("params") or {}), **other}
    operations = tuple(_operations(found["workloadTemplate"], params, case))
    if unused := params.keys() - _used(found["workloadTemplate"]):
        raise NotUnderstood(f"{case}/{workload}: parameters that nothing uses: {', '.join(sorted(unused))}")
    features = {**(found.get("featureGates") or {}), **(workloads[workload].get("featureGates") or {})}
    return PerfCase(f"{case}/{workload}", file.parent, operations, found.get("defaultPodTemplatePath") or "", features)


def _operations(template: list[JsonObject], params: JsonObject, case: str) -> Iterator[PerfOperation]:
    for index, one in enumerate(template):
        code, where = str(one.get("opcode")), f"{case}, operation {index}"
        if code not in FIELDS:
            raise NotUnderstood(f"{where}: {code} is not understood; there are {', '.join(FIELDS)}")
        yield PerfOperation(index, code, _checked(code, one, params, f"{where} ({code})"))


def _checked(code: str, one: JsonObject, params: JsonObject, where: str) -> JsonObject:
    if unknown := one.keys() - FIELDS[code] - {"opcode"}:
        raise NotUnderstood(f"{where}: {_names(unknown)} not understood")
    result = _with_params(one, params, where)
    for name in _REQUIRED.get(code, ()):
        if result.get(name) is None:
            raise NotUnderstood(f"{where}: {name} is missing")
    for name, choices in _CHOICES.items():
        if result.get(name) not in {None, *choices}:
            raise NotUnderstood(f"{where}: {name} is {result[name]}, not {' or '.join(choices)}")
    _check_together(code, result, where)
    if code == "createPodSets":
        result["createPodsOp"] = _checked("createPods", result["createPodsOp"], params, f"{where}, createPodsOp")
    if code == "sleep":
        result["duration"] = _seconds(str(result["duration"]), where)
    return result


def _check_together(code: str, fields: JsonObject, where: str) -> None:
    """Refuse what does not go with the rest of an operation."""
    if code == "churn" and fields["mode"] == "recreate" and not fields.get("number"):
        raise NotUnderstood(f"{where}: number is missing, which recreate needs")
    if unknown := (fields.get("nodeAllocatableStrategy") or {}).keys() - _ALLOCATABLE:
        raise NotUnderstood(f"{where}: {_names(unknown)} not understood in nodeAllocatableStrategy")
    if len({bool(fields.get(name)) for name in VOLUMES}) > 1:
        raise NotUnderstood(f"{where}: {' and '.join(VOLUMES)} belong together")
    if code == "createPods" and fields.get("collectMetrics") and fields.get("skipWaitToCompletion"):
        raise NotUnderstood(f"{where}: collectMetrics and skipWaitToCompletion exclude each other")


def _with_params(one: JsonObject, params: JsonObject, where: str) -> JsonObject:
    fields = {name: value for name, value in one.items() if not name.endswith("Param")}
    for name in one.keys() - fields.keys():
        param = str(one[name]).removeprefix("$")
        if param not in params:
            raise NotUnderstood(f"{where}: {name}: the workload has no parameter {param}")
        fields[name.removesuffix("Param")] = params[param]
    return fields


def _used(fields: Any) -> set[str]:
    """Return the parameters that operations name."""
    if isinstance(fields, list):
        return {name for one in fields for name in _used(one)}
    if not isinstance(fields, dict):
        return set()
    own = {str(value).removeprefix("$") for name, value in fields.items() if name.endswith("Param")}
    return own | {name for value in fields.values() for name in _used(value)}


def _names(unknown: set[str]) -> str:
    return f"{', '.join(sorted(unknown))} {'is' if len(unknown) == 1 else 'are'}"


def _seconds(duration: str, where: str) -> float:
    """Return a Go duration in seconds."""
    if not re.fullmatch(f"({_DURATION.pattern})+", duration):
        raise NotUnderstood(f"{where}: duration {duration} is none such as 500ms or 1m30s")
    return sum(float(number) * _UNITS_S[unit] for number, unit in _DURATION.findall(duration))

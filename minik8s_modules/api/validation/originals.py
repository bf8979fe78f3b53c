"""Validation of the kinds that only the original MiniK8s has. Each rule names the field it is about."""

from __future__ import annotations

import re

from minik8s_modules.api import field_errors, syntax
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, spec
from minik8s_modules.api.validation import shared
from minik8s_modules.api.validation.pods import validate_pod

_LONGEST_PERIOD_S = 1800
_METRIC_TYPES = {"cpu": ("Utilization", "averageUtilization"), "memory": ("AverageValue", "averageValue")}


def _named(field: str, value: str | None) -> list[Cause]:
    return (
        field_errors.all_invalid(field, value, syntax.dns1123_subdomain(value))
        if value
        else [field_errors.required(field)]
    )


def _port(field: str, value: int | None) -> list[Cause]:
    return (
        field_errors.all_invalid(field, value, syntax.port_number(value)) if value else [field_errors.required(field)]
    )


def _at_least(field: str, value: float | None, lowest: int) -> list[Cause]:
    if value is None or value >= lowest:
        return []
    return [field_errors.invalid(field, value, f"must be greater than or equal to {lowest}")]


def _pattern(field: str, text: str) -> list[Cause]:
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        return [field_errors.invalid(field, text, f"must be a regular expression: {error}")]
    return []


def validate_dns(dns: JsonObject) -> list[Cause]:
    """Return why the DNS object may not be kept."""
    causes: list[Cause] = []
    hosts: set[str] = set()
    rules = spec(dns).get("rules") or []
    for index, rule in enumerate(rules):
        at, host = f"spec.rules[{index}]", rule.get("host") or ""
        causes += _named(f"{at}.host", host)
        if host in hosts:
            causes.append(field_errors.duplicate(f"{at}.host", host))
        hosts.add(host)
        for number, path in enumerate(rule.get("paths") or []):
            causes += _dns_path(f"{at}.paths[{number}]", path)
    return causes if rules else [field_errors.required("spec.rules", "at least one host")]


def _dns_path(at: str, path: JsonObject) -> list[Cause]:
    text, service = path.get("path") or "", (path.get("backend") or {}).get("service") or {}
    causes = [] if text.startswith("/") else [field_errors.invalid(f"{at}.path", text, "must be an absolute path")]
    if any(map(str.isspace, text)):
        causes.append(field_errors.invalid(f"{at}.path", text, "must not contain white space"))
    causes += _named(f"{at}.backend.service.name", service.get("name"))
    return causes + _port(f"{at}.backend.service.port", service.get("port"))


def validate_virtual_service(virtual: JsonObject) -> list[Cause]:
    """Return why the virtual service may not be kept: its subsets are chosen by weight, or all by URL."""
    declared = spec(virtual)
    causes = _named("spec.serviceRef", declared.get("serviceRef")) + _port("spec.port", declared.get("port"))
    subsets, seen = declared.get("subsets") or [], set()
    if not subsets:
        causes.append(field_errors.required("spec.subsets", "at least one subset"))
    for index, subset in enumerate(subsets):
        at, name = f"spec.subsets[{index}]", subset.get("name") or ""
        causes += _named(f"{at}.name", name)
        if name in seen:
            causes.append(field_errors.duplicate(f"{at}.name", name))
        seen.add(name)
        causes += _share(at, subset)
    if len({subset.get("url") is None for subset in subsets}) > 1:
        causes.append(
            field_errors.invalid("spec.subsets", subsets, "subsets are chosen by weight, or all of them by url")
        )
    return causes


def _share(at: str, share: JsonObject) -> list[Cause]:
    weight, url = share.get("weight"), share.get("url")
    if weight is not None and url is not None:
        return [field_errors.forbidden(f"{at}.url", "may not be specified together with weight")]
    if weight is None and url is None:
        return [field_errors.required(f"{at}.weight", "weight or url")]
    return _at_least(f"{at}.weight", weight, 0) + (_pattern(f"{at}.url", url) if url is not None else [])


def validate_subset(subset: JsonObject) -> list[Cause]:
    """Return why the subset may not be kept."""
    causes: list[Cause] = []
    pods = spec(subset).get("pods") or []
    for index, pod in enumerate(pods):
        causes += _named(f"spec.pods[{index}]", pod)
    return causes + field_errors.duplicates("spec.pods", pods)


def validate_rolling_update(update: JsonObject) -> list[Cause]:
    """Return why the rolling update may not be kept."""
    declared = spec(update)
    causes = _named("spec.serviceRef", declared.get("serviceRef")) + _port("spec.port", declared.get("port"))
    causes += shared.not_negative("spec", declared, "minimumAlive", "interval")
    pod = validate_pod({"spec": declared.get("newPodSpec") or {}})
    return causes + [c._replace(field=f"spec.newPodSpec{c.field.removeprefix('spec')}") for c in pod]


def validate_sidecar_mapping(mapping: JsonObject) -> list[Cause]:
    """Return why the mapping may not be kept."""
    causes: list[Cause] = []
    for address, entries in spec(mapping).items():
        at = f"spec[{address}]"
        ip, _, port = address.rpartition(":")
        if syntax.ipv4(ip) or not port.isascii() or not port.isdigit() or syntax.port_number(int(port[:6])):
            causes.append(field_errors.invalid("spec", address, "must be ADDRESS:PORT of a service"))
        for index, entry in enumerate(entries or []):
            causes += _share(f"{at}[{index}]", entry)
            for number, endpoint in enumerate(entry.get("endpoints") or []):
                here, where = f"{at}[{index}].endpoints[{number}]", endpoint.get("ip") or ""
                causes += field_errors.all_invalid(f"{here}.ip", where, syntax.ipv4(where))
                causes += _port(f"{here}.targetPort", endpoint.get("targetPort"))
    return causes


def validate_autoscaler(autoscaler: JsonObject) -> list[Cause]:
    """Return why the original's autoscaler may not be kept."""
    declared = spec(autoscaler)
    lowest, highest = declared.get("minReplicas"), declared.get("maxReplicas")
    causes = _at_least("spec.minReplicas", lowest, 1)
    if highest is None:
        causes.append(field_errors.required("spec.maxReplicas"))
    elif highest < max(lowest or 1, 1):
        causes.append(
            field_errors.invalid("spec.maxReplicas", highest, "must be greater than or equal to `minReplicas`")
        )
    causes += _at_least("spec.scaleWindowSeconds", declared.get("scaleWindowSeconds"), 1)
    target = declared.get("scaleTargetRef") or {}
    causes += shared.one_of("spec.scaleTargetRef.kind", target.get("kind"), ("ReplicaSet",))
    causes += _named("spec.scaleTargetRef.name", target.get("name"))
    for index, metric in enumerate(declared.get("metrics") or []):
        causes += _metric(f"spec.metrics[{index}]", metric)
    for side in ("scaleUp", "scaleDown"):
        policy = (declared.get("behavior") or {}).get(side)
        causes += [] if policy is None else _policy(f"spec.behavior.{side}", policy)
    return causes


def _metric(at: str, metric: JsonObject) -> list[Cause]:
    name, target = metric.get("name"), metric.get("target") or {}
    causes = shared.one_of(f"{at}.name", name, tuple(_METRIC_TYPES))
    if causes or name is None:
        return causes
    kind, field = _METRIC_TYPES[name]
    causes = shared.one_of(f"{at}.target.type", target.get("type"), (kind,))
    if target.get(field) is None:
        causes.append(field_errors.required(f"{at}.target.{field}", f"{name} is held at it"))
    elif target[field] <= 0:
        causes.append(field_errors.invalid(f"{at}.target.{field}", target[field], "must be greater than 0"))
    upper, lower = target.get("upperThreshold"), target.get("lowerThreshold")
    if upper is not None and lower is not None and lower > upper:
        causes.append(field_errors.invalid(f"{at}.target.lowerThreshold", lower, "must not be above upperThreshold"))
    return causes


def _policy(at: str, policy: JsonObject) -> list[Cause]:
    causes = shared.one_of(f"{at}.type", policy.get("type"), ("Percent", "Pods"))
    causes += _at_least(f"{at}.value", policy.get("value") or 0, 1)
    period = policy.get("periodSeconds") or 0
    if not 1 <= period <= _LONGEST_PERIOD_S:
        causes.append(field_errors.invalid(f"{at}.periodSeconds", period, f"must be between 1 and {_LONGEST_PERIOD_S}"))
    return causes


def validate_job(job: JsonObject) -> list[Cause]:
    """Return why the original's job may not be kept."""
    declared = spec(job)
    causes = [
        field_errors.required(f"spec.{field}") for field in ("partition", "file", "codePath") if not declared.get(field)
    ]
    if "/" in (declared.get("file") or ""):
        causes.append(field_errors.invalid("spec.file", declared["file"], "must be the name of a file, not a path"))
    for field in ("threadNum", "taskPerNode", "cpu_per_task"):
        causes += _at_least(f"spec.{field}", declared.get(field), 1)
    return causes + _at_least("spec.gpu-num", declared.get("gpu-num"), 0)

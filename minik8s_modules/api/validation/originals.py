"""Validation of the kinds that only the original MiniK8s has. Each rule names the field it is about."""

from __future__ import annotations

import re

from minik8s_modules.api import cause, syntax
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.network.url_patterns import pattern_fault
from minik8s_modules.api.objects import JsonObject, namespace, spec
from minik8s_modules.api.pods.slurm import SOURCE_BYTES, SUFFIXES
from minik8s_modules.api.validation import check, requests
from minik8s_modules.api.validation.meta import validate_labels
from minik8s_modules.api.validation.pods.pods import validate_pod

MOST_SUBSETS = 100
"""Of a VirtualService: a pattern takes up to 10 ms to be compiled, here and again in each pilot."""
_METRIC_TYPES = {"cpu": ("Utilization", "averageUtilization"), "memory": ("AverageValue", "averageValue")}
_NAME, _PORT = check.mandatory(check.subdomain), check.mandatory(check.port_number)


def _pattern(at: str, text: str) -> list[Cause]:
    fault = pattern_fault(text)
    return [cause.invalid(at, text, fault)] if fault else []


# --- DNS ------------------------------------------------------------------------------------------

_PATH = check.fields(
    ("path", check.absent_as("", check.held(lambda text: text.startswith("/"), "must be an absolute path"))),
    ("path", check.if_set(check.held(lambda text: not any(map(str.isspace, text)), "must not contain white space"))),
    ("backend.service.name", _NAME),
    ("backend.service.port", _PORT),
)
validate_dns = check.of_spec(
    (
        "rules",
        check.mandatory(
            check.each(check.fields(("paths", check.each(_PATH))), key=("host", _NAME)), "at least one host"
        ),
    ),
)


# --- VirtualService, Subset, RollingUpdate, SidecarMapping ----------------------------------------


def _weight_or_url(at: str, share: JsonObject) -> list[Cause]:
    weight, url = share.get("weight"), share.get("url")
    if weight is not None and url is not None:
        return [cause.forbidden(f"{at}.url", "may not be specified together with weight")]
    if weight is None and url is None and share.get("headers") is None:
        return [cause.required(f"{at}.weight", "weight or url, or headers")]
    return _SHARE(at, share)


_SHARE = check.fields(
    ("weight", check.not_negative), ("url", check.if_given(_pattern)), ("headers", check.if_given(requests.headers))
)


def _a_few(rule: check.Rule) -> check.Rule:
    """Return the rule of subsets that are not too many, and then keep ``rule``."""

    def checked(at: str, subsets: list[JsonObject]) -> list[Cause]:
        if len(subsets) > MOST_SUBSETS:
            return [cause.too_many(at, len(subsets), MOST_SUBSETS)]
        return rule(at, subsets)

    return checked


def _chosen_alike(at: str, subsets: list[JsonObject]) -> list[Cause]:
    # one that has headers alone is neither
    kinds = [subset.get("url") is None for subset in subsets if {subset.get("url"), subset.get("weight")} != {None}]
    if len(set(kinds)) <= 1:
        return []
    return [cause.invalid(at, subsets, "either all subsets are chosen by weight or all by url")]


validate_virtual_service = check.of_spec(
    ("serviceRef", _NAME),
    ("port", _PORT),
    (
        "subsets",
        check.mandatory(
            _a_few(check.every(check.each(_weight_or_url, key=("name", _NAME)), _chosen_alike)), "at least one subset"
        ),
    ),
    *requests.ROWS,
)
validate_subset = check.of_spec(
    ("pods", check.every(check.each(_NAME), lambda at, pods: cause.duplicates(at, pods or ()))),
    ("labels", validate_labels),
)


def _pod(at: str, declared: JsonObject | None) -> list[Cause]:
    causes = validate_pod({"spec": declared or {}})
    return [one._replace(field=f"{at}{one.field.removeprefix('spec')}") for one in causes]


validate_rolling_update = check.of_spec(
    ("serviceRef", _NAME),
    ("port", _PORT),
    ("minimumAlive", check.not_negative),
    ("interval", check.not_negative),
    ("state", check.if_given(check.one_of("Running", "Paused", "Aborted", "Undone"))),
    ("newPodSpec", _pod),
)
_SHARES = check.each(
    check.fields(
        ("", _weight_or_url),
        ("endpoints", check.each(check.fields(("ip", check.ipv4), ("targetPort", _PORT)))),
    )
)


def validate_sidecar_mapping(mapping: JsonObject) -> list[Cause]:
    """Return why the mapping may not be kept."""
    causes: list[Cause] = []
    for address, entries in spec(mapping).items():
        ip, _, port = address.rpartition(":")
        if syntax.ipv4(ip) or not port.isascii() or not port.isdigit() or syntax.port_number(int(port[:6])):
            causes.append(cause.invalid("spec", address, "must be ADDRESS:PORT of a service"))
        causes += _SHARES(f"spec[{address}]", entries)
    return causes


# --- HorizontalPodAutoscaler ----------------------------------------------------------------------


def _most_replicas(at: str, declared: JsonObject) -> list[Cause]:
    lowest, highest = declared.get("minReplicas"), declared.get("maxReplicas")
    if highest is None:
        return [cause.required(f"{at}.maxReplicas")]
    detail = "must be greater than or equal to `minReplicas`"
    return [cause.invalid(f"{at}.maxReplicas", highest, detail)] if highest < max(lowest or 1, 1) else []


def _metric(at: str, metric: JsonObject) -> list[Cause]:
    name, target = metric.get("name"), metric.get("target") or {}
    if name not in _METRIC_TYPES:
        return check.mandatory(check.one_of(*_METRIC_TYPES))(f"{at}.name", name)
    kind, field = _METRIC_TYPES[name]
    causes = check.mandatory(check.one_of(kind))(f"{at}.target.type", target.get("type"))
    if target.get(field) is None:
        causes.append(cause.required(f"{at}.target.{field}", f"{name} is compared with it"))
    elif target[field] <= 0:
        causes.append(cause.invalid(f"{at}.target.{field}", target[field], "must be greater than 0"))
    upper, lower = target.get("upperThreshold"), target.get("lowerThreshold")
    if upper is not None and lower is not None and lower > upper:
        causes.append(cause.invalid(f"{at}.target.lowerThreshold", lower, "must not be above upperThreshold"))
    return causes


_POLICY = check.if_given(
    check.fields(
        ("type", check.mandatory(check.one_of("Percent", "Pods"))),
        ("value", check.absent_as(0, check.at_least(1))),
        ("periodSeconds", check.absent_as(0, check.between(1, 1800, "must be between 1 and 1800"))),
    )
)
_AUTOSCALER = check.of_spec(
    ("minReplicas", check.at_least(1)),
    ("", _most_replicas),
    ("scaleWindowSeconds", check.at_least(1)),
    ("scaleTargetRef.kind", check.mandatory(check.one_of("ReplicaSet"))),
    ("scaleTargetRef.name", _NAME),
    ("metrics", check.each(_metric)),
    ("behavior.scaleUp", _POLICY),
    ("behavior.scaleDown", _POLICY),
)


def validate_autoscaler(autoscaler: JsonObject) -> list[Cause]:
    """Return why the autoscaler may not be kept; who may write it may not scale in another namespace by it."""
    causes = _AUTOSCALER(autoscaler)
    wanted, own = (spec(autoscaler).get("scaleTargetRef") or {}).get("namespace"), namespace(autoscaler)
    if wanted and wanted != own:
        detail = f"must be the autoscaler's own, {own}"
        causes.append(cause.invalid("spec.scaleTargetRef.namespace", wanted, detail))
    return causes


_SUFFIXES = ", ".join(SUFFIXES)


def _is_short(text: str) -> bool:
    return len(text.encode("utf-8", "replace")) <= SOURCE_BYTES


def validate_job_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old job may not become the new one: a job that was submitted stays what it is."""
    changed = sorted(field for field in {*spec(new), *spec(old)} if spec(new).get(field) != spec(old).get(field))
    return [cause.immutable(f"spec.{field}", spec(new).get(field)) for field in changed]


# --- Job ------------------------------------------------------------------------------------------

_NO_SOURCE = "the server reads no files: apply the manifest with `minik8s apply`, which puts the text of codePath here"
_PARTITION = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")  # it becomes a label
validate_job = check.of_spec(
    (
        "partition",
        check.mandatory(check.held(lambda name: bool(_PARTITION.fullmatch(name)), "must be a label's value")),
    ),
    ("file", check.mandatory()),
    ("codePath", check.mandatory(check.held(lambda path: path.endswith(SUFFIXES), f"must end with {_SUFFIXES}"))),
    ("source", check.mandatory(detail=_NO_SOURCE)),
    ("source", check.if_set(check.held(_is_short, f"must have at most {SOURCE_BYTES >> 10} KiB"))),
    ("file", check.if_set(check.held(lambda name: "/" not in name, "must be the name of a file, not a path"))),
    ("threadNum", check.at_least(1)),
    ("taskPerNode", check.at_least(1)),
    ("cpu_per_task", check.at_least(1)),
    ("gpu-num", check.not_negative),
)

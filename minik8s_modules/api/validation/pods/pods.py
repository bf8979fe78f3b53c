"""Validation of pods: what ``kubectl create`` is told of a pod spec. Containers and volumes have modules of their own.

Source: kubernetes ``pkg/apis/core/validation/validation.go`` (``ValidatePodSpec``, ``ValidatePodUpdate``).
"""

from __future__ import annotations

import copy
import json
from typing import Any

import orjson

from minik8s_modules.api import cause, syntax
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, init_containers, spec
from minik8s_modules.api.validation import check
from minik8s_modules.api.validation.meta import validate_labels
from minik8s_modules.api.validation.pods import affinity, gates, mirrors, security
from minik8s_modules.api.validation.pods.containers import validate_containers
from minik8s_modules.api.validation.pods.ephemeral_claims import made_claims
from minik8s_modules.api.validation.pods.probes import validate_probes
from minik8s_modules.api.validation.pods.resizes import validate_policies
from minik8s_modules.api.validation.pods.resources import validate_pod_resources
from minik8s_modules.api.validation.pods.volumes import validate_volumes

_LARGEST = 2**31 - 1
_CHANGEABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def validate_pod(pod: JsonObject) -> list[Cause]:
    """Return why the pod may not be kept."""
    declared = spec(pod)
    causes, volumes = validate_volumes("spec.volumes", declared.get("volumes") or [])
    causes += made_claims("spec.volumes", pod)
    host_network = bool(declared.get("hostNetwork"))
    causes += validate_containers(
        "spec.containers", declared.get("containers") or [], volumes, host_network=host_network
    )
    causes += validate_containers(
        "spec.initContainers", init_containers(pod), volumes, host_network=host_network, init=True
    )
    causes += validate_pod_resources(pod)
    causes += validate_probes(pod) + validate_policies(pod)
    causes += _container_names(declared)
    if not pod.get("metadata", {}).get("resourceVersion") and declared.get("ephemeralContainers"):
        causes.append(cause.forbidden("spec.ephemeralContainers", "cannot be set on create"))
    causes += _SCALARS("spec", declared)
    causes += security.pod_security(pod)
    causes += affinity.pod_placement("spec", declared)
    causes += validate_labels("spec.nodeSelector", declared.get("nodeSelector") or {})
    causes += _dns(declared)
    causes += _tolerations(declared.get("tolerations") or [])
    causes += gates.validate_gates(declared)
    return causes + (_nul_bytes("spec", declared) if _may_have_nul(declared) else [])


def _may_have_nul(declared: JsonObject) -> bool:
    """Return whether some text may have a NUL: most pods have none, and an encoder sees that faster than a walk."""
    try:
        return b"\\u0000" in orjson.dumps(declared)
    except TypeError:  # what JSON has, and orjson has not: a client's check of a file in YAML
        return "\\u0000" in json.dumps(declared)


def _container_names(declared: JsonObject) -> list[Cause]:
    app = {container.get("name") for container in declared.get("containers") or []}
    return [
        cause.duplicate(f"spec.initContainers[{index}].name", container["name"])
        for index, container in enumerate(declared.get("initContainers") or [])
        if container.get("name") and container["name"] in app
    ]


_SCALARS = check.fields(
    ("restartPolicy", check.one_of("Always", "OnFailure", "Never")),
    ("dnsPolicy", check.one_of("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")),
    (("nodeName", "serviceAccountName"), check.if_set(check.subdomain)),
    (("hostname", "subdomain"), check.if_set(check.label)),
    ("priorityClassName", check.if_set(check.subdomain)),
    ("terminationGracePeriodSeconds", check.not_negative),
    ("os", check.if_set(check.fields(("name", check.if_given(check.one_of("linux")))))),
)
_MAX_NAMESERVERS, _MAX_SEARCHES, _MAX_SEARCH_CHARACTERS = 3, 32, 2048


def _dns(declared: JsonObject) -> list[Cause]:
    field, config, causes = "spec.dnsConfig", declared.get("dnsConfig"), []
    if declared.get("dnsPolicy") == "None":
        if config is None:
            causes.append(cause.required(field, "must provide `dnsConfig` when `dnsPolicy` is None"))
        elif not config.get("nameservers"):
            detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            causes.append(cause.required(f"{field}.nameservers", detail))
    servers, searches = (config or {}).get("nameservers") or [], (config or {}).get("searches") or []
    if len(servers) > _MAX_NAMESERVERS:
        causes.append(cause.invalid(f"{field}.nameservers", servers, "must not have more than 3 nameservers"))
    for index, server in enumerate(servers):
        causes += cause.all_invalid(f"{field}.nameservers[{index}]", server, syntax.ip(server))
    if len(searches) > _MAX_SEARCHES:
        causes.append(cause.invalid(f"{field}.searches", searches, "must not have more than 32 search paths"))
    if len(" ".join(searches)) > _MAX_SEARCH_CHARACTERS:
        detail = "must not have more than 2048 characters (including spaces) in the search list"
        causes.append(cause.invalid(f"{field}.searches", searches, detail))
    for index, search in enumerate(searches):
        messages = syntax.dns1123_subdomain(search.removesuffix("."))
        causes += cause.all_invalid(f"{field}.searches[{index}]", search, messages)
    return causes + _dns_options(field, (config or {}).get("options") or [])


def _dns_options(field: str, options: list[JsonObject]) -> list[Cause]:
    """Refuse options without a name, and those that would end their line of resolv.conf."""
    causes = []
    for index, option in enumerate(options):
        at = f"{field}.options[{index}]"
        if not option.get("name"):
            causes.append(cause.required(at, "must not be empty"))
        causes += [
            cause.invalid(f"{at}.{part}", option[part], "must not contain white space")
            for part in ("name", "value")
            if any(map(str.isspace, option.get(part) or ""))
        ]
    return causes


_EFFECT = check.if_set(check.one_of("NoSchedule", "PreferNoSchedule", "NoExecute"))


def _tolerations(tolerations: list[JsonObject]) -> list[Cause]:
    causes = []
    for index, toleration in enumerate(tolerations):
        field, key = f"spec.tolerations[{index}]", toleration.get("key") or ""
        operator = toleration.get("operator") or "Equal"
        if key:
            causes += cause.all_invalid(f"{field}.key", key, syntax.qualified_name(key))
        elif operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            causes.append(cause.invalid(f"{field}.operator", toleration.get("operator") or "", detail))
        if operator not in {"Equal", "Exists"}:
            causes.append(cause.not_supported(f"{field}.operator", operator, ["Equal", "Exists"]))
        if operator == "Exists" and toleration.get("value"):
            causes.append(
                cause.invalid(
                    f"{field}.operator", toleration["value"], "value must be empty when `operator` is 'Exists'"
                )
            )
        causes += _EFFECT(f"{field}.effect", toleration.get("effect"))
    return causes


def _nul_bytes(field: str, value: Any) -> list[Cause]:
    """Refuse NUL in any text: no program can be given one, and each consumer would cut it elsewhere."""
    if isinstance(value, str):
        return [cause.invalid(field, value, "must not contain a NUL character")] if "\0" in value else []
    if isinstance(value, dict):
        return [
            c for name, inner in value.items() for c in (*_nul_bytes(f"{field}.{name}", inner), *_nul_key(field, name))
        ]
    if isinstance(value, list):
        return [c for index, inner in enumerate(value) for c in _nul_bytes(f"{field}[{index}]", inner)]
    return []


def _nul_key(field: str, name: str) -> list[Cause]:
    return [cause.invalid(field, name, "must not contain a NUL character")] if "\0" in name else []


def validate_pod_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old pod may not become the new one: all but images, tolerations added and a deadline is fixed."""
    after, before = spec(new), spec(old)
    for field in ("containers", "initContainers"):
        if len(after.get(field) or []) != len(before.get(field) or []):
            return [cause.forbidden(f"spec.{field}", "pod updates may not add or remove containers")]
    causes = [*mirrors.validate_change(new, old), *_deadline(after, before)]
    causes += _added_tolerations(after.get("tolerations") or [], before.get("tolerations") or [])
    causes += gates.changed_gates(after, before)
    munged = before if after == before else _with_allowed_changes(after, before)
    if munged != before and not causes:
        changed = sorted(_differences("spec", munged, before))
        causes.append(cause.forbidden("spec", f"{_CHANGEABLE}\nchanged: {', '.join(changed)}"))
    return causes


def _with_allowed_changes(after: JsonObject, before: JsonObject) -> JsonObject:
    """Return the new spec with the old values of the fields that may change."""
    munged = copy.deepcopy(gates.with_gated_changes(after, before))
    for field in ("containers", "initContainers"):
        for container, old in zip(munged.get(field) or [], before.get(field) or [], strict=True):
            if container.get("image") and "image" in old:
                container["image"] = old["image"]
    for field in ("activeDeadlineSeconds", "tolerations"):
        munged.pop(field, None)
        if field in before:
            munged[field] = before[field]
    if munged.get("terminationGracePeriodSeconds") == 1 and (before.get("terminationGracePeriodSeconds") or 0) < 0:
        munged["terminationGracePeriodSeconds"] = before["terminationGracePeriodSeconds"]
    return munged


def _deadline(after: JsonObject, before: JsonObject) -> list[Cause]:
    field = "spec.activeDeadlineSeconds"
    wanted, there = after.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    if wanted is not None and not 0 <= wanted <= _LARGEST:
        return [cause.invalid(field, wanted, f"must be between 0 and {_LARGEST}, inclusive")]
    if there is None:
        return []
    if wanted is None:
        return [cause.invalid(field, None, "must not update from a positive integer to nil value")]
    return [cause.invalid(field, wanted, "must be less than or equal to previous value")] if wanted > there else []


def _added_tolerations(after: list[JsonObject], before: list[JsonObject]) -> list[Cause]:
    wanted = {tuple(sorted(toleration.items())) for toleration in after}
    if all(tuple(sorted(toleration.items())) in wanted for toleration in before):
        return []
    return [cause.forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")]


def _differences(field: str, new: Any, old: Any) -> set[str]:
    if isinstance(new, dict) and isinstance(old, dict):
        names = set(new) | set(old)
        return {d for name in names for d in _differences(f"{field}.{name}", new.get(name), old.get(name))}
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        pairs = enumerate(zip(new, old, strict=True))
        return {d for index, (a, b) in pairs for d in _differences(f"{field}[{index}]", a, b)}
    return set() if new == old else {field}

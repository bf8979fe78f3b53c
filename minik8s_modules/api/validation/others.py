"""Validation of the kinds that need little: data, nodes, namespaces, leases, events, reviews and our own.

Source: kubernetes ``pkg/apis/core/validation/validation.go`` and ``events.go``, ``pkg/apis/coordination/validation``.
"""

from __future__ import annotations

import base64
import ipaddress
import json

from minik8s_modules.api import field_errors, quantities, syntax
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.kinds import POD_ADDRESS, POD_CIDR
from minik8s_modules.api.network.host_grants import EVERY_HOST
from minik8s_modules.api.objects import JsonObject, metadata, name, namespace, spec, status
from minik8s_modules.api.schema.structural import missing_fields

DATA_LIMIT_BYTES = 1 << 20
_IMMUTABLE_DATA = "field is immutable when `immutable` is set"


# --- ConfigMap and Secret -------------------------------------------------------------------------


def validate_config_map(config_map: JsonObject) -> list[Cause]:
    """Return why the config map may not be kept."""
    data, binary = config_map.get("data") or {}, config_map.get("binaryData") or {}
    causes = _keys("data", data) + _keys("binaryData", binary)
    causes += [
        field_errors.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
        for key in data
        if key in binary
    ]
    size = sum(len(value.encode()) for value in data.values()) + sum(map(_decoded_size, binary.values()))
    return [*causes, field_errors.too_long("[]", DATA_LIMIT_BYTES)] if size > DATA_LIMIT_BYTES else causes


def _keys(field: str, data: JsonObject) -> list[Cause]:
    return [cause for key in data for cause in field_errors.all_invalid(f"{field}[{key}]", key, syntax.config_key(key))]


def _decoded_size(text: str) -> int:
    return len(base64.b64decode(text))


def validate_config_map_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old config map may not become the new one: an immutable one stays as it is."""
    return _immutable(new, old, ("data", "binaryData"))


def _immutable(new: JsonObject, old: JsonObject, fields: tuple[str, ...]) -> list[Cause]:
    if not old.get("immutable"):
        return []
    causes = [] if new.get("immutable") else [field_errors.forbidden("immutable", _IMMUTABLE_DATA)]
    changed = [field for field in fields if (new.get(field) or {}) != (old.get(field) or {})]
    return causes + [field_errors.forbidden(field, _IMMUTABLE_DATA) for field in changed]


_SECRET_KEYS = {  # the keys that a secret of this type must have
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}


def validate_secret(secret: JsonObject) -> list[Cause]:
    """Return why the secret may not be kept; no message repeats a value."""
    data = secret.get("data") or {}
    causes = _keys("data", data)
    if sum(map(_decoded_size, data.values())) > DATA_LIMIT_BYTES:
        causes.append(field_errors.too_long("data", DATA_LIMIT_BYTES))
    kind = secret.get("type") or ""
    causes += [field_errors.required(f"data[{key}]") for key in _SECRET_KEYS.get(kind, ()) if key not in data]
    causes += [
        _not_json(key) for key in _SECRET_KEYS.get(kind, ()) if key.startswith(".") and not _is_json(data.get(key))
    ]
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & set(data):
        causes += [field_errors.required("data[username]"), field_errors.required("data[password]")]
    if kind == "kubernetes.io/service-account-token" and not (metadata(secret).get("annotations") or {}).get(
        "kubernetes.io/service-account.name"
    ):
        causes.append(field_errors.required("metadata.annotations[kubernetes.io/service-account.name]"))
    return causes


def _is_json(text: str | None) -> bool:
    try:
        json.loads(base64.b64decode(text or "e30="))
    except ValueError:
        return False
    return True


def _not_json(key: str) -> Cause:
    return field_errors.invalid(f"data[{key}]", "<secret contents redacted>", "must be a valid JSON document")


def validate_secret_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old secret may not become the new one: its type stays, an immutable one stays as it is."""
    causes = [] if new.get("type") == old.get("type") else [field_errors.immutable("type", new.get("type"))]
    return causes + _immutable(new, old, ("data",))


# --- cluster --------------------------------------------------------------------------------------


def validate_namespace(obj: JsonObject) -> list[Cause]:
    """Return why the namespace may not be kept."""
    found = spec(obj).get("finalizers") or []
    return [c for each in found for c in field_errors.all_invalid("spec.finalizers", each, syntax.qualified_name(each))]


_TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def validate_node(node: JsonObject) -> list[Cause]:
    """Return why the node may not be kept."""
    declared = spec(node)
    causes: list[Cause] = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(declared.get("taints") or []):
        causes += _taint(f"spec.taints[{index}]", taint)
        key = (taint.get("key", ""), taint.get("effect", ""))
        if key in seen:
            causes.append(field_errors.duplicate(f"spec.taints[{index}]", taint))
        seen.add(key)
    return causes + _pod_ranges(declared) + validate_node_status(node)


def _pod_ranges(declared: JsonObject) -> list[Cause]:
    """Look at ``podCIDR`` and ``podCIDRs``, which begins with it; a node has one range, of IPv4."""
    first, ranges, told = declared.get("podCIDR") or "", declared.get("podCIDRs") or [], "must be an IPv4 CIDR"
    causes = [field_errors.invalid("spec.podCIDR", first, told)] if first and not _is_cidr(first) else []
    causes += [
        field_errors.invalid(f"spec.podCIDRs[{index}]", each, told)
        for index, each in enumerate(ranges)
        if not _is_cidr(each) and (index or each != first)
    ]
    if ranges and ranges[0] != first:
        causes.append(field_errors.invalid("spec.podCIDRs", ranges, "first value must match `podCIDR`"))
    if len(ranges) > 1 and not causes:
        causes.append(
            field_errors.invalid("spec.podCIDRs", ranges, "may specify no more than one CIDR for each IP family")
        )
    return causes


def validate_node_status(node: JsonObject) -> list[Cause]:
    """Return why the node's status may not be kept."""
    causes = []
    for index, each in enumerate(status(node).get("addresses") or []):
        if each.get("type") in {"InternalIP", "ExternalIP"}:
            address = each.get("address") or ""
            causes += field_errors.all_invalid(
                f"status.addresses[{index}].address", address, syntax.ip_address(address)
            )
    for side in ("capacity", "allocatable"):
        causes += _capacity(f"status.{side}", status(node).get(side) or {})
    return causes


def _capacity(field: str, amounts: JsonObject) -> list[Cause]:
    negative = [name for name, amount in amounts.items() if quantities.parse(amount) < 0]
    return [
        field_errors.invalid(f"{field}[{name}]", str(amounts[name]), field_errors.NOT_NEGATIVE) for name in negative
    ]


def _taint(at: str, taint: JsonObject) -> list[Cause]:
    key, value = taint.get("key") or "", taint.get("value") or ""
    causes = field_errors.all_invalid(f"{at}.key", key, syntax.qualified_name(key))
    causes += field_errors.all_invalid(f"{at}.value", value, syntax.label_value(value))
    if not taint.get("effect"):
        causes.append(field_errors.required(f"{at}.effect"))
    elif taint["effect"] not in _TAINT_EFFECTS:
        causes.append(field_errors.not_supported(f"{at}.effect", taint["effect"], _TAINT_EFFECTS))
    return causes


def _is_cidr(text: str) -> bool:
    try:
        ipaddress.IPv4Network(text)
    except ValueError:
        return False
    return True


def validate_node_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old node may not become the new one: its pod addresses are given once."""
    before, after = spec(old), spec(new)
    told = 'node updates may not change podCIDR except from "" to valid'
    changed = [f for f in ("podCIDR", "podCIDRs") if before.get(f) and after.get(f) != before[f]]
    return [field_errors.forbidden(f"spec.{field}", told) for field in changed]


# --- coordination and events ----------------------------------------------------------------------


def validate_lease(lease: JsonObject) -> list[Cause]:
    """Return why the lease may not be kept."""
    declared, causes = spec(lease), []
    duration_s, transitions = declared.get("leaseDurationSeconds"), declared.get("leaseTransitions")
    if duration_s is not None and duration_s <= 0:
        causes.append(field_errors.invalid("spec.leaseDurationSeconds", duration_s, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        causes.append(field_errors.invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    if declared.get("holderIdentity") == "":
        causes.append(field_errors.invalid("spec.holderIdentity", "", "must not be empty"))
    return causes


def validate_event(event: JsonObject) -> list[Cause]:
    """Return why the (core) event may not be kept: it lives beside the object it tells of."""
    involved = event.get("involvedObject") or event.get("regarding") or {}
    field = "regarding" if "regarding" in event else "involvedObject"
    beside = involved.get("namespace") or "default"
    if namespace(event) != beside and not (
        beside == "default" and not involved.get("namespace") and namespace(event) == "kube-system"
    ):
        return [
            field_errors.invalid(
                f"{field}.namespace", involved.get("namespace") or "", "does not match event.namespace"
            )
        ]
    return []


# --- ours, and reviews ----------------------------------------------------------------------------


def validate_pod_address(address: JsonObject) -> list[Cause]:
    """Return why the address may not be kept."""
    return missing_fields(POD_ADDRESS, address)


def validate_pod_address_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old address may not become the new one: its holder stays; delete it to free the address."""
    return (
        []
        if spec(new) == spec(old)
        else [field_errors.forbidden("spec", "an address keeps its holder; delete it to free it")]
    )


def validate_pod_cidr(claim: JsonObject) -> list[Cause]:
    """Return why the claim of a range may not be kept: its name is the range, with a ``-`` for the ``/``."""
    told = spec(claim).get("cidr") or ""
    if told and told.replace("/", "-") != name(claim):
        return [field_errors.invalid("spec.cidr", told, "must be the object's name with a / before the prefix length")]
    return missing_fields(POD_CIDR, claim)


def validate_pod_cidr_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old claim may not become the new one: a range keeps its node until it is freed."""
    return (
        []
        if spec(new) == spec(old)
        else [field_errors.forbidden("spec", "a range keeps its node; delete it to free it, once the machine is clean")]
    )


def validate_host_grant(grant: JsonObject) -> list[Cause]:
    """Return why the grant may not be kept."""
    declared = spec(grant)
    namespaces, hosts = declared.get("namespaces") or [], declared.get("hosts") or []
    causes = [] if namespaces else [field_errors.required("spec.namespaces", "at least one namespace")]
    if not hosts and not declared.get("shortNames"):
        causes.append(field_errors.required("spec.hosts", "at least one host, unless `shortNames` is true"))
    for field, values in (("namespaces", namespaces), ("hosts", hosts)):
        for index, value in enumerate(values):
            causes += field_errors.all_invalid(f"spec.{field}[{index}]", value, _not_granted(field, value))
        causes += field_errors.duplicates(f"spec.{field}", values)
    return causes


def _not_granted(field: str, value: str) -> list[str]:
    """Return what keeps a value from being a namespace, or a host that can be given."""
    if field == "namespaces":
        return syntax.dns1123_label(value)
    return [] if value == EVERY_HOST else syntax.dns1123_subdomain(value.removeprefix("*."))


def validate_plan(plan: JsonObject) -> list[Cause]:
    """Return what keeps the plan from being answered: objects must say what they are."""
    causes: list[Cause] = []
    for field in ("objects", "deleted"):
        for index, obj in enumerate(spec(plan).get(field) or []):
            at = f"spec.{field}[{index}]"
            if not isinstance(obj, dict):
                causes.append(field_errors.invalid(at, obj, "must be an object"))
                continue
            causes += [
                field_errors.required(f"{at}.{each}")
                for each in ("apiVersion", "kind", "metadata")
                if not obj.get(each)
            ]
            if not isinstance(obj.get("metadata") or {}, dict):
                causes.append(field_errors.invalid(f"{at}.metadata", obj["metadata"], "must be an object"))
    return causes


def validate_access_review(review: JsonObject) -> list[Cause]:
    """Return what keeps the review from being answered: it asks about a resource or about a path, not both."""
    resource, path = spec(review).get("resourceAttributes"), spec(review).get("nonResourceAttributes")
    if resource is not None and path is not None:
        told = "cannot be specified in combination with resourceAttributes"
        return [field_errors.invalid("spec.nonResourceAttributes", path, told)]
    if resource is None and path is None:
        told = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        return [field_errors.invalid("spec.resourceAttributes", None, told)]
    return []

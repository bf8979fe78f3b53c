"""Validation of the kinds that need little: data, nodes, namespaces, leases, events, reviews and our own.

Source: kubernetes ``pkg/apis/core/validation/validation.go`` and ``events.go``, ``pkg/apis/coordination/validation``.
"""

from __future__ import annotations

import base64
import ipaddress
import json
from typing import Any

from minik8s_modules.api import cause, quantities, syntax
from minik8s_modules.api.defaulting import dialect
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.kinds import POD_ADDRESS, POD_CIDR
from minik8s_modules.api.network.host_grants import EVERY_HOST
from minik8s_modules.api.objects import JsonObject, labels, metadata, name, namespace, spec, status
from minik8s_modules.api.schema.structural import missing_fields
from minik8s_modules.api.validation import check

DATA_LIMIT_BYTES = 1 << 20
_IMMUTABLE_DATA = "field is immutable when `immutable` is set"


# --- ConfigMap and Secret -------------------------------------------------------------------------


def validate_config_map(config_map: JsonObject) -> list[Cause]:
    """Return why the config map may not be kept."""
    data, binary = config_map.get("data") or {}, config_map.get("binaryData") or {}
    causes = _keys("data", data) + _keys("binaryData", binary)
    causes += [
        cause.invalid(f"data[{key}]", key, "duplicate of key present in binaryData") for key in data if key in binary
    ]
    size = sum(len(value.encode()) for value in data.values()) + sum(map(_decoded_size, binary.values()))
    return [*causes, cause.too_long("[]", DATA_LIMIT_BYTES)] if size > DATA_LIMIT_BYTES else causes


def _keys(field: str, data: JsonObject) -> list[Cause]:
    return [one for key in data for one in cause.all_invalid(f"{field}[{key}]", key, syntax.config_key(key))]


def _decoded_size(text: str) -> int:
    return len(base64.b64decode(text))


def validate_config_map_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old config map may not become the new one: an immutable one stays as it is."""
    return _immutable(new, old, ("data", "binaryData"))


def _immutable(new: JsonObject, old: JsonObject, fields: tuple[str, ...]) -> list[Cause]:
    if not old.get("immutable"):
        return []
    causes = [] if new.get("immutable") else [cause.forbidden("immutable", _IMMUTABLE_DATA)]
    changed = [field for field in fields if (new.get(field) or {}) != (old.get(field) or {})]
    return causes + [cause.forbidden(field, _IMMUTABLE_DATA) for field in changed]


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
        causes.append(cause.too_long("data", DATA_LIMIT_BYTES))
    kind = secret.get("type") or ""
    causes += [cause.required(f"data[{key}]") for key in _SECRET_KEYS.get(kind, ()) if key not in data]
    causes += [
        _not_json(key) for key in _SECRET_KEYS.get(kind, ()) if key.startswith(".") and not _is_json(data.get(key))
    ]
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & set(data):
        causes += [cause.required("data[username]"), cause.required("data[password]")]
    if kind == "kubernetes.io/service-account-token" and not (metadata(secret).get("annotations") or {}).get(
        "kubernetes.io/service-account.name"
    ):
        causes.append(cause.required("metadata.annotations[kubernetes.io/service-account.name]"))
    return causes


def _is_json(text: str | None) -> bool:
    try:
        json.loads(base64.b64decode(text or "e30="))
    except (ValueError, RecursionError):
        return False
    return True


def _not_json(key: str) -> Cause:
    return cause.invalid(f"data[{key}]", "<secret contents redacted>", "must be a valid JSON document")


def validate_secret_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old secret may not become the new one: its type stays, an immutable one stays as it is."""
    causes = [] if new.get("type") == old.get("type") else [cause.immutable("type", new.get("type"))]
    return causes + _immutable(new, old, ("data",))


# --- cluster --------------------------------------------------------------------------------------


_NAMESPACE_SPEC = check.of_spec(
    ("finalizers", lambda at, names: [one for name in names or () for one in check.qualified_name(at, name)])
)


def validate_namespace(namespace: JsonObject) -> list[Cause]:
    """Return why the namespace may not be kept."""
    label, known = labels(namespace).get(dialect.ANNOTATION), (dialect.KUBERNETES, dialect.ORIGINAL)
    at = f"metadata.labels[{dialect.ANNOTATION}]"
    wrong = [] if label is None or label in known else [cause.not_supported(at, label, known)]
    return [*_NAMESPACE_SPEC(namespace), *wrong]


def validate_node(node: JsonObject) -> list[Cause]:
    """Return why the node may not be kept."""
    causes: list[Cause] = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(spec(node).get("taints") or []):
        causes += _TAINT(f"spec.taints[{index}]", taint)
        key = (taint.get("key", ""), taint.get("effect", ""))
        if key in seen:
            causes.append(cause.duplicate(f"spec.taints[{index}]", taint))
        seen.add(key)
    return causes + _pod_ranges(spec(node)) + validate_node_status(node)


_TAINT = check.fields(
    ("key", check.qualified_name),
    ("value", check.label_value),
    ("effect", check.mandatory(check.one_of("NoSchedule", "PreferNoSchedule", "NoExecute"))),
)


_EVERYBODY = ipaddress.IPv4Address("255.255.255.255")


def _pod_ranges(declared: JsonObject) -> list[Cause]:
    """Look at ``podCIDR`` and ``podCIDRs``, which begins with it: one range of IPv4, then perhaps one of IPv6.

    Where Pods have IPv6 addresses alone, that is the only one.
    """
    first, ranges = declared.get("podCIDR") or "", declared.get("podCIDRs") or []
    if _is_cidr_ipv6(first) and ranges in ([], [first]):
        shortest = str(ipaddress.IPv6Network(first))  # nodes compare ranges, and one has many spellings
        detail = f"must be in canonical form ({shortest})"
        return [] if first == shortest else [cause.invalid("spec.podCIDR", first, detail)]
    details = ("must be an IPv4 CIDR", "must be an IPv6 CIDR")
    causes = [cause.invalid("spec.podCIDR", first, details[0])] if first and not _is_cidr(first) else []
    causes += [
        cause.invalid(f"spec.podCIDRs[{index}]", each, details[index])
        for index, each in enumerate(ranges[: len(details)])
        if not (_is_cidr_ipv6 if index else _is_cidr)(each) and (index or each != first)
    ]
    if ranges and ranges[0] != first:
        causes.append(cause.invalid("spec.podCIDRs", ranges, "first value must match `podCIDR`"))
    if len(ranges) > len(details) and not causes:
        causes.append(cause.invalid("spec.podCIDRs", ranges, "may specify no more than one CIDR for each IP family"))
    return causes


def _address(at: str, address: JsonObject) -> list[Cause]:
    is_ip = address.get("type") in {"InternalIP", "ExternalIP"}
    return check.syntax_of(syntax.ip_address)(f"{at}.address", address.get("address")) if is_ip else []


def _amounts(at: str, amounts: JsonObject) -> list[Cause]:
    negative = [name for name, amount in amounts.items() if quantities.parse(amount) < 0]
    return [cause.invalid(f"{at}[{name}]", str(amounts[name]), cause.NOT_NEGATIVE) for name in negative]


_NODE_STATUS = check.fields(("addresses", check.each(_address)), (("capacity", "allocatable"), check.if_set(_amounts)))


def validate_node_status(node: JsonObject) -> list[Cause]:
    """Return why the node's status may not be kept."""
    return [*_NODE_STATUS("status", status(node)), *_volumes(status(node))]


def _volumes(node_status: JsonObject) -> list[Cause]:
    """Look at the volumes a node uses and has attached: ``<plugin>/<name>`` each, and once."""
    rows = [(f"status.volumesInUse[{index}]", each) for index, each in enumerate(node_status.get("volumesInUse") or ())]
    rows += [
        (f"status.volumesAttached[{index}].name", each.get("name") or "")
        for index, each in enumerate(node_status.get("volumesAttached") or ())
    ]
    seen: set[tuple[str, str]] = set()
    causes = []
    for field, called in rows:
        key = (field.partition("[")[0], called)
        if key in seen:
            causes.append(cause.duplicate(field, called))
        elif not all(called.rpartition("/")[::2]):
            causes.append(cause.invalid(field, called, "must be the unique name of a volume, <plugin>/<volume>"))
        seen.add(key)
    return causes


def _is_cidr(text: str) -> bool:
    try:
        found = ipaddress.IPv4Network(text)
    except ValueError:
        return False
    return found.broadcast_address != _EVERYBODY  # the node's own address follows the first one


def _is_cidr_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Network(text)
    except ValueError:
        return False
    return "%" not in text  # one of a device


def validate_node_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old node may not become the new one: its ranges of pod addresses are each given once."""
    before, after = spec(old), spec(new)
    detail = 'node updates may not change podCIDR except from "" to valid'
    had, has = before.get("podCIDRs") or [], after.get("podCIDRs") or []
    kept = {"podCIDR": after.get("podCIDR") == before.get("podCIDR"), "podCIDRs": has[: len(had)] == had}
    changed = [field for field, same in kept.items() if before.get(field) and not same]
    return [cause.forbidden(f"spec.{field}", detail) for field in changed]


# --- coordination and events ----------------------------------------------------------------------


validate_lease = check.of_spec(
    ("leaseDurationSeconds", check.at_least(1, "must be greater than 0")),
    ("leaseTransitions", check.not_negative),
    ("holderIdentity", check.if_given(check.held(bool, "must not be empty"))),
)


def validate_event(event: JsonObject) -> list[Cause]:
    """Return why the (core) event may not be kept: it lives beside the object it tells of."""
    involved = event.get("involvedObject") or event.get("regarding") or {}
    field = "regarding" if "regarding" in event else "involvedObject"
    beside = involved.get("namespace") or "default"
    if namespace(event) != beside and not (
        beside == "default" and not involved.get("namespace") and namespace(event) == "kube-system"
    ):
        return [cause.invalid(f"{field}.namespace", involved.get("namespace") or "", "does not match event.namespace")]
    return []


# --- ours, and reviews ----------------------------------------------------------------------------


def validate_pod_address(address: JsonObject) -> list[Cause]:
    """Return why the address may not be kept."""
    return missing_fields(POD_ADDRESS, address)


def validate_pod_address_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old address may not become the new one: its holder stays; delete it to free the address."""
    return (
        [] if spec(new) == spec(old) else [cause.forbidden("spec", "an address keeps its holder; delete it to free it")]
    )


def validate_pod_cidr(claim: JsonObject) -> list[Cause]:
    """Return why the claim of a range may not be kept: its name is the range, with a ``-`` for the ``/``."""
    cidr = spec(claim).get("cidr") or ""
    if cidr and cidr != name(claim).replace("-", "/"):
        return [cause.invalid("spec.cidr", cidr, "must be the object's name with a / before the prefix length")]
    return missing_fields(POD_CIDR, claim)


def validate_pod_cidr_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old claim may not become the new one: a range keeps its node until it is freed."""
    return (
        []
        if spec(new) == spec(old)
        else [cause.forbidden("spec", "a range keeps its node; delete it to free it, once the machine is clean")]
    )


def _hosts_or_short_names(at: str, grant: JsonObject) -> list[Cause]:
    if grant.get("hosts") or grant.get("shortNames"):
        return []
    return [cause.required(f"{at}.hosts", "at least one host, unless `shortNames` is true")]


def _host_problems(host: str) -> list[str]:
    return [] if host == EVERY_HOST else syntax.dns1123_subdomain(host.removeprefix("*."))


validate_host_grant = check.of_spec(
    ("namespaces", check.mandatory(detail="at least one namespace")),
    ("", _hosts_or_short_names),
    ("namespaces", check.if_given(check.every(check.each(check.label), cause.duplicates))),
    ("hosts", check.if_given(check.every(check.each(check.syntax_of(_host_problems)), cause.duplicates))),
)


def _planned(at: str, obj: Any) -> list[Cause]:
    if not isinstance(obj, dict):
        return [cause.invalid(at, obj, "must be an object")]
    causes = _NAMED(at, obj)
    if not isinstance(obj.get("metadata") or {}, dict):
        causes.append(cause.invalid(f"{at}.metadata", obj["metadata"], "must be an object"))
    return causes


_NAMED = check.fields((("apiVersion", "kind", "metadata"), check.mandatory()))
validate_plan = check.of_spec((("objects", "deleted"), check.each(_planned)))
"""What keeps a plan from being answered: objects must say what they are."""


def validate_access_review(review: JsonObject) -> list[Cause]:
    """Return what keeps the review from being answered: it asks about a resource or about a path, not both."""
    resource, path = spec(review).get("resourceAttributes"), spec(review).get("nonResourceAttributes")
    if resource is not None and path is not None:
        detail = "cannot be specified in combination with resourceAttributes"
        return [cause.invalid("spec.nonResourceAttributes", path, detail)]
    if resource is None and path is None:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        return [cause.invalid("spec.resourceAttributes", None, detail)]
    return []

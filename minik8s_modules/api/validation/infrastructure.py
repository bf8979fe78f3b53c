"""Validation of volumes, storage classes, ingresses and network policies.

Source: kubernetes ``pkg/apis/{core,storage,networking}/validation/validation.go``.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from minik8s_modules.api import field_errors, quantities, syntax
from minik8s_modules.api.defaulting import dialect
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.network.ingress_routes import CLASS_ANNOTATION
from minik8s_modules.api.objects import JsonObject, dig, spec, status
from minik8s_modules.api.schema.shapes import shape
from minik8s_modules.api.validation import shared
from minik8s_modules.api.validation.containers import PROTOCOLS

_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES = ("Block", "Filesystem")
_NO_SOURCES = frozenset({
    "accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity", "persistentVolumeReclaimPolicy",
    "storageClassName", "volumeAttributesClassName", "volumeMode",
})  # fmt: skip


def _access_modes(modes: list[str]) -> list[Cause]:
    causes = [
        field_errors.not_supported("spec.accessModes", mode, _ACCESS_MODES)
        for mode in modes
        if mode not in _ACCESS_MODES
    ]
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        told = "may not use ReadWriteOncePod with other access modes"
        causes.append(field_errors.forbidden("spec.accessModes", told))
    return causes


def _storage(at: str, amounts: JsonObject) -> list[Cause]:
    if "storage" not in amounts:
        return [field_errors.required(f"{at}[storage]")]
    amount = amounts["storage"]
    return (
        []
        if quantities.parse(amount) > 0
        else [field_errors.invalid(f"{at}[storage]", str(amount), "must be greater than zero")]
    )


# --- volumes --------------------------------------------------------------------------------------


def validate_volume(volume: JsonObject) -> list[Cause]:
    """Return why the persistent volume may not be kept."""
    declared = spec(volume)
    modes = declared.get("accessModes") or []
    causes = _access_modes(modes) if modes else [field_errors.required("spec.accessModes")]
    capacity = declared.get("capacity") or {}
    if not capacity:
        causes.append(field_errors.required("spec.capacity"))
    elif set(capacity) != {"storage"}:
        causes.append(field_errors.not_supported("spec.capacity", sorted(capacity)[0], ["storage"]))
    else:
        causes += _storage("spec.capacity", capacity)
    policies = ("Delete", "Recycle", "Retain")
    causes += shared.one_of(
        "spec.persistentVolumeReclaimPolicy", declared.get("persistentVolumeReclaimPolicy"), policies
    )
    causes += shared.one_of("spec.volumeMode", declared.get("volumeMode"), _VOLUME_MODES)
    own = dig(volume, "metadata", "annotations", dialect.ANNOTATION) == dialect.ORIGINAL
    return causes + (_source(declared) if _sources(declared) or not own else [])  # the original finds the place itself


def _sources(declared: JsonObject) -> dict[str, Any]:
    known = shape("io.k8s.api.core.v1.PersistentVolumeSpec").fields
    return {field: declared[field] for field in declared if field in known and field not in _NO_SOURCES}


def _source(declared: JsonObject) -> list[Cause]:
    sources = _sources(declared)
    if not sources:
        return [field_errors.required("spec", "must specify a volume type")]
    causes = [
        field_errors.forbidden(f"spec.{field}", "may not specify more than 1 volume type")
        for field in list(sources)[1:]
    ]
    path = (sources.get("hostPath") or {}).get("path")
    if "hostPath" in sources and not path:
        causes.append(field_errors.required("spec.hostPath.path"))
    elif path and ".." in path.split("/"):
        causes.append(field_errors.invalid("spec.hostPath.path", path, "must not contain '..'"))
    if "local" in sources:
        if not (sources["local"] or {}).get("path"):
            causes.append(field_errors.required("spec.local.path"))
        if not declared.get("nodeAffinity"):
            causes.append(field_errors.required("spec.nodeAffinity", "Local volume requires node affinity"))
    if "nfs" in sources:
        nfs = sources["nfs"] or {}
        causes += [field_errors.required(f"spec.nfs.{field}") for field in ("server", "path") if not nfs.get(field)]
        if nfs.get("path") and not nfs["path"].startswith("/"):
            causes.append(field_errors.invalid("spec.nfs.path", nfs["path"], "must be an absolute path"))
    return causes


def validate_volume_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old volume may not become the new one: what it stands on stays."""
    causes = []
    if _sources(spec(new)) != _sources(spec(old)):
        told = "spec.persistentvolumesource is immutable after creation"
        causes.append(field_errors.forbidden("spec.persistentvolumesource", told))
    if spec(new).get("volumeMode") != spec(old).get("volumeMode"):
        causes.append(field_errors.immutable("spec.volumeMode", spec(new).get("volumeMode")))
    return causes


def validate_claim(claim: JsonObject) -> list[Cause]:
    """Return why the claim may not be kept."""
    declared = spec(claim)
    modes = declared.get("accessModes") or []
    causes = (
        _access_modes(modes)
        if modes
        else [field_errors.required("spec.accessModes", "at least 1 access mode is required")]
    )
    causes += _storage("spec.resources", (declared.get("resources") or {}).get("requests") or {})
    causes += shared.one_of("spec.volumeMode", declared.get("volumeMode"), _VOLUME_MODES)
    if declared.get("selector"):
        causes += shared.label_selector("spec.selector", declared["selector"])
    for field in ("storageClassName", "volumeName"):
        value = declared.get(field)
        if value:
            causes += field_errors.all_invalid(f"spec.{field}", value, syntax.dns1123_subdomain(value))
    return causes


def validate_claim_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old claim may not become the new one: it can be bound, and asked for more when it is."""
    after, before = dict(spec(new)), dict(spec(old))
    wanted, had = ((each.pop("resources", None) or {}).get("requests", {}).get("storage") for each in (after, before))
    if not before.get("volumeName"):
        before.pop("volumeName", None)
        after.pop("volumeName", None)
    for each in (after, before):
        each.pop("volumeAttributesClassName", None)
    bound = status(old).get("phase") == "Bound"
    told = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
    if after != before or (wanted != had and not bound):
        return [field_errors.forbidden("spec", told)]
    if wanted is not None and had is not None and quantities.parse(wanted) < quantities.parse(had):
        return [field_errors.forbidden("spec.resources.requests.storage", "field can not be less than previous value")]
    return []


def validate_storage_class(storage_class: JsonObject) -> list[Cause]:
    """Return why the storage class may not be kept."""
    provisioner = storage_class.get("provisioner") or ""
    causes = (
        field_errors.all_invalid("provisioner", provisioner, syntax.qualified_name(provisioner.lower()))
        if provisioner
        else []
    )
    if not provisioner:
        causes.append(field_errors.required("provisioner"))
    causes += shared.one_of("reclaimPolicy", storage_class.get("reclaimPolicy"), ("Delete", "Retain"))
    modes = ("Immediate", "WaitForFirstConsumer")
    return causes + shared.one_of("volumeBindingMode", storage_class.get("volumeBindingMode"), modes)


def validate_storage_class_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old class may not become the new one."""
    causes = [
        field_errors.forbidden(field, f"updates to {field} are forbidden.")
        for field in ("parameters", "provisioner", "reclaimPolicy")
        if (new.get(field) or None) != (old.get(field) or None)
    ]
    if new.get("volumeBindingMode") != old.get("volumeBindingMode"):
        causes.append(field_errors.immutable("volumeBindingMode", new.get("volumeBindingMode")))
    return causes


# --- ingresses ------------------------------------------------------------------------------------

_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")


def validate_ingress(ingress: JsonObject) -> list[Cause]:
    """Return why the ingress may not be kept."""
    declared, causes = spec(ingress), []
    rules, backend = declared.get("rules") or [], declared.get("defaultBackend")
    if not rules and backend is None:
        causes.append(field_errors.invalid("spec", declared, "either `defaultBackend` or `rules` must be specified"))
    if backend is not None:
        causes += _backend("spec.defaultBackend", backend)
    if declared.get("ingressClassName") is not None:
        own = declared["ingressClassName"]
        causes += field_errors.all_invalid("spec.ingressClassName", own, syntax.dns1123_subdomain(own))
    for index, rule in enumerate(rules):
        at = f"spec.rules[{index}]"
        causes += _host(f"{at}.host", rule.get("host") or "")
        if "http" in rule:
            causes += _paths(f"{at}.http.paths", (rule["http"] or {}).get("paths") or [])
    for index, tls in enumerate(declared.get("tls") or []):
        for number, host in enumerate(tls.get("hosts") or []):
            causes += _host(f"spec.tls[{index}].hosts[{number}]", host)
    return causes


def validate_new_ingress(ingress: JsonObject) -> list[Cause]:
    """Return why a new ingress may not be kept that names its class in both ways (``ValidateIngressCreate``)."""
    told, declared = dig(ingress, "metadata", "annotations", CLASS_ANNOTATION), spec(ingress).get("ingressClassName")
    if told is None or declared is None or told == declared:
        return []
    why = "must match `ingressClassName` when both are specified"
    return [field_errors.invalid(f"annotations.{CLASS_ANNOTATION}", told, why)]


def _host(field: str, host: str) -> list[Cause]:
    if not host:
        return []
    if not syntax.ipv4(host):
        return [field_errors.invalid(field, host, "must be a DNS name, not an IP address")]
    return field_errors.all_invalid(field, host, syntax.dns1123_subdomain(host.removeprefix("*.")))


def _paths(at: str, paths: list[JsonObject]) -> list[Cause]:
    if not paths:
        return [field_errors.required(at)]
    causes = []
    for index, path in enumerate(paths):
        here, kind, text = f"{at}[{index}]", path.get("pathType"), path.get("path") or ""
        if not kind:
            causes.append(field_errors.required(f"{here}.pathType", "pathType must be specified"))
        elif kind not in _PATH_TYPES:
            causes.append(field_errors.not_supported(f"{here}.pathType", kind, _PATH_TYPES))
        if (text or kind in {"Exact", "Prefix"}) and not text.startswith("/"):
            causes.append(field_errors.invalid(f"{here}.path", text, "must be an absolute path"))
        elif kind in {"Exact", "Prefix"}:
            causes += [
                field_errors.invalid(f"{here}.path", text, f"must not contain '{part}'")
                for part in ("//", "/./", "/../", "%2f", "%2F")
                if part in text
            ]
        causes += _backend(f"{here}.backend", path.get("backend") or {})
    return causes


def _backend(at: str, backend: JsonObject) -> list[Cause]:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        return [field_errors.invalid(at, backend, "cannot set both resource and service backends")]
    if service is None:
        return [] if resource is not None else [field_errors.required(at, "one of service or resource is required")]
    own, port, causes = service.get("name") or "", service.get("port") or {}, []
    if not own:
        causes.append(field_errors.required(f"{at}.service.name"))
    else:
        causes += field_errors.all_invalid(f"{at}.service.name", own, syntax.dns1035_label(own))
    if port.get("name") and port.get("number"):
        causes.append(field_errors.invalid(f"{at}.service.port", port, "cannot set both port name & port number"))
    elif port.get("name"):
        causes += field_errors.all_invalid(f"{at}.service.port.name", port["name"], syntax.port_name(port["name"]))
    elif port.get("number"):
        causes += field_errors.all_invalid(
            f"{at}.service.port.number", port["number"], syntax.port_number(port["number"])
        )
    else:
        causes.append(field_errors.required(f"{at}.service.port", "port name or number is required"))
    return causes


def validate_ingress_class(ingress_class: JsonObject) -> list[Cause]:
    """Return why the ingress class may not be kept."""
    controller = spec(ingress_class).get("controller") or ""
    if not controller:
        return [field_errors.required("spec.controller")]
    domain, slash, path = controller.partition("/")
    if not slash or not path:
        told = 'must be a domain-prefixed path (such as "acme.io/foo")'
        return [field_errors.invalid("spec.controller", controller, told)]
    return field_errors.all_invalid("spec.controller", domain, syntax.dns1123_subdomain(domain))


# --- network policies -----------------------------------------------------------------------------


def validate_network_policy(policy: JsonObject) -> list[Cause]:
    """Return why the network policy may not be kept."""
    declared = spec(policy)
    causes = shared.label_selector("spec.podSelector", declared.get("podSelector") or {})
    for field, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(declared.get(field) or []):
            at = f"spec.{field}[{index}]"
            for number, port in enumerate(rule.get("ports") or []):
                causes += _policy_port(f"{at}.ports[{number}]", port)
            for number, peer in enumerate(rule.get(peers) or []):
                causes += _peer(f"{at}.{peers}[{number}]", peer)
    for index, kind in enumerate(declared.get("policyTypes") or []):
        if kind not in {"Egress", "Ingress"}:
            causes.append(field_errors.not_supported(f"spec.policyTypes[{index}]", kind, ["Egress", "Ingress"]))
    return causes


def _policy_port(at: str, port: JsonObject) -> list[Cause]:
    number, causes = port.get("port"), []
    if port.get("protocol") not in PROTOCOLS:
        causes.append(field_errors.not_supported(f"{at}.protocol", port.get("protocol"), PROTOCOLS))
    if isinstance(number, str):
        causes += field_errors.all_invalid(f"{at}.port", number, syntax.port_name(number))
    elif number is not None:
        causes += field_errors.all_invalid(f"{at}.port", number, syntax.port_number(number))
    last = port.get("endPort")
    if last is not None:
        if not isinstance(number, int):
            causes.append(field_errors.required(f"{at}.endPort", "may not be specified when `port` is non-numeric"))
        elif last < number:
            causes.append(field_errors.invalid(f"{at}.endPort", last, "must be greater than or equal to `port`"))
    return causes


def _peer(at: str, peer: JsonObject) -> list[Cause]:
    causes, count = [], 0
    for field in ("podSelector", "namespaceSelector"):
        if peer.get(field) is not None:
            count += 1
            causes += shared.label_selector(f"{at}.{field}", peer[field])
    block = peer.get("ipBlock")
    if block is None:
        return causes if count else [field_errors.required(at, "must specify a peer")]
    if count:
        causes.append(field_errors.forbidden(at, "may not specify both ipBlock and another peer"))
    return causes + _block(f"{at}.ipBlock", block)


def _block(at: str, block: JsonObject) -> list[Cause]:
    whole = _network(block.get("cidr") or "")
    if not block.get("cidr"):
        return [field_errors.required(f"{at}.cidr")]
    told = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
    if whole is None:
        return [field_errors.invalid(f"{at}.cidr", block["cidr"], told)]
    causes = []
    for index, text in enumerate(block.get("except") or []):
        inner = _network(text)
        if inner is None:
            causes.append(field_errors.invalid(f"{at}.except[{index}]", text, told))
        elif not inner.subnet_of(whole) or inner == whole:
            causes.append(field_errors.invalid(f"{at}.except[{index}]", text, "must be a strict subset of `cidr`"))
    return causes


def _network(text: str) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(text, strict=False) if "/" in text else None
    except ValueError:
        return None

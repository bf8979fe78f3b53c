"""Validation of Service, Endpoints and EndpointSlice. IPv4 only.

Source: kubernetes ``pkg/apis/core/validation/validation.go`` (``ValidateService``) and
``pkg/apis/discovery/validation``.
"""

from __future__ import annotations

from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, spec
from minik8s_modules.api.validation import common
from minik8s_modules.api.validation.containers import PROTOCOLS
from minik8s_modules.api.validation.meta import validate_labels

_TYPES = ("ClusterIP", "ExternalName", "NodePort")
_SERVED = ("TCP", "UDP")
_MAX_ENDPOINTS, _MAX_PORTS, _MAX_ADDRESSES = 1000, 20000, 100  # discovery/validation
_CHOICES = {  # field: values
    "type": _TYPES,
    "sessionAffinity": ("ClientIP", "None"),
    "internalTrafficPolicy": ("Cluster", "Local"),
    "externalTrafficPolicy": ("Cluster", "Local"),
    "ipFamilyPolicy": ("SingleStack", "PreferDualStack"),
    "trafficDistribution": ("PreferClose",),
}


def validate_service(service: JsonObject) -> list[Cause]:
    """Return why the service may not be kept."""
    declared = spec(service)
    causes = [
        common.not_supported(f"spec.{field}", declared[field], allowed)
        for field, allowed in _CHOICES.items()
        if declared.get(field) and declared[field] not in allowed
    ]
    causes += _addresses(declared)
    causes += _service_ports(declared)
    causes += validate_labels("spec.selector", declared.get("selector") or {})
    timeout_s = ((declared.get("sessionAffinityConfig") or {}).get("clientIP") or {}).get("timeoutSeconds", 1)
    if not 0 < timeout_s <= 86400:  # noqa: PLR2004 - one day
        field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
        causes.append(common.invalid(field, timeout_s, "must be greater than 0 and less than 86400"))
    return causes


def _addresses(declared: JsonObject) -> list[Cause]:
    causes = []
    families = declared.get("ipFamilies") or []
    causes += [
        common.not_supported(f"spec.ipFamilies[{index}]", family, ["IPv4"])
        for index, family in enumerate(families)
        if family != "IPv4"
    ]
    address = declared.get("clusterIP") or ""
    if declared.get("type") == "ExternalName":
        causes += _external_name(declared.get("externalName") or "")
        if address and address != "None":
            causes.append(common.forbidden("spec.clusterIP", "may not be set for ExternalName services"))
    elif address and address != "None":
        causes += common.all_invalid("spec.clusterIP", address, common.ipv4(address))
    elif address == "None" and declared.get("type") != "ClusterIP":
        told = f"may not be set to 'None' for {declared.get('type')} services"
        causes.append(common.invalid("spec.clusterIPs[0]", "None", told))
    for index, each in enumerate(declared.get("clusterIPs") or []):
        if each != "None":
            causes += common.all_invalid(f"spec.clusterIPs[{index}]", each, common.ipv4(each))
    return causes


def _external_name(name: str) -> list[Cause]:
    if not name:
        return [common.required("spec.externalName")]
    return common.all_invalid("spec.externalName", name, common.dns1123_subdomain(name.removesuffix(".")))


def _service_ports(declared: JsonObject) -> list[Cause]:
    ports = declared.get("ports") or []
    if not ports and declared.get("clusterIP") != "None" and declared.get("type") != "ExternalName":
        return [common.required("spec.ports")]
    causes: list[Cause] = []
    names: set[str] = set()
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        at = f"spec.ports[{index}]"
        causes += _service_port_name(f"{at}.name", port.get("name") or "", names, needed=len(ports) > 1)
        causes += common.all_invalid(f"{at}.port", port.get("port") or 0, common.port_number(port.get("port")))
        if port.get("protocol") not in _SERVED:
            causes.append(common.not_supported(f"{at}.protocol", port.get("protocol"), _SERVED))
        causes += _target_port(f"{at}.targetPort", port.get("targetPort"))
        causes += _node_port(f"{at}.nodePort", port.get("nodePort") or 0, declared.get("type") or "")
        key = (port.get("protocol", ""), port.get("port", 0))
        if key in seen:
            causes.append(common.duplicate(at, {"protocol": key[0], "port": key[1]}))
        seen.add(key)
    return causes + _equal_node_ports(ports)


def _equal_node_ports(ports: list[JsonObject]) -> list[Cause]:
    """Return a cause for each node port that another port of the service has over the same protocol."""
    causes: list[Cause] = []
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        key = (port.get("protocol") or "", port.get("nodePort") or 0)
        if key[1] and key in seen:
            causes.append(common.duplicate(f"spec.ports[{index}].nodePort", key[1]))
        seen.add(key)
    return causes


def _service_port_name(field: str, name: str, names: set[str], *, needed: bool) -> list[Cause]:
    if not name:
        return [common.required(field)] if needed else []
    causes = common.all_invalid(field, name, common.dns1123_label(name))
    if name in names:
        causes.append(common.duplicate(field, name))
    names.add(name)
    return causes


def _target_port(field: str, target: int | str | None) -> list[Cause]:
    if isinstance(target, str):
        return common.all_invalid(field, target, common.port_name(target))
    return common.all_invalid(field, target, common.port_number(target))


def _node_port(field: str, port: int, service_type: str) -> list[Cause]:
    if not port:
        return []
    if service_type != "NodePort":
        return [common.forbidden(field, f"may not be used when `type` is '{service_type}'")]
    return common.all_invalid(field, port, common.port_number(port))


def validate_service_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old service may not become the new one: its address stays while it has one."""
    after, before = spec(new), spec(old)
    if "ExternalName" in {after.get("type"), before.get("type")} or not before.get("clusterIP"):
        return []
    causes = []
    if after.get("clusterIP") != before["clusterIP"]:
        causes.append(common.immutable("spec.clusterIP", after.get("clusterIP") or ""))
    if after.get("clusterIPs") != before.get("clusterIPs"):
        causes.append(
            common.invalid("spec.clusterIPs", after.get("clusterIPs") or [], "primary clusterIP can not be unset")
        )
    return causes


def validate_endpoints(endpoints: JsonObject) -> list[Cause]:
    """Return why the endpoints may not be kept."""
    causes: list[Cause] = []
    for index, subset in enumerate(endpoints.get("subsets") or []):
        at = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            causes.append(common.required(at, "must specify `addresses` or `notReadyAddresses`"))
        for field in ("addresses", "notReadyAddresses"):
            for place, address in enumerate(subset.get(field) or []):
                ip = address.get("ip") or ""
                causes += common.all_invalid(f"{at}.{field}[{place}].ip", ip, common.ipv4(ip))
        causes += _endpoint_ports(f"{at}.ports", subset.get("ports") or [], needs_name=True)
    return causes


def _endpoint_ports(field: str, ports: list[JsonObject], *, needs_name: bool) -> list[Cause]:
    causes: list[Cause] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        at, name = f"{field}[{index}]", port.get("name") or ""
        if not name and needs_name and len(ports) > 1:
            causes.append(common.required(f"{at}.name"))
        elif name:
            causes += common.all_invalid(f"{at}.name", name, common.dns1123_label(name))
        if name in names:
            causes.append(common.duplicate(f"{at}.name", name))
        names.add(name)
        if needs_name or port.get("port") is not None:
            causes += common.all_invalid(f"{at}.port", port.get("port") or 0, common.port_number(port.get("port")))
        if port.get("protocol") not in PROTOCOLS:
            causes.append(common.not_supported(f"{at}.protocol", port.get("protocol"), PROTOCOLS))
    return causes


def validate_endpoint_slice(endpoint_slice: JsonObject) -> list[Cause]:
    """Return why the slice may not be kept."""
    address_type = endpoint_slice.get("addressType") or ""
    causes = []
    if not address_type:
        causes.append(common.required("addressType"))
    elif address_type != "IPv4":
        causes.append(common.not_supported("addressType", address_type, ["IPv4"]))
    endpoints = endpoint_slice.get("endpoints") or []
    if len(endpoints) > _MAX_ENDPOINTS:
        causes.append(common.too_many("endpoints", len(endpoints), _MAX_ENDPOINTS))
        return causes
    for index, endpoint in enumerate(endpoints):
        causes += _endpoint(f"endpoints[{index}]", endpoint)
    ports = endpoint_slice.get("ports") or []
    if len(ports) > _MAX_PORTS:
        return [*causes, common.too_many("ports", len(ports), _MAX_PORTS)]
    return causes + _endpoint_ports("ports", ports, needs_name=False)


def _endpoint(at: str, endpoint: JsonObject) -> list[Cause]:
    addresses = endpoint.get("addresses") or []
    if not addresses:
        return [common.required(f"{at}.addresses", "must contain at least 1 address")]
    if len(addresses) > _MAX_ADDRESSES:
        return [common.too_many(f"{at}.addresses", len(addresses), _MAX_ADDRESSES)]
    found = ((f"{at}.addresses[{place}]", address) for place, address in enumerate(addresses))
    return [cause for field, address in found for cause in common.all_invalid(field, address, common.ipv4(address))]


def validate_endpoint_slice_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old slice may not become the new one: its address type stays."""
    if new.get("addressType") == old.get("addressType"):
        return []
    return [common.immutable("addressType", new.get("addressType"))]

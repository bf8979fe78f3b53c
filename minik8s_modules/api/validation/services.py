"""Validation of Service, Endpoints and EndpointSlice.

Source: kubernetes ``pkg/apis/core/validation/validation.go`` (``ValidateService``) and
``pkg/apis/discovery/validation``.
"""

from __future__ import annotations

from collections.abc import Callable

from minik8s_modules.api import cause, syntax
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.lifecycle.service_strategy import HEALTH_PORT, needs_health_port
from minik8s_modules.api.objects import JsonObject, name, namespace, spec
from minik8s_modules.api.validation import check
from minik8s_modules.api.validation.meta import validate_labels
from minik8s_modules.api.validation.pods.containers import PROTOCOLS

_POLICIES = ("Cluster", "Local")
_MOST_ADDRESSES = 2  # of a service: one a family
_MAX_ENDPOINTS, _MAX_PORTS, _MAX_ADDRESSES = 1000, 20000, 100  # discovery/validation
_DAY_S = 86400


def _addressed(_at: str, declared: JsonObject) -> list[Cause]:
    return (_external_name if declared.get("type") == "ExternalName" else _addresses)(declared)


def _external_name(declared: JsonObject) -> list[Cause]:
    target = declared.get("externalName") or ""
    causes = [
        cause.forbidden(f"spec.{field}", "may not be set for ExternalName services")
        for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy")
        if declared.get(field)
    ]
    if not target:
        return [*causes, cause.required("spec.externalName")]
    return causes + cause.all_invalid("spec.externalName", target, syntax.dns1123_subdomain(target.removesuffix(".")))


def _addresses(declared: JsonObject) -> list[Cause]:
    """``ValidateServiceClusterIPsRelatedFields``: ``clusterIPs`` begins with ``clusterIP``, one address a family."""
    address, addresses, causes = declared.get("clusterIP") or "", declared.get("clusterIPs") or [], []
    if address and not addresses:
        causes.append(cause.required("spec.clusterIPs"))
    elif address and addresses[0] != address:
        causes.append(cause.invalid("spec.clusterIPs", addresses, "first value must match `clusterIP`"))
    elif addresses and not address:
        causes.append(cause.invalid("spec.clusterIPs", addresses, "must be empty when `clusterIP` is not specified"))
    causes += _families(declared)
    if _is_headless(declared) and declared.get("type") != "ClusterIP":
        detail = f"may not be set to 'None' for {declared.get('type')} services"
        causes.append(cause.invalid("spec.clusterIPs[0]", "None", detail))
    return causes + _several_addresses(addresses) + _of_their_families(declared, addresses)


_FAMILIES = check.if_given(check.every(check.each(check.one_of("IPv4", "IPv6")), cause.duplicates))


def _families(declared: JsonObject) -> list[Cause]:
    families, field = declared.get("ipFamilies") or [], "spec.ipFamilies"
    if len(families) > 1 and declared.get("ipFamilyPolicy") == "SingleStack":
        detail = "must be RequireDualStack or PreferDualStack when multiple IP families are specified"
        return [cause.invalid("spec.ipFamilyPolicy", declared.get("ipFamilyPolicy"), detail)]
    return _FAMILIES(field, families)


def _several_addresses(addresses: list[str]) -> list[Cause]:
    field, causes = "spec.clusterIPs", []
    if addresses[:1] == ["None"]:
        if len(addresses) > 1:
            causes.append(cause.invalid(field, addresses, "'None' must be the first and only value"))
        return causes
    for index, each in enumerate(addresses):
        causes += cause.all_invalid(f"{field}[{index}]", each, syntax.ip(each))
    if len(addresses) > _MOST_ADDRESSES:
        causes.append(cause.invalid(field, addresses, "may only hold up to 2 values"))
    if len(addresses) > 1 and not causes and len({":" in each for each in addresses}) < _MOST_ADDRESSES:
        causes.append(cause.invalid(field, addresses, "may specify no more than one IP for each IP family"))
    return causes


def _of_their_families(declared: JsonObject, addresses: list[str]) -> list[Cause]:
    """Return which addresses are not of the family that stands at their place."""
    pairs = enumerate(zip(addresses, declared.get("ipFamilies") or [], strict=False))
    return [
        cause.invalid(
            f"spec.clusterIPs[{index}]", each, f"expected an {family} value as indicated by `ipFamilies[{index}]`"
        )
        for index, (each, family) in pairs
        if each != "None" and family in {"IPv4", "IPv6"} and (":" in each) != (family == "IPv6")
    ]


def _is_headless(declared: JsonObject) -> bool:
    return bool((declared.get("clusterIPs") or [""])[0] == "None")


def _external_policy(_at: str, declared: JsonObject) -> list[Cause]:
    field, policy = "spec.externalTrafficPolicy", declared.get("externalTrafficPolicy") or ""
    if declared.get("type") in {"NodePort", "LoadBalancer"} or declared.get("externalIPs"):
        return [cause.not_supported(field, policy, _POLICIES)] if policy and policy not in _POLICIES else []
    return [cause.invalid(field, policy, "may only be set for externally-accessible services")] if policy else []


def _service_ports(_at: str, declared: JsonObject) -> list[Cause]:
    ports, kind = declared.get("ports") or [], declared.get("type") or ""
    if not ports and not _is_headless(declared) and kind != "ExternalName":
        return [cause.required("spec.ports")]
    causes: list[Cause] = []
    names: set[str] = set()
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        at = f"spec.ports[{index}]"
        causes += _service_port_name(f"{at}.name", port.get("name") or "", names, needed=len(ports) > 1)
        causes += _SERVICE_PORT(at, port)
        causes += _node_port(f"{at}.nodePort", port.get("nodePort") or 0, kind)
        key = (port.get("protocol", ""), port.get("port", 0))
        if key in seen:
            causes.append(cause.duplicate(at, {"protocol": key[0], "port": key[1]}))
        seen.add(key)
    return causes + _equal_node_ports(ports)


def _equal_node_ports(ports: list[JsonObject]) -> list[Cause]:
    """Return a cause for each node port that another port of the service has over the same protocol."""
    causes: list[Cause] = []
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        key = (port.get("protocol") or "", port.get("nodePort") or 0)
        if key[1] and key in seen:
            causes.append(cause.duplicate(f"spec.ports[{index}].nodePort", key[1]))
        seen.add(key)
    return causes


def _service_port_name(field: str, name: str, names: set[str], *, needed: bool) -> list[Cause]:
    if not name:
        return [cause.required(field)] if needed else []
    causes = cause.all_invalid(field, name, syntax.dns1123_label(name))
    if name in names:
        causes.append(cause.duplicate(field, name))
    names.add(name)
    return causes


def _target_port(at: str, target: int | str | None) -> list[Cause]:
    problems = syntax.port_name(target) if isinstance(target, str) else syntax.port_number(target)
    return cause.all_invalid(at, target, problems)


_APP_PROTOCOL = check.if_given(check.qualified_name)
_SERVICE_PORT = check.fields(
    ("port", check.absent_as(0, check.port_number)),
    ("protocol", check.one_of(*PROTOCOLS)),
    ("targetPort", _target_port),
    ("appProtocol", _APP_PROTOCOL),
)


def _node_port(field: str, port: int, service_type: str) -> list[Cause]:
    if not port:
        return []
    if service_type not in {"NodePort", "LoadBalancer"}:
        return [cause.forbidden(field, f"may not be used when `type` is '{service_type}'")]
    return cause.all_invalid(field, port, syntax.port_number(port))


def _load_balancer(_at: str, declared: JsonObject) -> list[Cause]:
    """Fields that only a Service of type LoadBalancer has."""
    if declared.get("type") == "LoadBalancer":
        return _BALANCED("spec", declared)
    fields = ("allocateLoadBalancerNodePorts", "loadBalancerClass", "loadBalancerSourceRanges")
    given = (field for field in fields if declared.get(field) not in (None, []))
    return [cause.forbidden(f"spec.{field}", "may only be used when `type` is 'LoadBalancer'") for field in given]


def _health_port(_at: str, declared: JsonObject) -> list[Cause]:
    """``validateServiceExternalTrafficPolicy``: the port at which nodes say whether they have Pods of it."""
    field, port = f"spec.{HEALTH_PORT}", declared.get(HEALTH_PORT) or 0
    if not port:
        return []
    if not needs_health_port(declared):
        text = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        return [cause.invalid(field, port, text)]
    if any(port == each.get("nodePort") for each in declared.get("ports") or []):
        return [
            cause.invalid(field, port, "is a nodePort of the service itself; health checks need a port of their own")
        ]
    return cause.all_invalid(field, port, syntax.port_number(port))


_BALANCED = check.fields(
    ("loadBalancerClass", check.if_given(check.qualified_name)),
    ("loadBalancerIP", check.if_set(check.syntax_of(syntax.non_special_ip))),
    ("loadBalancerSourceRanges", check.each(check.syntax_of(syntax.ip_cidr))),
)
_TIMEOUT = check.between(1, _DAY_S, "must be greater than 0 and less than 86400")
validate_service = check.of_spec(
    ("type", check.if_set(check.one_of("ClusterIP", "ExternalName", "LoadBalancer", "NodePort"))),
    ("sessionAffinity", check.if_set(check.one_of("ClientIP", "None"))),
    ("internalTrafficPolicy", check.if_set(check.one_of(*_POLICIES))),
    ("ipFamilyPolicy", check.if_set(check.one_of("SingleStack", "PreferDualStack", "RequireDualStack"))),
    ("trafficDistribution", check.if_set(check.one_of("PreferClose"))),
    ("", _addressed),
    ("", _external_policy),
    ("", _load_balancer),
    ("", _health_port),
    ("externalIPs", check.each(check.syntax_of(syntax.non_special_ip))),
    ("", _service_ports),
    ("selector", validate_labels),
    ("sessionAffinityConfig.clientIP.timeoutSeconds", _TIMEOUT),
)


def validate_service_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old service may not become the new one: its address stays while it has one."""
    after, before = spec(new), spec(old)
    stays = (_class_stays, _health_port_stays, _address_stays, _families_stay)
    return [one for rule in stays for one in rule(after, before)]


def _class_stays(after: JsonObject, before: JsonObject) -> list[Cause]:
    both = after.get("type") == before.get("type") == "LoadBalancer"
    if not both or after.get("loadBalancerClass") == before.get("loadBalancerClass"):
        return []
    return [cause.invalid("spec.loadBalancerClass", after.get("loadBalancerClass"), "may not change once set")]


def _health_port_stays(after: JsonObject, before: JsonObject) -> list[Cause]:
    """``validateServiceExternalTrafficFieldsUpdate``; one that was stored before there were such ports gets its own."""
    had = before.get(HEALTH_PORT) or 0
    if not had or not needs_health_port(after) or not needs_health_port(before) or after.get(HEALTH_PORT) == had:
        return []
    return [cause.forbidden(f"spec.{HEALTH_PORT}", "field is immutable")]


def _address_stays(after: JsonObject, before: JsonObject) -> list[Cause]:
    """``validateUpgradeDowngradeClusterIPs``: the second one comes and goes with the policy."""
    has, had = after.get("clusterIPs") or [], before.get("clusterIPs") or [before.get("clusterIP") or ""]
    if "ExternalName" in {after.get("type"), before.get("type")} or not had[0]:
        return []
    if not has:
        return [cause.invalid("spec.clusterIPs[0]", has, "primary clusterIP can not be unset")]
    causes = [
        cause.invalid(f"spec.clusterIPs[{index}]", has, "may not change once set")
        for index, (new, old) in enumerate(zip(has, had, strict=False))
        if new != old
    ]
    return causes + (_released(after, "cluster IP") if len(has) < len(had) else [])


def _families_stay(after: JsonObject, before: JsonObject) -> list[Cause]:
    """``validateUpgradeDowngradeIPFamilies``: of a Service with an address; that without one may change them."""
    has, had = after.get("ipFamilies") or [], before.get("ipFamilies") or []
    if "ExternalName" in {after.get("type"), before.get("type")} or _is_headless(after) or _is_headless(before):
        return []
    if not has or not had:
        return []
    changed = any(new != old for new, old in zip(has, had, strict=False))
    causes = [cause.invalid("spec.ipFamilies[0]", has, "may not change once set")] if changed else []
    return causes + (_released(after, "IP family") if len(has) < len(had) else [])


def _released(after: JsonObject, what: str) -> list[Cause]:
    policy = after.get("ipFamilyPolicy")
    if policy == "SingleStack":
        return []
    return [cause.invalid("spec.ipFamilyPolicy", policy, f"must be 'SingleStack' to release the secondary {what}")]


def validate_endpoints(endpoints: JsonObject) -> list[Cause]:
    """Return why the endpoints may not be kept."""
    causes: list[Cause] = []
    wrong = _wrong_with_address(endpoints)
    for index, subset in enumerate(endpoints.get("subsets") or []):
        at = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            causes.append(cause.required(at, "must specify `addresses` or `notReadyAddresses`"))
        for field in ("addresses", "notReadyAddresses"):
            for place, address in enumerate(subset.get(field) or []):
                ip = address.get("ip") or ""
                causes += cause.all_invalid(f"{at}.{field}[{place}].ip", ip, wrong(ip))
        causes += _endpoint_ports(f"{at}.ports", subset.get("ports") or [], needs_name=True)
    return causes


def _wrong_with_address(obj: JsonObject) -> Callable[[str], list[str]]:
    """Return the rule for an endpoint's address: it leads to one other machine or pod (``ValidateNonSpecialIP``).

    Those of default/kubernetes are the API servers' own, which may advertise the loopback of a lone machine; what
    anybody else puts there lasts until their next look (``apiserver/serving/presence.py``).
    """
    own = (namespace(obj), name(obj)) == ("default", "kubernetes")
    if not own:
        rules = {"IPv4": syntax.non_special_ipv4, "IPv6": syntax.non_special_ipv6}
        return rules.get(str(obj.get("addressType")), syntax.non_special_ip)  # Endpoints have those of either family
    return {"IPv4": syntax.ipv4, "IPv6": syntax.ipv6}.get(str(obj.get("addressType")), syntax.ip)


_PORT_PROTOCOLS = check.fields(("protocol", check.one_of(*PROTOCOLS)), ("appProtocol", _APP_PROTOCOL))


def _endpoint_ports(field: str, ports: list[JsonObject], *, needs_name: bool) -> list[Cause]:
    causes: list[Cause] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        at, name = f"{field}[{index}]", port.get("name") or ""
        if not name and needs_name and len(ports) > 1:
            causes.append(cause.required(f"{at}.name"))
        elif name:
            causes += cause.all_invalid(f"{at}.name", name, syntax.dns1123_label(name))
        if name in names:
            causes.append(cause.duplicate(f"{at}.name", name))
        names.add(name)
        if needs_name or port.get("port") is not None:
            causes += check.absent_as(0, check.port_number)(f"{at}.port", port.get("port"))
        causes += _PORT_PROTOCOLS(at, port)
    return causes


def validate_endpoint_slice(endpoint_slice: JsonObject) -> list[Cause]:
    """Return why the slice may not be kept."""
    causes = check.mandatory(check.one_of("IPv4", "IPv6"))("addressType", endpoint_slice.get("addressType"))
    endpoints = endpoint_slice.get("endpoints") or []
    if len(endpoints) > _MAX_ENDPOINTS:
        return [*causes, cause.too_many("endpoints", len(endpoints), _MAX_ENDPOINTS)]
    wrong = _wrong_with_address(endpoint_slice)
    for index, endpoint in enumerate(endpoints):
        causes += _endpoint(f"endpoints[{index}]", endpoint, wrong)
    ports = endpoint_slice.get("ports") or []
    if len(ports) > _MAX_PORTS:
        return [*causes, cause.too_many("ports", len(ports), _MAX_PORTS)]
    return causes + _endpoint_ports("ports", ports, needs_name=False)


def _endpoint(at: str, endpoint: JsonObject, wrong: Callable[[str], list[str]]) -> list[Cause]:
    addresses = endpoint.get("addresses") or []
    if not addresses:
        return [cause.required(f"{at}.addresses", "must contain at least 1 address")]
    if len(addresses) > _MAX_ADDRESSES:
        return [cause.too_many(f"{at}.addresses", len(addresses), _MAX_ADDRESSES)]
    found = ((f"{at}.addresses[{place}]", address) for place, address in enumerate(addresses))
    return [one for field, address in found for one in cause.all_invalid(field, address, wrong(address))]


def validate_endpoint_slice_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old slice may not become the new one: its address type stays."""
    if new.get("addressType") == old.get("addressType"):
        return []
    return [cause.immutable("addressType", new.get("addressType"))]

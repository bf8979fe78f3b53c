"""Validation of ingresses and network policies. Source: kubernetes ``pkg/apis/networking/validation``."""

from __future__ import annotations

import ipaddress

from minik8s_modules.api import cause, syntax
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.network.ingress_routes import CLASS_ANNOTATION
from minik8s_modules.api.objects import JsonObject, dig, spec
from minik8s_modules.api.validation import check
from minik8s_modules.api.validation.meta import label_selector
from minik8s_modules.api.validation.pods.containers import PROTOCOLS


def validate_new_ingress(ingress: JsonObject) -> list[Cause]:
    """Return why a new ingress may not be kept that names its class in both ways (``ValidateIngressCreate``)."""
    annotated, declared = (
        dig(ingress, "metadata", "annotations", CLASS_ANNOTATION),
        spec(ingress).get("ingressClassName"),
    )
    if annotated is None or declared is None or annotated == declared:
        return []
    detail = "must match `ingressClassName` when both are specified"
    return [cause.invalid(f"annotations.{CLASS_ANNOTATION}", annotated, detail)]


def _host(at: str, host: str) -> list[Cause]:
    if not syntax.ipv4(host):
        return [cause.invalid(at, host, "must be a DNS name, not an IP address")]
    return cause.all_invalid(at, host, syntax.dns1123_subdomain(host.removeprefix("*.")))


def _path(at: str, path: JsonObject) -> list[Cause]:
    exact, text = path.get("pathType") in {"Exact", "Prefix"}, path.get("path") or ""
    if (text or exact) and not text.startswith("/"):
        return [cause.invalid(f"{at}.path", text, "must be an absolute path")]
    return [
        cause.invalid(f"{at}.path", text, f"must not contain '{part}'")
        for part in ("//", "/./", "/../", "%2f", "%2F")
        if exact and part in text
    ]


def _backend(at: str, backend: JsonObject | None) -> list[Cause]:
    service, resource = (backend or {}).get("service"), (backend or {}).get("resource")
    if service is not None and resource is not None:
        return [cause.invalid(at, backend, "cannot set both resource and service backends")]
    if service is None:
        return [] if resource is not None else [cause.required(at, "one of service or resource is required")]
    return _BACKEND_SERVICE(f"{at}.service", service)


def _backend_port(at: str, port: JsonObject | None) -> list[Cause]:
    named, number = (port or {}).get("name"), (port or {}).get("number")
    if named and number:
        return [cause.invalid(at, port, "cannot set both port name & port number")]
    if not named and not number:
        return [cause.required(at, "port name or number is required")]
    return _BACKEND_PORT(at, port)


_BACKEND_PORT = check.fields(("name", check.if_set(check.port_name)), ("number", check.if_set(check.port_number)))
_BACKEND_SERVICE = check.fields(
    ("name", check.mandatory(check.syntax_of(syntax.dns1035_label))), ("port", _backend_port)
)
_PATH = check.fields(
    (
        "pathType",
        check.mandatory(check.one_of("Exact", "ImplementationSpecific", "Prefix"), "pathType must be specified"),
    ),
    ("", _path),
    ("backend", _backend),
)


def _something_to_serve(at: str, declared: JsonObject) -> list[Cause]:
    if declared.get("rules") or declared.get("defaultBackend") is not None:
        return []
    return [cause.invalid(at, declared, "either `defaultBackend` or `rules` must be specified")]


_HTTP = check.if_given(check.fields(("paths", check.mandatory(check.each(_PATH)))))
validate_ingress = check.of_spec(
    ("", _something_to_serve),
    ("defaultBackend", check.if_given(_backend)),
    ("ingressClassName", check.if_given(check.subdomain)),
    ("rules", check.each(check.fields(("host", check.if_set(_host)), ("http", _HTTP)))),
    ("tls", check.each(check.fields(("hosts", check.each(check.if_set(_host)))))),
)


def validate_ingress_class(ingress_class: JsonObject) -> list[Cause]:
    """Return why the ingress class may not be kept."""
    controller = spec(ingress_class).get("controller") or ""
    if not controller:
        return [cause.required("spec.controller")]
    domain, slash, path = controller.partition("/")
    if not slash or not path:
        detail = 'must be a domain-prefixed path (such as "acme.io/foo")'
        return [cause.invalid("spec.controller", controller, detail)]
    return cause.all_invalid("spec.controller", domain, syntax.dns1123_subdomain(domain))


# --- network policies -----------------------------------------------------------------------------


def _port(at: str, port: int | str) -> list[Cause]:
    problems = syntax.port_name(port) if isinstance(port, str) else syntax.port_number(port)
    return cause.all_invalid(at, port, problems)


def _port_range(at: str, port: JsonObject) -> list[Cause]:
    first, last, at = port.get("port"), port.get("endPort"), f"{at}.endPort"
    if last is None:
        return []
    if not isinstance(first, int):
        return [cause.required(at, "may not be specified when `port` is non-numeric")]
    return [] if last >= first else [cause.invalid(at, last, "must be greater than or equal to `port`")]


def _peer(at: str, peer: JsonObject) -> list[Cause]:
    causes, count = [], 0
    for field in ("podSelector", "namespaceSelector"):
        if peer.get(field) is not None:
            count += 1
            causes += label_selector(f"{at}.{field}", peer[field])
    block = peer.get("ipBlock")
    if block is None:
        return causes if count else [cause.required(at, "must specify a peer")]
    if count:
        causes.append(cause.forbidden(at, "may not specify both ipBlock and another peer"))
    return causes + _block(f"{at}.ipBlock", block)


def _block(at: str, block: JsonObject) -> list[Cause]:
    if not block.get("cidr"):
        return [cause.required(f"{at}.cidr")]
    whole, detail = _network(block["cidr"]), "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
    if whole is None:
        return [cause.invalid(f"{at}.cidr", block["cidr"], detail)]
    causes = []
    for index, text in enumerate(block.get("except") or []):
        inner = _network(text)
        if inner is None:
            causes.append(cause.invalid(f"{at}.except[{index}]", text, detail))
        elif not inner.subnet_of(whole) or inner == whole:
            causes.append(cause.invalid(f"{at}.except[{index}]", text, "must be a strict subset of `cidr`"))
    return causes


def _network(text: str) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(text, strict=False) if "/" in text else None
    except ValueError:
        return None


_PORTS = check.each(
    check.fields(("protocol", check.one_of(*PROTOCOLS)), ("port", check.if_given(_port)), ("", _port_range))
)
validate_network_policy = check.of_spec(
    ("podSelector", label_selector),
    ("ingress", check.each(check.fields(("ports", _PORTS), ("from", check.each(_peer))))),
    ("egress", check.each(check.fields(("ports", _PORTS), ("to", check.each(_peer))))),
    ("policyTypes", check.each(check.one_of("Egress", "Ingress"))),
)

"""Gateway API's kinds as this cluster has them: custom ones, which a definition declares (roles/mesh/vars). Pure.

A Gateway of a class of ours is a Deployment of Envoys behind a Service of type LoadBalancer, all three of one name, in
the Gateway's own namespace. The controllers keep those; the pilot tells the Envoys what the Gateway and its routes say.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.objects import JsonObject

GROUP = "gateway.networking.k8s.io"
CONTROLLER = "minik8s.io/gateway-controller"
"""What GatewayClasses of ours name."""
GATEWAY_NAME = f"{GROUP}/gateway-name"
"""Label of what is made of a Gateway (GEP-1762)."""
PREFIX = "minik8s-gateway-"
_RESERVED = ("minik8s.io", "kubernetes.io", "k8s.io")
_LONGEST = 63
_DIGEST = 8
_DURATION = re.compile(r"(?:[0-9]{1,5}(?:h|m|s|ms)){1,4}", re.ASCII)
_PART = re.compile(r"([0-9]{1,5})(ms|h|m|s)", re.ASCII)
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}


class GatewayKinds(NamedTuple):
    """The four kinds, in the versions that are served."""

    classes: Kind
    gateways: Kind
    routes: Kind
    grants: Kind


GATEWAY_KINDS = GatewayKinds(
    Kind(GROUP, "v1", "GatewayClass", "gatewayclasses", "GatewayClass", namespaced=False),
    Kind(GROUP, "v1", "Gateway", "gateways", "Gateway"),
    Kind(GROUP, "v1", "HTTPRoute", "httproutes", "HTTPRoute"),
    Kind(GROUP, "v1beta1", "ReferenceGrant", "referencegrants", "ReferenceGrant"),
)


def gateway_kind(obj: JsonObject) -> Kind | None:
    """Return which of the four kinds an object is of, in whichever version it is written; None for any other."""
    group, _, _ = str(obj.get("apiVersion") or "").rpartition("/")
    return next((each for each in GATEWAY_KINDS if (each.group, each.kind) == (group, obj.get("kind"))), None)


def name_of_parts(gateway: str) -> str:
    """Return the name of a Gateway's ServiceAccount, Deployment and Service, which has at most 63 characters."""
    plain = PREFIX + gateway.replace(".", "-")
    if len(plain) <= _LONGEST and "." not in gateway:
        return plain
    # two names that differ in a dot, or behind the 63rd character, stay two
    digest = hashlib.sha256(gateway.encode()).hexdigest()[:_DIGEST]
    return f"{plain[: _LONGEST - _DIGEST - 1].rstrip('-')}-{digest}"


def is_ours(gateway_class: JsonObject | None) -> bool:
    """Return whether Gateways of a class are ours to make."""
    return gateway_class is not None and objects.spec(gateway_class).get("controllerName") == CONTROLLER


def ports_of(gateway: JsonObject) -> list[int]:
    """Return the ports of a Gateway's listeners."""
    return sorted({each["port"] for each in objects.spec(gateway).get("listeners") or []})


def duration_ms(text: str) -> int:
    """Return a time of GEP-2257 (1h30m, 10s, 0s) in milliseconds.

    Raises:
        ValueError: it is none.
    """
    if not _DURATION.fullmatch(text):
        raise ValueError(text)
    return sum(int(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text))


def infrastructure_fault(spec: JsonObject) -> tuple[str, str] | None:
    """Return reason and message of why nothing can be made of a Gateway's spec; None if something can."""
    if spec.get("addresses"):
        return "UnsupportedAddress", "a Gateway's address is that of its Service; spec.addresses cannot choose one"
    declared = spec.get("infrastructure") or {}
    if declared.get("parametersRef"):
        return "InvalidParameters", "infrastructure.parametersRef is not known here"
    for field in ("labels", "annotations"):
        taken = [each for each in declared.get(field) or {} if _is_reserved(each)]
        if taken:
            return "InvalidParameters", f"infrastructure.{field} cannot say {', '.join(sorted(taken))}"
    return None


def _is_reserved(key: str) -> bool:
    # they steer what becomes of a Pod, or are what the Service finds its Pods by
    domain = key.rpartition("/")[0]
    return any(domain == each or domain.endswith(f".{each}") for each in _RESERVED)

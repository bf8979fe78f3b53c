"""What a Gateway's listeners are worth: protocols, conflicts of a port, kinds of routes, certificates. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.network.gateway_api import GATEWAY_KINDS, GROUP
from minik8s_modules.api.network.references import Reference, permitted
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.selectors import from_label_selector
from minik8s_modules.mesh.gateways.certificates import Certificate

HTTP, HTTPS = "HTTP", "HTTPS"
ROUTE_KIND = {"group": GROUP, "kind": GATEWAY_KINDS.routes.kind}
OWN_PORTS = frozenset({15000, 15001, 15006, 15090})
"""Where each Envoy listens by itself (roles/envoy/files/bootstrap.yaml)."""
Why = tuple[str, str]
"""Reason and message of a condition."""
Certificates = Mapping[Key, Certificate | str]
"""By Secret: what it holds, or why it cannot be used."""


class Listener(NamedTuple):
    """A listener: where it listens, what it answers for, and what is wrong with it.

    ``refused`` says that it is not served at all, ``conflict`` why no other may be served beside it, and ``unresolved``
    which of its references leads nowhere.
    """

    name: str
    port: int
    protocol: str
    hostname: str
    kinds: tuple[JsonObject, ...]
    allowed: JsonObject
    certificates: tuple[Certificate, ...] = ()
    refused: Why | None = None
    conflict: Why | None = None
    unresolved: Why | None = None

    @property
    def is_served(self) -> bool:
        """Return whether connections are taken."""
        lacks_certificate = self.protocol == HTTPS and not self.certificates
        return self.refused is None and self.conflict is None and not lacks_certificate


def listeners_of(gateway: JsonObject, grants: Sequence[JsonObject], certificates: Certificates) -> list[Listener]:
    """Return a Gateway's listeners."""
    declared = objects.spec(gateway).get("listeners") or []
    protocols: dict[int, set[str]] = defaultdict(set)
    hosts: dict[tuple[int, str], list[str]] = defaultdict(list)
    for each in declared:
        protocols[each["port"]].add(each["protocol"])
        hosts[each["port"], each.get("hostname") or ""].append(each["name"])
    space = objects.namespace(gateway)
    return [
        _listener(each, protocols, hosts)._replace(**_secured(each, space, grants, certificates)) for each in declared
    ]


def _listener(
    declared: JsonObject, protocols: Mapping[int, set[str]], hosts: Mapping[tuple[int, str], Sequence[str]]
) -> Listener:
    port, protocol, hostname = declared["port"], declared["protocol"], declared.get("hostname") or ""
    allowed = declared.get("allowedRoutes") or {}
    asked = [{"group": each.get("group", GROUP), "kind": each["kind"]} for each in allowed.get("kinds") or []]
    kinds = tuple(each for each in asked or [ROUTE_KIND] if each == ROUTE_KIND)
    refused = conflict = None
    if protocol not in {HTTP, HTTPS}:
        refused, kinds = ("UnsupportedProtocol", f"{protocol} is not served; {HTTP} and {HTTPS} are"), ()
    elif protocol == HTTPS and ((declared.get("tls") or {}).get("options")):
        refused = ("Invalid", "tls.options are not known here")
    elif port in OWN_PORTS:
        refused = ("PortUnavailable", f"port {port} is Envoy's own: use another port")
    if len(protocols[port]) > 1:
        conflict = ("ProtocolConflict", f"listeners of port {port} have several protocols")
    elif len(hosts[port, hostname]) > 1:
        conflict = ("HostnameConflict", f"several listeners of port {port} have the hostname {hostname or 'of all'}")
    found = Listener(declared["name"], port, protocol, hostname, kinds, allowed, refused=refused, conflict=conflict)
    others = [each["kind"] for each in asked if each != ROUTE_KIND]
    if others:
        message = f"routes of kind {', '.join(others)} are not served; {ROUTE_KIND['kind']} is"
        return found._replace(unresolved=("InvalidRouteKinds", message))
    return found


def _secured(
    declared: JsonObject, space: str, grants: Sequence[JsonObject], certificates: Certificates
) -> dict[str, Any]:
    """Return the fields of a listener that its certificates decide on."""
    tls = declared.get("tls") or {}
    if declared["protocol"] != HTTPS:
        return {}
    got = [_certificate(each, space, grants, certificates) for each in tls.get("certificateRefs") or []]
    found = [each for each in got if isinstance(each, Certificate)]
    wrong = [each for each in got if not isinstance(each, Certificate)]
    if not got:
        wrong.append(("InvalidCertificateRef", "there is no certificateRef"))
    return {"certificates": tuple(found), **({"unresolved": wrong[0]} if wrong else {})}


def _certificate(
    ref: JsonObject, space: str, grants: Sequence[JsonObject], certificates: Certificates
) -> Certificate | Why:
    group, kind = ref.get("group") or "", ref.get("kind") or "Secret"
    if (group, kind) != ("", "Secret"):
        return "InvalidCertificateRef", f"certificates are in Secrets, not in a {kind} of group {group!r}"
    key = Key(ref.get("namespace") or space, ref["name"])
    wanted = Reference(GATEWAY_KINDS.gateways.kind, space, "", "Secret", *key)
    if not permitted(wanted, grants):
        return "RefNotPermitted", f"no ReferenceGrant of namespace {key.namespace} lets Gateways of {space} use {key}"
    got = certificates.get(key, f"there is no Secret {key}")
    return got if isinstance(got, Certificate) else ("InvalidCertificateRef", got)


def lets_in(listener: Listener, gateway: JsonObject, space: str, labels: Mapping[str, str]) -> bool:
    """Return whether a listener takes HTTPRoutes of a namespace with these labels."""
    if ROUTE_KIND not in listener.kinds:
        return False
    chosen = listener.allowed.get("namespaces") or {}
    whence = chosen.get("from") or "Same"
    if whence == "Selector":
        try:
            return from_label_selector(chosen.get("selector") or {}).matches(labels)
        except StatusError:  # an operator that there is not: the definition lets it pass, and it selects nothing
            return False
    return whence == "All" or (whence == "Same" and space == objects.namespace(gateway))

"""From routes to the entries of each node's section ``ingress``: one nginx file per host, made of a template. Pure.

What users wrote is data for the template: it comes into the text through ``quoted`` alone, and only where nginx takes a
string. A path is sent on to the Service's address, whose rules choose the endpoint; so a changing endpoint changes no
file, except from none to some (503). Headless Services have no address: their endpoints stand in the file.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.network.ingress_routes import ANY_HOST, Route, Routes, port_of
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.entries.ingress import IngressEntry, IngressServerEntry
from minik8s_modules.module_utils.minik8s.names.ingress_entries import SERVER
from minik8s_modules.reconcile.network.services import service_ports
from minik8s_modules.reconcile.values.values import Entries, Entry, IngressSettings

if TYPE_CHECKING:
    import jinja2

TEMPLATE = "ingress_host.conf.j2"
CERTIFICATE, PRIVATE_KEY = "tls.crt", "tls.key"


class Backend(NamedTuple):
    """Where a route leads: an address with a port, or several, or the problem why nowhere."""

    addresses: tuple[str, ...] = ()
    problem: str = ""


def quoted(text: object) -> str:
    """Return a text as one string of an nginx configuration.

    Raises:
        ValueError: it holds a control character other than a line feed of ours at its end.
    """
    plain = str(text)
    if any(ord(char) < 32 for char in plain.removesuffix("\n")):  # noqa: PLR2004 - ASCII's controls
        raise ValueError(f"{plain!r:.80} holds control characters")
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def backend(route: Route, service: JsonObject | None, slices: Iterable[JsonObject]) -> Backend:
    """Return where a route leads."""
    if service is None:
        return Backend(problem=f"service {route.service} does not exist")
    declared = objects.spec(service)
    port = port_of(service, route.port)
    if declared.get("type") == "ExternalName":
        return Backend(problem=f"service {route.service} is an ExternalName, which paths cannot lead to")
    if port is None:
        return Backend(problem=f"service {route.service} has no such port")
    address = str(declared.get("clusterIP") or "")
    headless = address == "None"
    own = ("::" if declared.get("ipFamilies") == ["IPv6"] else "0.0.0.0") if headless else address  # noqa: S104 - stands for an address
    one = {**service, "spec": {**declared, "ports": [port], "clusterIP": own, "clusterIPs": [own]}}
    endpoints = [place for each in service_ports(one, slices).values() for place in each.entry["endpoints"]]
    if not endpoints:
        return Backend(problem=f"service {route.service} has no endpoints")
    if headless:
        return Backend(tuple(_place(ip, number) for ip, number in endpoints))
    return Backend((_place(address, port["port"]),))


def _place(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


class Renderer:
    """Renders the files of hosts; the template is read once."""

    def __init__(self, settings: IngressSettings) -> None:
        self._settings = settings
        self._text = Path(settings.templates, TEMPLATE).read_text("utf-8")

    @functools.cached_property
    def _template(self) -> jinja2.Template:
        import jinja2  # noqa: PLC0415 - 2 MB, for a cluster with hosts alone

        environment = jinja2.Environment(  # noqa: S701 - no HTML: every value passes ``quoted``
            undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
        )
        environment.filters["quoted"] = quoted
        return environment.from_string(self._text)

    def server(self) -> IngressServerEntry:
        """Return the entry ``server``."""
        found: IngressServerEntry = {"http_port": self._settings.http_port, "https_port": self._settings.https_port}
        return {**found, "ipv6": True} if self._settings.ipv6 else found

    def host(self, host: str, routes: Iterable[Route], backends: Mapping[Route, Backend], secret: str) -> str:
        """Return the server block of one host; ``secret`` "" is none."""
        upstreams: list[JsonObject] = []
        locations = [
            location for route in sorted(routes) for location in _locations(host, route, backends[route], upstreams)
        ]
        exact = {(each["modifier"], each["path"]) for each in locations if each["exact"]}
        shown = [each for each in locations if each["exact"] or (each["modifier"], each["path"]) not in exact]
        shown = [{**each, "redirect": bool(secret) and each["redirect"]} for each in shown]
        return self._template.render(
            upstreams=upstreams,
            http_port=self._settings.http_port,
            ipv6=self._settings.ipv6,
            https_port=self._settings.https_port,
            is_default=host == ANY_HOST,
            secret=secret,
            server_name=_server_name(host),
            locations=shown,
            has_root=any((each["modifier"], each["path"]) == ("", "/") for each in shown),
        )


def _server_name(host: str) -> str:
    """Return nginx' name of a host; a wildcard stands for exactly one label, as in Kubernetes."""
    if not host.startswith("*."):
        return host
    return r"~^[^.]+\." + host[2:].replace(".", r"\.") + "$"


def _locations(host: str, route: Route, leads: Backend, upstreams: list[JsonObject]) -> list[JsonObject]:
    """Return the locations of one route: a prefix matches whole elements, so it is one path and what is below it."""
    target = leads.addresses[0] if leads.addresses else ""
    if len(leads.addresses) > 1:
        digest = hashlib.sha256(host.encode()).hexdigest()[:12]
        target = f"minik8s_{digest}_{len(upstreams)}"
        upstreams.append({"name": target, "servers": leads.addresses})
    common = {"owner": route.owner, "target": target, "problem": leads.problem, "strip": route.strip}
    common["redirect"] = not route.plain
    exact = {**common, "modifier": "= ", "path": route.path, "exact": route.kind == "Exact"}
    if route.kind == "Exact":
        return [exact]
    below = {**common, "modifier": "", "path": route.path.rstrip("/") + "/", "exact": False}
    return [below] if route.path == "/" else [exact, below]


def ingress_entries(
    routes: Routes, backends: Mapping[Route, Backend], secrets: Mapping[str, str], renderer: Renderer
) -> Entries:
    """Return the section; ``secrets`` are the HMACs of the certificates at hand, by ``<namespace>/<name>``."""
    entries: dict[str, Entry] = {SERVER: renderer.server()}
    for host, places in routes.hosts.items():
        secret = routes.tls.get(host, "")
        known = {secret: secrets[secret]} if secret in secrets else {}
        text = renderer.host(host, places, backends, secret if known else "")
        entry: IngressEntry = {"config": text, "secrets": known}
        entries[host] = entry
    return entries

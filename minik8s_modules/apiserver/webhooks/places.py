"""Where a webhook is: a URL, or a port of a Service, and by which authority its certificate must be signed.

A Service is reached by the addresses of its ready endpoints, for an API server need not be a node. Its certificate must
be for ``NAME.NAMESPACE.svc`` whatever address answers, so whoever writes an EndpointSlice can keep a webhook from being
reached, and read nothing. No credential of the server's is ever sent. Source: apiserver ``pkg/util/webhook/client.go``.
"""

from __future__ import annotations

import base64
import binascii
import random
import ssl
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit

from minik8s_modules.api import syntax
from minik8s_modules.api.kinds import ENDPOINT_SLICE, SERVICE
from minik8s_modules.api.objects import JsonObject, spec
from minik8s_modules.base.places import place
from minik8s_modules.store import readable
from minik8s_modules.store.cache import WatchCache

SERVICE_NAME = "kubernetes.io/service-name"
_HTTPS = 443
_CONTEXTS = 256


class Client(NamedTuple):
    """A clientConfig; ``service`` is "" where it has a URL. ``server`` is whom the certificate must be for."""

    server: str
    port: int
    path: str
    authority: str
    namespace: str = ""
    service: str = ""

    @property
    def host(self) -> str:
        """Return what the header Host says."""
        whole = place(self.server, self.port)
        return whole if self.port != _HTTPS else whole.removesuffix(f":{_HTTPS}")

    @property
    def shown(self) -> str:
        """Return the URL as errors show it."""
        return f"https://{place(self.server, self.port)}{self.path}"


class Address(NamedTuple):
    """Where to connect to; ``pod`` is the (namespace, name) of the pod that has the address, if a Service says so."""

    host: str
    port: int
    pod: tuple[str, str] | None = None


class Unreachable(Exception):
    """A webhook cannot be asked; the message says why."""


def client_of(written: JsonObject) -> Client:
    """Return what a WebhookClientConfig says; it has been validated."""
    authority, service = written.get("caBundle") or "", written.get("service")
    if service is not None:
        space, called = service["namespace"], service["name"]
        port = service.get("port") or _HTTPS
        return Client(f"{called}.{space}.svc", port, service.get("path") or "/", authority, space, called)
    parts = urlsplit(written["url"])
    return Client(parts.hostname or "", parts.port or _HTTPS, parts.path or "/", authority)


@lru_cache(_CONTEXTS)
def context_of(authority: str) -> ssl.SSLContext:
    """Return ``new_context``, made once for each authority."""
    return new_context(authority)


def new_context(authority: str) -> ssl.SSLContext:
    """Return a TLS context that trusts the PEM certificates in ``authority`` (base64), else the system's.

    Raises:
        Unreachable: there are none in it.
    """
    try:
        pem = base64.b64decode(authority, validate=True).decode("ascii", "backslashreplace") if authority else None
        context = ssl.create_default_context(cadata=pem)
    except (binascii.Error, ValueError, ssl.SSLError) as error:
        raise Unreachable("unable to load root certificates: unable to parse bytes as PEM block") from error
    context.hostname_checks_common_name = False  # as Go: a server's names are alternative names
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as Go: Python 3.13 wants key identifiers, which many leave out
    return context


def addresses_of(cache: WatchCache, client: Client) -> list[Address]:
    """Return where to connect to, the endpoints of a Service in random order.

    Raises:
        Unreachable: there is no such Service, port or endpoint.
    """
    if not client.service:
        return [Address(client.server, client.port)]
    item = cache.get(SERVICE.key(client.namespace, client.service))
    found = next(iter(readable.objects_of(SERVICE, [item] if item is not None else [])), None)
    if found is None:
        raise Unreachable(f'service "{client.service}" not found')
    ports = [each for each in spec(found).get("ports") or [] if each.get("port") == client.port]
    if not ports:
        raise Unreachable(f'no service port {client.port} found for service "{client.service}"')
    listed = cache.list(ENDPOINT_SLICE.key(client.namespace, "")).items
    slices = readable.objects_of(
        ENDPOINT_SLICE, [each for each in listed if each.labels.get(SERVICE_NAME) == client.service]
    )
    every = [each for one in slices for each in _endpoints(one, ports[0].get("name") or "")]
    # of a Pod with two, the one of IPv4, which it is known by
    addresses = [each for each in every if ":" not in each.host] or every
    if not addresses:
        raise Unreachable(f'no endpoints available for service "{client.service}"')
    random.shuffle(addresses)
    return addresses


def _endpoints(endpoint_slice: JsonObject, port_name: str) -> Iterator[Address]:
    ports = [each.get("port") for each in endpoint_slice.get("ports") or [] if (each.get("name") or "") == port_name]
    for endpoint in endpoint_slice.get("endpoints") or []:
        if (endpoint.get("conditions") or {}).get("ready") is False:
            continue
        target = endpoint.get("targetRef") or {}
        pod = (target.get("namespace") or "", target.get("name") or "") if target.get("kind") == "Pod" else None
        for host in endpoint.get("addresses") or []:
            if not syntax.non_special_ip(host):  # the server's own loopback is nobody's endpoint
                yield from (Address(host, port, pod) for port in ports if port)

"""Two objects that claim one host and path: whoever would not get it is told, or refused, with the other's name.

A new Ingress that asks for a place of another Ingress is kept, as in Kubernetes: it has no effect there, and a Warning
says so; it waits for the place to become free. Where the setting ``refuse_taken_hosts`` says so, it is refused unless
the other one is of its own namespace. Places of DNS objects are refused to it, hosts that others were granted, and what
nobody may have. An update is refused if it would take the place from a younger object that has it. A DNS object is
refused, as by the original, while a Service that it names does not exist or lacks the port.

The claims are weighed by the one decision there is (``api/network/ingress_routes.py``), with the written object as the
youngest: the first has a place, unless whoever comes has a HostGrant for the host and the first has none. An update is
refused only for places it did not ask for before. Two servers that admit claims at the same moment both see none; then
the younger object keeps its condition and Event (``controllers/network/ingresses.py``), and has no effect. Sources: the
original's ``host H conflicts with existing host`` (400) and ingress-nginx' webhook (400, too).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from minik8s_modules.api import objects
from minik8s_modules.api.errors import BadRequest
from minik8s_modules.api.kinds import DNS, HOST_GRANT, INGRESS, INGRESS_CLASS, SERVICE, Kind
from minik8s_modules.api.network import ingress_annotations
from minik8s_modules.api.network.host_grants import HostGrants
from minik8s_modules.api.network.ingress_routes import (
    CONFLICT,
    INVALID_HOST,
    NOT_GRANTED,
    Cluster,
    decide_routes,
    hosts_of,
    owner_of,
    port_of,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.http.write import Write
from minik8s_modules.store import readable

_REFUSED = frozenset({CONFLICT, NOT_GRANTED, INVALID_HOST})


def refuse_taken_places(write: Write) -> None:
    """Refuse a DNS object or Ingress that claims what is another's.

    Raises:
        BadRequest: a host, or a path of it, has an owner already, whom the message names, or is the cluster's own.
    """
    if objects.is_deleting(write.new):
        return
    known = set(_conflicts(write, write.old)) if write.old is not None else set[str]()
    taken = [why for why in _conflicts(write, write.new) if why not in known]
    if not taken:
        return
    lasting = set(_conflicts(write, write.new, lasting=True)) - known
    if write.target.kind != INGRESS or lasting or _would_take(write, taken):
        raise BadRequest("; ".join(taken))
    for why in taken:
        write.options.warn(f"{why}; this Ingress has no effect there")


def tell_unheeded(write: Write) -> None:
    """Warn of annotations of ingress-nginx that change nothing: some of them promise to keep somebody out."""
    classes = list(_others(write, INGRESS_CLASS, None))
    if not objects.is_deleting(write.new) and (found := ingress_annotations.unheeded(write.new, classes)):
        paths = ", ".join(f"metadata.annotations[{key}]" for key in found)
        write.options.warn(f"{paths}: stored, but minik8s does not act on it: {ingress_annotations.REASON}")


def refuse_missing_services(write: Write) -> None:
    """Refuse a DNS object that leads to a Service which is not there; what it named before is not looked at again.

    Raises:
        BadRequest: in the original's words.
    """
    if objects.is_deleting(write.new):
        return
    known = set(_backends(write.old)) if write.old is not None else set[tuple[str, int]]()
    for service, port in _backends(write.new):
        if (service, port) not in known:
            _require(write, service, port)


def _backends(dns: JsonObject) -> Iterator[tuple[str, int]]:
    for rule in objects.spec(dns).get("rules") or []:
        for path in rule.get("paths") or []:
            service = (path.get("backend") or {}).get("service") or {}
            yield str(service.get("name")), int(service.get("port") or 0)


def _require(write: Write, service: str, port: int) -> None:
    namespace = write.target.namespace
    found = write.backend.cache.get(SERVICE.key(namespace, service))
    if found is None:
        raise BadRequest(f"service {namespace}/{service} not found: create it before the DNS object that leads to it")
    if port_of(readable.object_of(SERVICE, found), port) is None:
        raise BadRequest(f"service {service} does not have port {port}")


def _would_take(write: Write, taken: Iterable[str]) -> bool:
    """Return whether an object that is older than those that have its new places would get one of these by its age."""
    return write.old is not None and not set(taken) <= set(_conflicts(write, write.new, aged=True))


def _conflicts(write: Write, obj: JsonObject, *, lasting: bool = False, aged: bool = False) -> list[str]:
    """Return why ``obj`` would not get its places if it came now, or, ``aged``, when it came.

    ``lasting``: but for what it may wait for.
    """
    kind = write.target.kind
    newest = {**obj, "metadata": {**obj["metadata"], "creationTimestamp": "~"}, "status": {}}
    mine = objects.key(obj)
    every = {each: [*_others(write, each, mine if each == kind else None)] for each in (DNS, INGRESS)}
    classes, grants = _others(write, INGRESS_CLASS, None), [*_others(write, HOST_GRANT, None)]
    if lasting:
        strict, own = write.backend.refuse_taken_hosts, objects.namespace(obj)
        others = [one for one in every[INGRESS] if objects.namespace(one) != own]
        every[INGRESS] = [one for one in others if strict or _outranks(HostGrants(grants), one, own)]
    every[kind].append(obj if aged else newest)
    routes = decide_routes(Cluster(every[DNS], every[INGRESS], classes, {}, grants))
    refusals = routes.refused.get(owner_of(kind.kind, obj), ())
    return [one.message for one in refusals if one.reason in _REFUSED]


def _outranks(grants: HostGrants, ingress: JsonObject, namespace: str) -> bool:
    """Return whether an Ingress has a host by a HostGrant that ``namespace`` does not have."""
    hosts = hosts_of(objects.spec(ingress))
    return any(grants.of(objects.namespace(ingress), host) and not grants.of(namespace, host) for host in hosts)


def _others(write: Write, kind: Kind, but: objects.Key | None) -> Iterable[JsonObject]:
    found = readable.objects_of(kind, write.backend.cache.list(kind.prefix).items)
    return [each for each in found if objects.key(each) != but]

"""Which listeners an HTTPRoute is attached to, by which names, and what is to be said of each of its parents. Pure.

Source: Gateway API v1.3, "Attaching to Gateways": the reference chooses listeners by name and port, a listener takes
routes by namespace and kind, and both have a hostname in common.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.network.gateway_api import GATEWAY_KINDS, GROUP
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.mesh.gateways.listeners import Listener, Why, lets_in

ANY = ""
"""The hostname of a listener or route that names none."""


class Attachment(NamedTuple):
    """A route at a listener of a Gateway, for requests to these names."""

    listener: str
    route: Key
    hostnames: tuple[str, ...]


class Parent(NamedTuple):
    """A reference of a route to a Gateway of ours, or to a Service: why it does not hold, if it does not.

    ``unresolved`` says which of the route's references leads nowhere from there, ``remark`` what else there is to say.
    """

    ref: JsonObject
    refused: Why | None
    unresolved: Why | None = None
    remark: str = ""


def gateway_of(ref: JsonObject, route: JsonObject) -> Key | None:
    """Return the Gateway that a parentRef of a route names; None for another kind of parent."""
    if (ref.get("group", GROUP), ref.get("kind", "Gateway")) != (GROUP, GATEWAY_KINDS.gateways.kind):
        return None
    return Key(ref.get("namespace") or objects.namespace(route), ref["name"])


def attach(
    route: JsonObject, ref: JsonObject, gateway: JsonObject, listeners: Sequence[Listener], labels: Mapping[str, str]
) -> tuple[Parent, list[Attachment]]:
    """Return what becomes of one parentRef of a route; ``labels`` are those of the route's namespace."""
    chosen = [each for each in listeners if _is_chosen(each, ref)]
    if not chosen:
        message = f"Gateway {objects.name(gateway)} has no such listener"
        return Parent(ref, ("NoMatchingParent", message)), []
    open_to = [each for each in chosen if lets_in(each, gateway, objects.namespace(route), labels)]
    if not open_to:
        # who is not let in is told no names of another namespace's listeners
        takers = "; ".join(dict.fromkeys(map(_takes, chosen)))
        message = f"no listener takes an HTTPRoute of namespace {objects.namespace(route)} (allowedRoutes: {takers})"
        return Parent(ref, ("NotAllowedByListeners", message)), []
    names = objects.spec(route).get("hostnames") or [ANY]
    found = [
        Attachment(each.name, objects.key(route), shared)
        for each in open_to
        if (shared := tuple(dict.fromkeys(_shared(each.hostname, names))))
    ]
    if not found:
        names = ", ".join(dict.fromkeys(each.hostname for each in open_to))
        message = f"no listener has a hostname in common with the route; they have: {names}"
        return Parent(ref, ("NoMatchingListenerHostname", message)), []
    return Parent(ref, None), found


def _takes(listener: Listener) -> str:
    """Return which routes a listener takes, in words."""
    kinds = [each["kind"] for each in listener.allowed.get("kinds") or []]
    whence = (listener.allowed.get("namespaces") or {}).get("from") or "Same"
    return f"namespaces {whence}" + (f", kinds {', '.join(kinds)}" if kinds else "")


def _is_chosen(listener: Listener, ref: JsonObject) -> bool:
    return ref.get("sectionName") in {None, "", listener.name} and ref.get("port") in {None, listener.port}


def _shared(hostname: str, names: Iterable[str]) -> Iterable[str]:
    for each in names:
        if covers(hostname, each):
            yield each
        elif covers(each, hostname):
            yield hostname


def covers(wide: str, narrow: str) -> bool:
    """Return whether requests to ``narrow`` are requests to ``wide``: itself, or ``*.`` before any labels of it."""
    if wide in {ANY, narrow}:
        return True
    return wide.startswith("*.") and narrow.removeprefix("*").endswith(wide[1:]) and narrow != wide[2:]


def owner_of(hostname: str, listeners: Iterable[Listener]) -> str:
    """Return the name of the listener that requests to a hostname are for: the one that says most about it."""
    found = [each for each in listeners if covers(each.hostname, hostname)]
    found.sort(key=lambda each: (each.hostname[:1] not in {"", "*"}, len(each.hostname)))
    return found[-1].name if found else ""

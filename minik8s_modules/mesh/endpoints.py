"""The Pods behind a port of a Service, as its EndpointSlices have them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from minik8s_modules.api.objects import JsonObject


class Endpoint(NamedTuple):
    """A Pod that answers; ``pod`` is empty for what is no Pod."""

    pod: str
    ip: str
    port: int
    weight: int = 1


_Found = dict[tuple[str, int], Endpoint]


def endpoints_of(
    slices: Iterable[JsonObject], family: str, port: str, withheld: Collection[str] = ()
) -> tuple[Endpoint, ...]:
    """Return the ready endpoints of a port; where none is, those that still serve while they end (KEP-1669).

    Args:
        slices: those of the Service.
        family: IPv4 or IPv6, as the Service's address; sidecars would refuse names with all that came beside them.
        port: the port's name in the Service.
        withheld: Pods that are left out.
    """
    ready: _Found = {}
    ending: _Found = {}
    for one in slices:
        if one.get("addressType") != family:
            continue
        for number in _numbers(one, port):
            for endpoint in one.get("endpoints") or []:
                into = _usable(endpoint, ready, ending)
                if into is not None and endpoint.get("addresses") and _pod_of(endpoint) not in withheld:
                    place = (endpoint["addresses"][0], number)
                    into.setdefault(place, Endpoint(_pod_of(endpoint), *place))
    return tuple(sorted((ready or ending).values()))


def pods_of_slices(slices: Iterable[JsonObject], *, ready: bool = False) -> Iterator[str]:
    """Yield the Pods of a Service's endpoints, only those that are ready if ``ready``."""
    for one in slices:
        for endpoint in one.get("endpoints") or []:
            if not ready or _is_ready(endpoint):
                yield _pod_of(endpoint)


def _usable(endpoint: JsonObject, ready: _Found, ending: _Found) -> _Found | None:
    if _is_ready(endpoint):
        return ready
    return ending if (endpoint.get("conditions") or {}).get("serving") else None


def _is_ready(endpoint: JsonObject) -> bool:
    return (endpoint.get("conditions") or {}).get("ready") is not False


def _pod_of(endpoint: JsonObject) -> str:
    target = endpoint.get("targetRef") or {}
    return str(target.get("name", "")) if target.get("kind") == "Pod" else ""


def _numbers(one: JsonObject, name: str) -> list[int]:
    """Return the Pods' ports in a slice of the Service's port ``name``."""
    return [
        each["port"]
        for each in one.get("ports") or []
        if (each.get("name") or "") == name and (each.get("protocol") or "TCP") == "TCP" and each.get("port")
    ]

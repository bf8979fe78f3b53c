"""Annotations that leave connections of a Pod out of the mesh: ports and ranges, as a list with commas. Pure.

They are for Pods with a sidecar and mean what Istio's ``traffic.sidecar.istio.io/exclude…`` mean. Changed on a running
Pod, they count for connections that are made afterwards.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from minik8s_modules.api import cause, objects
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.pod_templates import TEMPLATES, template_of

INBOUND_PORTS = "minik8s.io/exclude-inbound-ports"
OUTBOUND_PORTS = "minik8s.io/exclude-outbound-ports"
OUTBOUND_RANGES = "minik8s.io/exclude-outbound-ranges"
MOST = 100
"""Each is a rule that every new connection is compared with."""
_LAST_PORT = 65535


class Excluded(NamedTuple):
    """What of a Pod's connections passes the sidecar by."""

    inbound_ports: tuple[int, ...] = ()
    outbound_ports: tuple[int, ...] = ()
    outbound_ranges: tuple[str, ...] = ()


def excluded(pod: JsonObject) -> Excluded:
    """Return what a Pod's annotations leave out, in order and once each; what cannot be read leaves out nothing."""
    given = objects.annotations(pod)
    inbound, outbound = (
        tuple(sorted({int(each) for each in _items(given, key) if not _port_fault(each)}))
        for key in (INBOUND_PORTS, OUTBOUND_PORTS)
    )
    ranges = {ipaddress.IPv4Network(each) for each in _items(given, OUTBOUND_RANGES) if not _range_fault(each)}
    return Excluded(inbound, outbound, tuple(str(each) for each in sorted(ranges)))


def causes(kind: tuple[str, str], obj: JsonObject) -> Iterator[Cause]:
    """Yield what is wrong with the annotations on a Pod, or on a template of Pods."""
    if kind == ("", "Pod"):
        yield from _wrong("metadata", obj)
    elif kind in TEMPLATES:
        yield from _wrong(f"{TEMPLATES[kind]}.metadata", template_of(kind, obj))


def _wrong(field: str, pod: JsonObject) -> Iterator[Cause]:
    given = objects.annotations(pod)
    for key, fault_of in ((INBOUND_PORTS, _port_fault), (OUTBOUND_PORTS, _port_fault), (OUTBOUND_RANGES, _range_fault)):
        items = _items(given, key)
        at = f"{field}.annotations[{key}]"
        if len(items) > MOST:
            yield cause.invalid(at, f"{given[key][:80]}…", f"has {len(items)} items; at most {MOST} are possible")
        elif why := next((f"{each!r:.80} {fault}" for each in items if (fault := fault_of(each))), ""):
            yield cause.invalid(at, given[key], why)


def _items(given: Mapping[str, str], key: str) -> list[str]:
    text = given.get(key, "")
    return [each.strip() for each in text.split(",")] if text.strip() else []


def _port_fault(text: str) -> str:
    good = text.isascii() and text.isdecimal() and len(text) <= len(str(_LAST_PORT)) and 0 < int(text) <= _LAST_PORT
    return "" if good else "is no port from 1 to 65535; write ports with commas between them"


def _range_fault(text: str) -> str:
    try:
        found = ipaddress.IPv4Network(text)
    except ValueError:
        return "is not a range of IPv4 addresses such as 10.0.0.0/8; write ranges with commas between them"
    return "" if str(found) in {text, f"{text}/32"} else f"must be written {found}"

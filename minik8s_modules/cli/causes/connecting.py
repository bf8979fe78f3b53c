"""``why connect POD TARGET:PORT``: which NetworkPolicy lets a connection through or holds it back, in both directions.

It is decided by the same rules that nodes get (``api/network/network_policies.py``); whether a node enforces them, its
Events say.
"""

from __future__ import annotations

import argparse
import ipaddress
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import EVENT, NAMESPACE, NETWORK_POLICY, NODE, POD, SERVICE
from minik8s_modules.api.network.network_policies import (
    DIRECTIONS,
    Connection,
    Direction,
    Place,
    Policy,
    judge,
    parse_policy,
    pod_of,
)
from minik8s_modules.api.network.service_ranges import addresses_of
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.selectors import from_map
from minik8s_modules.cli import output
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.client.api import ApiClient

USAGE = (
    "write `why connect [NAMESPACE/]POD TARGET:PORT[/PROTOCOL]`; a target is [NAMESPACE/]POD, svc/NAME or an address"
)
PROTOCOLS = ("TCP", "UDP", "SCTP")
NOT_ENFORCED, ENFORCED = "PolicyNotEnforced", "PolicyEnforced"


class End(NamedTuple):
    """One end of a connection.

    Attributes:
        place: what policies see of it.
        name: in words.
        node: where it is, "" outside the cluster; ``of_node``: it is the node, or a Pod in its network.
        addresses: all that a Pod has.
    """

    place: Place
    name: str
    node: str = ""
    of_node: bool = False
    addresses: tuple[str, ...] = ()


class Answer(NamedTuple):
    """What is said of one connection."""

    rows: list[list[str]]
    allowed: bool


def connect(client: ApiClient, options: argparse.Namespace) -> int:
    """Print what decides about a connection; returns 1 where it is held back.

    Raises:
        UsageError: the words are none of ``USAGE``, or there is no such Pod or port.
    """
    words = options.words[1:]
    if len(words) != 2:  # noqa: PLR2004 - source, target
        raise UsageError(USAGE)
    namespace = options.namespace or "default"
    source = _pod_end(client, words[0], namespace)
    policies = [parse_policy(one) for one in client.list(NETWORK_POLICY).items]
    namespaces = {objects.name(one): objects.labels(one) for one in client.list(NAMESPACE).items}
    targets = _targets(client, words[1], namespace)
    answers = [judged(source, target, place, policies, namespaces) for target, place in targets]
    rows = [row for answer in answers for row in answer.rows]
    print(output.aligned(["DIRECTION", "OF", "VERDICT"], rows, output.Paint()))
    nodes = {source.node, *(target.node for target, _ in targets)} - {""}
    for text in _unenforced(client, nodes if policies else ()):
        output.warn(text)
    sys.stdout.write(f"\n{_summary(answers)}\n")
    return int(not all(answer.allowed for answer in answers))


def _summary(answers: list[Answer]) -> str:
    allowed = sum(answer.allowed for answer in answers)
    if len(answers) > 1:
        return f"allowed to {allowed} of {len(answers)} Pods behind the Service"
    return "allowed" if allowed else "held back"


def judged(
    source: End,
    target: End,
    place: tuple[str, int],
    policies: Iterable[Policy],
    namespaces: Mapping[str, Mapping[str, str]],
) -> Answer:
    """Return what decides about a connection to ``place``, protocol and port; pure."""
    known, rows, allowed = list(policies), list[list[str]](), True
    source = _facing(source, target)
    connection = Connection(source.place, target.place, *place)
    for direction in reversed(DIRECTIONS):
        own = target if direction == "ingress" else source
        text, passes = _verdict(direction, source, target, known, connection, namespaces)
        allowed = allowed and passes
        way = f"{direction} {'from' if direction == 'ingress' else 'to'} {(source if own is target else target).name}"
        rows.append([f"{way} {place[0]} {place[1]}", own.name, text])
    return Answer(rows, allowed)


def _verdict(
    direction: Direction,
    source: End,
    target: End,
    policies: list[Policy],
    connection: Connection,
    namespaces: Mapping[str, Mapping[str, str]],
) -> tuple[str, bool]:
    own, peer = (target, source) if direction == "ingress" else (source, target)
    if own.place.pod is None:
        return "open: no NetworkPolicy is about an address, or about a Pod in its node's network", True
    if peer.of_node and peer.node == own.node:
        return "open: a Pod and its node always reach each other", True
    if peer.place.pod is not None and peer.place.pod.key == own.place.pod.key:
        return "open: a Pod always reaches itself", True
    found = judge(policies, direction, connection, namespaces)
    if not found.policies:
        return "open: no NetworkPolicy selects it", True
    if found.allowed:
        return f"open: NetworkPolicy {found.by} allows it", True
    by = f" (known by the address {peer.place.address})" if peer.of_node else ""
    return f"held back: isolated by NetworkPolicy {', '.join(found.policies)}, and no rule allows it{by}", False


def _pod_end(client: ApiClient, word: str, namespace: str) -> End:
    space, _, name = word.rpartition("/")
    if not name or "/" in space:
        raise UsageError(f"{word!r} is not a Pod: {USAGE}")
    return _end_of(client.get(POD, name, space or namespace))


def _addresses(pod: JsonObject) -> list[str]:
    status = objects.status(pod)
    return [str(status.get("podIP") or ""), *(str(one.get("ip")) for one in status.get("podIPs") or [])]


def _end_of(pod: JsonObject, asked: str = "") -> End:
    """Return a Pod as an end of a connection, with the address that was ``asked`` for, else its first."""
    node, address = str(objects.spec(pod).get("nodeName") or ""), asked or _addresses(pod)[0]
    found, shared = pod_of(pod, address), bool(objects.spec(pod).get("hostNetwork"))
    return End(Place(found, address), f"Pod {objects.key(pod)}", node, shared, tuple(_addresses(pod)))


def _facing(source: End, target: End) -> End:
    """Return a source with its address of the target's family: a Pod may have one of IPv4 and one of IPv6."""
    wanted = ":" in target.place.address
    same = [each for each in source.addresses if each and (":" in each) == wanted]
    return source._replace(place=source.place._replace(address=same[0])) if same else source


def _targets(client: ApiClient, word: str, namespace: str) -> list[tuple[End, tuple[str, int]]]:
    """Return the ends that a target means, each with protocol and port."""
    place, _, port = word.rpartition(":")
    place = place[1:-1] if place.startswith("[") and place.endswith("]") else place
    number, _, protocol = port.partition("/")
    protocol = (protocol or "TCP").upper()
    if not place or not number or protocol not in PROTOCOLS:
        raise UsageError(f"{word!r} is not a target: {USAGE}")
    if place.startswith(("svc/", "service/")):
        name, _, space = place.partition("/")[2].partition(".")
        service = client.get(SERVICE, name, space or namespace)
        return list(_behind(client, service, "", (protocol, number)))
    if _is_address(place) and (found := _service_at(client, place)) is not None:
        return list(_behind(client, found, place, (protocol, number)))
    end = _address_end(client, place) if _is_address(place) else _pod_end(client, place, namespace)
    return [(end, (protocol, _number(number, end, protocol)))]


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _address_end(client: ApiClient, address: str) -> End:
    """Return whose an address is: a Pod's, a node's, or somebody's outside."""
    for node in client.list(NODE).items:
        if any(one.get("address") == address for one in objects.status(node).get("addresses") or []):
            return End(Place(None, address), f"Node {objects.name(node)}", objects.name(node), of_node=True)
    for pod in client.list(POD).items:
        if address in _addresses(pod) and pod_of(pod) is not None:
            return _end_of(pod, address)
    return End(Place(None, address), address)


def _number(port: str, end: End, protocol: str) -> int:
    if port.isascii() and port.isdigit() and 0 < int(port[:6]) < 1 << 16:
        return int(port)
    named = {(one[0], one[1]): one[2] for one in end.place.pod.ports} if end.place.pod else {}
    if (protocol, port) not in named:
        raise UsageError(f"{end.name} has no port {port} of {protocol}")
    return named[protocol, port]


def _service_at(client: ApiClient, address: str) -> JsonObject | None:
    """Return the Service that has an address, of either family and however it is written."""
    wanted = ipaddress.ip_address(address)
    return next(
        (
            one
            for one in client.list(SERVICE).items
            if wanted in map(ipaddress.ip_address, addresses_of(objects.spec(one)))
        ),
        None,
    )


def _behind(
    client: ApiClient, service: JsonObject, address: str, at: tuple[str, str]
) -> Iterator[tuple[End, tuple[str, int]]]:
    """Yield the Pods behind a Service's port: policies see them, not its address ("": its first)."""
    protocol, asked = at
    first = address or next(iter(addresses_of(objects.spec(service))), "")
    ipv6 = ":" in first if first else objects.spec(service).get("ipFamilies") == ["IPv6"]
    ports = [
        one
        for one in objects.spec(service).get("ports") or []
        if asked in {one.get("name"), str(one["port"])} and (one.get("protocol") or "TCP") == protocol
    ]
    if not ports:
        raise UsageError(f"Service {objects.key(service)} has no port {asked} of {protocol}")
    selector = from_map(objects.spec(service).get("selector"))
    found = [pod for pod in client.list(POD, objects.namespace(service)).items if selector.matches(objects.labels(pod))]
    if not found:
        raise UsageError(f"Service {objects.key(service)} selects no Pod: see `minik8s trace {objects.name(service)}`")
    for pod in found:
        own = next((each for each in _addresses(pod) if each and (":" in each) == ipv6), "")
        end = _end_of(pod, own)
        target = str(ports[0].get("targetPort") or ports[0]["port"])
        yield end, (protocol, _number(target, end, protocol))


def _unenforced(client: ApiClient, nodes: Iterable[str]) -> Iterator[str]:
    """Yield what nodes said last, of those that do not enforce policies."""
    last: dict[str, JsonObject] = {}
    for event in client.list(EVENT).items:
        about = event.get("involvedObject") or {}
        if about.get("kind") == NODE.kind and event.get("reason") in {NOT_ENFORCED, ENFORCED}:
            before = last.get(about.get("name", ""), {})
            if str(event.get("lastTimestamp") or "") >= str(before.get("lastTimestamp") or ""):
                last[about["name"]] = event
    for name in sorted(nodes):
        if last.get(name, {}).get("reason") == NOT_ENFORCED:
            yield f"policies are not enforced there: {last[name].get('message')}"

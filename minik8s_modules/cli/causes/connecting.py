"""``why connect POD TARGET:PORT``: which NetworkPolicy lets a connection through or holds it back, in both directions.

It is decided by the same rules that nodes get (``api/network/network_policies.py``); whether a node enforces them, its
Events say.
"""

from __future__ import annotations

import argparse
import ipaddress
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.field_selectors import exactly
from minik8s_modules.api.kinds import EVENT, NAMESPACE, NETWORK_POLICY, NODE, POD, SERVICE
from minik8s_modules.api.network.network_policies import (
    DIRECTIONS,
    Connection,
    Direction,
    Place,
    Policy,
    Rule,
    judge,
    parse_policy,
    pod_of,
)
from minik8s_modules.api.network.service_ranges import addresses_of
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.selectors import from_map
from minik8s_modules.cli import output
from minik8s_modules.cli.causes.sight import Sight
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.options import refuse_any
from minik8s_modules.client.api import ApiClient

USAGE = (
    "write `why connect [NAMESPACE/]POD TARGET:PORT[/PROTOCOL]`; a target is [NAMESPACE/]POD, svc/NAME or an address"
)
PROTOCOLS = ("TCP", "UDP", "SCTP")
NOT_ENFORCED, ENFORCED = "PolicyNotEnforced", "PolicyEnforced"
_OF_OBJECTS = (
    "all_namespaces", "selector", "field_selector", "filename", "kustomize", "recursive", "faults", "one_line",
)  # fmt: skip
_EVENTS = "default"
"""The namespace of Events about Nodes."""


class End(NamedTuple):
    """One end of a connection.

    Attributes:
        place: what policies see of it.
        name: in words.
        node: where it is, "" outside the cluster; ``of_node``: it is the node, or a Pod in its network.
        addresses: all that a Pod has.
        namespace: of the Pod, whether policies see it or not.
        hidden: it may be somebody's whom one may not read.
    """

    place: Place
    name: str
    node: str = ""
    of_node: bool = False
    addresses: tuple[str, ...] = ()
    namespace: str = ""
    hidden: bool = False


class Known(NamedTuple):
    """What is known of the namespaces of both ends: policies, labels where these ask for them, and what is not.

    ``hidden`` are those whose policies may not be read.
    """

    policies: Sequence[Policy]
    namespaces: Mapping[str, Mapping[str, str]]
    hidden: AbstractSet[str] = frozenset()


class Answer(NamedTuple):
    """What is said of one connection; ``sure``: whatever may not be read."""

    rows: list[list[str]]
    allowed: bool
    sure: bool = True


def connect(client: ApiClient, options: argparse.Namespace) -> int:
    """Print what decides about a connection; returns 1 where it is held back.

    Raises:
        UsageError: the words are none of ``USAGE``, or there is no such Pod or port.
    """
    words = options.words[1:]
    if len(words) != 2:  # noqa: PLR2004 - source, target
        raise UsageError(USAGE)
    refuse_any(options, _OF_OBJECTS, "`why connect` is about one connection, and takes no such option")
    namespace = options.namespace or "default"
    source = _pod_end(client, words[0], namespace)
    sight = Sight(client, [namespace, source.namespace])
    targets = _targets(sight, words[1], namespace)
    known = _known(sight, {source.namespace, *(target.namespace for target, _ in targets)} - {""})
    answers = [judged(source, target, place, known) for target, place in targets]
    rows = [row for answer in answers for row in answer.rows]
    print(output.aligned(["DIRECTION", "OF", "VERDICT"], rows, output.Paint()))
    nodes = {source.node, *(target.node for target, _ in targets)} - {""}
    for text in _unenforced(sight, nodes) if known.policies else ():
        output.warn(text)
    if sight.unread:
        output.warn(f"without what you may not read: {', '.join(sorted(sight.unread.values()))}")
    sys.stdout.write(f"\n{_summary(answers)}\n")
    return int(not all(answer.allowed for answer in answers))


def _known(sight: Sight, spaces: AbstractSet[str]) -> Known:
    found = {space: sight.of(NETWORK_POLICY, space) for space in sorted(spaces)}
    policies = [parse_policy(one) for each in found.values() for one in each or ()]
    asked = any(_ask_for_labels(one.rules(direction)) for one in policies for direction in DIRECTIONS)
    labelled = [sight.get(NAMESPACE, objects.Key("", space)) for space in sorted(spaces)] if asked else []
    labels = {objects.name(one): objects.labels(one) for one in labelled if one is not None}
    return Known(policies, labels, {space for space, each in found.items() if each is None})


def _summary(answers: list[Answer]) -> str:
    allowed = sum(answer.allowed for answer in answers)
    far = _as_far(sure=all(answer.sure for answer in answers))
    if len(answers) > 1:
        return f"allowed to {allowed} of {len(answers)} Pods behind the Service{far}"
    return f"{'allowed' if allowed else 'held back'}{far}"


def _as_far(*, sure: bool) -> str:
    return "" if sure else " as far as you may read"


def judged(source: End, target: End, place: tuple[str, int], known: Known) -> Answer:
    """Return what decides about a connection to ``place``, protocol and port; pure."""
    rows, found = list[list[str]](), list[list[bool]]()
    source = _facing(source, target)
    connection = Connection(source.place, target.place, *place)
    for direction in reversed(DIRECTIONS):
        own = target if direction == "ingress" else source
        text, *verdict = _verdict(direction, source, target, known, connection)
        found.append(verdict)
        way = f"{direction} {'from' if direction == 'ingress' else 'to'} {(source if own is target else target).name}"
        rows.append([f"{way} {place[0]} {place[1]}", own.name, text])
    allowed = all(passes for passes, _ in found)
    return Answer(rows, allowed, all(sure for _, sure in found) if allowed else [False, True] in found)


def _verdict(
    direction: Direction, source: End, target: End, known: Known, connection: Connection
) -> tuple[str, bool, bool]:
    """Return what is said of one direction, whether it passes, and whether that is sure."""
    own, peer = (target, source) if direction == "ingress" else (source, target)
    if own.place.pod is None:
        about = "no NetworkPolicy is about an address, or about a Pod in its node's network"
        return f"open{_as_far(sure=not own.hidden)}: {about}", True, not own.hidden
    if peer.of_node and peer.node == own.node:
        return "open: a Pod and its node always reach each other", True, True
    if peer.place.pod is not None and peer.place.pod.key == own.place.pod.key:
        return "open: a Pod always reaches itself", True, True
    found = judge(known.policies, direction, connection, known.namespaces)
    sure = own.namespace not in known.hidden and not (found.policies and peer.hidden)
    if not found.allowed and peer.place.pod is not None and peer.namespace not in known.namespaces:
        selecting = (one for one in known.policies if one.selects(own.place.pod))
        sure = sure and not any(_ask_for_labels(one.rules(direction)) for one in selecting)
    far = _as_far(sure=sure)
    if not found.policies:
        return f"open{far}: no NetworkPolicy selects it", True, sure
    if found.allowed:
        return f"open{far}: NetworkPolicy {found.by} allows it", True, sure
    by = f" (known by the address {peer.place.address})" if peer.of_node else ""
    why = f"isolated by NetworkPolicy {', '.join(found.policies)}, and no rule allows it{by}"
    return f"held back{far}: {why}", False, sure


def _ask_for_labels(rules: Iterable[Rule] | None) -> bool:
    """Return whether peers are known by the labels of their namespaces."""
    return any(not pods.namespace for rule in rules or () for pods in rule.pods)


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
    name, namespace = f"Pod {objects.key(pod)}", objects.namespace(pod)
    return End(Place(found, address), name, node, shared, tuple(_addresses(pod)), namespace)


def _facing(source: End, target: End) -> End:
    """Return a source with its address of the target's family: a Pod may have one of IPv4 and one of IPv6."""
    wanted = ":" in target.place.address
    same = [each for each in source.addresses if each and (":" in each) == wanted]
    return source._replace(place=source.place._replace(address=same[0])) if same else source


def _targets(sight: Sight, word: str, namespace: str) -> list[tuple[End, tuple[str, int]]]:
    """Return the ends that a target means, each with protocol and port."""
    place, _, port = word.rpartition(":")
    place = place[1:-1] if place.startswith("[") and place.endswith("]") else place
    number, _, protocol = port.partition("/")
    protocol = (protocol or "TCP").upper()
    if not place or not number or protocol not in PROTOCOLS:
        raise UsageError(f"{word!r} is not a target: {USAGE}")
    if place.startswith(("svc/", "service/")):
        name, _, space = place.partition("/")[2].partition(".")
        service = sight.client.get(SERVICE, name, space or namespace)
        return list(_behind(sight.client, service, "", (protocol, number)))
    if _is_address(place) and (found := _service_at(sight, place)) is not None:
        return list(_behind(sight.client, found, place, (protocol, number)))
    end = _address_end(sight, place) if _is_address(place) else _pod_end(sight.client, place, namespace)
    return [(end, (protocol, _number(number, end, protocol)))]


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _address_end(sight: Sight, address: str) -> End:
    """Return whose an address is: a Pod's, a node's, or somebody's outside."""
    for node in sight.all(NODE):
        if any(one.get("address") == address for one in objects.status(node).get("addresses") or []):
            return End(Place(None, address), f"Node {objects.name(node)}", objects.name(node), of_node=True)
    for pod in sight.all(POD):
        if address in _addresses(pod) and pod_of(pod) is not None:
            return _end_of(pod, address)
    return End(Place(None, address), address, hidden=any(map(sight.hides, (NODE, POD, SERVICE))))


def _number(port: str, end: End, protocol: str) -> int:
    if port.isascii() and port.isdigit() and 0 < int(port[:6]) < 1 << 16:
        return int(port)
    named = {(one[0], one[1]): one[2] for one in end.place.pod.ports} if end.place.pod else {}
    if (protocol, port) not in named:
        raise UsageError(f"{end.name} has no port {port} of {protocol}")
    return named[protocol, port]


def _service_at(sight: Sight, address: str) -> JsonObject | None:
    """Return the Service that has an address, of either family and however it is written."""
    wanted = ipaddress.ip_address(address)
    return next(
        (one for one in sight.all(SERVICE) if wanted in map(ipaddress.ip_address, addresses_of(objects.spec(one)))),
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


def _unenforced(sight: Sight, nodes: Iterable[str]) -> Iterator[str]:
    """Yield what nodes said last, of those that do not enforce policies."""
    last: dict[str, JsonObject] = {}
    for event in sight.of(EVENT, _EVENTS, exactly(involvedObject__kind=NODE.kind)) or ():
        about = event["involvedObject"]
        if event.get("reason") in {NOT_ENFORCED, ENFORCED}:
            before = last.get(about.get("name", ""), {})
            if str(event.get("lastTimestamp") or "") >= str(before.get("lastTimestamp") or ""):
                last[about["name"]] = event
    for name in sorted(nodes):
        if last.get(name, {}).get("reason") == NOT_ENFORCED:
            yield f"policies are not enforced there: {last[name].get('message')}"

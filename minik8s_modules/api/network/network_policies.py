"""What NetworkPolicies say: whom they select, which peers and ports they allow, and who decides about a connection.

A Pod that a policy selects for a direction is isolated there: what none of the policies that select it allows is held
back. A connection needs both: the egress of its source and the ingress of its target. A Pod always reaches itself, and
the node it runs on; Pods in their node's network are selected by no policy and are nobody's peers. Source: kubernetes
``networking/v1`` and its documentation of network policies.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.selectors import LabelSelector, Requirement, from_label_selector

Direction = Literal["ingress", "egress"]
DIRECTIONS: tuple[Direction, ...] = ("ingress", "egress")
_OVER = frozenset({"Succeeded", "Failed"})
LAST_PORT = 65535


class Pods(NamedTuple):
    """Peers by labels: of one ``namespace``, or where that is "", of those that ``namespaces`` selects."""

    namespace: str
    namespaces: LabelSelector
    pods: LabelSelector

    def canonical(self) -> str:
        """Return the same text for all selectors that say the same in the same words."""
        parts = [self.namespace, *(sorted(map(_row, each.requirements)) for each in (self.namespaces, self.pods))]
        return json.dumps(parts)

    def matches(self, pod: Pod, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
        """Return whether a Pod is one of them, given the labels of namespaces."""
        if self.namespace:
            return pod.namespace == self.namespace and self.pods.matches(pod.labels)
        labels = namespaces.get(pod.namespace)
        return labels is not None and self.namespaces.matches(labels) and self.pods.matches(pod.labels)


def _row(one: Requirement) -> list[object]:
    return [one.key, one.operator, sorted(one.values)]


class Block(NamedTuple):
    """Peers by address."""

    cidr: str
    excepted: tuple[str, ...] = ()

    def matches(self, address: str) -> bool:
        """Return whether an address is one of them."""
        found = ipaddress.ip_address(address)
        return found in ipaddress.ip_network(self.cidr) and not any(
            found in ipaddress.ip_network(each) for each in self.excepted
        )


class Port(NamedTuple):
    """Ports of one protocol: a range, all (``first`` 0), or those of a ``name``."""

    protocol: str
    first: int = 0
    last: int = 0
    name: str = ""

    def matches(self, protocol: str, number: int, target: Pod | None) -> bool:
        """Return whether a port of ``target`` (None: of no Pod) is one of them."""
        if protocol != self.protocol:
            return False
        if self.name:
            return target is not None and (self.protocol, self.name, number) in target.ports
        return not self.first or self.first <= number <= self.last


class Rule(NamedTuple):
    """What is allowed: every peer at every port; None is all of them."""

    pods: tuple[Pods, ...] = ()
    blocks: tuple[Block, ...] = ()
    everybody: bool = False
    ports: tuple[Port, ...] | None = None


class Policy(NamedTuple):
    """A NetworkPolicy; a direction it does not speak of is None."""

    namespace: str
    name: str
    selector: LabelSelector
    ingress: tuple[Rule, ...] | None
    egress: tuple[Rule, ...] | None

    @property
    def key(self) -> str:
        """Its ``<namespace>/<name>``."""
        return f"{self.namespace}/{self.name}"

    def rules(self, direction: Direction) -> tuple[Rule, ...] | None:
        """Return the rules of a direction."""
        return self.ingress if direction == "ingress" else self.egress

    def selects(self, pod: Pod) -> bool:
        """Return whether the policy is about a Pod."""
        return pod.namespace == self.namespace and self.selector.matches(pod.labels)


class Pod(NamedTuple):
    """What policies read of a Pod; ``ports`` are rows of protocol, name and number."""

    namespace: str
    name: str
    labels: Mapping[str, str]
    ports: frozenset[tuple[str, str, int]] = frozenset()
    address: str = ""
    node: str = ""

    @property
    def key(self) -> str:
        """Its ``<namespace>/<name>``."""
        return f"{self.namespace}/{self.name}"


class Place(NamedTuple):
    """One end of a connection: a Pod, or an address of anybody else (""; not known)."""

    pod: Pod | None
    address: str


class Verdict(NamedTuple):
    """What the policies of one direction say of a connection.

    Attributes:
        policies: keys of those that select the Pod; none: it is not isolated.
        by: the key of the first that allows it, "" for none.
    """

    allowed: bool
    policies: tuple[str, ...] = ()
    by: str = ""


def parse_policy(policy: JsonObject) -> Policy:
    """Return what a NetworkPolicy, defaulted and valid, says."""
    spec, namespace = objects.spec(policy), objects.namespace(policy)
    types = spec.get("policyTypes") or ["Ingress"]
    rules = {
        direction: tuple(_rule(rule, peers, namespace) for rule in spec.get(direction) or [])
        for direction, peers in (("ingress", "from"), ("egress", "to"))
    }
    return Policy(
        namespace,
        objects.name(policy),
        from_label_selector(spec.get("podSelector") or {}),
        rules["ingress"] if "Ingress" in types else None,
        rules["egress"] if "Egress" in types else None,
    )


def _rule(rule: JsonObject, field: str, namespace: str) -> Rule:
    peers = rule.get(field) or []
    pods = tuple(_pods(peer, namespace) for peer in peers if not peer.get("ipBlock"))
    blocks = tuple(_block(peer["ipBlock"]) for peer in peers if peer.get("ipBlock"))
    ports = tuple(_port(port) for port in rule.get("ports") or [])
    return Rule(pods, blocks, not peers, ports or None)


def _pods(peer: JsonObject, namespace: str) -> Pods:
    pods = from_label_selector(peer.get("podSelector") or {})
    if peer.get("namespaceSelector") is None:
        return Pods(namespace, LabelSelector(), pods)
    return Pods("", from_label_selector(peer["namespaceSelector"]), pods)


def _block(block: JsonObject) -> Block:
    found = ipaddress.ip_network(block["cidr"], strict=False)
    excepted = (ipaddress.ip_network(each, strict=False) for each in block.get("except") or [])
    return Block(str(found), tuple(str(each) for each in excepted if each.version == found.version))


def _port(port: JsonObject) -> Port:
    protocol, number = port.get("protocol") or "TCP", port.get("port")
    if number is None:
        return Port(protocol)
    if isinstance(number, str):
        return Port(protocol, name=number)
    return Port(protocol, int(number), int(port.get("endPort") or number))


def pod_of(pod: JsonObject, address: str = "") -> Pod | None:
    """Return what policies read of a Pod; None of one in its node's network, or that is over."""
    spec = objects.spec(pod)
    if spec.get("hostNetwork") or objects.status(pod).get("phase") in _OVER:
        return None
    lasting = (*objects.containers(pod), *objects.init_containers(pod))
    ports = frozenset(
        (port.get("protocol") or "TCP", port["name"], int(port["containerPort"]))
        for container in lasting
        for port in container.get("ports") or []
        if port.get("name")
    )
    node = str(spec.get("nodeName") or "")
    return Pod(objects.namespace(pod), objects.name(pod), objects.labels(pod), ports, address, node)


class Connection(NamedTuple):
    """From somebody to a port of somebody."""

    source: Place
    target: Place
    protocol: str
    port: int


def judge(
    policies: Iterable[Policy],
    direction: Direction,
    connection: Connection,
    namespaces: Mapping[str, Mapping[str, str]],
) -> Verdict:
    """Return what policies say of a connection in one direction; ``namespaces`` has their labels."""
    own, peer = (connection.target, connection.source) if direction == "ingress" else connection[:2]
    if own.pod is None or (peer.pod is not None and peer.pod.key == own.pod.key):
        return Verdict(allowed=True)
    about = sorted(
        (one for one in policies if one.rules(direction) is not None and one.selects(own.pod)), key=lambda one: one.key
    )
    keys = tuple(one.key for one in about)
    for one in about:
        if any(_allows(rule, peer, connection, namespaces) for rule in one.rules(direction) or ()):
            return Verdict(allowed=True, policies=keys, by=one.key)
    return Verdict(not about, keys)


def _allows(rule: Rule, peer: Place, connection: Connection, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
    named = rule.everybody or (peer.pod is not None and any(one.matches(peer.pod, namespaces) for one in rule.pods))
    if not named and not (peer.address and any(one.matches(peer.address) for one in rule.blocks)):
        return False
    target = connection.target.pod
    return rule.ports is None or any(one.matches(connection.protocol, connection.port, target) for one in rule.ports)

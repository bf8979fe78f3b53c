"""NetworkPolicies at random, and what they allow as Kubernetes' documentation says it: a model of its own."""

from __future__ import annotations

import ipaddress
import random
from typing import Any

from minik8s_modules.api.objects import JsonObject

SPACES = {"x": {"ns": "x", "team": "a"}, "y": {"ns": "y", "team": "a"}, "z": {"ns": "z"}}
NAMES = ("a", "b", "c")
PORTS = {"serve-80": 8080, "serve-81": 9090}
"""Each Pod listens at both."""


def pods(prefix: str = "10.32.0.") -> list[JsonObject]:
    """Return the Pods of upstream's Netpol tests: a, b and c in the namespaces x, y and z."""
    found = []
    for number, (space, name) in enumerate((space, name) for space in SPACES for name in NAMES):
        labels = {"pod": name, "tier": "front" if name == "a" else "back"}
        ports = [{"name": each, "containerPort": port, "protocol": "TCP"} for each, port in PORTS.items()]
        found.append(
            {
                "metadata": {"namespace": space, "name": name, "labels": labels, "uid": f"{space}-{name}"},
                "spec": {"nodeName": "n1", "containers": [{"name": "app", "ports": ports}]},
                "status": {"phase": "Running", "podIP": f"{prefix}{number + 2}"},
            }
        )
    return found


class Dice:
    """Random policies of a seed."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)

    def policies(self, most: int = 4) -> list[JsonObject]:
        """Return a few."""
        return [self._policy(number) for number in range(self._dice.randint(1, most))]

    def _policy(self, number: int) -> JsonObject:
        pick = self._dice.choice
        spec: JsonObject = {"podSelector": self._selector("pod", NAMES)}
        for field, side in (("ingress", "from"), ("egress", "to")):
            if pick([0, 1]):
                spec[field] = [self._rule(side) for _ in range(self._dice.randint(0, 2))]
        spec["policyTypes"] = pick([["Ingress"], ["Egress"], ["Ingress", "Egress"]])
        return {"metadata": {"namespace": pick([*SPACES]), "name": f"p{number}"}, "spec": spec}

    def _rule(self, side: str) -> JsonObject:
        rule: JsonObject = {}
        if self._dice.random() < 0.8:
            rule[side] = [self._peer() for _ in range(self._dice.randint(0, 2))]
        if self._dice.random() < 0.6:
            rule["ports"] = [self._port() for _ in range(self._dice.randint(0, 2))]
        return rule

    def _peer(self) -> JsonObject:
        pick = self._dice.choice
        if self._dice.random() < 0.3:
            block: JsonObject = {"cidr": pick(["10.32.0.0/29", "10.32.0.0/24", "0.0.0.0/0", "10.32.0.4/32"])}
            if pick([0, 1]) and block["cidr"] != "10.32.0.4/32":
                block["except"] = [pick(["10.32.0.4/31", "10.32.0.2/32"])]
            return {"ipBlock": block}
        pods, spaces = {"podSelector": self._selector("pod", NAMES)}, {"namespaceSelector": self._space()}
        return dict(pick([pods, spaces, pods | spaces]))

    def _space(self) -> JsonObject:
        pick = self._dice.choice
        return dict(pick([self._selector("ns", tuple(SPACES)), {"matchLabels": {"team": "a"}}]))

    def _selector(self, label: str, values: tuple[str, ...]) -> JsonObject:
        pick = self._dice.choice
        some = self._dice.sample(values, 2)
        return dict(
            pick(
                [
                    {},
                    {"matchLabels": {label: pick(values)}},
                    {"matchExpressions": [{"key": label, "operator": pick(["In", "NotIn"]), "values": some}]},
                    {"matchExpressions": [{"key": "tier", "operator": pick(["Exists", "DoesNotExist"])}]},
                ]
            )
        )

    def _port(self) -> JsonObject:
        ports: list[JsonObject] = [{}, {"port": 8080}, {"port": "serve-81"}, {"port": 8000, "endPort": 8999}]
        return {"protocol": self._dice.choice(["TCP", "TCP", "UDP"]), **self._dice.choice(ports)}


def _selected(selector: JsonObject, labels: dict[str, str]) -> bool:
    """Say whether a LabelSelector selects what has these labels."""
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for one in selector.get("matchExpressions") or []:
        has, value = one["key"] in labels, labels.get(one["key"])
        fits = {
            "In": has and value in one.get("values", []),
            "NotIn": not has or value not in one.get("values", []),
            "Exists": has,
            "DoesNotExist": not has,
        }
        if not fits[one["operator"]]:
            return False
    return True


def _is_peer(peer: JsonObject, policy: JsonObject, pod: JsonObject) -> bool:
    if "ipBlock" in peer:
        address, block = ipaddress.ip_address(pod["status"]["podIP"]), peer["ipBlock"]
        return address in ipaddress.ip_network(block["cidr"]) and not any(
            address in ipaddress.ip_network(each) for each in block.get("except", [])
        )
    space = pod["metadata"]["namespace"]
    if "namespaceSelector" in peer:
        near = _selected(peer["namespaceSelector"], SPACES[space])
    else:
        near = space == policy["metadata"]["namespace"]
    return near and _selected(peer.get("podSelector", {}), pod["metadata"]["labels"])


def _is_port(port: JsonObject, protocol: str, number: int) -> bool:
    if port.get("protocol", "TCP") != protocol:
        return False
    wanted: Any = port.get("port")
    if isinstance(wanted, str):  # ports of Pods that have a name are of TCP here
        return protocol == "TCP" and PORTS.get(wanted) == number
    return wanted is None or wanted <= number <= port.get("endPort", wanted)


def _lets(policies: list[JsonObject], ends: tuple[JsonObject, JsonObject], way: str, at: tuple[str, int]) -> bool:
    own, peer = ends
    field, side = way.lower(), {"Ingress": "from", "Egress": "to"}[way]
    about = [
        one
        for one in policies
        if way in one["spec"]["policyTypes"]
        and one["metadata"]["namespace"] == own["metadata"]["namespace"]
        and _selected(one["spec"]["podSelector"], own["metadata"]["labels"])
    ]
    return not about or any(
        (not rule.get(side) or any(_is_peer(each, policy, peer) for each in rule[side]))
        and (not rule.get("ports") or any(_is_port(each, *at) for each in rule["ports"]))
        for policy in about
        for rule in policy["spec"].get(field) or []
    )


def allows(policies: list[JsonObject], source: JsonObject, target: JsonObject, protocol: str, number: int) -> bool:
    """Say whether a Pod may open a connection to another: both must let it. A Pod reaches itself."""
    if source is target:
        return True
    at = (protocol, number)
    return _lets(policies, (source, target), "Egress", at) and _lets(policies, (target, source), "Ingress", at)

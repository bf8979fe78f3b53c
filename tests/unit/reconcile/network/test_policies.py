"""NetworkPolicies as nodes are told of them: against a model of its own, by what changes, and at what cost."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

import pytest

from minik8s_modules.api.network.network_policies import DIRECTIONS, Connection, Place, judge, parse_policy, pod_of
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.policies.policy_entries import check_entry
from minik8s_modules.reconcile.network.policies import PolicyBook
from minik8s_modules.reconcile.values.values import Entries
from tests.support.policies import PORTS, SPACES, Dice, allows, pods

FILTER: Any = {"table": "minik8s_policies", "bridge": "mk8s-br0", "driver": "bridge"}
GENERATED = 200
PLACES = [(protocol, number) for protocol in ("TCP", "UDP") for number in (*PORTS.values(), 8500)]


def book_of(policies: list[JsonObject]) -> PolicyBook:
    book = PolicyBook()
    for name, labels in SPACES.items():
        book.put_namespace(name, labels)
    for pod in pods():
        put(book, pod)
    for policy in policies:
        parsed = parse_policy(policy)
        book.put_policy(parsed.key, parsed)
    return book


def put(book: PolicyBook, pod: JsonObject) -> None:
    found = pod_of(pod, pod["status"]["podIP"])
    assert found is not None
    book.put_pod(found.key, found)


def passes(entries: Entries, source: str, target: str, protocol: str, number: int) -> bool:
    """Say what a node that has these entries lets through, from address to address."""
    known = {entry["address"]: entry for key, entry in entries.items() if key.startswith("pod/")}
    if source == target:
        return True
    ways = (("egress", source, target), ("ingress", target, source))
    return all(_lets(entries, known, way, (target, protocol, number)) for way in ways)


def _lets(entries: Entries, known: Mapping[str, Any], way: tuple[str, str, str], at: tuple[str, str, int]) -> bool:
    direction, own, peer = way
    policies = known.get(own, {}).get(direction)
    if policies is None:
        return True
    return any(
        _fits_peer(rule["peers"], peer, known) and _fits_port(rule["ports"], at, known)
        for policy in policies
        for rule in entries[policy][direction]
    )


def _fits_peer(peers: Any, peer: str, known: Mapping[str, Any]) -> bool:
    if peers is None or set(known.get(peer, {}).get("groups", ())) & set(peers["groups"]):
        return True
    address = ipaddress.ip_address(peer)
    return any(
        address in ipaddress.ip_network(cidr) and not any(address in ipaddress.ip_network(each) for each in excepted)
        for cidr, excepted in peers["blocks"]
    )


def _fits_port(ports: Any, at: tuple[str, str, int], known: Mapping[str, Any]) -> bool:
    target, protocol, number = at
    named = known.get(target, {}).get("ports", ())
    return ports is None or any(
        [row[0], row[1], number] in named and row[0] == protocol
        if len(row) == 2
        else row[0] == protocol and (row[1] == 0 or row[1] <= number <= row[2])
        for row in ports
    )


@pytest.mark.parametrize("seed", range(GENERATED))
def test_a_node_is_told_what_the_model_allows(seed: int):
    policies, everybody = Dice(seed).policies(), pods()
    entries = book_of(policies).entries("n1", FILTER)
    for key, entry in entries.items():
        check_entry(key, entry)
    parsed = [parse_policy(one) for one in policies]
    ends = {id(pod): Place(pod_of(pod, pod["status"]["podIP"]), pod["status"]["podIP"]) for pod in everybody}
    for source in everybody:
        for target in everybody:
            for place in PLACES:
                wanted = allows(policies, source, target, *place)
                addresses = (source["status"]["podIP"], target["status"]["podIP"])
                assert passes(entries, *addresses, *place) is wanted, (source, target, place)
                connection = Connection(ends[id(source)], ends[id(target)], *place)
                judged = [judge(parsed, direction, connection, SPACES).allowed for direction in DIRECTIONS]
                assert all(judged) is wanted, (source, target, place)


@pytest.mark.parametrize("seed", range(40))
def test_what_comes_step_by_step_is_what_comes_at_once(seed: int):
    before, after = Dice(seed).policies(), Dice(seed + 1000).policies()
    book, everybody = book_of(before), pods()
    book.entries("n1", FILTER)
    book.put_pod("x/a", None)
    book.put_namespace("y", {"ns": "z"})
    book.entries("n1", FILTER)
    for policy in before:
        parsed = parse_policy(policy)
        book.put_policy(parsed.key, None)
        book.entries("n1", FILTER)
    for policy in after:
        parsed = parse_policy(policy)
        book.put_policy(parsed.key, parsed)
        book.entries("n1", FILTER)
    book.put_namespace("y", SPACES["y"])
    put(book, everybody[0])
    assert book.entries("n1", FILTER) == book_of(after).entries("n1", FILTER)


def policy(name: str = "wall", **spec: Any) -> JsonObject:
    spec = {"podSelector": {}, "policyTypes": ["Ingress"], **spec}
    return {"metadata": {"namespace": "x", "name": name}, "spec": spec}


def test_a_node_without_a_selected_pod_is_told_nothing():
    book = book_of([policy()])
    assert book.entries("n2", FILTER) == {}
    assert set(book.entries("n1", FILTER)) == {"filter", "policy/x/wall", "pod/x/a", "pod/x/b", "pod/x/c"}


def test_a_pod_more_is_an_entry_more():
    front = {"from": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"pod": "a"}}}]}
    book, new = book_of([policy(ingress=[front])]), pods()[3]
    new["metadata"]["name"], new["status"]["podIP"], new["spec"]["nodeName"] = "new", "10.32.9.9", "n2"
    before = book.entries("n1", FILTER)
    put(book, new)
    after = book.entries("n1", FILTER)
    assert {key: one for key, one in after.items() if before.get(key) is not one}.keys() == {"pod/y/new"}
    assert after["pod/y/new"]["ingress"] is None
    assert book.entries("n1", FILTER) is after


def test_a_pod_of_its_nodes_network_or_that_is_over_is_no_peer_and_selected_by_none():
    pod = pods()[0]
    pod["spec"]["hostNetwork"] = True
    assert pod_of(pod, "192.0.2.1") is None
    over = pods()[0]
    over["status"]["phase"] = "Succeeded"
    assert pod_of(over, "10.32.0.2") is None


def test_ranges_of_ipv6_are_nobodys_and_a_range_is_read_with_bits_of_a_host():
    blocks = [{"ipBlock": {"cidr": "fd00::/8"}}, {"ipBlock": {"cidr": "10.1.2.3/8", "except": ["10.1.2.3/16"]}}]
    entry = book_of([policy(ingress=[{"from": blocks}])]).entries("n1", FILTER)["policy/x/wall"]
    assert entry["ingress"] == [{"peers": {"groups": [], "blocks": [["10.0.0.0/8", ["10.1.0.0/16"]]]}, "ports": None}]

"""What NetworkPolicies cost: ``python -m tests.benchmarks.network.policies``.

1,000 policies over 2,000 Pods that are all on one node, which is the worst that a node can have. The reconciler's part
is to make the node's section of them, the node's a pass of ``minik8s_policies`` in a network namespace of this machine,
without Ansible around it; both as CPU, kernel included. First packets between two Pods of a bridge are timed with these
policies, of which one lets them through, and without any, in turn; the node has the rules of a Service, as all have.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from typing import Any

from minik8s_modules.api.network.network_policies import Pod, parse_policy
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.network.policies import PolicyBook
from tests.benchmarks.figures import Figure
from tests.integration.services.machines import PODS, Machine, entry, namespace

POLICIES, OF_A_POLICY, SPACES = 1_000, 2, 20
COLD_S, ONE_MORE_MS, FIRST_PACKET = 1.0, 15.0, 1.1
MORE, ROUNDS, PACKETS = 25, 15, 200
FILTER: Any = {"table": "minik8s_policies", "bridge": "mk8s-br0", "driver": "bridge"}


def policy(number: int) -> JsonObject:
    """Return a policy: its Pods take what the next ones and a namespace send to a port, and send to the last ones."""
    here, there = number // SPACES, (number // SPACES + 1) % (POLICIES // SPACES)
    peers = [
        {"podSelector": {"matchLabels": {"app": f"a{there}"}}},
        {"namespaceSelector": {"matchLabels": {"name": f"n{(number + 1) % SPACES}"}}},
        {"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.2.128/25"]}},
    ]
    rules = [{"from": peers, "ports": [{"port": 8080}, {"port": "http"}]}]
    spec = {"podSelector": {"matchLabels": {"app": f"a{here}"}}, "policyTypes": ["Ingress"], "ingress": rules}
    return {"metadata": {"namespace": f"n{number % SPACES}", "name": f"p{number}"}, "spec": spec}


def pod(number: int, address: str = "") -> Pod:
    """Return a Pod of a policy."""
    of = number % POLICIES
    ports = frozenset({("TCP", "http", 8081)})
    place = address or f"10.32.{1 + number // 250}.{1 + number % 250}"
    return Pod(f"n{of % SPACES}", f"pod{number}", {"app": f"a{of // SPACES}"}, ports, place, "n1")


def filled() -> PolicyBook:
    """Return all of them."""
    book = PolicyBook()
    for number in range(SPACES):
        book.put_namespace(f"n{number}", {"name": f"n{number}"})
    for number in range(POLICIES):
        parsed = parse_policy(policy(number))
        book.put_policy(parsed.key, parsed)
    for number in range(POLICIES * OF_A_POLICY):
        one = pod(number)
        book.put_pod(one.key, one)
    return book


def decided(machine: Machine) -> Iterator[Figure]:
    """Yield what making the section costs, and realizing it."""
    machine.pass_(section="policies", entries={})
    began = time.process_time()
    book = filled()
    entries = book.entries("n1", FILTER)
    text = f"{len(json.dumps(entries)) // 1024} KiB"
    yield Figure("1,000 over 2,000 Pods, the section made, CPU", time.process_time() - began, "s", COLD_S, text)
    began = time.perf_counter()
    result = machine.pass_(section="policies", entries=entries)
    assert not result["errors"], result
    text = f"wall {time.perf_counter() - began:.2f} s with Python's start"
    yield Figure("1,000 over 2,000 Pods, cold load on the node, CPU", result["cpu_s"], "s", COLD_S, text)
    whole = machine.pass_(section="policies", entries=entries)
    assert not whole["changed"]
    yield Figure("1,000 over 2,000 Pods, looked at as a whole, CPU", whole["cpu_s"], "s", COLD_S)
    yield from one_more(machine, book, entries, result["digest"])


def one_more(machine: Machine, book: PolicyBook, entries: Any, digest: str) -> Iterator[Figure]:
    """Yield what one Pod more costs."""
    made_ms, passed_ms, sent = list[float](), list[float](), list[int]()
    for number in range(MORE):
        began = time.process_time()
        new = pod(number, f"10.33.0.{number + 1}")._replace(name=f"more{number}")
        book.put_pod(new.key, new)
        after = book.entries("n1", FILTER)
        made_ms.append((time.process_time() - began) * 1000)
        upsert = {key: entry for key, entry in after.items() if entries.get(key) is not entry}
        result = machine.pass_(section="policies", mode="delta", base=digest, upsert=upsert, delete=[])
        assert not result["errors"], result
        passed_ms.append(result["cpu_s"] * 1000)
        sent.append(result["sent_bytes"])
        entries, digest = after, result["digest"]
    yield Figure("one Pod more, the section made, CPU", statistics.median(made_ms), "ms", ONE_MORE_MS, f"n={MORE}")
    text = f"n={MORE}, {statistics.median(sent):.0f} bytes to the kernel"
    yield Figure("one Pod more, realized on the node, CPU", statistics.median(passed_ms), "ms", ONE_MORE_MS, text)


def first_packet(machine: Machine) -> Figure:
    """Return the time of a first packet with all policies over that without any."""
    machine.call("pods", bridge="mk8s-br0", gateway="10.32.0.1", pods=PODS)
    machine.declare(**{"web:80": entry("100.0.0.7", "pod2")})  # a node has Services, with and without policies
    book = filled()
    rules = [
        {"from": [{"podSelector": {"matchLabels": {"app": "client"}}}], "ports": [{"protocol": "UDP", "port": 9090}]}
    ]
    spec = {"podSelector": {"matchLabels": {"app": "server"}}, "policyTypes": ["Ingress"], "ingress": rules}
    parsed = parse_policy({"metadata": {"namespace": "n1", "name": "real"}, "spec": spec})
    book.put_policy(parsed.key, parsed)
    for name, app in (("pod2", "server"), ("pod3", "client")):
        book.put_pod(f"n1/{name}", Pod("n1", name, {"app": app}, frozenset(), PODS[name], "n1"))
    ways: dict[str, Any] = {"without": {}, "with": dict(book.entries("n1", FILTER))}
    times: dict[str, list[float]] = {name: [] for name in ways}
    asked = {"address": PODS["pod2"], "port": 9090, "count": PACKETS, "from": "pod3"}
    for _ in range(ROUNDS):
        for name, entries in ways.items():
            result = machine.pass_(section="policies", entries=entries)
            assert not result["errors"], result
            machine.call("first", **asked)  # tables that were removed are cleared away by the kernel meanwhile
            times[name].append(statistics.median(machine.call("first", **asked)))
    few, many = (min(found) for found in times.values())
    ratios = sorted(ours / none for none, ours in zip(*times.values(), strict=True))
    among = f"{ROUNDS} ratios of medians of {PACKETS}, {ratios[0]:.2f} to {ratios[-1]:.2f}"
    text = f"median of {among}; least {many:.1f} us, {few:.1f} us without"
    return Figure("first packet from Pod to Pod, ratio to none", statistics.median(ratios), "x", FIRST_PACKET, text)


def measure() -> Iterator[Figure]:
    """Yield all figures."""
    with namespace("nftables") as machine:
        machine.shell(["sh", "-c", "ip link set lo up; ip link add mk8s-br0 type bridge; ip link set mk8s-br0 up"])
        machine.shell(["ip", "addr", "add", "10.32.0.1/24", "dev", "mk8s-br0"])
        yield from decided(machine)
        yield first_packet(machine)


if __name__ == "__main__":
    for figure in measure():
        print(figure.line(), flush=True)

"""Ranges of pod addresses: given once, quarantined while their machine may not be clean, then free again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import LEASE, NODE, POD_ADDRESS, POD_CIDR
from minik8s_modules.api.nodes.pod_cidrs import NoCidrLeft, choose, claim_name, claim_of
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.controllers.core.steps import Again, Create, Delete, RecordEvent, Step, WriteStatus
from minik8s_modules.controllers.nodes.pod_cidrs import NodeRanges, PodCidrController, decide_pod_cidrs
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from minik8s_modules.runtime.pod_cidrs import claim_cidr
from tests.support.waiting import until
from tests.support.workloads import NOW, ago

CASES = Path(__file__).parents[3] / "cases"


def node(name: str, cidr: str = "") -> JsonObject:
    spec = {"podCIDR": cidr, "podCIDRs": [cidr]} if cidr else {}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(
    ("given", "wanted", "words"),
    [
        ("fd00:1::/64", "fd00:2::/64", "those of its Pods are of fd00:2::/64"),
        ("fd00:1::/64", "", "Pods have none of IPv6"),
        ("fd00:2::/64", "fd00:2::/64", ""),
    ],
)
def test_a_range_of_ipv6_that_is_not_used_is_told(given: str, wanted: str, words: str) -> None:
    found = node("n1", "10.244.1.0/24")
    found["spec"]["podCIDRs"].append(given)
    holder = claim_of("10.244.1.0/24", "n1")
    steps = decide_pod_cidrs("n1", NodeRanges(found, holder=holder, ipv6=wanted), NOW)
    told = [step.message for step in steps if isinstance(step, RecordEvent)]
    assert len(told) == bool(words)
    assert words in "".join(told)


@pytest.mark.parametrize("path", sorted((CASES / "choose_pod_cidr").glob("*.yml")), ids=lambda path: path.stem)
def test_choose_pod_cidr(path: Path):
    message = yaml.safe_load(path.read_text(encoding="utf-8"))
    nodes = [node(name, cidr) for name, cidr in message["nodes"].items()]
    claims = [claim_of(cidr, holder) for cidr, holder in message["claims"].items()]
    asked = (message.get("cluster_cidr", "10.244.0.0/16"), message["node"], nodes, claims, message.get("refused", []))
    if "error" in message:
        with pytest.raises(NoCidrLeft, match=message["error"]):
            choose(*asked)
    else:
        assert choose(*asked) == (message["gets"], message["claimed"])


def claim(cidr: str, fields: JsonObject) -> JsonObject:
    made = claim_of(cidr, fields.get("node", "n1"))
    made["metadata"]["creationTimestamp"] = ago(fields.get("age", 1000))
    return {**made, "status": {"phase": fields["phase"]}} if "phase" in fields else made


def words(step: Step) -> str:
    match step:
        case Create(_, obj):
            return f"create {objects.name(obj)} for {obj['spec']['nodeName']}"
        case Delete(_, obj):
            return f"delete {objects.name(obj)}"
        case WriteStatus(_, obj, status):
            return f"{objects.name(obj)} is {status['phase']}"
        case RecordEvent(_, _, reason, _):
            return f"tell {reason}"
        case Again(after_s):
            return f"again in {after_s:g}"
    raise AssertionError(step)


@pytest.mark.parametrize("path", sorted((CASES / "decide_pod_cidrs").glob("*.yml")), ids=lambda path: path.stem)
def test_decide_pod_cidrs(path: Path):
    message = yaml.safe_load(path.read_text(encoding="utf-8"))
    claims = [claim(cidr, each) for cidr, each in message.get("claims", {}).items()]
    has = node("n1", message["node"]) if "node" in message else None
    found = NodeRanges(
        has,
        [each for each in claims if each["spec"]["nodeName"] == "n1"],
        next((each for each in claims if each["spec"]["cidr"] == message.get("node")), None),
        [{"metadata": {"name": each}} for each in message.get("addresses", [])],
        {"metadata": {"name": "n1"}} if message.get("lease") else None,
    )
    if message.get("settled"):
        found = found._replace(claims=[settled(each) for each in found.claims])
    assert [words(step) for step in decide_pod_cidrs("n1", found, NOW)] == message["steps"]


def settled(fields: JsonObject) -> JsonObject:
    """Return the claim with the status that the first decision gives it."""
    first = decide_pod_cidrs("n1", NodeRanges(None, [fields]), NOW)
    assert isinstance(first[0], WriteStatus)
    return {**fields, "status": first[0].status}


def test_the_quarantine_says_what_to_do():
    status = settled(claim("10.244.1.0/24", {"phase": "Assigned"}))["status"]
    assert "kubectl delete podcidr 10.244.1.0-24" in status["message"]
    assert "node n1 is gone" in status["message"]


class OldLists(FakeApi):
    """Lists lag: what others have claimed meanwhile is only seen by trying."""

    lag = True

    def list(self, *args: Any, **kwargs: Any) -> Any:
        """List nothing."""
        found = super().list(*args, **kwargs)
        return found._replace(items=[]) if self.lag else found


def test_two_that_choose_at_a_time_get_two_ranges():
    api = OldLists()
    given = [claim_cidr(api, "10.244.0.0/16", name) for name in ("n1", "n2", "n3")]
    assert given == ["10.244.0.0/24", "10.244.1.0/24", "10.244.2.0/24"]


def test_many_threads_never_get_one_range_twice():
    api, given = FakeApi(), {}

    def claim_one(name: str) -> None:
        given[name] = claim_cidr(api, "10.244.0.0/16", name)

    threads = [threading.Thread(target=claim_one, args=(f"n{number}",)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(given.values())) == len(threads)
    assert {each["spec"]["cidr"]: each["spec"]["nodeName"] for each in api.list(POD_CIDR).items} == {
        cidr: name for name, cidr in given.items()
    }


@pytest.fixture
def controller(api: FakeApi, clock: FakeClock) -> Iterator[PodCidrController]:
    context = Context(api, EventRecorder(api, "c", clock=clock), Informers(api), clock)
    made = PodCidrController(context, "10.244.0.0/16")
    context.informers.start()
    made.start()
    yield made
    made.stop()
    context.informers.stop()
    context.pool.shutdown()


def phase(api: FakeApi, cidr: str) -> str:
    try:
        return str(api.get(POD_CIDR, claim_name(cidr)).get("status", {}).get("phase"))
    except NotFound:
        return "free"


@pytest.mark.usefixtures("controller")
def test_a_range_is_given_quarantined_and_freed(api: FakeApi):
    api.create(NODE, node("n1"))
    until(lambda: phase(api, "10.244.0.0/24") == "Assigned")
    assert api.get(NODE, "n1")["spec"]["podCIDR"] == "10.244.0.0/24"
    api.create(POD_ADDRESS, {"metadata": {"name": "10.244.0.2"}, "spec": {"nodeName": "n1"}})
    api.create(LEASE, {"metadata": {"name": "n1", "namespace": "kube-node-lease"}, "spec": {}})
    api.delete(NODE, "n1")
    until(lambda: phase(api, "10.244.0.0/24") == "Quarantined")
    api.create(NODE, node("n2"))
    until(lambda: phase(api, "10.244.1.0/24") == "Assigned")
    assert [objects.name(each) for each in api.list(POD_ADDRESS).items] == ["10.244.0.2"]
    api.delete(POD_CIDR, "10.244.0.0-24")  # the machine is clean
    until(lambda: not api.list(POD_ADDRESS).items and not api.list(LEASE).items)
    api.create(NODE, node("n3"))
    until(lambda: phase(api, "10.244.0.0/24") == "Assigned")
    assert api.get(NODE, "n3")["spec"]["podCIDR"] == "10.244.0.0/24"


@pytest.mark.usefixtures("controller")
def test_a_claim_deleted_by_mistake_comes_back(api: FakeApi):
    api.create(NODE, node("n1", "10.244.3.0/24"))
    until(lambda: phase(api, "10.244.3.0/24") == "Assigned")
    uid = objects.uid(api.get(POD_CIDR, "10.244.3.0-24"))
    api.delete(POD_CIDR, "10.244.3.0-24")
    until(lambda: phase(api, "10.244.3.0/24") == "Assigned" and objects.uid(api.get(POD_CIDR, "10.244.3.0-24")) != uid)


@pytest.mark.usefixtures("controller")
def test_a_virtual_node_takes_no_range_unless_it_says_which(api: FakeApi):
    def virtual(name: str, cidr: str = "") -> JsonObject:
        made = node(name, cidr)
        return {**made, "metadata": {**made["metadata"], "labels": {"type": "virtual-kubelet"}}}

    api.create(NODE, virtual("far"))
    api.create(NODE, virtual("asks", "10.250.0.0/24"))
    until(lambda: phase(api, "10.250.0.0/24") == "Assigned")
    api.create(NODE, node("n1"))
    until(lambda: phase(api, "10.244.0.0/24") == "Assigned")
    assert api.get(NODE, "n1")["spec"]["podCIDR"] == "10.244.0.0/24"
    api.delete(NODE, "far")
    api.create(NODE, node("n2"))
    until(lambda: phase(api, "10.244.1.0/24") == "Assigned")
    assert len(api.list(POD_CIDR).items) == 3
    api.delete(NODE, "asks")  # no machine can still use it
    until(lambda: phase(api, "10.250.0.0/24") == "free")

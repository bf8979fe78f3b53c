"""NetworkPolicies on Pods of a whole cluster: what is held back, from the first packet on, and what is told of it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from minik8s_modules.api.kinds import NETWORK_POLICY, POD
from minik8s_modules.api.objects import JsonObject
from tests.integration.services.conftest import Cluster

HTTP = {"protocol": "TCP", "port": "http"}


@pytest.fixture(scope="module")
def pods(cluster: Cluster) -> Iterator[Cluster]:
    cluster.web("web", {"app": "web"})
    cluster.web("client", {"app": "client"})
    cluster.service("policed", {"app": "web"})
    cluster.until(lambda: cluster.ready("web") and cluster.ready("client"), 120)
    yield cluster
    for name in ("web", "client"):
        cluster.admin.delete(POD, name, "default")


@pytest.fixture
def policed(pods: Cluster) -> Iterator[Cluster]:
    yield pods
    for policy in pods.admin.list(NETWORK_POLICY, "default").items:
        pods.admin.delete(NETWORK_POLICY, policy["metadata"]["name"], "default")
    pods.until(lambda: not rules(pods), 30)


def table(cluster: Cluster) -> str:
    """Return the name of the table of policies."""
    return f"minik8s_policies_{cluster.node.bridge}"


def rules(cluster: Cluster) -> str:
    """Return the table of policies, "" for none."""
    done = subprocess.run(["nft", "list", "table", "ip", table(cluster)], capture_output=True, text=True, check=False)
    return done.stdout


def declare(cluster: Cluster, name: str, **spec: object) -> None:
    """Create a policy."""
    body = {"metadata": {"name": name, "namespace": "default"}, "spec": {"podSelector": {}, **spec}}
    cluster.admin.create(NETWORK_POLICY, body)


def reaches(cluster: Cluster, client: str, server: str, port: int = 8080) -> bool:
    """Return whether a Pod's server answers another Pod."""
    address = cluster.pod(server)["status"]["podIP"]
    return cluster.fetch_inside(client, address, port) == server


def test_a_selected_pod_takes_what_is_allowed_and_its_node_alone(policed: Cluster) -> None:
    assert reaches(policed, "client", "web")
    declare(policed, "deny", podSelector={"matchLabels": {"app": "web"}})
    policed.until(lambda: not reaches(policed, "client", "web"), 60)
    assert reaches(policed, "web", "web"), "a Pod reaches itself"
    assert policed.ready("web"), "and its node it"
    peers = [{"podSelector": {"matchLabels": {"app": "client"}}}]
    declare(policed, "allow", ingress=[{"from": peers, "ports": [HTTP]}])
    policed.until(lambda: reaches(policed, "client", "web"), 60)


def test_a_pod_that_comes_is_isolated_before_its_first_packet(policed: Cluster) -> None:
    declare(policed, "deny", policyTypes=["Ingress", "Egress"])
    policed.until(lambda: rules(policed), 60)
    address = policed.pod("web")["status"]["podIP"]
    knock = f"for i in $(seq 50); do nc -z -w 1 {address} 8080 && exit 7; sleep 0.1; done; exit 0"
    policed.create("knocks", ["sh", "-c", knock], restartPolicy="Never")
    policed.until(lambda: policed.pod("knocks")["status"].get("phase") in {"Succeeded", "Failed"}, 120)
    assert policed.pod("knocks")["status"]["phase"] == "Succeeded", "no connection ever came to be"
    policed.delete("knocks", 0)


def test_a_plan_tells_who_loses_and_gains_and_what_the_node_does(policed: Cluster) -> None:
    metadata = {"name": "deny", "namespace": "default"}
    spec = {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"]}
    wall: JsonObject = {
        "apiVersion": NETWORK_POLICY.api_version,
        "kind": "NetworkPolicy",
        "metadata": metadata,
        "spec": spec,
    }
    planned = policed.plan(objects=[wall])
    message = [one for one in planned["messages"] if "client" in one]
    closed = "TCP 8080, other TCP ports, other UDP ports would be closed"
    assert message == [f"connections from Pod default/client to Pod default/web: {closed}"]
    steps = {step["key"] for step in planned["nodes"][policed.node.name]["steps"] if step["section"] == "policies"}
    assert steps == {"filter", "policy/default/deny", "pod/default/web"}
    assert not rules(policed), "a plan changes nothing"


def test_where_policies_cannot_be_enforced_an_event_of_each_says_so(policed: Cluster) -> None:
    subprocess.run(["nft", "add", "table", "ip", table(policed)], check=True)
    try:
        declare(policed, "deny", podSelector={"matchLabels": {"app": "web"}})
        policed.until(
            lambda: any("PolicyNotEnforced" in each and "not ours" in each for each in policed.events("deny")), 60
        )
    finally:
        subprocess.run(["nft", "delete", "table", "ip", table(policed)], check=True)

"""Requests of a Pod with a real Envoy, on two machines: by weight (S-14, S-15), by path (S-16), without a pilot.

What is applied is the example of docs/how-to/mesh.md.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import yaml

from minik8s_modules.api.objects import JsonObject
from tests.support.clusters.labcluster import REPOSITORY, LabCluster

EXAMPLE = (REPOSITORY / "examples/mesh.yml").read_text(encoding="utf-8")
PODS = ("reviews-v1a", "reviews-v1b", "reviews-v2", "client")
WITHIN = 0.04
"""How far a share of 1,000 requests may be from the declared one."""
WAIT_S = 400
ASK = """
i=0
while [ $i -lt "$1" ]; do wget -q -O - "http://reviews:9080$2" 2>&1 || echo "status $?"; i=$((i + 1)); done
"""


@pytest.fixture(scope="module")
def cluster(lab_name: str) -> Iterator[LabCluster]:
    """Two machines with a mesh and the example; MINIK8S_MESH in the environment names a lab to use again and keep."""
    name = os.environ.get("MINIK8S_MESH") or lab_name
    made = LabCluster(name, workers=1, control_is_node=True, variables={"minik8s_mesh": True})
    try:
        made.up()
        if not made.kubeconfig.exists():
            made.install()
        made.apply(*(at(each) for each in yaml.safe_load_all(EXAMPLE)))
        for pod in PODS:
            made.until(partial(made.ready, pod), WAIT_S, f"{pod} is not ready")
        yield made
    finally:
        if name == lab_name:
            made.close()


def at(obj: JsonObject) -> JsonObject:
    """Return an object of the example; the Pods of version 1 are on one machine, all else is on the other."""
    node = "control1" if obj["metadata"]["name"].startswith("reviews-v1") else "worker1"
    return {**obj, "spec": {**obj["spec"], "nodeName": node}} if obj["kind"] == "Pod" else obj


def split(cluster: LabCluster, *subsets: dict[str, Any]) -> None:
    """Declare how requests are split, and wait for the pilot to have decided on it."""
    spec = {"serviceRef": "reviews", "port": 9080, "subsets": list(subsets)}
    cluster.apply({"apiVersion": "v1", "kind": "VirtualService", "metadata": {"name": "reviews"}, "spec": spec})
    wanted = {str(each.get("url", "")) for each in subsets}

    def is_reported() -> bool:
        entries = cluster.get("sidecarmapping", "mesh")["spec"].values()
        return any({str(one.get("url", "")) for one in each} == wanted for each in entries)

    cluster.until(is_reported, WAIT_S, "the SidecarMapping does not say so")


def answers(cluster: LabCluster, number: int, path: str) -> Counter[str]:
    """Return who answered so many requests of the client, or what came instead."""
    words = cluster.inside("client", "sh", "-c", ASK, "ask", str(number), path, timeout_s=WAIT_S)
    return Counter(words.splitlines())


def shares(found: Counter[str]) -> dict[str, float]:
    return {name: count / found.total() for name, count in found.items()}


def has_shares(cluster: LabCluster, **wanted: float) -> None:
    """Wait for the sidecar to know, then ask a thousand times."""
    expected = {name for name, share in wanted.items() if share}
    cluster.until(lambda: set(answers(cluster, 20, "/reviews/0")) == expected, WAIT_S, f"not just {expected} answer")
    found = shares(answers(cluster, 1000, "/reviews/0"))
    assert found == {name: pytest.approx(wanted[name], abs=WITHIN) for name in expected}


def test_without_a_virtual_service_every_pod_answers_alike(cluster: LabCluster):
    cluster.kubectl("delete", "virtualservice", "--all", "--ignore-not-found")
    has_shares(cluster, v1a=1 / 3, v1b=1 / 3, v2=1 / 3)


def test_a_canary_goes_from_one_version_to_the_other(cluster: LabCluster):
    for first, second in ((1, 0), (1, 2), (0, 1)):
        split(cluster, {"name": "reviews-v1", "weight": first}, {"name": "reviews-v2", "weight": second})
        whole = first + second
        has_shares(cluster, v1a=first / whole / 2, v1b=first / whole / 2, v2=second / whole)


def test_the_weights_of_pods_are_the_originals(cluster: LabCluster):
    split(cluster, {"name": "reviews-v1", "weight": 1}, {"name": "reviews-v2", "weight": 2})

    def is_reported() -> bool:
        services = cluster.get("sidecarmapping", "mesh")["spec"].values()
        return any(sorted(each.get("weight", 0) for each in entries) == [1, 1, 4] for entries in services)

    cluster.until(is_reported, WAIT_S, "the weights are others")


def test_paths_choose_a_subset_and_every_pod_of_it_answers(cluster: LabCluster):
    split(cluster, {"name": "reviews-v1", "url": "/reviews/1$"}, {"name": "reviews-v2", "url": "^/reviews/[2-4]"})
    cluster.until(lambda: set(answers(cluster, 20, "/reviews/1")) == {"v1a", "v1b"}, WAIT_S, "other Pods answer")
    assert answers(cluster, 100, "/reviews/2") == {"v2": 100}
    refused = cluster.inside("client", "sh", "-c", "wget -S -O - http://reviews:9080/reviews/9 2>&1 || true")
    assert "503 Service Unavailable" in refused


def test_a_wrong_virtual_service_has_a_reason_and_harms_nobody(cluster: LabCluster):
    spec = {"serviceRef": "gone", "port": 9080, "subsets": [{"name": "reviews-v1", "weight": 1}]}
    cluster.apply({"apiVersion": "v1", "kind": "VirtualService", "metadata": {"name": "dangling"}, "spec": spec})

    def reasons() -> set[str]:
        status = cluster.get("virtualservice", "dangling").get("status") or {}
        return {each["reason"] for each in status.get("conditions") or []}

    cluster.until(lambda: reasons() == {"Accepted", "ServiceNotFound"}, WAIT_S, "no reason")
    assert answers(cluster, 100, "/reviews/2") == {"v2": 100}
    cluster.kubectl("delete", "virtualservice", "dangling")


def test_requests_are_answered_while_there_is_no_pilot(cluster: LabCluster):
    cluster.on("control1", ["systemctl", "stop", "minik8s-pilot"])
    try:
        assert answers(cluster, 200, "/reviews/2") == {"v2": 200}
    finally:
        cluster.on("control1", ["systemctl", "start", "minik8s-pilot"])


def test_a_second_run_changes_nothing(cluster: LabCluster):
    assert cluster.play("site.yml").changed == 0

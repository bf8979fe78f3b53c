"""A mesh of a whole cluster when somebody interferes: flushed rules, a killed Envoy, Deployments as versions.

And Pods with the original's own containers. One machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.sidecars import with_sidecar
from tests.support.clusters.labcluster import REPOSITORY, LabCluster
from tests.support.clusters.meshcluster import mesh_machine

MINIK8S = Path(sys.executable).with_name("minik8s")
WAIT_S = 400
NODE = "control1"
SERVE = "mkdir -p /www/reviews && cd /www && for i in 0 1 2 9; do echo {} >reviews/$i; done && exec httpd -f -p 9080"
ASK = """
i=0
while [ $i -lt "$1" ]; do wget -q -O - http://reviews:9080/reviews/0 2>&1 || echo "status $?"; i=$((i + 1)); done
"""
FLUSH = """
pid=$(docker inspect -f '{{.State.Pid}}' "$(docker ps -q --no-trunc --filter label=minik8s.io/pod-name=client \
  --filter label=minik8s.io/type=sandbox)")
nsenter -t "$pid" -n iptables -t nat -F MISTIO_OUTPUT
"""
REVIEWS_V3 = "istio/examples-bookinfo-reviews-v3:1.19.1"


@pytest.fixture(scope="module")
def cluster(lab_name: str) -> Iterator[LabCluster]:
    """A machine with a mesh, a client and a second one."""
    with mesh_machine(lab_name) as made:
        service = {"selector": {"app": "reviews"}, "ports": [{"port": 9080}]}
        made.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "reviews"}, "spec": service})
        for each in ("client", "other"):
            made.apply(pod(each, ["sleep", "1000000"], sidecar=True))
        yield made


def pod(name: str, command: list[str], *, sidecar: bool = False, labels: dict[str, str] | None = None) -> JsonObject:
    app = {"name": name.partition("-")[0], "image": "minik8s/busybox:1", "command": command}
    spec: JsonObject = {"terminationGracePeriodSeconds": 1, "containers": [app]}
    meta = {"name": name, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": with_sidecar(spec) if sidecar else spec}


def deployment(version: str, replicas: int) -> JsonObject:
    labels = {"app": "reviews", "version": version}
    template = pod("reviews", ["sh", "-c", SERVE.format(version)], labels=labels)
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
    }
    meta = {"name": f"reviews-{version}"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


def ask(cluster: LabCluster, number: int, pod_name: str = "client") -> Counter[str]:
    """Return who answered so many requests of a Pod, or what came instead."""
    words = cluster.inside(pod_name, "sh", "-c", ASK, "ask", str(number), timeout_s=WAIT_S)
    return Counter(words.splitlines())


def answers_alone(cluster: LabCluster, version: str, pod_name: str = "client") -> bool:
    """Return whether just one version answers a Pod."""
    return set(ask(cluster, 20, pod_name)) == {version}


def minik8s(cluster: LabCluster, *argv: str) -> str:
    """Run a command of ours and return all it prints."""
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    done = subprocess.run(
        [str(MINIK8S), *argv], env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def split(cluster: LabCluster) -> LabCluster:
    """Two Deployments as two versions, Subsets of their labels, and all requests to the first."""
    cluster.apply(deployment("v1", 2), deployment("v2", 1))
    for version in ("v1", "v2"):
        labels = {"app": "reviews", "version": version}
        meta = {"name": f"reviews-{version}"}
        cluster.apply({"apiVersion": "v1", "kind": "Subset", "metadata": meta, "spec": {"labels": labels}})
        cluster.kubectl("rollout", "status", f"deployment/reviews-{version}", "--timeout=200s", timeout_s=WAIT_S)
    subsets = [{"name": "reviews-v1", "weight": 1}, {"name": "reviews-v2", "weight": 0}]
    spec = {"serviceRef": "reviews", "port": 9080, "subsets": subsets}
    cluster.apply({"apiVersion": "v1", "kind": "VirtualService", "metadata": {"name": "reviews"}, "spec": spec})
    for each in ("client", "other"):
        cluster.until(partial(cluster.ready, each), WAIT_S, f"{each} is not ready")
        cluster.until(partial(answers_alone, cluster, "v1", each), WAIT_S, "others than v1 answer")
    return cluster


class Load:
    """Requests of a Pod, one after the other, until it is stopped."""

    def __init__(self, cluster: LabCluster, pod_name: str) -> None:
        self._ask: Any = partial(ask, cluster, 50, pod_name)
        self._over = threading.Event()
        self.answers: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            self.answers += self._ask()

    def stop(self) -> Counter[str]:
        """Return what was answered."""
        self._over.set()
        self._thread.join(WAIT_S)
        return self.answers


def test_a_canary_leads_from_one_deployment_to_another_while_its_pods_are_replaced(split: LabCluster):
    load = Load(split, "client")
    words = ("canary", "reviews", "--to", "reviews-v2", "--weight", "50", "--step", "50", "--pause", "10s")
    told = minik8s(split, *words, "--abort-on", "error-rate>50%")
    split.until(partial(answers_alone, split, "v2"), WAIT_S, f"others than v2 answer: {told}")
    # a Pod of another name comes into the Subset
    split.kubectl("rollout", "restart", "deployment/reviews-v2")
    split.kubectl("rollout", "status", "deployment/reviews-v2", "--timeout=200s", timeout_s=WAIT_S)
    split.until(partial(answers_alone, split, "v2"), WAIT_S, "the new Pod gets nothing")
    minik8s(split, "canary", "reviews", "--to", "reviews-v1", "--weight", "100")
    split.until(partial(answers_alone, split, "v1"), WAIT_S, "it is not led back")
    found = load.stop()
    # busybox's httpd is killed at the end of its grace, with the requests inside it, which are sent again
    assert set(found) == {"v1", "v2"}, found


def test_rules_that_somebody_flushed_are_shown_by_drift_and_healed(split: LabCluster):
    split.on(NODE, ["bash", "-c", FLUSH])
    assert set(ask(split, 60)) == {"v1", "v2"}, "the rules are still there"  # the node's own balancing
    assert "~ Pod default/client  sidecars 1" in minik8s(split, "drift")
    assert "MISTIO_OUTPUT" in minik8s(split, "drift", "--full")
    minik8s(split, "drift", "--heal")
    split.until(partial(answers_alone, split, "v1"), WAIT_S, "the rules are not back")
    split.until(lambda: "no changes" in minik8s(split, "drift"), WAIT_S, "drift goes on")


def test_an_envoy_that_is_killed_costs_nobody_else_a_request(split: LabCluster):
    loads = {each: Load(split, each) for each in ("client", "other")}
    find = "docker ps -q --filter label=minik8s.io/pod-name=client --filter label=minik8s.io/container=envoy"
    split.on(NODE, ["bash", "-c", f'docker kill "$({find})"'])
    split.until(partial(answers_alone, split, "v1"), WAIT_S, "the sidecar is not back")
    found = {name: load.stop() for name, load in loads.items()}
    assert set(found["other"]) == {"v1"}, found
    assert found["client"]["v1"] > 0


def refuses_privileged(cluster: LabCluster) -> bool:
    """Return whether the machine lets no container be privileged, as one that is a container itself may."""
    tried = "docker run --rm --privileged minik8s/busybox:1 true 2>&1 | grep -o 'operation not permitted' || true"
    return bool(cluster.on(NODE, ["sh", "-c", tried]).strip())


def test_the_originals_privileged_init_container_does_no_harm(split: LabCluster):
    """Where the machine refuses ``privileged``, nothing else of the Pod is begun, and it says so."""
    one = pod("privileged", ["sleep", "1000000"])
    envoy = {"name": "envoy-proxy", "image": "sjtuzc/envoy:1.2", "securityContext": {"runAsUser": 1337}}
    init = {"name": "proxy-init", "image": "sjtuzc/envoy-init:latest", "securityContext": {"privileged": True}}
    one["spec"] |= {"containers": [*one["spec"]["containers"], envoy], "initContainers": [init]}
    one["metadata"]["annotations"] = {"minik8s.io/dialect": "original"}
    if refuses_privileged(split):
        split.apply(one)
        split.until(lambda: "operation not permitted" in minik8s(split, "why", "pod/privileged"), WAIT_S, "no reason")
        split.kubectl("delete", "pod", "privileged")
        pytest.skip("this machine lets no container be privileged")
    split.apply(one)
    split.until(partial(split.ready, "privileged"), WAIT_S, "it is not ready")
    split.until(partial(answers_alone, split, "v1", "privileged"), WAIT_S, "its sidecar does not split")


def test_the_originals_rolling_update_replaces_pods_without_a_failed_request(split: LabCluster):
    """Its manifest 08 as it is, where the machine allows ``privileged``; its image is one of ours by that name."""
    split.kubectl("delete", "virtualservice", "reviews", "--ignore-not-found")
    split.kubectl("delete", "deployment", "reviews-v1", "reviews-v2", "--ignore-not-found")
    split.until(lambda: not split.get("pods", "-l", "version")["items"], WAIT_S, "Pods of Deployments are there")
    words = ["sh", "-c", SERVE.format("old")]
    for name in ("reviews-1", "reviews-2"):
        split.apply(pod(name, words, labels={"app": "reviews"}))
    split.until(partial(answers_alone, split, "old"), WAIT_S, "the Pods do not answer")
    recipe = f"FROM minik8s/busybox:1\nCMD {json.dumps(['sh', '-c', SERVE.format('new')])}"
    split.on(NODE, ["docker", "build", "-q", "-t", REVIEWS_V3, "-"], text=recipe, timeout_s=WAIT_S)
    load = Load(split, "client")
    manifest = yaml.safe_load((REPOSITORY / "tests/cases/original_manifests/08-rollingupdate.yml").read_text())
    if refuses_privileged(split):
        init = manifest["spec"]["newPodSpec"]["initContainers"][0]
        init["securityContext"] = {"capabilities": {"add": ["NET_ADMIN", "NET_RAW"]}}
    split.apply(manifest)
    split.until(lambda: split.get("rollingupdate", "my-ru")["status"].get("phase") == "Finished", WAIT_S, "not over")
    split.until(partial(answers_alone, split, "new"), WAIT_S, "old Pods answer")
    assert set(load.stop()) == {"old", "new"}
    split.kubectl("delete", "rollingupdate", "my-ru")

"""Upstream's virtual-kubelet and KWOK, unmodified, beside a real node: their Nodes are Ready, their Pods run and go.

Our own reconciler, gateway, scheduler and controllers are all there, and let be what is not theirs. Both programs serve
a kubelet's API, which real kubectl reaches through the API server.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import DEPLOYMENT, NODE, POD, POD_ADDRESS, POD_CIDR
from minik8s_modules.api.objects import JsonObject
from tests.e2e.operators.conftest import built, running
from tests.integration.reconcile.conftest import Cluster
from tests.integration.streams.test_kubelet_api import own_address
from tests.support.etcd import free_port
from tests.support.gotools import NODES, module_path
from tests.support.pki import Certificate, write_kubeconfig

KWOK = "sigs.k8s.io/kwok"
CALLER = "system:minik8s:apiserver"
PATIENCE_S = 180.0
STAGES = ("node/fast/node-initialize", "node/heartbeat-with-lease/node-heartbeat-with-lease",
          *(f"pod/fast/pod-{name}" for name in ("ready", "complete", "delete")))  # fmt: skip
"""What upstream's ``kustomize/stage/fast`` has."""


class Foreign:
    """A node of another project's in the cluster, and its program's log."""

    def __init__(self, cluster: Cluster, name: str, log: Path) -> None:
        self.cluster, self.name, self.log = cluster, name, log

    def run(self, name: str) -> None:
        """Have a pod run there, as the scheduler decides."""
        tolerations = [{"operator": "Exists"}]
        self.cluster.create(name, nodeSelector={"kubernetes.io/hostname": self.name}, tolerations=tolerations)
        self.cluster.until(lambda: self.cluster.pod(name)["status"].get("phase") == "Running", PATIENCE_S)

    def remove(self, name: str) -> None:
        """Delete a pod politely, and wait until its object is gone."""
        self.cluster.delete(name, grace_s=2)
        self.cluster.until(lambda: self.cluster.gone(name), PATIENCE_S)


def _is_ready(cluster: Cluster, name: str) -> bool:
    return (objects.condition(cluster.admin.get(NODE, name), "Ready") or {}).get("status") == "True"


def _serving(cluster: Cluster, name: str, address: str) -> Certificate:
    """Return a certificate that API servers believe: they check the authority, and the node's name or address."""
    return cluster.asks.issue(f"{name}-serving", name, names=(name,), addresses=(address,))


@contextmanager
def _carried(cluster: Cluster, name: str, program: Any) -> Iterator[Foreign]:
    """Run a program until its node is Ready; take the node away at the end."""
    with program as log:
        cluster.until(lambda: _is_ready(cluster, name), PATIENCE_S)
        yield Foreign(cluster, name, log)
        for pod in cluster.admin.list(POD, "default").items:
            if objects.spec(pod).get("nodeName") == name:
                cluster.admin.delete(POD, objects.name(pod), "default", grace_s=0)
    cluster.admin.delete(NODE, name)


@pytest.fixture(scope="module")
def upstream(cluster: Cluster) -> Iterator[Foreign]:
    """Upstream's virtual-kubelet with its provider mock; it asks the API server who may read its API."""
    program, folder, name = built("virtual-kubelet"), cluster.folder, "upstream"
    identity = cluster.server.identity("system:minik8s:virtual")
    kubeconfig = write_kubeconfig(
        folder / "upstream.kubeconfig", cluster.server.url, cluster.server.authority.ca, identity
    )
    for role, user in (("system:kubelet-api-admin", CALLER), ("system:auth-delegator", "system:minik8s:virtual")):
        cluster.kubectl(
            "create",
            "clusterrolebinding",
            f"{user.rpartition(':')[2]}-upstream",
            f"--clusterrole={role}",
            f"--user={user}",
        )
    config = folder / "mock.json"
    config.write_text(json.dumps({name: {"cpu": "8", "memory": "32Gi", "pods": "20"}}))
    address = own_address()
    serving = _serving(cluster, name, address)
    environment = {
        "APISERVER_CERT_LOCATION": str(serving.cert),
        "APISERVER_KEY_LOCATION": str(serving.key),
        "APISERVER_CA_CERT_LOCATION": str(cluster.plan_ca),
        "KUBELET_PORT": str(free_port()),
        "VKUBELET_POD_IP": address,
    }
    words = ("--nodename", name, "--provider", "mock", "--provider-config", str(config))
    with _carried(cluster, name, running(program, folder, kubeconfig, *words, environment=environment)) as foreign:
        yield foreign


@pytest.fixture(scope="module")
def kwok(cluster: Cluster) -> Iterator[Foreign]:
    """KWOK with upstream's fast stages, logs from a file and commands of this machine."""
    program, folder, name, address = built("kwok"), cluster.folder, "kwok", own_address()
    stages = module_path(KWOK, NODES[KWOK]) / "kustomize" / "stage"
    told = [(stages / f"{each}.yaml").read_text() for each in STAGES]
    lines = "".join(f"2026-11-28T10:00:00.000000000Z stdout F {word}\n" for word in ("one", "two"))  # CRI's format
    (folder / "kwok.txt").write_text(lines)
    played: list[JsonObject] = [
        {"kind": "ClusterLogs", "spec": {"logs": [{"logsFile": str(folder / "kwok.txt")}]}},
        {"kind": "ClusterExec", "spec": {"execs": [{"local": {"envs": [{"name": "TOLD", "value": "by kwok"}]}}]}},
    ]
    named = {"apiVersion": "kwok.x-k8s.io/v1alpha1", "metadata": {"name": "played"}}
    told += [yaml.safe_dump({**named, **each}) for each in played]
    config, port = folder / "kwok.yml", free_port()
    config.write_text("---\n".join(told))
    serving = _serving(cluster, name, address)
    cluster.admin.create(NODE, {
        "metadata": {
            "name": name,
            "labels": {"type": "kwok", "kubernetes.io/hostname": name},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {
            "podCIDR": "10.202.7.0/24",
            "taints": [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}],
        },
        "status": {},
    })  # fmt: skip
    words = (
        f"--config={config}", "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake", f"--node-ip={address}",
        f"--node-port={port}", "--node-lease-duration-seconds=40", f"--server-address={address}:{port}",
        f"--tls-cert-file={serving.cert}", f"--tls-private-key-file={serving.key}",
    )  # fmt: skip
    with _carried(cluster, name, running(program, folder, cluster.server.kubeconfig, *words)) as foreign:
        yield foreign


def _kubectl(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    return cluster.kubectl(*words, check=False)


def test_pods_of_upstreams_virtual_kubelet_run_and_go(upstream: Foreign) -> None:
    upstream.run("vk-one")
    taints = {each["key"] for each in objects.spec(upstream.cluster.admin.get(NODE, upstream.name))["taints"]}
    assert taints == {"virtual-kubelet.io/provider"}
    assert upstream.cluster.ready("vk-one")
    upstream.remove("vk-one")


def test_kubectl_reaches_upstreams_virtual_kubelet(upstream: Foreign) -> None:
    upstream.run("vk-served")
    told = _kubectl(upstream.cluster, "logs", "vk-served")
    assert told.returncode == 0, (told.stderr, upstream.log.read_text()[-3000:])
    assert "receive GetContainerLogs" in upstream.log.read_text()  # the mock's own word of it; its logs are empty
    command = _kubectl(upstream.cluster, "exec", "vk-served", "--", "ls")
    assert command.returncode == 0, (command.stderr, upstream.log.read_text()[-3000:])
    summary = _kubectl(upstream.cluster, "get", "--raw", f"/api/v1/nodes/{upstream.name}/proxy/stats/summary")
    assert "vk-served" in {each["podRef"]["name"] for each in json.loads(summary.stdout)["pods"]}
    upstream.remove("vk-served")


def test_pods_of_kwok_run_complete_and_go(kwok: Foreign) -> None:
    kwok.run("kwok-one")
    assert kwok.cluster.pod("kwok-one")["status"]["podIP"].startswith("10.202.7.")
    kwok.remove("kwok-one")
    template = {"restartPolicy": "Never", "nodeName": kwok.name, "containers": [{"name": "a", "image": "x:1"}]}
    job = {"metadata": {"name": "kwoks"}, "spec": {"completions": 2, "template": {"spec": template}}}
    document = json.dumps({"apiVersion": "batch/v1", "kind": "Job", **job})
    kwok.cluster.kubectl("apply", "-f", "-", stdin=document)
    done = _kubectl(kwok.cluster, "wait", "--for=condition=Complete", "job/kwoks", f"--timeout={PATIENCE_S:.0f}s")
    assert done.returncode == 0, (done.stderr, kwok.log.read_text()[-3000:])
    kwok.cluster.kubectl("delete", "job", "kwoks")


def test_kubectl_reaches_kwok(kwok: Foreign) -> None:
    kwok.run("kwok-served")
    told = _kubectl(kwok.cluster, "logs", "kwok-served")
    assert (told.returncode, told.stdout) == (0, "one\ntwo\n"), (told.stderr, kwok.log.read_text()[-3000:])
    command = _kubectl(kwok.cluster, "exec", "kwok-served", "--", "sh", "-c", "echo told $TOLD")
    assert (command.returncode, command.stdout) == (0, "told by kwok\n"), (command.stderr, kwok.log.read_text()[-3000:])
    kwok.remove("kwok-served")


def test_our_daemons_let_their_nodes_be(cluster: Cluster, upstream: Foreign, kwok: Foreign) -> None:
    """A Deployment over all three nodes is as it should be; on theirs nobody of ours has done anything."""
    labels = {"app": "spread"}
    spread = {
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
    }  # fmt: skip
    container = {"name": "app", "image": "minik8s/busybox:1", "command": ["sleep", "3600"]}
    pod = {"containers": [container], "tolerations": [{"operator": "Exists"}], "topologySpreadConstraints": [spread]}
    spec = {
        "replicas": 3,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    cluster.admin.create(DEPLOYMENT, {"metadata": {"name": "spread", "namespace": "default"}, "spec": spec})
    cluster.until(
        lambda: cluster.admin.get(DEPLOYMENT, "spread", "default")["status"].get("readyReplicas") == 3, PATIENCE_S
    )
    pods = cluster.admin.list(POD, "default").items
    assert {each["spec"]["nodeName"] for each in pods} == {cluster.node.name, upstream.name, kwok.name}
    claimed = {objects.spec(each)["nodeName"] for each in cluster.admin.list(POD_ADDRESS).items}
    assert claimed <= {cluster.node.name}
    for foreign in (upstream, kwok):
        assert _is_ready(cluster, foreign.name)
        told = [line for line in cluster.logs().splitlines() if f" {foreign.name}" in line and "ERROR" in line]
        assert not told
    asked = {
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"nodeName": upstream.name, "containers": [container]},
    }
    planned = cluster.plan(objects=[{"apiVersion": "v1", "kind": "Pod", **asked}])
    assert upstream.name in json.dumps(planned)
    cluster.admin.delete(DEPLOYMENT, "spread", "default")
    cluster.until(lambda: not cluster.admin.list(POD, "default").items, PATIENCE_S)


def test_a_node_that_went_leaves_no_range_behind(cluster: Cluster) -> None:
    """By now the fixtures' nodes may still be there: one of its own, which nobody carries."""
    metadata = {"name": "gone", "labels": {"type": "kwok"}}
    cluster.admin.create(NODE, {"metadata": metadata, "spec": {"podCIDR": "10.202.9.0/24"}})
    cluster.until(lambda: objects.status(cluster.admin.get(POD_CIDR, "10.202.9.0-24")).get("phase") == "Assigned")
    cluster.admin.delete(NODE, "gone")

    def freed() -> bool:
        try:
            cluster.admin.get(POD_CIDR, "10.202.9.0-24")
        except NotFound:
            return True
        return False

    cluster.until(freed)

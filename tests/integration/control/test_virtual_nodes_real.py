"""Virtual nodes on a real API server with scheduler and controllers: registered, scheduled to, told, restarted.

The daemon has its own identity, and so its own rights. virtual-kubelet's end-to-end tests are ported here
(``test/e2e``, ``EndToEndTestSuite``).
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import CONFIG_MAP, DEPLOYMENT, EVENT, JOB, LEASE, NODE, POD, SECRET
from minik8s_modules.api.objects import JsonObject
from tests.integration.control.conftest import Cluster, Daemon, pod
from tests.support.etcd import free_port
from tests.support.pki import write_kubeconfig
from tests.support.servers.signer import Signer
from tests.support.waiting import until

TOLERATED = [{"key": "virtual-kubelet.io/provider", "operator": "Exists"}]
NODES = ("far-0", "far-1")
OTHER = "alone"


def _configure(cluster: Cluster, role: str, nodes: list[dict[str, Any]], **more: Any) -> Daemon:
    daemon = cluster.daemon("virtual")
    daemon.config = cluster.folder / f"{role}.yml"
    daemon.log = daemon.config.with_suffix(".log")
    configuration = {"kubeconfig": str(cluster.kubeconfig("virtual")), "nodes": nodes, "lease_seconds": 8, **more}
    daemon.config.write_text(yaml.safe_dump(configuration))
    return daemon


@pytest.fixture(scope="module")
def virtual(cluster: Cluster, daemon: Daemon, scheduler: Daemon) -> Iterator[Daemon]:
    """Yield the daemon with two nodes of the provider mock, running."""
    row = {"name": "far-{index}", "count": 2, "provider": "mock", "config": {"cpu": "8"}}
    virtual = _configure(cluster, "virtual", [row]).start()
    until(lambda: all(_is_ready(cluster, name) for name in NODES))
    yield virtual
    virtual.stop()


def _is_ready(cluster: Cluster, name: str) -> bool:
    try:
        node = cluster.admin.get(NODE, name)
    except NotFound:
        return False
    return (objects.condition(node, "Ready") or {}).get("status") == "True"


def _pod(cluster: Cluster, name: str, namespace: str) -> JsonObject | None:
    try:
        return cluster.admin.get(POD, name, namespace)
    except NotFound:
        return None


def _phase(cluster: Cluster, name: str, namespace: str) -> str:
    return str(objects.status(_pod(cluster, name, namespace) or {}).get("phase") or "gone")


def _reasons(cluster: Cluster, namespace: str) -> set[str]:
    return {str(each["reason"]) for each in cluster.admin.list(EVENT, namespace).items}


@pytest.fixture
def space(cluster: Cluster, virtual: Daemon) -> str:
    return cluster.namespace()


def test_a_virtual_node_is_a_node(cluster: Cluster, virtual: Daemon) -> None:
    node = cluster.admin.get(NODE, "far-0")
    assert objects.labels(node)["type"] == "virtual-kubelet"
    assert node["spec"]["taints"][0]["key"] == "virtual-kubelet.io/provider"
    assert node["status"]["capacity"]["cpu"] == "8"
    before = until(lambda: _renewed(cluster, "far-0"))
    until(lambda: _renewed(cluster, "far-0") != before)


def _renewed(cluster: Cluster, node: str) -> str:
    """Return when the node's Lease was renewed, "" while there is none: the Node is made before it."""
    try:
        return str(cluster.admin.get(LEASE, node, "kube-node-lease")["spec"]["renewTime"])
    except NotFound:
        return ""


def test_a_pod_that_tolerates_it_is_scheduled_runs_and_goes(cluster: Cluster, space: str) -> None:
    cluster.admin.create(POD, pod("one", space, tolerations=TOLERATED))
    until(lambda: _phase(cluster, "one", space) == "Running")
    running = _pod(cluster, "one", space)
    assert running is not None
    assert running["spec"]["nodeName"] in NODES
    kinds = {each["type"]: each["status"] for each in running["status"]["conditions"]}
    assert kinds == {"PodScheduled": "True", "Initialized": "True", "ContainersReady": "True", "Ready": "True"}
    assert running["status"]["qosClass"] == "BestEffort"
    until(lambda: "ProviderCreateSuccess" in _reasons(cluster, space))
    cluster.admin.delete(POD, "one", space, grace_s=3600)
    until(lambda: _phase(cluster, "one", space) == "gone")  # long before its grace is over


def test_a_pod_that_does_not_tolerate_it_stays_away(cluster: Cluster, space: str) -> None:
    cluster.admin.create(POD, pod("shy", space))
    cluster.admin.create(POD, pod("bold", space, tolerations=TOLERATED))
    until(lambda: _phase(cluster, "bold", space) == "Running")
    assert "nodeName" not in (_pod(cluster, "shy", space) or {})["spec"]


def test_a_pod_is_deleted_by_force(cluster: Cluster, space: str) -> None:
    cluster.admin.create(POD, pod("one", space, nodeName="far-0"))
    until(lambda: _phase(cluster, "one", space) == "Running")
    cluster.admin.delete(POD, "one", space, grace_s=0)
    assert _phase(cluster, "one", space) == "gone"
    cluster.admin.create(POD, pod("one", space, nodeName="far-0"))
    until(lambda: _phase(cluster, "one", space) == "Running")


@pytest.mark.parametrize("kind", ["configMap", "secret"])
def test_an_environment_waits_for_what_is_mandatory(cluster: Cluster, space: str, kind: str) -> None:
    one = pod("one", space, nodeName="far-0")
    one["spec"]["containers"][0]["envFrom"] = [{f"{kind}Ref": {"name": "later"}}]
    cluster.admin.create(POD, one)
    two = pod("two", space, nodeName="far-0")
    two["spec"]["containers"][0]["envFrom"] = [{f"{kind}Ref": {"name": "later", "optional": True}}]
    cluster.admin.create(POD, two)
    called = "ConfigMap" if kind == "configMap" else "Secret"
    until(lambda: f"Mandatory{called}NotFound" in _reasons(cluster, space))
    until(lambda: f"Optional{called}NotFound" in _reasons(cluster, space))
    until(lambda: _phase(cluster, "two", space) == "Running")
    assert _phase(cluster, "one", space) == "Pending"
    made = {"metadata": {"name": "later", "namespace": space}}
    if kind == "configMap":
        cluster.admin.create(CONFIG_MAP, {**made, "data": {"A": "1"}})
    else:
        cluster.admin.create(SECRET, {**made, "stringData": {"A": "1"}})
    until(lambda: _phase(cluster, "one", space) == "Running")


def test_a_deployment_is_rolled_out_and_survives_kill_9(cluster: Cluster, virtual: Daemon, space: str) -> None:
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "app", "image": "x:1"}], "tolerations": TOLERATED},
    }
    spec = {"replicas": 6, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    cluster.admin.create(DEPLOYMENT, {"metadata": {"name": "web", "namespace": space}, "spec": spec})
    until(lambda: cluster.admin.get(DEPLOYMENT, "web", space)["status"].get("readyReplicas") == 6)
    virtual.kill9()
    cluster.admin.patch(DEPLOYMENT, "web", space, {"spec": {"replicas": 3}})
    virtual.start()

    def settled() -> bool:
        pods = cluster.admin.list(POD, space).items
        return len(pods) == 3 and all(objects.status(each).get("phase") == "Running" for each in pods)

    until(settled)


def test_a_node_with_its_own_certificate_carries_itself(cluster: Cluster, virtual: Daemon, space: str) -> None:
    """Node authorization suffices for one node: it sees its own Pods, and what they name."""
    certificate = cluster.server.identity(f"system:node:{OTHER}", "system:nodes")
    kubeconfig = cluster.folder / "alone.kubeconfig"
    write_kubeconfig(kubeconfig, cluster.server.url, cluster.server.authority.ca, certificate)
    daemon = _configure(cluster, "alone", [{"name": OTHER, "provider": "mock"}], kubeconfig=str(kubeconfig)).start()
    try:
        until(lambda: _is_ready(cluster, OTHER))
        one = pod("one", space, nodeName=OTHER)
        one["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "mine"}}]
        cluster.admin.create(CONFIG_MAP, {"metadata": {"name": "mine", "namespace": space}, "data": {"A": "1"}})
        cluster.admin.create(POD, one)
        until(lambda: _phase(cluster, "one", space) == "Running")
        cluster.admin.delete(POD, "one", space, grace_s=30)
        until(lambda: _phase(cluster, "one", space) == "gone")
    finally:
        daemon.stop()


def test_a_node_joins_by_a_token(cluster: Cluster, daemon: Daemon, tmp_path: Path) -> None:
    """As a machine does: the token buys its certificates; started again it needs none, and no process shows it."""
    signer = Signer(cluster.server, tmp_path).start()
    port = free_port()
    try:
        printed = until(lambda: _minik8s(cluster, "token", "create", "--print-join-command").split())
        words = printed[printed.index("-j") : printed.index("-c")]
        token = words[words.index("--token") + 1]
        own = ["--state-dir", str(tmp_path / "joined"), "--listen", f"127.0.0.1:{port}"]
        argv = [sys.executable, "-m", "minik8s_modules.cli.main", "virtual-node", "--provider", "mock"]
        argv += ["--node-name", "joined", *own]
        with (tmp_path / "log").open("ab") as log, subprocess.Popen([*argv, *words], stderr=log) as process:
            try:
                until(lambda: _is_ready(cluster, "joined"))
                assert token not in " ".join(psutil.Process(process.pid).cmdline())
                assert _served_name(cluster, port) == "joined.node.minik8s.internal"
            finally:
                process.terminate()
                assert process.wait(60) == 0, (tmp_path / "log").read_text()
        cluster.admin.delete(NODE, "joined")
        again = [*argv, "-j", words[words.index("-j") + 1]]
        with subprocess.Popen(again) as process:
            try:
                until(lambda: _is_ready(cluster, "joined"))
            finally:
                process.terminate()
    finally:
        signer.kill()


def _minik8s(cluster: Cluster, *words: str) -> str:
    argv = [sys.executable, "-m", "minik8s_modules.cli.main", f"--kubeconfig={cluster.server.kubeconfig}", *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60).stdout


def _served_name(cluster: Cluster, port: int) -> str:
    """Return the name that the certificate of a node's HTTP API is for; the cluster's authority has signed it."""
    context = cluster.server.context(cluster.server.admin)
    with (
        socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname="joined.node.minik8s.internal") as connection,
    ):
        certificate = connection.getpeercert() or {}
    return str(dict(certificate["subjectAltName"])["DNS"])  # type: ignore[arg-type]


def test_simulated_nodes_take_a_deployment(cluster: Cluster, virtual: Daemon, space: str) -> None:
    """A small form of a scale run: thirty nodes in one process, a Deployment spread over them, then gone."""
    stages = [{"when": "created", "next": "running", "jitter": 0.5}]
    capacity = {"cpu": "8", "memory": "32Gi", "pods": "20"}
    row = {"name": "sim-{index}", "count": 30, "provider": "simulated", "labels": {"simulated": "yes"}}
    daemon = _configure(cluster, "simulated", [{**row, "config": {**capacity, "stages": stages}}], lease_seconds=40)
    daemon.start()
    try:
        until(lambda: all(_is_ready(cluster, f"sim-{index}") for index in range(30)))
        template = {
            "metadata": {"labels": {"app": "many"}},
            "spec": {
                "containers": [{"name": "app", "image": "x:1", "resources": {"requests": {"cpu": "1"}}}],
                "tolerations": TOLERATED,
                "nodeSelector": {"simulated": "yes"},
            },
        }
        spec = {"replicas": 90, "selector": {"matchLabels": {"app": "many"}}, "template": template}
        cluster.admin.create(DEPLOYMENT, {"metadata": {"name": "many", "namespace": space}, "spec": spec})
        until(lambda: cluster.admin.get(DEPLOYMENT, "many", space)["status"].get("readyReplicas") == 90, 180)
        used = {each["spec"]["nodeName"] for each in cluster.admin.list(POD, space).items}
        assert len(used) >= 20, "they were not spread"
        cluster.admin.patch(DEPLOYMENT, "many", space, {"spec": {"replicas": 0}})
        until(lambda: not cluster.admin.list(POD, space).items, 180)
    finally:
        daemon.stop()


def test_a_job_runs_a_role_of_ansible(cluster: Cluster, daemon: Daemon, scheduler: Daemon, tmp_path: Path) -> None:
    """The provider ``ansible`` over the whole way: a Job's Pod is a run, once that is good and once that fails."""
    tasks = tmp_path / "roles" / "greeting" / "tasks" / "main.yml"
    tasks.parent.mkdir(parents=True)
    good = {"ansible.builtin.assert": {"that": ["minik8s_pod.env.GREETING == 'hello'"]}}
    tasks.write_text(yaml.safe_dump([{"name": "The greeting is right", **good}]))
    host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"web": {"hosts": {"one": host}}}))
    config = {"inventory": str(tmp_path / "hosts.yml"), "group": "web", "roles": str(tmp_path / "roles")}
    row = {"name": "web", "provider": "ansible", "config": config}
    virtual = _configure(cluster, "ansible", [row], state_dir=str(tmp_path / "state")).start()
    space = cluster.namespace()
    try:
        for name, greeting in (("good", "hello"), ("bad", "bye")):
            container = {"name": "run", "image": "minik8s/host", "env": [{"name": "GREETING", "value": greeting}]}
            spec = {
                "restartPolicy": "Never",
                "nodeSelector": {"ansible.minik8s.io/group": "web"},
                "tolerations": TOLERATED,
                "containers": [container],
            }
            template = {"metadata": {"annotations": {"ansible.minik8s.io/role": "greeting"}}, "spec": spec}
            job = {"metadata": {"name": name, "namespace": space}, "spec": {"backoffLimit": 0, "template": template}}
            cluster.admin.create(JOB, job)
        until(lambda: (objects.condition(cluster.admin.get(JOB, "good", space), "Complete") or {}).get("status"), 300)
        until(lambda: (objects.condition(cluster.admin.get(JOB, "bad", space), "Failed") or {}).get("status"), 300)
    finally:
        virtual.stop()
        cluster.admin.delete(NODE, "web")

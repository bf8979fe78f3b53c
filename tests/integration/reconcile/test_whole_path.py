"""Pods on real Docker through the real API server, scheduler, gateway, runner and modules."""

from __future__ import annotations

import time
from functools import partial

from minik8s_modules.api.kinds import CONFIG_MAP, NODE, POD, SECRET
from tests.integration.reconcile.conftest import IMAGE, Cluster


def test_the_node_is_registered_with_what_it_has(cluster: Cluster):
    node = cluster.admin.get(NODE, cluster.node.name)
    assert node["spec"]["podCIDR"] == f"{cluster.node.range}.0/24"
    assert node["metadata"]["labels"]["kubernetes.io/os"] == "linux"
    assert node["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("docker://")
    assert int(node["status"]["allocatable"]["pods"]) == 110


def test_a_pod_runs_answers_on_its_address_and_goes(cluster: Cluster):
    cluster.create("web", ["sh", "-c", "echo hello > /index.html; exec httpd -f -p 8080 -h /"])
    cluster.until(lambda: cluster.ready("web"))
    status = cluster.pod("web")["status"]
    assert status["phase"] == "Running"
    assert status["podIP"] in cluster.addresses()
    app = status["containerStatuses"][0]["containerID"].removeprefix("docker://")
    assert cluster.node.execute(app, "hostname", "-i").split()[0] == status["podIP"]
    cluster.until(lambda: "Started: Started container app" in cluster.events("web"))
    cluster.delete("web", grace_s=1)
    cluster.until(lambda: cluster.gone("web"))
    cluster.until(lambda: status["podIP"] not in cluster.addresses())
    assert cluster.node.ids() == []


def test_a_container_that_ends_is_restarted_with_back_off(cluster: Cluster):
    cluster.create("crash", ["sh", "-c", "sleep 0.2; exit 3"])
    cluster.until(lambda: cluster.container("crash").get("restartCount", 0) >= 1)
    cluster.until(lambda: "waiting" in cluster.container("crash")["state"])
    status = cluster.container("crash")
    assert status["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert status["lastState"]["terminated"]["exitCode"] == 3
    cluster.delete("crash", grace_s=0)
    cluster.until(lambda: cluster.node.ids() == [])


def test_a_pod_that_ends_well_is_succeeded(cluster: Cluster):
    cluster.create("once", ["true"], restartPolicy="Never")
    cluster.until(lambda: cluster.pod("once")["status"].get("phase") == "Succeeded")
    cluster.until(lambda: cluster.addresses() == [])
    cluster.delete("once")
    cluster.until(lambda: cluster.gone("once"))
    cluster.until(lambda: cluster.node.ids() == [])


def test_a_program_that_does_not_exist_is_a_start_error(cluster: Cluster):
    cluster.create("nope", ["/no/such/program"], restartPolicy="Never")
    cluster.until(lambda: cluster.pod("nope")["status"].get("phase") == "Failed")
    terminated = cluster.container("nope")["state"]["terminated"]
    assert terminated["reason"] == "StartError"
    assert "no such file" in terminated["message"]
    cluster.delete("nope")
    cluster.until(lambda: cluster.gone("nope"))


def test_init_containers_volumes_and_configuration(cluster: Cluster):
    cluster.admin.create(CONFIG_MAP, {"metadata": {"name": "conf", "namespace": "default"}, "data": {"a.txt": "text"}})
    secret = {"metadata": {"name": "s", "namespace": "default"}, "stringData": {"password": "c4n4ry{{ 1+1 }}"}}
    cluster.admin.create(SECRET, secret)
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("data", "conf", "secret")]
    init = {
        "name": "prepare",
        "image": IMAGE,
        "command": ["sh", "-c", "echo made > /data/x"],
        "volumeMounts": mounts[:1],
    }
    app = {
        "name": "app",
        "image": IMAGE,
        "command": ["sleep", "3600"],
        "volumeMounts": mounts,
        "env": [
            {"name": "P", "valueFrom": {"secretKeyRef": {"name": "s", "key": "password"}}},
            {"name": "URL", "value": "db://$(P)"},
            {"name": "LITERAL", "value": "{{ lookup('pipe','id') }}"},
        ],
        "resources": {"limits": {"cpu": "500m", "memory": "64Mi"}},
    }
    cluster.create(
        "full",
        containers=[app],
        initContainers=[init],
        volumes=[
            {"name": "data", "emptyDir": {}},
            {"name": "conf", "configMap": {"name": "conf"}},
            {"name": "secret", "secret": {"secretName": "s"}},
        ],
    )
    cluster.until(lambda: cluster.ready("full"))
    container = cluster.container("full")["containerID"].removeprefix("docker://")
    seen = cluster.node.execute(
        container, "sh", "-c", "cat /data/x /conf/a.txt /secret/password; echo; echo $P; echo $URL; echo $LITERAL"
    )
    secret_text = "c4n4ry{{ 1+1 }}"
    assert seen.split("\n")[:2] == ["made", f"text{secret_text}"]
    assert seen.split("\n")[2:5] == [secret_text, f"db://{secret_text}", "{{ lookup('pipe','id') }}"]
    host = cluster.node.docker.inspect(container)["HostConfig"]  # type: ignore[index]
    assert (host["Memory"], host["CpuQuota"]) == (64 << 20, 50000)
    cluster.delete("full", grace_s=0)
    cluster.until(lambda: cluster.node.ids() == [])


def test_a_killed_reconciler_comes_back_and_adopts(cluster: Cluster):
    cluster.create("stays")
    cluster.until(lambda: cluster.ready("stays"))
    before = cluster.node.ids()
    cluster.daemons["reconcile"].kill()
    cluster.create("later")
    cluster.daemons["reconcile"].start()
    cluster.until(lambda: cluster.ready("later"), 120)
    assert set(before) <= set(cluster.node.ids())
    assert cluster.container("stays")["restartCount"] == 0
    for name in ("stays", "later"):
        cluster.delete(name, grace_s=0)
    cluster.until(lambda: cluster.node.ids() == [])


def test_a_removed_sandbox_brings_the_pod_back_on_its_address(cluster: Cluster):
    cluster.create("box", terminationGracePeriodSeconds=1)
    cluster.until(lambda: cluster.ready("box"))
    before = cluster.pod("box")["status"]["podIP"]
    for container in cluster.node.ids("sandbox"):
        cluster.node.docker.remove(container)
    cluster.until(lambda: cluster.container("box")["restartCount"] >= 1 and cluster.ready("box"), 120)
    assert cluster.pod("box")["status"]["podIP"] == before
    cluster.delete("box", grace_s=0)
    cluster.until(lambda: cluster.node.ids() == [])


def test_the_grace_period_is_kept_and_delays_nobody(cluster: Cluster):
    deaf = ["sh", "-c", "trap '' TERM; while true; do sleep 1; done"]
    for name in ("slow", "slower"):
        cluster.create(name, deaf)
        cluster.until(partial(cluster.ready, name))
    cluster.delete("slower", grace_s=300)
    began = time.monotonic()
    cluster.delete("slow", grace_s=4)
    cluster.create("quick")
    cluster.until(lambda: cluster.ready("quick") and cluster.gone("slow"), 60)
    # a busy machine may be late, but never early
    assert time.monotonic() - began > 3.5
    assert "running" in cluster.container("slower")["state"]
    for name in ("quick", "slower"):
        cluster.delete(name, grace_s=0)
    cluster.until(lambda: cluster.node.ids() == [])


def test_a_pod_on_the_host_network_has_the_address_of_its_node(cluster: Cluster):
    cluster.create("hosted", hostNetwork=True)
    cluster.until(lambda: cluster.ready("hosted"))
    status = cluster.pod("hosted")["status"]
    assert status["podIP"] == status["hostIP"]
    assert cluster.addresses() == []
    cluster.delete("hosted", grace_s=0)
    cluster.until(lambda: cluster.node.ids() == [])


def test_an_image_that_cannot_be_pulled_is_named_with_its_reason_and_delays_nobody(cluster: Cluster):
    cluster.create("unpullable", containers=[{"name": "app", "image": "127.0.0.1:1/nothing:1"}])
    cluster.create("beside")
    cluster.until(lambda: cluster.ready("beside"))
    cluster.until(lambda: "ImagePull" in cluster.container("unpullable")["state"]["waiting"]["reason"])
    cluster.until(lambda: cluster.container("unpullable")["state"]["waiting"]["reason"] == "ImagePullBackOff")
    assert "connection refused" in cluster.container("unpullable")["state"]["waiting"]["message"]
    assert cluster.pod("unpullable")["status"]["phase"] == "Pending"
    cluster.until(lambda: "Failed: Error: ImagePullBackOff" in cluster.events("unpullable"))
    for name in ("unpullable", "beside"):
        cluster.delete(name, grace_s=0)
    cluster.until(lambda: cluster.gone("unpullable") and cluster.node.ids() == [])


def test_users_and_the_original_dialect_reach_the_container(cluster: Cluster):
    containers = [{"name": "app", "image": IMAGE, "command": ["sleep", "99"], "securityContext": {"runAsUser": 1001}}]
    cluster.create("user", containers=containers)
    body = {
        "metadata": {"name": "old", "namespace": "default", "annotations": {"minik8s.io/dialect": "original"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "app", "image": IMAGE, "command": ["sleep", "99"]}]},
    }
    cluster.admin.create(POD, body)
    cluster.until(lambda: cluster.ready("user") and cluster.ready("old"))
    configs = {}
    for name in ("user", "old"):
        inspect = cluster.node.docker.inspect(cluster.container(name)["containerID"].removeprefix("docker://"))
        configs[name] = (inspect or {})["Config"]
    assert configs["user"]["User"] == "1001"
    assert (configs["user"]["Entrypoint"], configs["user"]["Tty"]) == (["sleep", "99"], False)
    assert (configs["old"]["Cmd"], configs["old"]["Tty"]) == (["sleep", "99"], True)
    for name in ("user", "old"):
        cluster.delete(name, grace_s=0)
    cluster.until(lambda: cluster.node.ids() == [])


def test_a_pod_of_the_same_name_may_come_at_once(cluster: Cluster):
    cluster.create("twin", terminationGracePeriodSeconds=1)
    cluster.until(lambda: cluster.ready("twin"))
    first = cluster.pod("twin")["metadata"]["uid"]
    cluster.delete("twin", grace_s=0)
    cluster.create("twin")
    cluster.until(lambda: cluster.ready("twin"))
    assert cluster.pod("twin")["metadata"]["uid"] != first
    cluster.until(lambda: len(cluster.node.ids()) == 2)
    cluster.delete("twin", grace_s=0)
    cluster.until(lambda: cluster.node.ids() == [])
    cluster.until(lambda: cluster.addresses() == [])

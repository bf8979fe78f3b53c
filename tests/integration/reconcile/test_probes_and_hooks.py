"""Probes and hooks on the whole path: a real kubelet's words, real sockets in a pod's network, Docker as it is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api.kinds import POD
from minik8s_modules.api.objects import JsonObject
from tests.integration.reconcile.conftest import IMAGE, Cluster

WEB = ["sh", "-c", "mkdir /w; echo ok >/w/ok; exec httpd -f -p 8080 -h /w"]


def container(command: list[str], name: str = "app", **more: Any) -> JsonObject:
    return {"name": name, "image": IMAGE, "command": command, **more}


def create(cluster: Cluster, name: str, containers: list[JsonObject], **spec: Any) -> None:
    spec = {"terminationGracePeriodSeconds": 2, "containers": containers, **spec}
    cluster.admin.create(POD, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})


@pytest.fixture(autouse=True)
def cleaned(cluster: Cluster) -> Iterator[None]:
    yield
    for pod in cluster.admin.list(POD, "default").items:
        cluster.delete(pod["metadata"]["name"], grace_s=0)
    cluster.until(lambda: not cluster.admin.list(POD, "default").items)


def execute(cluster: Cluster, name: str, *argv: str) -> None:
    """Run a command in the pod's first container."""
    container_id = cluster.container(name)["containerID"].removeprefix("docker://")
    made = cluster.node.docker.call("POST", f"/containers/{container_id}/exec", {"Cmd": list(argv)})
    cluster.node.docker.call("POST", f"/exec/{made['Id']}/start", {"Detach": True})


def test_readiness_follows_what_the_server_answers(cluster: Cluster):
    probe = {"httpGet": {"port": "http", "path": "/ok"}, "periodSeconds": 1, "failureThreshold": 1}
    ports = [{"name": "http", "containerPort": 8080}]
    create(cluster, "ready", [container(WEB, readinessProbe=probe, ports=ports)])
    cluster.until(lambda: cluster.ready("ready"))
    execute(cluster, "ready", "rm", "/w/ok")
    cluster.until(lambda: not cluster.ready("ready"))
    text = "Unhealthy: Readiness probe failed: HTTP probe failed with statuscode: 404"
    cluster.until(lambda: text in cluster.events("ready"))
    assert cluster.container("ready")["restartCount"] == 0
    execute(cluster, "ready", "touch", "/w/ok")
    cluster.until(lambda: cluster.ready("ready"))


def test_a_pod_whose_liveness_fails_is_restarted(cluster: Cluster):
    probe = {"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 2}
    server = "httpd -f -p 8080 & while ! [ -e /stop ]; do sleep 0.1; done; kill %1; sleep 3600"
    create(cluster, "lives", [container(["sh", "-c", server], livenessProbe=probe)], terminationGracePeriodSeconds=1)
    cluster.until(lambda: cluster.ready("lives"))
    execute(cluster, "lives", "touch", "/stop")
    cluster.until(lambda: cluster.container("lives").get("restartCount") == 1)
    events = cluster.until(lambda: _having(cluster.events("lives"), "Killing"))
    assert any(text.startswith("Unhealthy: Liveness probe failed: dial tcp 10.") for text in events)
    assert "Killing: Container app failed liveness probe, will be restarted" in events


def test_a_startup_probe_holds_the_others_back(cluster: Cluster):
    startup = {"exec": {"command": ["test", "-e", "/up"]}, "periodSeconds": 1, "failureThreshold": 60}
    liveness = {"exec": {"command": ["test", "-e", "/up"]}, "periodSeconds": 1, "failureThreshold": 1}
    create(cluster, "slow", [container(["sleep", "3600"], startupProbe=startup, livenessProbe=liveness)])
    cluster.until(lambda: any("Startup probe failed" in text for text in cluster.events("slow")))
    cluster.until(lambda: cluster.container("slow").get("started") is False)
    execute(cluster, "slow", "touch", "/up")
    cluster.until(lambda: cluster.ready("slow"))
    assert cluster.container("slow")["started"] is True
    assert cluster.container("slow")["restartCount"] == 0


def test_a_failed_post_start_hook_ends_its_container(cluster: Cluster):
    hook = {"postStart": {"exec": {"command": ["false"]}}}
    create(cluster, "poor", [container(["sleep", "3600"], lifecycle=hook)], restartPolicy="Never")
    cluster.until(lambda: cluster.pod("poor")["status"]["phase"] == "Failed")
    events = cluster.events("poor")
    assert "FailedPostStartHook: PostStartHook failed" in events
    assert "Killing: Container app FailedPostStartHook" in events


def test_the_post_start_hook_ends_before_the_container_is_running(cluster: Cluster):
    hook = {"postStart": {"exec": {"command": ["sh", "-c", "while ! [ -e /go ]; do sleep 0.1; done"]}}}
    create(cluster, "held", [container(["sleep", "3600"], lifecycle=hook)])
    cluster.until(lambda: any(text.startswith("Started") for text in cluster.events("held")))
    cluster.until(lambda: cluster.container("held").get("containerID"))
    assert cluster.container("held")["state"] == {"waiting": {"reason": "ContainerCreating"}}
    execute(cluster, "held", "touch", "/go")
    cluster.until(lambda: cluster.ready("held"))


def test_the_pre_stop_hook_runs_before_the_signal_and_within_the_grace(cluster: Cluster, tmp_path: Path):
    (tmp_path / "told").mkdir()
    script = "trap 'echo term >>/told/log; exit' TERM; while :; do sleep 0.1; done"
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "sleep 0.5; echo hook >>/told/log"]}}}
    mounts = [{"name": "told", "mountPath": "/told"}]
    volume = {"name": "told", "hostPath": {"path": str(tmp_path / "told")}}
    app = container(["sh", "-c", script], lifecycle=hook, volumeMounts=mounts)
    create(cluster, "polite", [app], volumes=[volume], terminationGracePeriodSeconds=20)
    cluster.until(lambda: cluster.ready("polite"))
    cluster.delete("polite")
    cluster.until(lambda: cluster.gone("polite"))
    assert (tmp_path / "told" / "log").read_text().split() == ["hook", "term"]


def test_a_pre_stop_hook_that_fails_is_told_and_a_sleeping_one_is_waited_for(cluster: Cluster):
    bad = {"preStop": {"exec": {"command": ["sh", "-c", "exit 3"]}}}
    sleeping = {"preStop": {"sleep": {"seconds": 1}}}
    term = ["sh", "-c", "trap exit TERM; while :; do sleep 0.1; done"]
    create(cluster, "hooks", [container(term, "bad", lifecycle=bad), container(term, "calm", lifecycle=sleeping)])
    cluster.until(lambda: cluster.ready("hooks"))
    began = time.monotonic()
    cluster.delete("hooks")
    cluster.until(lambda: "FailedPreStopHook: PreStopHook failed" in cluster.events("hooks"))
    cluster.until(lambda: cluster.gone("hooks"))
    assert time.monotonic() - began >= 1


def test_sidecars_start_in_order_and_end_last(cluster: Cluster, tmp_path: Path):
    (tmp_path / "log").write_text("")
    mounts = [{"name": "log", "mountPath": "/log"}]
    volume = {"name": "log", "hostPath": {"path": str(tmp_path / "log"), "type": "File"}}

    def talking(name: str, **more: Any) -> JsonObject:
        script = f"echo {name} up >>/log; trap 'echo {name} down >>/log; exit' TERM; while :; do sleep 0.1; done"
        return container(["sh", "-c", script], name, volumeMounts=mounts, **more)

    startup = {"exec": {"command": ["grep", "-q", "one up", "/log"]}, "periodSeconds": 1}
    inits = [
        talking("one", restartPolicy="Always", startupProbe=startup),
        container(["sh", "-c", "echo init >>/log"], "init", volumeMounts=mounts),
        talking("two", restartPolicy="Always"),
    ]
    create(cluster, "side", [talking("app")], initContainers=inits, volumes=[volume], terminationGracePeriodSeconds=20)
    cluster.until(lambda: cluster.ready("side"))
    statuses = {one["name"]: one for one in cluster.pod("side")["status"]["initContainerStatuses"]}
    assert statuses["one"]["started"]
    assert "running" in statuses["two"]["state"]
    cluster.delete("side")
    cluster.until(lambda: cluster.gone("side"))
    said = (tmp_path / "log").read_text().splitlines()
    assert [one for one in said if one.endswith("up") or one == "init"] == ["one up", "init", "two up", "app up"]
    assert [one for one in said if one.endswith("down")] == ["app down", "two down", "one down"]


def test_a_pod_with_a_deadline_fails_by_it(cluster: Cluster):
    create(cluster, "late", [container(["sleep", "3600"])], activeDeadlineSeconds=1, terminationGracePeriodSeconds=0)
    cluster.until(lambda: cluster.pod("late")["status"].get("reason") == "DeadlineExceeded")
    assert cluster.pod("late")["status"]["phase"] == "Failed"
    cluster.until(lambda: any(text.startswith("DeadlineExceeded: ") for text in cluster.events("late")))


def test_a_readiness_gate_is_waited_for(cluster: Cluster):
    create(cluster, "gated", [container(["sleep", "3600"])], readinessGates=[{"conditionType": "example.com/in"}])
    cluster.until(lambda: _condition(cluster, "gated", "ContainersReady") == "True")
    assert _condition(cluster, "gated", "Ready") == "False"
    body = {"status": {"conditions": [{"type": "example.com/in", "status": "True"}]}}
    cluster.admin.patch(POD, "gated", "default", body, subresource="status", patch_type="strategic")
    cluster.until(lambda: cluster.ready("gated"))


def test_results_are_learnt_again_after_the_gateway_and_the_reconciler_are_killed(cluster: Cluster):
    probe = {"httpGet": {"port": 8080, "path": "/ok"}, "periodSeconds": 1, "failureThreshold": 1}
    create(cluster, "again", [container(WEB, readinessProbe=probe)])
    cluster.until(lambda: cluster.ready("again"))
    for room in ("gateway", "reconcile"):
        cluster.daemons[room].kill()
    execute(cluster, "again", "rm", "/w/ok")
    for room in ("gateway", "reconcile"):
        cluster.daemons[room].start()
    cluster.until(lambda: not cluster.ready("again"), 60)
    execute(cluster, "again", "touch", "/w/ok")
    cluster.until(lambda: cluster.ready("again"))


def test_last_words_are_read_from_their_file_or_the_log(cluster: Cluster):
    said = ["sh", "-c", "echo written >/tmp/last; echo logged; exit 3"]
    mute = ["sh", "-c", "echo logged; exit 3"]
    fallback: JsonObject = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    containers = [
        container(said, "file", terminationMessagePath="/tmp/last"),
        container(mute, "log", **fallback),
        container(mute, "none"),
    ]
    create(cluster, "words", containers, restartPolicy="Never")
    cluster.until(lambda: cluster.pod("words")["status"]["phase"] == "Failed")
    statuses = {one["name"]: one for one in cluster.pod("words")["status"]["containerStatuses"]}
    ended = {name: one["state"]["terminated"].get("message") for name, one in statuses.items()}
    assert ended == {"file": "written\n", "log": "logged\n", "none": None}


@pytest.mark.parametrize("room", ["gateway", "reconcile"])
def test_a_daemon_killed_in_every_state_of_a_life_leaves_a_life_that_goes_on(
    cluster: Cluster, room: str, tmp_path: Path
):
    """One pod goes through its states; the daemon is killed in each, and started again."""
    result = tmp_path / "log"
    result.write_text("")
    volumes = [{"name": "log", "hostPath": {"path": str(result), "type": "File"}}]
    mounts = [{"name": "log", "mountPath": "/log"}]

    def waiting(word: str) -> list[str]:
        return ["sh", "-c", f"echo {word} >>/log; while ! grep -q go-{word} /log; do sleep 0.1; done"]

    lifecycle = {"postStart": {"exec": {"command": waiting("post")}}, "preStop": {"exec": {"command": waiting("pre")}}}
    probes: JsonObject = {"startupProbe": {"exec": {"command": ["grep", "-q", "go-up", "/log"]}, "periodSeconds": 1}}
    term = ["sh", "-c", "trap exit TERM; while :; do sleep 0.1; done"]
    app = container(term, lifecycle=lifecycle, volumeMounts=mounts, **probes)
    init = container(waiting("init"), "init", volumeMounts=mounts)
    create(cluster, "life", [app], initContainers=[init], volumes=volumes, terminationGracePeriodSeconds=60)

    def killed_while(word: str) -> None:
        cluster.until(lambda: word in result.read_text().split(), 60)
        cluster.daemons[room].kill()
        cluster.daemons[room].start()
        with result.open("a") as log:
            log.write(f"go-{word}\n")

    killed_while("init")
    killed_while("post")
    cluster.until(lambda: cluster.container("life").get("state", {}).get("running"), 60)
    assert cluster.container("life")["started"] is False
    cluster.daemons[room].kill()
    cluster.daemons[room].start()
    with result.open("a") as log:
        log.write("go-up\n")
    cluster.until(lambda: cluster.ready("life"), 60)
    assert cluster.container("life")["restartCount"] == 0
    cluster.delete("life")
    killed_while("pre")
    cluster.until(lambda: cluster.gone("life"), 60)
    assert result.read_text().split().count("init") == 1


def _condition(cluster: Cluster, name: str, kind: str) -> str:
    conditions = cluster.pod(name)["status"].get("conditions") or []
    return next((one["status"] for one in conditions if one["type"] == kind), "")


def _having(events: list[str], reason: str) -> list[str]:
    return events if any(text.startswith(reason) for text in events) else []

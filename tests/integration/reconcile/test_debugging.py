"""kubectl debug: a container among those that run, a copy of a pod, a pod on the node."""

from __future__ import annotations

import subprocess

from minik8s_modules.api.objects import JsonObject
from tests.integration.reconcile.conftest import IMAGE, Cluster


def _extra(cluster: Cluster, pod: str, name: str) -> JsonObject:
    found = cluster.pod(pod)["status"].get("ephemeralContainerStatuses") or []
    return next((dict(one) for one in found if one["name"] == name), {})


def _debug(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    return cluster.kubectl("debug", *arguments, stdin="ps\nexit 3\n", check=False)


def test_kubectl_debug_looks_at_a_running_container(cluster):
    cluster.create("patient", ["sleep", "4242"])
    cluster.until(lambda: cluster.ready("patient"))
    before = cluster.container("patient")["containerID"]
    options = ("--image", IMAGE, "--target", "app", "--profile", "baseline", "-c", "doctor")
    seen = _debug(cluster, "patient", "-i", *options, "--", "sh")
    assert "sleep 4242" in seen.stdout, seen
    ended = cluster.until(lambda: _extra(cluster, "patient", "doctor").get("state", {}).get("terminated"))
    assert (ended["exitCode"], ended["reason"]) == (3, "Error")
    # it is never started again, and the pod is none the worse for it
    patient = cluster.pod("patient")
    assert patient["status"]["phase"] == "Running"
    assert cluster.ready("patient")
    assert _extra(cluster, "patient", "doctor")["restartCount"] == 0
    assert cluster.container("patient")["containerID"] == before
    assert "sleep 4242" in cluster.kubectl("logs", "patient", "-c", "doctor").stdout
    second = ("--image", IMAGE, "-c", "second", "--profile", "baseline", "--", "sh", "-c", "echo without; sleep 3600")
    cluster.kubectl("debug", "patient", *second)
    cluster.until(lambda: _extra(cluster, "patient", "second").get("state", {}).get("running"))
    assert "sleep 4242" not in cluster.kubectl("exec", "patient", "-c", "second", "--", "ps").stdout
    events = cluster.events("patient")
    assert any("Started container second" in each for each in events)
    cluster.delete("patient", 0)
    cluster.until(lambda: cluster.gone("patient"))


def test_kubectl_debug_makes_a_copy_of_a_pod(cluster):
    cluster.create("origin", ["sh", "-c", "exit 1"], restartPolicy="Never")
    cluster.until(lambda: cluster.pod("origin")["status"].get("phase") == "Failed")
    copy = ("--copy-to", "twin", "--container", "app", "--profile", "general", "--", "sleep", "3600")
    cluster.kubectl("debug", "origin", *copy)
    cluster.until(lambda: cluster.ready("twin"))
    for name in ("origin", "twin"):
        cluster.delete(name, 0)
        cluster.until(lambda name=name: cluster.gone(name))


def test_kubectl_debug_reaches_a_node(cluster):
    node = cluster.node.name
    made = cluster.kubectl(
        "debug", f"node/{node}", "--image", IMAGE, "--profile", "general", "--", "sh", "-c", "ls /host; sleep 3600"
    )
    name = next(word for word in made.stdout.replace("\n", " ").split() if word.startswith("node-debugger"))
    cluster.until(lambda: cluster.ready(name))
    assert "etc" in cluster.until(lambda: cluster.kubectl("logs", name).stdout).split()
    # the node's processes are there, its network too
    process = f"/proc/{cluster.server.pid}"
    assert cluster.kubectl("exec", name, "--", "ls", "-d", process).stdout.strip() == process
    cluster.delete(name, 0)
    cluster.until(lambda: cluster.gone(name))

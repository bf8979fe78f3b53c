"""Static pods, garbage, pressure and limits of local storage on a real node."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from minik8s_modules.api.kinds import EVENT, NODE, POD
from minik8s_modules.api.objects import JsonObject
from tests.integration.reconcile.conftest import IMAGE, Cluster

MIRROR = "kubernetes.io/config.mirror"


@pytest.fixture(scope="module")
def kept() -> Iterator[Cluster]:
    """A cluster whose reconciler keeps house, at a quick pace."""
    folder = Path(tempfile.mkdtemp(prefix="mk8s-"))
    made = Cluster(folder)
    try:
        _configure(made, {})
        made.start()
        made.until(made.registered, 60)
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


def _configure(cluster: Cluster, hard: JsonObject) -> None:
    path = cluster.daemons["reconcile"].config
    config = yaml.safe_load(path.read_text())
    manifests = cluster.folder / "manifests"
    manifests.mkdir(exist_ok=True)
    config["drift"] = "fast"
    config["housekeeping"] = {
        "manifests": str(manifests),
        "manifests_every_s": 1,
        "container_gc": {"min_age_s": 0, "max_per_container": 0, "max_containers": -1},
        # never here: this Docker has images of others
        "image_gc": {"high_percent": 100, "low_percent": 100},
        "eviction_hard": hard,
        "eviction_transition_s": 5,
        "reserved": {"memory": "64Mi"},
    }
    path.write_text(yaml.safe_dump(config))


def _restart(cluster: Cluster, hard: JsonObject) -> None:
    cluster.daemons["reconcile"].stop()
    _configure(cluster, hard)
    cluster.daemons["reconcile"].start()


def _manifest(cluster: Cluster, name: str, text: str | None) -> None:
    path = cluster.folder / "manifests" / f"{name}.yml"
    if text is None:
        path.unlink()
        return
    made = path.with_name(f".{name}")
    made.write_text(text)
    made.rename(path)


def _static(seconds: int) -> str:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "lone"},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "app", "image": IMAGE, "command": ["sleep", str(seconds)]}],
        },
    }
    return yaml.safe_dump(pod)


def _running(cluster: Cluster, pod: str) -> list[str]:
    found = subprocess.run(
        ["docker", "ps", "-q", "--no-trunc", "--filter", f"label=minik8s.io/pod-name={pod}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return sorted(found.stdout.split())


def _node_events(cluster: Cluster) -> list[str]:
    found = cluster.admin.list(EVENT, "default").items
    return [f"{one['reason']}: {one['message']}" for one in found if one["involvedObject"]["kind"] == "Node"]


def test_a_static_pod_runs_and_the_api_only_mirrors_it(kept):
    name = f"lone-{kept.node.name}"
    _manifest(kept, "lone", _static(3600))
    _manifest(kept, "wrong", "kind: Pod\napiVersion: v1\nspec: {containers: 7}\n")
    kept.until(lambda: kept.ready(name), 90)
    mirror = kept.pod(name)
    uid = mirror["metadata"]["annotations"][MIRROR]
    assert mirror["metadata"]["uid"] != uid
    before = _running(kept, name)
    assert len(before) == 2
    assert kept.kubectl("exec", name, "--", "echo", "hello").stdout == "hello\n"
    assert any("FailedStaticPod" in each and "wrong.yml" in each for each in kept.until(lambda: _node_events(kept)))
    # deleting what only mirrors it ends nothing
    kept.delete(name)
    kept.until(lambda: kept.pod(name)["metadata"]["uid"] != mirror["metadata"]["uid"])
    kept.until(lambda: kept.ready(name))
    assert _running(kept, name) == before
    # nor does a reconciler that starts anew
    kept.daemons["reconcile"].kill()
    kept.daemons["reconcile"].start()
    kept.until(lambda: kept.events(name))
    _manifest(kept, "wrong", None)
    # another content is another pod
    _manifest(kept, "lone", _static(1800))
    kept.until(lambda: (found := _running(kept, name)) and not set(found) & set(before) and len(found) == 2, 90)
    kept.until(lambda: kept.ready(name))
    assert kept.pod(name)["metadata"]["annotations"][MIRROR] != uid
    _manifest(kept, "lone", None)
    kept.until(lambda: kept.gone(name) and not _running(kept, name), 90)
    kept.until(lambda: not kept.addresses())


def test_dead_containers_go_and_a_pod_that_fills_its_volume_is_evicted(kept):
    kept.create("over", ["sh", "-c", "exit 0"], restartPolicy="Never")
    volume = {"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}
    container = {
        "name": "app",
        "image": IMAGE,
        "command": ["sh", "-c", "dd if=/dev/zero of=/data/big bs=1M count=4; echo written; sleep 3600"],
        "volumeMounts": [{"name": "scratch", "mountPath": "/data"}],
    }
    spec = {"containers": [container], "volumes": [volume], "terminationGracePeriodSeconds": 1}
    kept.admin.create(POD, {"metadata": {"name": "greedy", "namespace": "default"}, "spec": spec})
    kept.until(lambda: kept.pod("over")["status"].get("phase") == "Succeeded")
    kept.until(lambda: "written" in kept.kubectl("logs", "greedy", check=False).stdout)
    uid = kept.pod("over")["metadata"]["uid"]

    def left() -> str:
        argv = ["docker", "ps", "-aq", "--filter", f"label=minik8s.io/pod-uid={uid}"]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    _restart(kept, {})  # it looks at once when it starts, then once a minute
    kept.until(lambda: not left(), 150)
    assert kept.pod("over")["status"]["phase"] == "Succeeded"
    assert kept.container("over")["state"]["terminated"]["exitCode"] == 0
    kept.until(lambda: kept.pod("greedy")["status"].get("reason") == "Evicted", 150)
    status = kept.pod("greedy")["status"]
    assert (status["phase"], status["message"]) == (
        "Failed",
        'Usage of EmptyDir volume "scratch" exceeds the limit "1Mi". ',
    )
    kept.until(lambda: not _running(kept, "greedy"))
    kept.until(lambda: any(each.startswith("Evicted:") for each in kept.events("greedy")))
    for name in ("over", "greedy"):
        kept.delete(name, 0)


def test_a_node_short_of_memory_says_so_and_gives_up_a_pod(kept):
    node = kept.admin.get(NODE, kept.node.name)
    assert node["status"]["images"][0]["sizeBytes"] > 0
    states = {one["type"]: one["status"] for one in node["status"]["conditions"]}
    assert states["Ready"] == "True"
    keep = [{"name": "app", "image": IMAGE, "command": ["sleep", "3600"], "resources": {"requests": {"memory": "4Gi"}}}]
    for name, spec in (("modest", {"containers": keep}), ("bold", {})):
        kept.create(name, **{"terminationGracePeriodSeconds": 1, **spec})
        kept.until(lambda name=name: kept.ready(name))
    _restart(kept, {"memory.available": "100%"})
    kept.until(lambda: kept.pod("bold")["status"].get("reason") == "Evicted", 90)
    assert "The node was low on resource: memory." in kept.pod("bold")["status"]["message"]

    def is_reported() -> bool:
        found = kept.admin.get(NODE, kept.node.name)
        now = {one["type"]: one["status"] for one in found["status"]["conditions"]}
        taint = {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}
        wanted = {"MemoryPressure": "True", "DiskPressure": "False", "PIDPressure": "False"}
        return wanted.items() <= now.items() and taint in (found["spec"].get("taints") or [])

    kept.until(is_reported, 60)
    _restart(kept, {"memory.available": "1Mi"})

    def relieved() -> bool:
        found = kept.admin.get(NODE, kept.node.name)
        now = {one["type"]: one["status"] for one in found["status"]["conditions"]}
        return now["MemoryPressure"] == "False" and not found["spec"].get("taints")

    kept.until(relieved, 60)


def test_a_container_killed_for_memory_says_so(kept):
    container = {
        "name": "app",
        "image": IMAGE,
        "command": ["tail", "/dev/zero"],
        "resources": {"limits": {"memory": "16Mi"}},
    }
    spec = {"containers": [container], "restartPolicy": "Never"}
    kept.admin.create(POD, {"metadata": {"name": "hungry", "namespace": "default"}, "spec": spec})
    ended = kept.until(lambda: kept.container("hungry").get("state", {}).get("terminated"), 60)
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)
    text = "OOMKilling: Memory cgroup out of memory: container app was killed"
    kept.until(lambda: text in kept.events("hungry"))
    kept.delete("hungry", 0)

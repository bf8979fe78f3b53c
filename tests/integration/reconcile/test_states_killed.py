"""kill -9 of a daemon while pods pull, wait for a ConfigMap, back off and end: each goes on, nothing happens twice.

The states before and in between (init containers, hooks, probes) are in test_probes_and_hooks.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from minik8s_modules.api.kinds import CONFIG_MAP
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.core.docker import Docker
from tests.integration.reconcile.conftest import Cluster
from tests.support.docker.slow_registry import Registry, digest, slow_registry
from tests.support.node import SOCKET, command

LONG = ["sleep", "3600"]


@pytest.fixture
def registry() -> Iterator[Registry]:
    with slow_registry() as found:
        yield found


@pytest.fixture
def image(registry: Registry) -> Iterator[str]:
    """An image by its digest, whose pull waits for ``registry.release``."""
    name = f"{registry.name('slow').removesuffix(':1')}@{digest(registry.served['manifest'])}"
    yield name
    docker = Docker(SOCKET)
    if docker.image(name):
        command("docker", "rmi", "-f", name)
    docker.close()


def _waiting(cluster: Cluster, name: str) -> str:
    state = cluster.container(name).get("state") or {}
    return str((state.get("waiting") or {}).get("reason", ""))


def _create_all(cluster: Cluster, image: str, given: Path) -> None:
    """Create a pod for every state; ``given`` is a folder that they all see."""
    volumes = [{"name": "told", "hostPath": {"path": str(given)}}]
    mounts = [{"name": "told", "mountPath": "/told"}]

    def shell(script: str) -> list[JsonObject]:
        command = ["sh", "-c", script]
        return [{"name": "app", "image": "minik8s/busybox:1", "command": command, "volumeMounts": mounts}]

    cluster.create("pulls", containers=[{"name": "app", "image": image, "command": LONG}])
    variables = [{"configMapRef": {"name": "late"}}]
    late = [{"name": "app", "image": "minik8s/busybox:1", "command": LONG, "envFrom": variables}]
    cluster.create("waits", containers=late)
    cluster.create("crashes", containers=shell("test -e /told/go && exec sleep 3600; exit 3"), volumes=volumes)
    end = "echo >>/told/term; while ! test -e /told/end; do sleep 0.1; done; exit"
    script = f"trap '{end}' TERM; echo >/told/up; while :; do sleep 0.1; done"
    cluster.create("ends", containers=shell(script), volumes=volumes, terminationGracePeriodSeconds=120)


@pytest.mark.parametrize("room", ["gateway", "reconcile"])
def test_pods_in_every_state_outlive_a_killed_daemon(
    cluster: Cluster, room: str, registry: Registry, image: str, tmp_path: Path
):
    _create_all(cluster, image, tmp_path)
    cluster.until((tmp_path / "up").exists, 60)
    cluster.delete("ends")
    cluster.until((tmp_path / "term").exists, 60)
    cluster.until(registry.asked.is_set, 60)
    cluster.until(lambda: _waiting(cluster, "waits") == "CreateContainerConfigError", 60)
    cluster.until(lambda: _waiting(cluster, "crashes") == "CrashLoopBackOff", 60)
    restarts = cluster.container("crashes")["restartCount"]
    assert not cluster.container("pulls").get("containerID")

    cluster.daemons[room].kill()
    cluster.daemons[room].start()

    for name in ("go", "end"):
        (tmp_path / name).touch()
    cluster.admin.create(CONFIG_MAP, {"metadata": {"name": "late", "namespace": "default"}, "data": {"A": "b"}})
    registry.release()
    cluster.until(lambda: cluster.gone("ends"), 60)
    assert (tmp_path / "term").read_text() == "\n"  # signalled once
    cluster.until(lambda: all(cluster.ready(name) for name in ("pulls", "waits", "crashes")), 90)
    assert cluster.container("pulls")["image"] == image
    assert [cluster.container(name)["restartCount"] for name in ("pulls", "waits")] == [0, 0]
    assert cluster.container("crashes")["restartCount"] > restarts
    assert len(cluster.node.ids()) == 7  # three pods, and the dead attempt of one

    for name in ("pulls", "waits", "crashes"):
        cluster.delete(name, grace_s=0)
    cluster.admin.delete(CONFIG_MAP, "late", "default")
    cluster.until(lambda: cluster.node.ids() == [], 60)

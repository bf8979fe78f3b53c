"""A snapshot of the installed cluster's etcd, restored: a new epoch, the same containers, and no obedience to the old.

Pods of the snapshot keep their containers, one deleted since comes back, one made since goes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import yaml

from minik8s_modules.api.kinds import POD
from minik8s_modules.module_utils.minik8s.core.section import Request, context_for, run_pass
from tests.support.clusters.installed import STATE, STORE, Installed
from tests.support.docker.docker_watch import DockerWatch
from tests.support.node import SECTIONS

ETCD = Path("/etc/minik8s/etcd.yml")


def stored_token() -> list[int]:
    """Return the newest token the node has seen."""
    return list(json.loads((STATE / "token.json").read_text())["token"])


def store(*arguments: str) -> None:
    """Run our store command."""
    done = subprocess.run([STORE, "snapshot", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def restore(cluster: Installed, snapshot: Path) -> None:
    """Do what `minik8s-store snapshot restore --help` says for one etcd."""
    settings = yaml.safe_load(ETCD.read_text())
    data = Path(settings["data-dir"])
    owner, aside = data.owner(), data.with_name(f"{data.name}.before")
    cluster.service("stop", "etcd")
    data.rename(aside)
    member = [
        f"--{name}={settings[name]}"
        for name in ("name", "initial-cluster", "initial-cluster-token", "initial-advertise-peer-urls")
    ]
    store("restore", str(snapshot), "--data-dir", str(data), "--owner", owner, *member)
    cluster.service("start", "etcd")
    shutil.rmtree(aside)


def old_pass(token: list[int]) -> bool:
    """Try a pass that changes nothing with ``token``; return whether the node refused it."""
    request = Request("node1", mode="delta", base="", upsert={}, delete=[], token=token)
    context = context_for(request)
    try:
        return bool(run_pass(SECTIONS["volumes"], request, context)["fenced"])
    finally:
        context.docker.close()


def test_a_restored_cluster_goes_on_with_its_containers(cluster: Installed, namespace: str, tmp_path: Path) -> None:
    for name in ("stays", "deleted-since"):
        cluster.pod(name, namespace, terminationGracePeriodSeconds=1)
    cluster.until(lambda: all(cluster.ready(name, namespace) for name in ("stays", "deleted-since")))
    epoch, token = cluster.epoch(), stored_token()
    kept = cluster.containers(cluster.pods(namespace)["stays"]["metadata"]["uid"])
    store("save", str(tmp_path / "snapshot"))
    cluster.admin.delete(POD, "deleted-since", namespace, grace_s=0)
    made = cluster.pod("made-since", namespace)["metadata"]["uid"]
    cluster.until(lambda: cluster.ready("made-since", namespace))
    with DockerWatch(cluster.node) as docker:
        restore(cluster, tmp_path / "snapshot")
        cluster.until(cluster.whole, 40, "after the restoration")
        cluster.until(lambda: cluster.epoch() > epoch, 60, "the epoch was not raised")
        cluster.until(lambda: stored_token() > token and stored_token()[0] > epoch, 40, "no new token on the node")
        cluster.until(
            lambda: not cluster.containers(made), 30, "a pod that the store no longer knows still has containers"
        )
        cluster.until(
            lambda: cluster.ready("deleted-since", namespace), 30, "a pod that the store has again does not run"
        )
        cluster.pod("after", namespace)
        cluster.until(lambda: cluster.ready("after", namespace))
    assert set(cluster.pods(namespace)) == {"stays", "deleted-since", "after"}
    assert cluster.containers(cluster.pods(namespace)["stays"]["metadata"]["uid"]) == kept
    assert old_pass(token)
    assert not old_pass(stored_token())
    assert not docker.doubles, docker.doubles

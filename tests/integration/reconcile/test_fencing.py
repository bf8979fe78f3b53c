"""A node that has seen a newer token is left alone until the shard is led with a newer one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from tests.integration.reconcile.conftest import Cluster, Daemon, running

LONG_S = 180.0  # starting Ansible anew, on a busy machine


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster of its own, whose shard is led by others in between."""
    with running() as made:
        yield made


def test_a_reconciler_with_an_old_token_gives_up_and_comes_back_with_a_new_one(cluster: Cluster):
    cluster.create("before")
    cluster.until(lambda: cluster.ready("before"), LONG_S)
    path = Path(cluster.node.state_dir) / "token.json"
    epoch, revision = json.loads(path.read_text())["token"]
    # somebody led the shard a moment after this reconciler was elected
    path.write_text(json.dumps({"token": [epoch, revision + 1]}))
    cluster.create("after")
    log = cluster.daemons["reconcile"].log
    cluster.until(lambda: "giving the shard up" in log.read_text(), LONG_S)
    cluster.until(lambda: cluster.ready("after"), LONG_S)
    assert json.loads(path.read_text())["token"] > [epoch, revision + 1]
    assert cluster.container("before")["restartCount"] == 0
    for name in ("before", "after"):
        cluster.delete(name, grace_s=0)
    cluster.until(lambda: cluster.node.ids() == [], LONG_S)


@contextlib.contextmanager
def another(cluster: Cluster) -> Iterator[Daemon]:
    """Run a second reconciler of the same shard, as on another machine: with runs and interpreters of its own."""
    config = yaml.safe_load(cluster.daemons["reconcile"].config.read_text())
    config["private_data_dir"] = str(cluster.folder / "p2")
    path = cluster.folder / "second.yml"
    path.write_text(yaml.safe_dump(config))
    directories = {"MINIK8S_WARM_DIRECTORY": str(cluster.folder / "w2"), "MINIK8S_WARM_IDLE_S": "5"}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    daemon = Daemon("reconcile", path, {**environment, **directories})
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop()


@contextlib.contextmanager
def frozen(daemon: Daemon) -> Iterator[None]:
    """Stop a reconciler and its runs where they are; what is at work on the node goes on, as on another machine."""
    assert daemon.process is not None
    first = psutil.Process(daemon.process.pid)
    parts = [first, *(each for each in first.children(recursive=True) if "warm" not in " ".join(each.cmdline()))]
    for each in parts:
        each.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for each in reversed(parts):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.send_signal(signal.SIGCONT)


def test_a_leader_frozen_in_the_middle_of_a_pass_does_no_harm_when_it_goes_on(cluster: Cluster):
    names = [f"pass-{number}" for number in range(4)]
    first = cluster.daemons["reconcile"]
    cluster.create("calm")
    cluster.until(lambda: cluster.ready("calm"), LONG_S)
    calm = cluster.container("calm")["containerID"]
    with another(cluster) as second:
        said = len(first.log.read_text())
        for name in names:
            cluster.create(name)
        cluster.until(lambda: len(cluster.node.ids()) > 2, LONG_S)
        with frozen(first):
            cluster.until(lambda: "leading shard" in second.log.read_text(), LONG_S)
            cluster.until(lambda: all(cluster.ready(name) for name in names), LONG_S)
            cluster.delete(names[0], grace_s=0)
            cluster.until(lambda: len(cluster.node.ids()) == 8, LONG_S)
            token = json.loads((Path(cluster.node.state_dir) / "token.json").read_text())["token"]
            kept = sorted(cluster.node.ids())
        # it wakes up in what it was doing: with the token from before, for a pod that is gone
        cluster.until(lambda: "lost lease" in first.log.read_text()[said:], LONG_S)
        cluster.create("after")
        cluster.until(lambda: cluster.ready("after"), LONG_S)
        assert set(kept) < set(cluster.node.ids())
        assert len(cluster.node.ids()) == 10
        assert json.loads((Path(cluster.node.state_dir) / "token.json").read_text())["token"] == token
        assert [cluster.container(name)["restartCount"] for name in names[1:]] == [0] * 3
    # the second has ended: the first is elected anew, with a newer token
    cluster.create("last")
    cluster.until(lambda: cluster.ready("last"), LONG_S)
    assert cluster.container("calm")["containerID"] == calm
    assert json.loads((Path(cluster.node.state_dir) / "token.json").read_text())["token"] > token
    for name in ("calm", "after", "last", *names[1:]):
        cluster.delete(name, grace_s=0)
    cluster.until(lambda: cluster.node.ids() == [], LONG_S)

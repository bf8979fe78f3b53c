"""kubectl reads what a job of Slurm prints: API server, the node's HTTP API, ssh to the login machine."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import NODE, POD
from minik8s_modules.api.objects import JsonObject
from tests.integration.streams.test_kubelet_api import World
from tests.support.etcd import EtcdServer
from tests.support.servers.slurm import Slurm, running
from tests.support.waiting import until

PATIENCE_S = 240.0


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Slurm]:
    with running(tmp_path / "machine") as found:
        yield found


def _phase(world: World, name: str) -> str:
    return str(objects.status(world.admin.get(POD, name, "default")).get("phase"))


def _is_there(world: World) -> bool:
    try:
        return bool(objects.status(world.admin.get(NODE, "far")).get("capacity"))
    except NotFound:
        return False


def test_a_job_s_output_is_a_log(slurm: Slurm, tmp_path: Path) -> None:
    etcd = EtcdServer(tmp_path / "etcd").start()
    world = World(tmp_path / "world", etcd)
    serving = world.server.authority.issue("far-serving", "system:node:far", names=("far.node.minik8s.internal",))
    daemon = world.daemon("far", serving, world.port)
    said = yaml.safe_load(daemon.config.read_text())
    fields = {"inventory": str(slurm.inventory()), "partition": "batch", "period_s": 1}
    daemon.config.write_text(
        yaml.safe_dump({**said, "nodes": [{"name": "far", "provider": "slurm", "config": fields}]})
    )
    daemon.start()
    try:
        until(lambda: _is_there(world), PATIENCE_S)
        script = "echo first; until [ -e /tmp/go ]; do sleep 0.2; done; echo last >&2"
        container: JsonObject = {"name": "app", "image": "minik8s/host", "command": ["sh", "-c", script]}
        container |= {"resources": {"limits": {"memory": "10Mi"}}}
        spec = {"nodeName": "far", "restartPolicy": "Never", "containers": [container]}
        world.admin.create(POD, {"metadata": {"name": "one", "namespace": "default"}, "spec": spec})
        until(lambda: _phase(world, "one") == "Running", PATIENCE_S)
        argv = world.server.kubectl_argv("logs", "-f", "one")
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "first\n"
            slurm.run(["touch", "/tmp/go"])
            assert process.stdout.readline() == "last\n"
            assert process.wait(PATIENCE_S) == 0
        until(lambda: _phase(world, "one") == "Succeeded", PATIENCE_S)
        assert world.server.kubectl("logs", "one", "--tail=1").stdout == "last\n"
        refused = world.server.kubectl("logs", "one", "--timestamps", check=False)
        assert "Slurm notes no time of what a job prints" in refused.stderr
    finally:
        daemon.stop()
        world.stop()
        etcd.stop()

"""The boot oneshot: nothing while attended; else it brings the last-good documents back, with plain python3."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core import labels
from minik8s_modules.module_utils.minik8s.volumes import mounts
from tests.integration.library.test_containers_docker import as_blob
from tests.support.node import SOCKET, TestNode, assert_answers

PACKAGE = Path(__file__).parents[3] / "minik8s_modules" / "module_utils" / "minik8s"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The package as it is installed on a node: alone."""
    shutil.copytree(PACKAGE, tmp_path / "lib" / "minik8s", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "lib"


def oneshot(node: TestNode, installed: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the oneshot as the node's timer does."""
    argv = ["/bin/sh", str(installed / "minik8s" / "reapply.sh"), node.run_dir, "--state-dir", node.state_dir]
    environment = {"PYTHONPATH": str(installed), "PATH": os.environ["PATH"]}
    argv += ["--docker-socket", SOCKET, "--control-plane", "/nonexistent", *options]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)


def declare(node: TestNode) -> tuple[dict[str, Any], str]:
    """Bring up a pod with a volume, a secret, a Never and an OnFailure container; return its containers and uid."""
    sandboxes, containers = node.start_pod(7)
    uid, pod = next(iter(sandboxes.items()))
    node.run("secrets", {"default/db": {"hmac": "a", "keys": ["p"]}}, blob=as_blob({"default/db": {"p": "x"}}))
    secret = {"kind": "secret", "secret": "default/db", "hmac": "a", "items": {"p": {"key": "p", "mode": 256}}}
    node.run("volumes", {f"{uid}/data": {"kind": "emptyDir"}, f"{uid}/secret": secret})
    mounted = [{"volume": "secret", "kind": "secret", "target": "/secret"}]
    containers[f"{uid}/reader"] = node.container(pod, "reader", mounts=mounted, restart_policy="OnFailure")
    containers[f"{uid}/once"] = node.container(pod, "once", restart_policy="Never")
    assert not node.run("containers", containers)["errors"]
    return containers, uid


def boot(node: TestNode) -> None:
    """Do to the node what a boot does: containers exit, links, rules and tmpfs are gone."""
    for container in node.ids():
        node.docker.kill(container, "SIGKILL")
    subprocess.run(["ip", "link", "del", node.bridge], check=True)
    mounts.unmount(str(Path(node.run_dir, "secrets")))


def test_after_a_boot_everything_comes_back_without_a_reconciler(node: TestNode, installed: Path) -> None:
    containers, uid = declare(node)
    before = node.ids()
    boot(node)
    done = oneshot(node, installed)
    assert (done.returncode, done.stderr) == (0, "")
    assert node.ids() == before
    status = node.run("containers", containers)["status"]
    states = {key.partition("/")[2]: each["state"] for key, each in status.items()}
    assert states == {"app": "running", "reader": "running", "once": "exited"}
    assert node.execute(status[f"{uid}/reader"]["id"], "cat", "/secret/p") == "x"
    assert_answers(node.pod(7)["ip"])
    again = oneshot(node, installed)
    assert (again.returncode, again.stdout) == (0, "")


def test_while_a_gateway_attends_nothing_is_done(node: TestNode, installed: Path) -> None:
    declare(node)
    boot(node)
    mark = Path(node.run_dir, "attended")
    mark.touch()
    assert oneshot(node, installed).stdout == ""
    running = [each for each in node.docker.containers({labels.NODE: node.name}) if each["State"] == "running"]
    assert running == []
    assert oneshot(node, installed).stdout == ""
    Path(node.run_dir, "attendance.json").unlink()
    Path(f"{node.run_dir}.glance").unlink()
    os.utime(mark, (time.time() - 121, time.time() - 121))
    assert "start" in oneshot(node, installed).stdout


def test_a_pause_container_alone_that_died_takes_its_pods_containers_along(node: TestNode, installed: Path) -> None:
    containers, uid = declare(node)
    node.docker.kill(node.ids(labels.SANDBOX)[0], "SIGKILL")
    assert oneshot(node, installed).returncode == 0
    app = node.run("containers", containers)["status"][f"{uid}/app"]
    assert app["state"] == "running"
    shown = node.execute(app["id"], "ip", "addr", "show", "eth0")
    assert node.pod(7)["ip"] in shown


def test_a_sub_path_of_an_updated_volume_does_not_keep_a_container_down(node: TestNode, installed: Path) -> None:
    sandboxes, _ = node.start_pod(7)
    uid, pod = next(iter(sandboxes.items()))

    def volume(text: str) -> dict[str, Any]:
        return {f"{uid}/c": {"kind": "configMap", "files": {"a": {"data": text, "mode": 420}}}}

    node.run("volumes", volume("b25l"))
    mount = {"volume": "c", "kind": "configMap", "target": "/a", "sub_path": "a"}
    containers = {f"{uid}/app": node.container(pod, mounts=[mount])}
    node.run("containers", containers)
    node.run("volumes", volume("dHdv"))
    assert not node.run("containers", containers)["changed"]
    for container in node.ids():
        node.docker.kill(container, "SIGKILL")
    assert oneshot(node, installed).returncode == 0
    app = node.run("containers", containers)["status"][f"{uid}/app"]
    assert node.execute(app["id"], "cat", "/a") == "two"


def test_a_node_that_was_never_declared_anything_stays_empty(node: TestNode, installed: Path) -> None:
    assert oneshot(node, installed).returncode == 0
    assert not Path(node.state_dir).exists()


def test_without_docker_the_network_still_comes_back(node: TestNode, installed: Path) -> None:
    declare(node)
    boot(node)
    done = oneshot(node, installed, "--docker-socket", "/nonexistent.sock", "--docker-boots-s", "0")
    assert done.returncode == 1
    assert "does not answer" in done.stdout
    assert node.bridge in subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True).stdout

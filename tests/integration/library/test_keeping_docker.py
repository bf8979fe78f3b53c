"""Garbage, used storage and manifests on a real node: the acting half of housekeeping."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path
from typing import Any

from minik8s_modules.module_utils.minik8s.install.garbage import RemovalRequest, collect
from minik8s_modules.module_utils.minik8s.install.manifests import LARGEST_FILE, read_manifests
from minik8s_modules.module_utils.minik8s.install.usage import containers_used, disk_usage, volumes_used
from tests.support.node import TestNode


def _pods(node: TestNode) -> tuple[dict[str, Any], dict[str, Any]]:
    sandbox = node.pod(7)
    uid = sandbox["pod"]["uid"]
    script = "dd if=/dev/zero of=/big bs=1M count=3; yes 0123456789 | head -n 20000"
    entries = {
        f"{uid}/dead": node.container(sandbox, "dead", entrypoint=["sh", "-c", script]),
        f"{uid}/alive": node.container(sandbox, "alive", entrypoint=["sleep", "3600"]),
    }
    for section, wanted in (("network", node.network()), ("sandboxes", {uid: sandbox}), ("containers", entries)):
        assert not node.run(section, wanted)["errors"]
    return sandbox, entries


def _ids(node: TestNode) -> dict[str, str]:
    found = node.docker.containers({"minik8s.io/node": node.name})
    return {_name(each["Labels"]): each["Id"] for each in found}


def _name(marks: dict[str, str]) -> str:
    return "sandbox" if marks["minik8s.io/type"] == "sandbox" else marks["minik8s.io/container"]


def _wait_dead(node: TestNode, container: str) -> None:
    node.docker.call("POST", f"/containers/{container}/wait")


def test_only_dead_containers_of_this_node_are_removed(node):
    _pods(node)
    ids = _ids(node)
    _wait_dead(node, ids["dead"])
    everything = RemovalRequest([*ids.values(), "0" * 64], [], 0)
    assert collect(node.docker, node.name, everything, check=True).containers == [ids["dead"]]
    assert collect(node.docker, "another", everything, check=False).containers == []
    found = collect(node.docker, node.name, everything, check=False)
    assert found.containers == [ids["dead"]]
    assert set(found.errors) == {ids["alive"], ids["sandbox"]}
    assert set(_ids(node)) == {"alive", "sandbox"}
    assert collect(node.docker, node.name, RemovalRequest([ids["dead"]], [], 0), check=False).containers == []


def test_images_go_in_order_until_enough_is_free(node):
    names = [f"keeping/{node.name}:{number}" for number in range(3)]
    images = []
    try:
        for number, name in enumerate(names):
            argv = ["tar", "--create", "--file=-", f"--mtime=@{number}", "--directory=/etc", "hostname"]
            tar = subprocess.run(argv, check=True, capture_output=True).stdout
            subprocess.run(["docker", "import", "-", name], input=tar, check=True, capture_output=True)
            subprocess.run(["docker", "tag", name, f"{name}-too"], check=True)
            seen = node.docker.image(name)
            images.append({"id": seen["Id"], "names": [name, f"{name}-too"], "size_bytes": 10})
        user = node.docker.create(f"keeping-{node.name}", {"Image": names[0], "Cmd": ["x"]})
        found = collect(node.docker, node.name, RemovalRequest([], images, 5), check=False)
        # the first is in use, which Docker says; the second is enough
        assert (found.images, found.freed_bytes) == ([images[1]["id"]], 10)
        assert list(found.errors) == [images[0]["id"]]
        assert node.docker.image(images[2]["id"]) is not None
        node.docker.remove(user)
    finally:
        node.docker.remove(f"keeping-{node.name}")
        for name in names:
            subprocess.run(["docker", "rmi", "--force", name, f"{name}-too"], capture_output=True, check=False)


def test_what_pods_use_of_the_disk_is_counted(node, tmp_path):
    sandbox, _ = _pods(node)
    uid = sandbox["pod"]["uid"]
    _wait_dead(node, _ids(node)["dead"])
    used = containers_used(node.docker, node.name, [uid])
    # 3 MB written, 20,000 lines logged
    assert used[f"{uid}/dead"] > 3 * 2**20 + 20_000 * 11
    assert used[f"{uid}/alive"] < 2**20
    volume = {f"{uid}/scratch": {"kind": "emptyDir", "medium": "", "size_bytes": None}}
    assert not node.run("volumes", volume)["errors"]
    counted = volumes_used(node.state_dir, node.run_dir, volume)
    path = Path(node.state_dir) / "pods" / uid / "volumes" / "scratch"
    (path / "big").write_bytes(b"x" * 2**20)
    (path / "same").hardlink_to(path / "big")
    grown = volumes_used(node.state_dir, node.run_dir, volume)
    assert 2**20 <= (grown[f"{uid}/scratch"] or 0) - (counted[f"{uid}/scratch"] or 0) < 2 * 2**20
    assert volumes_used(node.state_dir, node.run_dir, volume, limit_s=-1) == {f"{uid}/scratch": None}
    assert disk_usage(str(tmp_path / "missing"), 0) == 0


def test_manifests_are_regular_files_of_a_bearable_size(tmp_path):
    assert not read_manifests(str(tmp_path / "none")).present
    (tmp_path / "web.yml").write_text("kind: Pod\n")
    (tmp_path / ".hidden").write_text("no")
    (tmp_path / "folder").mkdir()
    (tmp_path / "huge").write_bytes(b"x" * (LARGEST_FILE + 1))
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    found = read_manifests(str(tmp_path))
    assert [(each["name"], base64.b64decode(each["data"])) for each in found.files] == [("web.yml", b"kind: Pod\n")]
    assert set(found.errors) == {"huge", "nowhere"}

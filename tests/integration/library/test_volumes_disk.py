"""Volumes on disk and tmpfs: made, updated whole, healed, removed without following a link."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core.paths import volume_path
from minik8s_modules.module_utils.minik8s.volumes import mounts
from tests.integration.library.test_containers_docker import as_blob
from tests.support.node import TestNode, as_json

UID = "4ab1c2d3-0000-4000-8000-000000000001"


def place(node: TestNode, volume: str, kind: str) -> Path:
    """Return a volume's path."""
    return Path(volume_path(node.state_dir, node.run_dir, UID, volume, kind))


def config(**files: str) -> dict[str, Any]:
    """Return a configMap volume; ``__`` in a name stands for a slash."""
    rows = {
        name.replace("__", "/"): {"data": base64.b64encode(text.encode()).decode(), "mode": 0o640}
        for name, text in files.items()
    }
    return {"kind": "configMap", "files": rows}


def test_an_empty_dir_is_open_to_all_and_goes_with_its_content(node: TestNode) -> None:
    entries = {f"{UID}/data": {"kind": "emptyDir", "medium": "", "size_bytes": None}}
    node.run("volumes", entries)
    path = place(node, "data", "emptyDir")
    assert stat.S_IMODE(path.stat().st_mode) == 0o777
    (path / "file").write_text("x")
    (path / "out").symlink_to(node.state_dir)
    assert not node.run("volumes", entries)["changed"]
    assert node.run("volumes", {})["changed"]
    assert not Path(node.state_dir, "pods", UID).exists()
    assert Path(node.state_dir, "documents").exists()


def test_an_empty_dir_in_memory_is_a_tmpfs_of_its_size(node: TestNode) -> None:
    entries = {f"{UID}/fast": {"kind": "emptyDir", "medium": "Memory", "size_bytes": 1 << 20}}
    assert not node.run("volumes", entries)["errors"]
    path = place(node, "fast", "emptyDir")
    assert mounts.at(str(path), mounts.mounts())[0].kind == "tmpfs"
    assert os.statvfs(path).f_blocks * os.statvfs(path).f_frsize == 1 << 20
    assert not node.run("volumes", entries)["changed"]
    mounts.unmount(str(path))
    assert node.run("volumes", entries)["changed"]
    entries[f"{UID}/fast"]["size_bytes"] = 2 << 20
    assert node.run("volumes", entries)["changed"]
    assert not node.run("volumes", entries)["changed"]
    node.run("volumes", {})
    assert not path.exists()
    assert not mounts.at(str(path), mounts.mounts())


def test_a_config_volume_is_updated_as_a_whole(node: TestNode) -> None:
    key = f"{UID}/config"
    node.run("volumes", {key: config(a="one", sub__b="two")})
    path = place(node, "config", "configMap")
    assert (path / "a").read_text() == "one"
    assert (path / "sub" / "b").read_text() == "two"
    assert str((path / "a").readlink()) == "..data/a"
    assert stat.S_IMODE((path / "a").stat().st_mode) == 0o640
    first = str((path / "..data").readlink())
    changed = {key: config(a="three", c="four")}
    planned = node.run("volumes", changed, check=True)
    assert "'one'" in planned["diff"]["before"]
    assert "'three'" in planned["diff"]["after"]
    node.run("volumes", changed)
    assert str((path / "..data").readlink()) != first
    assert sorted(each.name for each in path.iterdir()) == sorted(
        ["..data", str((path / "..data").readlink()), "a", "c"]
    )
    assert not node.run("volumes", changed)["changed"]


@pytest.mark.parametrize("harm", ["edit", "mode", "unlink", "data", "extra", "link", "evil"])
def test_a_config_volume_harmed_by_hand_is_healed(node: TestNode, harm: str, tmp_path: Path) -> None:
    entries = {f"{UID}/config": config(a="one")}
    node.run("volumes", entries)
    path = place(node, "config", "configMap")
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "a").write_text("untouched")
    if harm == "edit":
        (path / "a").write_text("other")
    elif harm == "mode":
        (path / "a").chmod(0o600)
    elif harm == "unlink":
        (path / "a").unlink()
    elif harm == "data":
        (path / "..data").unlink()
    elif harm == "extra":
        (path / "extra").write_text("x")
    elif harm == "link":
        real = (path / "a").resolve()
        real.unlink()
        real.symlink_to(secret / "a")  # the same content and mode: only a reader that follows links sees no difference
        (secret / "a").write_text("one")
        (secret / "a").chmod(0o640)
    else:
        (path / "..data").unlink()
        (path / "..data").symlink_to(secret)
    assert node.run("volumes", entries)["changed"]
    assert (path / "a").read_text() == "one"
    assert (secret / "a").read_text() == ("one" if harm == "link" else "untouched")
    assert not (path / "..data" / "a").is_symlink()
    assert not node.run("volumes", entries)["changed"]


def test_a_secret_volume_lies_on_tmpfs_and_follows_the_secret(node: TestNode) -> None:
    canary = "canary-77aa"
    secret = {"default/database": {"hmac": "a1", "keys": ["password"]}}
    volume = {
        "kind": "secret",
        "secret": "default/database",
        "hmac": "a1",
        "items": {"pw": {"key": "password", "mode": 0o400}},
    }
    entries = {f"{UID}/secret": volume}
    early = node.run("volumes", entries)
    optional = {"kind": "secret", "secret": "", "hmac": "", "items": {}}
    assert not node.run("volumes", {f"{UID}/optional": optional})["errors"]
    assert "references non-existent secret key: password" in early["errors"][f"{UID}/secret"]["message"]
    node.run("secrets", secret, blob=as_blob({"default/database": {"password": canary}}))
    result = node.run("volumes", entries)
    assert not result["errors"]
    assert canary not in as_json(result)
    path = place(node, "secret", "secret")
    assert (path / "pw").read_text() == canary
    assert mounts.is_tmpfs(str(path))
    secret["default/database"]["hmac"] = volume["hmac"] = "a2"
    node.run("secrets", secret, blob=as_blob({"default/database": {"password": "second"}}))
    assert node.run("volumes", entries)["changed"]
    assert (path / "pw").read_text() == "second"
    node.run("secrets", {})
    node.run("volumes", {})
    node.run("secrets", {})
    assert node.traces()["mounts"] == []


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("Directory", "hostPath type check failed: {path} is not a directory"),
        ("File", "hostPath type check failed: {path} is not a file"),
        ("Socket", "hostPath type check failed: {path} is not a socket"),
        ("CharDevice", "hostPath type check failed: {path} is not a character device"),
        ("BlockDevice", "hostPath type check failed: {path} is not a block device"),
    ],
)
def test_a_missing_host_path_is_told_in_kubernetes_words(
    node: TestNode, tmp_path: Path, kind: str, message: str
) -> None:
    path = str(tmp_path / "missing")
    result = node.run("volumes", {f"{UID}/host": {"kind": "hostPath", "path": path, "type": kind}})
    assert result["errors"][f"{UID}/host"] == {"reason": "FailedMount", "message": message.format(path=path)}
    assert result["status"][f"{UID}/host"] is None


def test_host_paths_are_made_where_their_type_says_so_and_never_deleted(node: TestNode, tmp_path: Path) -> None:
    entries = {
        f"{UID}/plain": {"kind": "hostPath", "path": str(tmp_path / "a" / "b"), "type": ""},
        f"{UID}/dir": {"kind": "hostPath", "path": str(tmp_path / "c"), "type": "DirectoryOrCreate"},
        f"{UID}/file": {"kind": "hostPath", "path": str(tmp_path / "d"), "type": "FileOrCreate"},
    }
    assert node.run("volumes", entries, check=True)["changed"]
    assert not (tmp_path / "c").exists()
    result = node.run("volumes", entries)
    assert not result["errors"]
    assert result["status"][f"{UID}/dir"] == {"state": "present"}
    assert (tmp_path / "a" / "b").is_dir()
    assert (tmp_path / "d").is_file()
    assert not node.run("volumes", entries)["changed"]
    node.run("volumes", {})
    assert (tmp_path / "c").is_dir()


@pytest.mark.parametrize(
    ("key", "entry"),
    [
        (f"{UID}/../x", {"kind": "emptyDir"}),
        ("../x", {"kind": "emptyDir"}),
        (f"{UID}/x", {"kind": "nfs"}),
        (f"{UID}/x", {"kind": "emptyDir", "medium": "HugePages"}),
        (f"{UID}/x", {"kind": "emptyDir", "colour": "red"}),
        (f"{UID}/x", {"kind": "hostPath", "path": "relative"}),
        (f"{UID}/x", {"kind": "hostPath", "path": "/a/../b"}),
        (f"{UID}/x", {"kind": "configMap", "files": {"../../etc/passwd": {"data": "", "mode": 420}}}),
        (f"{UID}/x", {"kind": "configMap", "files": {"..data": {"data": "", "mode": 420}}}),
        (f"{UID}/x", {"kind": "configMap", "files": {"/etc/passwd": {"data": "", "mode": 420}}}),
        (f"{UID}/x", {"kind": "configMap", "files": {"a": {"data": "!", "mode": 420}}}),
    ],
)
def test_a_name_that_leaves_its_place_or_an_unknown_kind_is_refused(
    node: TestNode, key: str, entry: dict[str, Any]
) -> None:
    result = node.run("volumes", {key: entry})
    assert result["errors"][key]["reason"] in {"InvalidEntry", "InvalidName"}
    assert not result["changed"]


def test_a_volume_stays_while_a_container_of_its_pod_runs(node: TestNode) -> None:
    sandboxes, _ = node.start_pod(7)
    uid = next(iter(sandboxes))
    entries = {f"{uid}/data": {"kind": "emptyDir"}}
    node.run("volumes", entries)
    held = node.run("volumes", {})
    assert held["due"] == [{"key": f"{uid}/data", "after_s": 1.0, "reason": "PodStillRunning"}]
    node.run("containers", {})
    assert node.run("volumes", {})["changed"]


def projected(secret: str, hmac: str, **item: Any) -> dict[str, Any]:
    """Return a projected volume with a clear file and one from ``secret``."""
    files = {"namespace": {"data": base64.b64encode(b"default").decode(), "mode": 0o644}}
    items = {"token": {"secret": secret, "key": "k", "mode": 0o600, **item}}
    return {"kind": "projected", "files": files, "items": items, "hmacs": {secret: hmac}}


def test_a_projected_volume_follows_its_token_in_memory(node: TestNode) -> None:
    secret = f"default/{UID}__api"
    entries = {f"{UID}/api": projected(secret, "a" * 64, uid=1234)}
    path = place(node, "api", "projected")
    for value, hmac in (("first", "a" * 64), ("second", "b" * 64)):
        node.run("secrets", {secret: {"hmac": hmac, "keys": ["k"]}}, blob=as_blob({secret: {"k": value}}))
        entries[f"{UID}/api"]["hmacs"] = {secret: hmac}
        result = node.run("volumes", entries)
        assert not result["errors"]
        assert value not in str(result)
        assert mounts.is_tmpfs(str(path))
        assert (path / "token").read_text() == value
        assert (path / "namespace").read_text() == "default"
        found = (path / "token").stat()
        assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o600, 1234, 0)
        assert not node.run("volumes", entries)["changed"]
    (path / "token").chmod(0o644)
    assert node.run("volumes", entries)["changed"], "a mode changed by hand is put right"
    node.run("volumes", {})
    node.run("secrets", {})
    assert not path.exists()


def test_volumes_belong_to_the_group_of_their_pod(node: TestNode) -> None:
    empty = {"kind": "emptyDir", "medium": "", "size_bytes": None, "fs_group": 4321}
    memory = {"kind": "emptyDir", "medium": "Memory", "size_bytes": 1 << 20, "fs_group": 4321}
    entries = {f"{UID}/e": empty, f"{UID}/m": memory, f"{UID}/c": {**config(a="x"), "fs_group": 4321}}
    assert not node.run("volumes", entries)["errors"]
    for volume in ("e", "m"):
        found = place(node, volume, "emptyDir").stat()
        assert (found.st_gid, stat.S_IMODE(found.st_mode)) == (4321, 0o2777)
    found = (place(node, "c", "configMap") / "a").stat()
    assert (found.st_gid, stat.S_IMODE(found.st_mode)) == (4321, 0o640)
    assert not node.run("volumes", entries)["changed"]
    os.chown(place(node, "e", "emptyDir"), -1, 0)
    assert node.run("volumes", entries)["changed"]
    assert not node.run("volumes", entries)["changed"]
    node.run("volumes", {})

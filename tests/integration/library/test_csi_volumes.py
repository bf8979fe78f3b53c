"""Volumes of a CSI driver: real sockets, grpcio's own server, mounts of the kernel; a kill before every single step."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core.paths import csi_staging, csi_target
from minik8s_modules.module_utils.minik8s.volumes import csi, csi_registration
from tests.integration.library.test_kill_at_every_step import MOST_EFFECTS, survives
from tests.support.node import TestNode
from tests.support.servers.csi_driver import Running, csi_driver


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with csi_driver(f"t{uuid.uuid4().hex[:10]}.csi.test", tmp_path_factory.mktemp("csi")) as running:
        yield running


@pytest.fixture
def key(node: TestNode) -> str:
    assert node.name
    return f"{uuid.uuid4()}/data"


def entry(driver: Running, **changes: Any) -> dict[str, Any]:
    return {"kind": "csi", "driver": driver.name, "handle": "h-1", "size_bytes": 1 << 20, **changes}


def run(node: TestNode, entries: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return dict(node.run("volumes", entries=entries, **changes))


def mounted(key: str) -> bool:
    return csi.is_mounted(csi_target(*key.split("/")))


def asked(driver: Running) -> list[str]:
    quiet = {"GetInfo", "NodeGetCapabilities"}
    return [call["method"] for call in driver.calls() if call["method"] not in quiet]


def test_a_driver_says_what_it_is_on_this_node_and_is_told_that_it_is_called(driver: Running):
    driver.calls()
    found = csi_registration.register()
    topology = {f"{driver.name}/zone": "east"}
    assert found.drivers[driver.name] == {"node_id": "i-1", "max_volumes": 3, "topology": topology}
    assert {"method": "NotifyRegistrationStatus", "plugin_registered": True} in driver.calls()
    csi_registration.register([driver.name])
    assert "NotifyRegistrationStatus" not in asked(driver)


def test_pods_share_a_volume_that_leaves_the_node_with_the_last(driver: Running, node: TestNode, key: str):
    driver.calls()
    other = f"{uuid.uuid4()}/data"
    fields = {"attributes": {"share": "a"}, "publish_context": {"device": "sdb"}, "fs_type": "ext4", "options": ["ro"]}
    assert run(node, {key: entry(driver, **fields)})["changed"]
    capability = {"mount": {"fs_type": "ext4", "mount_flags": ["ro"]}, "access_mode": {"mode": 1}}
    (publish,) = [call for call in driver.calls() if call["method"] == "NodePublishVolume"]
    assert publish == {
        "method": "NodePublishVolume", "volume_id": "h-1", "volume_capability": capability,
        "staging_target_path": csi_staging(driver.name, "h-1"), "target_path": csi_target(*key.split("/")),
        "volume_context": {"share": "a"}, "publish_context": {"device": "sdb"},
    }  # fmt: skip
    Path(csi_target(*key.split("/")), "file").write_text("kept")
    both = {key: entry(driver, **fields), other: entry(driver, **fields)}
    assert run(node, both)["changed"]
    assert Path(csi_target(*other.split("/")), "file").read_text() == "kept"
    assert not run(node, both)["changed"]
    asked(driver)
    run(node, {other: entry(driver, **fields)})
    assert (asked(driver), mounted(key), mounted(other)) == (["NodeUnpublishVolume"], False, True)
    run(node, {})
    assert (asked(driver), mounted(other)) == (["NodeUnpublishVolume", "NodeUnstageVolume"], False)
    assert (driver.folder / "h-1" / "file").read_text() == "kept"
    assert not Path(csi_target(*key.split("/"))).parents[3].exists()
    assert not Path(csi_staging(driver.name, "h-1")).parent.exists()


def test_both_pods_that_go_at_once_leave_nothing_staged(driver: Running, node: TestNode, key: str):
    other = f"{uuid.uuid4()}/data"
    run(node, {key: entry(driver), other: entry(driver)})
    asked(driver)
    assert not run(node, {})["errors"]
    assert sorted(asked(driver)) == ["NodeUnpublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"]


def test_a_volume_that_grew_is_expanded_and_one_unmounted_by_hand_comes_back(driver: Running, node: TestNode, key: str):
    run(node, {key: entry(driver)})
    asked(driver)
    checked = run(node, {key: entry(driver, size_bytes=2 << 20)}, check=True)
    assert (checked["changed"], asked(driver)) == (True, [])
    done = run(node, {key: entry(driver, size_bytes=2 << 20)})
    assert asked(driver) == ["NodeExpandVolume"]
    assert done["status"][key] == {"state": "present", "size_bytes": 2 << 20}
    from minik8s_modules.module_utils.minik8s.volumes import mounts  # noqa: PLC0415

    mounts.unmount(csi_target(*key.split("/")))
    run(node, {key: entry(driver, size_bytes=2 << 20)})
    assert mounted(key)
    run(node, {})
    asked(driver)
    run(node, {key: entry(driver, size_bytes=4 << 20, had_bytes=2 << 20)})
    assert asked(driver) == ["NodeStageVolume", "NodePublishVolume", "NodeExpandVolume"]
    run(node, {})


def test_a_driver_that_refuses_or_is_away_holds_its_volume_alone(driver: Running, node: TestNode, key: str):
    (driver.folder / "fail-NodeStageVolume").touch()
    scratch = f"{uuid.uuid4()}/scratch"
    entries = {key: entry(driver), scratch: {"kind": "emptyDir", "medium": ""}}
    found = run(node, entries)
    assert found["errors"][key]["reason"] == "FailedMount"
    assert "desc = NodeStageVolume is to fail" in found["errors"][key]["message"]
    assert found["status"][scratch] == {"state": "present"}
    (driver.folder / "fail-NodeStageVolume").unlink()
    assert not run(node, entries)["errors"]
    driver.stop()
    try:
        found = run(node, {})
        assert found["errors"][key]["reason"] == "FailedUnMount"
        assert mounted(key)
    finally:
        driver.start()
    assert not run(node, {})["errors"]
    assert not mounted(key)


def test_a_driver_is_told_secrets_and_its_words_do_not_repeat_them(driver: Running, node: TestNode, key: str):
    reference, value = "shop/disk", f"secret-{uuid.uuid4()}"
    folder = Path(node.run_dir, "secrets", *reference.split("/"))
    wanted = {key: entry(driver, secrets={"stage": reference})}
    asked(driver)
    found = run(node, wanted)
    assert found["errors"][key]["reason"] == "SecretMissing"
    assert asked(driver) == []
    folder.mkdir(parents=True)
    (folder / "key").write_text(value)
    found = run(node, wanted)
    assert not found["errors"]
    (staged,) = [call for call in driver.calls() if call["method"] == "NodeStageVolume"]
    assert staged["secrets"] == {"key": value}
    assert value not in json.dumps(found)
    run(node, {})


@pytest.mark.parametrize("inline", [False, True])
def test_a_kill_before_any_step_converges(driver: Running, node: TestNode, key: str, inline: bool):  # noqa: FBT001
    wanted = {key: entry(driver, handle=f"h-{uuid.uuid4()}", inline=inline)}
    for entries in (wanted, {}):
        for at in range(MOST_EFFECTS):
            if survives(node, at, "volumes", {"entries": entries}):
                assert at > 1
                break
        else:
            raise AssertionError("it never got through")
        assert mounted(key) == bool(entries)
        assert not run(node, entries)["changed"]
    assert csi.records(node.state_dir) == {}

"""Records: what may be asked for, which subnet a lab gets, which nodes join it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.lab import records
from tests.lab.errors import LabUsage
from tests.lab.places import Places, check_lab_name
from tests.lab.records import LabRecord, NodeRecord, NodeSpec, Release

NODE = NodeRecord("node1", 1, "uml", 1024, "/image", "/kernel")
IMAGES: dict[Release, str] = {"bookworm": "/image", "trixie": "/image2"}


@pytest.mark.parametrize(
    ("name", "kind", "memory", "message"),
    [
        ("Node1", "uml", None, "cannot name a node"),
        ("node-", "uml", None, "cannot name a node"),
        ("a" * 16, "uml", None, "cannot name a node"),
        ("a b", "uml", None, "cannot name a node"),
        ("n", "docker", None, "is none of uml, native"),
        ("n", "native", 512, "cannot be set for a native node"),
        ("n", "uml", 64, "too few to boot"),
    ],
)
def test_a_node_that_cannot_be_is_refused(name: str, kind: str, memory: int | None, message: str) -> None:
    with pytest.raises(LabUsage, match=message):
        NodeSpec(name, kind, memory)  # type: ignore[arg-type]  # as a user's JSON may have it


def test_a_release_without_an_image_is_refused() -> None:
    with pytest.raises(LabUsage, match="is none of bookworm, trixie"):
        NodeSpec("n", release="sid")  # type: ignore[arg-type]  # as a user's JSON may have it


@pytest.mark.parametrize("name", ["", "Lab", "9lab", "a" * 10, "my-lab", "lab\n"])
def test_a_lab_whose_devices_could_not_be_named_is_refused(name: str) -> None:
    with pytest.raises(LabUsage, match="cannot name a lab"):
        check_lab_name(name)


def test_the_longest_names_fit_into_device_names() -> None:
    assert len(records.Names("a" * 9).network) <= 15
    assert len(records.Names.port(records.MAX_NODES)) <= 15


@pytest.mark.parametrize(
    ("wanted", "taken", "chosen"),
    [
        (None, [], "192.168.77.0/24"),
        (None, ["192.168.77.0/24", "192.168.78.5"], "192.168.79.0/24"),
        (None, ["default", "192.168.64.0/20", "fe80::/64"], "192.168.80.0/24"),
        ("10.9.8.0/24", ["10.9.9.0/24"], "10.9.8.0/24"),
    ],
)
def test_a_lab_gets_a_subnet_that_overlaps_nothing(wanted: str | None, taken: list[str], chosen: str) -> None:
    assert records.choose_subnet(wanted, taken) == chosen


@pytest.mark.parametrize(
    ("wanted", "taken", "message"),
    [
        ("10.9.8.0/24", ["10.0.0.0/8"], "taken on this host by 10.0.0.0/8"),
        ("10.9.0.0/16", [], "is no /24"),
        ("10.9.8.1/24", [], "is no network"),
        ("fd00::/64", [], "is no network"),
        ("rubbish", [], "is no network"),
        (None, ["192.168.0.0/16"], "is free"),
    ],
)
def test_a_subnet_that_cannot_be_is_refused(wanted: str | None, taken: list[str], message: str) -> None:
    with pytest.raises(LabUsage, match=message):
        records.choose_subnet(wanted, taken)


def test_new_nodes_get_numbers_after_the_existing_ones() -> None:
    joined = records.join([NODE], [NodeSpec("node1"), NodeSpec("b", "native", release="trixie")], IMAGES, "/kernel2")
    assert joined == [NodeRecord("b", 2, "native", 0, "/image2", "", release="trixie")]


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ([], "different names"),
        ([NodeSpec("a"), NodeSpec("a")], "different names"),
        ([NodeSpec("a")], "node1, which was not asked for"),
        ([NodeSpec("node1", "native")], "is uml with 1024 MiB, not native"),
        ([NodeSpec("node1", "uml", 2048)], "not uml with 2048 MiB"),
        ([NodeSpec("node1", release="trixie")], "node1 has Debian bookworm, not trixie"),
        ([NodeSpec(f"node{i}") for i in range(1, 42)], "at most 40 nodes, not 41"),
    ],
)
def test_other_nodes_than_there_are_are_refused(specs: list[NodeSpec], message: str) -> None:
    with pytest.raises(LabUsage, match=message):
        records.join([NODE], specs, IMAGES, "/kernel")


def test_records_are_read_as_written(tmp_path: Path) -> None:
    lab = LabRecord("lab", "192.168.77.0/24")
    assert records.read_lab(tmp_path / "lab") is None
    records.write_lab(tmp_path / "lab", lab)
    records.write_node(tmp_path / "lab", NODE)
    assert records.read_labs(tmp_path) == [lab]
    assert records.read_nodes(tmp_path / "lab") == [NODE]
    assert lab.node_address(NODE) == "192.168.77.11"


@pytest.mark.parametrize(
    "text", ["", "[]", json.dumps({"name": "lab"}), json.dumps({"name": "x", "subnet": "y", "z": 1})]
)
def test_a_record_of_another_version_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "lab.json").write_text(text, encoding="utf-8")
    with pytest.raises(records.RecordUnreadable, match=r"lab\.json is not a record"):
        records.read_lab(tmp_path)


@pytest.mark.parametrize("path", ["/a b", "/a,b", "/a:b", "relative", "/a\\b"])
def test_a_folder_that_mounts_would_tear_apart_is_refused(path: str) -> None:
    with pytest.raises(LabUsage, match="cannot hold a lab"):
        Places.from_environment({"MINIK8S_LAB_CACHE": path})


def test_the_cache_is_the_users() -> None:
    assert Places.from_environment({"HOME": "/home/me"}).cache == Path("/home/me/.cache/minik8s-lab")
    assert Places.from_environment({"XDG_CACHE_HOME": "/c", "HOME": "/x"}).cache == Path("/c/minik8s-lab")

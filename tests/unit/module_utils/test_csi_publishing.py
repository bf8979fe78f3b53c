"""A CSI volume is ready when all of it was done: the driver's answer, the group, and the note of that."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core.paths import csi_target
from minik8s_modules.module_utils.minik8s.core.section import Plan
from minik8s_modules.module_utils.minik8s.volumes import csi, csi_calls, persistent

UID, VOLUME = "0b7ad1b6-36a2-4c7a-8a53-3f2ec0a4a6a3", "data"
KEY = f"{UID}/{VOLUME}"
ENTRY = {"kind": "csi", "driver": "d.example.com", "handle": "h", "inline": False, "fs_group": 2000, "size_bytes": 1}


class Killed(BaseException):
    """The process ends here."""


class Node:
    """A driver that mounts at once, and says so when it likes; groups that are given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.state_dir, self.mounted, self.owned, self.too_slow = str(tmp_path / "state"), False, 0, False
        monkeypatch.setattr("minik8s_modules.module_utils.minik8s.core.paths.KUBELET", str(tmp_path))
        monkeypatch.setattr(csi, "KUBELET", str(tmp_path))
        monkeypatch.setattr(csi_calls, "driver", self._driver)
        monkeypatch.setattr(csi, "is_mounted", lambda _path, _among=None: self.mounted)
        monkeypatch.setattr(persistent, "own", self._own)

    @contextlib.contextmanager
    def _driver(self, *_: str) -> Iterator[Node]:
        yield self

    def capabilities(self) -> frozenset[int]:
        """It stages nothing."""
        return frozenset()

    def call(self, _method: str, **_asked: Any) -> dict[str, Any]:
        """Mount; too slow, it answers nobody."""
        self.mounted = True
        if self.too_slow:
            raise Killed
        return {}

    def _own(self, checkpoint: csi.Checkpoint, _path: str, _group: int) -> None:
        checkpoint("give volume to its group")
        self.owned += 1

    def publish(self, dies_at: str = "") -> None:
        """Have the volume published, up to a step."""

        def checkpoint(step: str) -> None:
            if step == dies_at:
                raise Killed

        csi.publish(checkpoint, csi.Dirs(self.state_dir, self.state_dir), KEY, ENTRY)

    @property
    def target(self) -> str:
        """The volume's target."""
        return csi_target(UID, VOLUME)

    def steps(self) -> list[str]:
        """Return what the next pass would do."""
        plan = Plan()
        csi.plan(plan, KEY, ENTRY, csi.facets(self.state_dir, self.target, []))
        return [step.action for step in plan.steps]


@pytest.mark.parametrize("dies_at", ["give volume to its group", "note that it is ready", "answer"])
def test_what_was_mounted_and_not_finished_is_finished_by_the_next_pass(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, dies_at: str
):
    node = Node(monkeypatch, tmp_path)
    node.too_slow = dies_at == "answer"
    with pytest.raises(Killed):
        node.publish(dies_at)
    assert node.mounted
    assert not csi.is_ready(node.state_dir, node.target), "no container starts on it"
    assert node.steps() == ["publish"]
    node.too_slow = False
    node.publish()
    assert node.owned > 0
    assert csi.is_ready(node.state_dir, node.target)
    assert node.steps() == []


def test_a_volume_that_has_grown_stays_ready(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    node = Node(monkeypatch, tmp_path)
    node.publish()
    csi.expand(lambda _: None, csi.Dirs(node.state_dir, node.state_dir), KEY, {**ENTRY, "size_bytes": 2})
    assert csi.is_ready(node.state_dir, node.target)


@pytest.mark.parametrize("gone", [0, 1, 3])
def test_folders_are_tidied_although_a_killed_run_has_removed_the_inner_ones(tmp_path: Path, gone: int):
    inner = tmp_path / "pod" / "volumes" / "kind" / "volume"
    [inner, *inner.parents][gone].mkdir(parents=True)
    (tmp_path / "kept").touch()
    csi.tidy(str(inner), 6)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_what_holds_something_stays_with_all_above_it(tmp_path: Path):
    inner = tmp_path / "pod" / "volumes" / "kind" / "volume"
    inner.parent.mkdir(parents=True)
    (inner.parents[1] / "other").touch()
    csi.tidy(str(inner), 4)
    assert [path.name for path in inner.parents[1].iterdir()] == ["other"]

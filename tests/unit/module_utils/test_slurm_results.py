"""Results of a job are plain files of its own folder: no link is followed, nothing without end is read."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from minik8s_modules.module_utils.minik8s.core.faults import KeyFault
from minik8s_modules.module_utils.minik8s.slurm import folders, results


@pytest.fixture
def work(tmp_path: Path) -> Path:
    found = Path(folders.job_dir(str(tmp_path / "state"), "one")) / "work"
    found.mkdir(parents=True)
    return found


def test_patterns_match_part_by_part(work: Path):
    for path in ("a.csv", "b.txt", ".hidden.csv", "plots/1.png", "plots/deep/2.png"):
        (work / path).parent.mkdir(exist_ok=True)
        (work / path).write_text(path)
    (work / "folder.csv").mkdir()
    assert results.files_of(str(work), ["*.csv", "plots/*.png"]) == {"a.csv": b"a.csv", "plots/1.png": b"plots/1.png"}
    assert set(results.files_of(str(work), [".h*", "*/*/*"])) == {".hidden.csv", "plots/deep/2.png"}
    assert results.files_of(str(work / "none"), ["*"]) == {}


def test_links_pipes_and_folders_that_are_links_lead_nowhere(work: Path, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("of somebody else")
    (work / "link").symlink_to(secret / "key")
    (work / "folder").symlink_to(secret)
    os.mkfifo(work / "pipe")
    assert results.files_of(str(work), ["*", "*/*", "folder/key"]) == {}
    moved = work.rename(work.parent / "aside")
    work.symlink_to(secret)
    assert results.files_of(str(work), ["*", "key"]) == {}
    assert moved.is_dir()


@pytest.mark.parametrize("pattern", ["../secret", "/etc/passwd", "a/../../b", "", "a//b", 7])
def test_a_pattern_that_leads_elsewhere_is_refused(work: Path, pattern: str):
    with pytest.raises(KeyFault):
        results.files_of(str(work), [pattern])


def test_too_much_is_told(work: Path, monkeypatch: pytest.MonkeyPatch):
    with (work / "large").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(KeyFault, match="1048577 bytes or more"):
        results.files_of(str(work), ["large"])
    monkeypatch.setattr(results, "FILES", 3)
    for number in range(5):
        (work / f"{number}.x").touch()
    with pytest.raises(KeyFault, match="4 files"):
        results.files_of(str(work), ["*.x"])
    monkeypatch.setattr(results, "LOOKS", 4)
    with pytest.raises(KeyFault, match="entries of folders"):
        results.files_of(str(work), ["nothing"])


def test_a_name_that_is_no_text_is_told(work: Path):
    os.mkfifo(os.fsencode(work) + b"/\xff")
    with pytest.raises(KeyFault, match="no name in UTF-8"):
        results.files_of(str(work), ["*"])


def test_an_answer_has_room_for_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(results, "BYTES", 10)
    monkeypatch.setattr(results, "PASS_BYTES", 15)
    for uid in ("a", "b", "c"):
        folder = Path(folders.job_dir(str(tmp_path), uid)) / "work"
        folder.mkdir(parents=True)
        (folder / "f").write_bytes(b"x" * 7)
    found = results.collect(str(tmp_path), {"c": ["f"], "a": ["f"], "b": ["../f"]})
    assert found["a"] == {"files": {"f": base64.b64encode(b"x" * 7).decode()}}
    assert "c" not in found
    assert results.collect(str(tmp_path), {"b": ["../f"]})["b"]["error"]["reason"] == "InvalidName"

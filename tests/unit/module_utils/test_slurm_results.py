"""Results of a job are plain files of its own folder: no link is followed, nothing without end is read."""

from __future__ import annotations

import base64
import errno
import os
import socket
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


@pytest.mark.parametrize("place", ["_content", "_named"])
def test_what_cannot_be_read_is_not_called_absent(work: Path, monkeypatch: pytest.MonkeyPatch, place: str):
    """A file server that answers late, or not, must not end a Pod without its results."""
    (work / "plots").mkdir()
    (work / "plots" / "a.csv").write_text("1")
    before = getattr(results, place)

    def stale(file: int, *rest: object) -> object:
        if place == "_named" and "plots" not in Path(f"/proc/self/fd/{file}").readlink().parts:
            return before(file, *rest)
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(results, place, stale)
    error = results.collect(str(work.parents[2]), {"one": ["plots/*.csv"]})["one"]["error"]
    assert (error["reason"], error["temporary"]) == ("ResultsNotRead", True)
    assert "plots" in error["message"]
    assert "cannot be read now: Stale file handle" in error["message"]


def test_a_folder_that_cannot_be_opened_now_is_not_called_absent(work: Path, monkeypatch: pytest.MonkeyPatch):
    real = os.open

    def stale(path: str, *rest: int, **more: int | None) -> int:
        if path == str(work):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)
        return real(path, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", stale)
    with pytest.raises(results.NotReadNow, match="the job's folder cannot be read now"):
        results.files_of(str(work), ["*"])


def test_what_may_not_be_read_is_told(work: Path, monkeypatch: pytest.MonkeyPatch):
    (work / "a.csv").touch()

    def denied(_file: int) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(results, "_content", denied)
    error = results.collect(str(work.parents[2]), {"one": ["*.csv"]})["one"]["error"]
    assert (error["reason"], error["temporary"]) == ("InvalidResults", False)


def test_a_socket_is_passed_over(work: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(work)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("a.csv")
        assert results.files_of(str(work), ["*"]) == {}


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

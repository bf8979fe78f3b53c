"""A release's archive: its one program is taken out, once; what is no such archive is told."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

RELEASE = Path(__file__).resolve().parents[3] / "roles" / "coredns" / "files" / "release.py"


def run(tmp_path: Path, archive: Path) -> subprocess.CompletedProcess[str]:
    """Run the program as the role does."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    argv = [sys.executable, str(RELEASE), str(archive)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)


def archive(path: Path, *members: tarfile.TarInfo, content: bytes = b"program") -> Path:
    """Write an archive of members, files with ``content``."""
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            member.size = len(content) if member.isfile() else 0
            tar.addfile(member, io.BytesIO(content) if member.isfile() else None)
    return path


def link(name: str, target: str) -> tarfile.TarInfo:
    """Return a member that is a link."""
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    return member


@pytest.mark.parametrize("name", ["coredns", "./coredns"])
def test_the_program_of_a_release_is_taken_and_can_be_run(tmp_path: Path, name: str) -> None:
    given = archive(tmp_path / "coredns_1.12.4_linux_amd64.tgz", tarfile.TarInfo("LICENSE"), tarfile.TarInfo(name))
    done = run(tmp_path, given)
    assert done.returncode == 0, done.stderr
    program = Path(done.stdout.strip())
    assert (program.read_bytes(), program.stat().st_mode & 0o777) == (b"program", 0o755)
    assert list((tmp_path / "cache" / "minik8s").iterdir()) == [program]


def test_it_is_taken_once_and_another_archive_of_that_name_is_another_program(tmp_path: Path) -> None:
    given = archive(tmp_path / "coredns.tgz", tarfile.TarInfo("coredns"))
    first = Path(run(tmp_path, given).stdout.strip())
    before = first.stat()
    assert Path(run(tmp_path, given).stdout.strip()) == first
    assert first.stat().st_ino == before.st_ino
    archive(given, tarfile.TarInfo("coredns"), content=b"newer")
    assert Path(run(tmp_path, given).stdout.strip()).read_bytes() == b"newer"
    assert first.read_bytes() == b"program"


@pytest.mark.parametrize(
    ("members", "held"),
    [
        ([tarfile.TarInfo("etcd"), tarfile.TarInfo("docs/coredns")], "etcd, docs/coredns"),
        ([link("coredns", "/etc/shadow")], "coredns"),
        ([], "nothing"),
    ],
)
def test_an_archive_without_the_program_is_refused(tmp_path: Path, members: list[tarfile.TarInfo], held: str) -> None:
    given = archive(tmp_path / "other.tgz", *members)
    done = run(tmp_path, given)
    text = f"{given} holds no file coredns, as CoreDNS' releases do, but: {held}\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", text)
    assert list((tmp_path / "cache" / "minik8s").iterdir()) == []


def test_what_is_no_archive_or_missing_or_damaged_is_told_in_one_line(tmp_path: Path) -> None:
    text, missing, cut, spoilt = (tmp_path / f"{name}.tgz" for name in ("text", "missing", "cut", "spoilt"))
    text.write_text("<html>404</html>")
    whole = archive(tmp_path / "whole.tgz", tarfile.TarInfo("coredns"), content=bytes(range(256)) * 4096)
    half = whole.stat().st_size // 2
    cut.write_bytes(whole.read_bytes()[:half])
    spoilt.write_bytes(whole.read_bytes()[:half] + b"\xff" * half)
    for given in (text, missing, cut, spoilt):
        done = run(tmp_path, given)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"{given} cannot be unpacked: "), done.stderr
        assert len(done.stderr.splitlines()) == 1
    cache = tmp_path / "cache" / "minik8s"
    assert not cache.exists() or list(cache.iterdir()) == []

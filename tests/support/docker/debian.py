"""Single Debian packages, unpacked beside the system: nothing is installed, no source of this machine's apt changes.

A package comes through a temporary apt source made from the mirror that this machine's own apt uses for Debian, with
Debian's archive key; so another suite's package can be had as well.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def mirror() -> str:
    """Return the Debian mirror of this machine's apt sources, whatever their form.

    Raises:
        RuntimeError: the sources name none.
    """
    files = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files if path.is_file())
    found = re.findall(r"^\s*(?:URIs:|deb(?:\s+\[[^\]]*\])?)\s+(\S+/debian)/?(?:\s|$)", text, re.MULTILINE)
    if not found:
        raise RuntimeError(f"no Debian mirror in {', '.join(map(str, files))}: add one, as apt-get update needs it too")
    return str(found[0])


def unpack(suite: str, packages: Sequence[str], work: Path, *, check_date: bool = True) -> Path:
    """Fetch ``packages`` of ``suite`` and return the folder below ``work`` that they are unpacked to.

    Args:
        suite: bookworm, trixie, sid...
        packages: Names, without what they depend on.
        work: An existing folder for apt's lists and the packages; the caller removes it.
        check_date: False takes lists past their date (sid on a mirror that lags), still checking their signature.

    Raises:
        RuntimeError: apt or dpkg failed; the message holds its words.
    """
    apt = _apt(suite, work, *([] if check_date else ["Acquire::Check-Valid-Until=false"]))
    _run([*apt, "download", *(f"{name}/{suite}" for name in packages)], work)
    for package in sorted(work.glob("*.deb")):
        _run(["dpkg", "-x", str(package), str(work / "tree")], work)
    return work / "tree"


def unpack_whole(suite: str, packages: Sequence[str], work: Path) -> Path:
    """Fetch ``packages`` of ``suite`` with all that they depend on, and return a tree to change the root to.

    No package's own script runs: there are neither users nor settings but those that a package brings as files.

    Raises:
        RuntimeError: apt or dpkg failed; the message holds its words.
    """
    fetched = fetch_whole(suite, ("base-files", *packages), work)
    found = sorted(fetched.glob("*.deb"), key=lambda path: not path.name.startswith("base-files_"))
    for package in found:  # base-files first: it makes /bin, /lib and /sbin links into /usr
        _run(["dpkg", "-x", str(package), str(work / "tree")], work)
    return work / "tree"


def fetch_whole(suite: str, packages: Sequence[str], work: Path) -> Path:
    """Fetch ``packages`` of ``suite`` with all that they depend on, and return the folder with them.

    Raises:
        RuntimeError: apt failed; the message holds its words.
    """
    (work / "status").touch()  # of a system without a single package
    apt = _apt(suite, work, f"Dir::State::status={work}/status", "APT::Install-Recommends=false")
    _run([*apt, "install", "--yes", "--download-only", *packages], work)
    return work / "cache/archives"


def _apt(suite: str, work: Path, *more: str) -> list[str]:
    """Return apt-get with a source of its own, its lists fetched, and ``more`` options."""
    for folder in ("lists/partial", "cache/archives/partial", "parts"):
        (work / folder).mkdir(parents=True)
    (work / "sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror()} {suite} main\n", encoding="utf-8")
    options = [
        f"Dir::Etc::sourcelist={work}/sources.list",
        f"Dir::Etc::sourceparts={work}/parts",
        f"Dir::State::lists={work}/lists",
        f"Dir::Cache={work}/cache",
        "APT::Sandbox::User=root",
        "Acquire::Languages=none",
        *more,
    ]
    apt = ["apt-get", "-q", *(word for option in options for word in ("-o", option))]
    _run([*apt, "update"], work)
    return apt


def _run(argv: list[str], work: Path) -> None:
    done = subprocess.run(argv, cwd=work, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv[:1] + argv[-2:])} failed: {done.stderr.strip() or done.stdout.strip()}")

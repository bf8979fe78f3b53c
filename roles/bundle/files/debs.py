"""Makes a repository of Debian's packages, and all that they depend on, as one archive: ``FOLDER/SUITE.tar``.

    debs.py --suite bookworm FOLDER PACKAGE,PACKAGE...

The mirrors are those that this machine's apt uses, and apt checks their signatures as for any package. It is told that
nothing is installed, so that a bare machine finds everything. ``FOLDER/SUITE`` has the repository's index: whoever has
the same needs no archive.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
POCKETS = {"Debian": ("", "-updates"), "Debian-Security": ("-security",)}


def run(*argv: str, cwd: Path | None = None) -> str:
    """Run a program; return what it prints, or end with its words."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=cwd)
    if done.returncode:
        sys.exit(f"{' '.join(argv[:2])} failed: {(done.stderr or done.stdout).strip()[-3000:]}")
    return done.stdout


def sources(suite: str) -> Iterable[str]:
    """Yield the lines of a list of sources for a release, at the mirrors that this machine uses."""
    found: dict[str, str] = {}
    for line in run("apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)", "Created-By: Packages").splitlines():
        label, _space, uri = line.partition(" ")
        found.setdefault(label, uri)
    if "Debian" not in found:
        sys.exit("apt knows no mirror of Debian here: run apt-get update")
    for label, pockets in POCKETS.items():
        for pocket in pockets if label in found else ():
            yield f"deb [signed-by={KEYRING} target=Packages] {found[label]} {suite}{pocket} main\n"


def fetch(suite: str, packages: list[str], work: Path) -> list[Path]:
    """Download packages with all that they depend on; return their files."""
    for name in ("lists/partial", "cache/archives/partial"):
        (work / name).mkdir(parents=True)
    (work / "sources.list").write_text("".join(sources(suite)), encoding="ascii")
    (work / "status").touch()
    options = {
        "Dir::Etc::SourceList": work / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::Etc::Preferences": "/dev/null",
        "Dir::Etc::PreferencesParts": "/dev/null",
        "Dir::State": work,
        "Dir::State::Lists": work / "lists",
        "Dir::State::Status": work / "status",
        "Dir::Cache": work / "cache",
        "Acquire::Languages": "none",
        "APT::Sandbox::User": "root" if os.geteuid() == 0 else "",
        "Debug::NoLocking": "1",
        "Dpkg::Use-Pty": "0",
    }
    apt = ["apt-get", "--quiet=2", *(f"--option={name}={value}" for name, value in options.items())]
    run(*apt, "update")
    run(*apt, "install", "--yes", "--download-only", "--no-install-recommends", *packages)
    return sorted((work / "cache" / "archives").glob("*.deb"))


def index(debs: list[Path]) -> str:
    """Return the index of a repository with these files."""
    entries = []
    for deb in debs:
        digest = hashlib.sha256(deb.read_bytes()).hexdigest()
        fields = run("dpkg-deb", "--field", str(deb)).rstrip("\n")
        entries.append(f"{fields}\nFilename: ./{deb.name}\nSize: {deb.stat().st_size}\nSHA256: {digest}\n")
    return "\n".join(entries)


def main() -> None:
    """Make the repository."""
    parser = argparse.ArgumentParser(description="Make a repository of packages with all that they depend on.")
    parser.add_argument("--suite", required=True)
    parser.add_argument("folder")
    parser.add_argument("packages")
    given = parser.parse_args()
    folder = Path(given.folder)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        debs = fetch(given.suite, given.packages.split(","), Path(work))
        told = index(debs)
        shutil.rmtree(folder / given.suite, ignore_errors=True)
        (folder / given.suite).mkdir()
        (folder / given.suite / "Packages").write_text(told, encoding="utf-8")
        partial = Path(work, "debs.tar")
        with tarfile.open(partial, "w") as archive:
            for path in (*debs, folder / given.suite / "Packages"):
                archive.add(path, path.name)
        partial.replace(folder / f"{given.suite}.tar")
    sys.stdout.write(f"{len(debs)} packages\n")


if __name__ == "__main__":
    main()

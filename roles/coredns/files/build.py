#!/usr/bin/env python3
"""Builds CoreDNS with the plugins of ``source/main.go`` into the user's cache, once, and prints where it is.

    build.py [--go PROGRAM]

A small module of our own requires CoreDNS at one version, with the sums of all it is made of in ``go.sum``; that also
goes where ``go install`` refuses CoreDNS for its replace directives. Go is this machine's when it is new enough, else
that of a newer Debian, unpacked into the cache and not installed.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parent / "source"
OLDEST = (1, 24)
USUAL = "/usr/local/go/bin/go"
"""Where Go's own archives are unpacked to, often without being on the PATH."""
GO, SUITE = "go-1.24", "trixie"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
FETCH_S = 300


def cache() -> Path:
    """Return the folder of the user's cache that is ours."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "minik8s"


def digest() -> str:
    """Return what tells two builds apart: the sources and what builds them."""
    found = hashlib.sha256(Path(__file__).read_bytes())
    for path in sorted(SOURCE.iterdir()):
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]


def version_of(go: str) -> tuple[int, int]:
    """Return the version of a Go program, (0, 0) when it does not run."""
    try:
        told = subprocess.run([go, "version"], capture_output=True, text=True, check=False, cwd="/").stdout
    except OSError:
        return (0, 0)
    found = re.search(r"go(\d+)\.(\d+)", told)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def find_go(given: str) -> str:
    """Return a Go that is new enough: the given one, this machine's, or that of a newer Debian."""
    for one in (given, shutil.which("go"), USUAL):
        if one and version_of(one) >= OLDEST:
            return one
    return str(toolchain())


def toolchain() -> Path:
    """Return the Go of the cache; takes it out of Debian's packages the first time (70 MB)."""
    root = cache() / f"go-{SUITE}"
    if not root.exists():
        with tempfile.TemporaryDirectory(dir=cache(), prefix="go-") as folder:
            tree = unpack(Path(folder))
            joined = Path(folder, "joined")
            for half in ("usr/share", "usr/lib"):  # they refer to each other by absolute links
                shutil.copytree(tree / half / GO, joined, ignore_dangling_symlinks=True, dirs_exist_ok=True)
            joined.rename(root)
    return root / "bin" / "go"


def unpack(work: Path) -> Path:
    """Fetch the packages from the mirror that this machine's apt uses, signatures checked; install nothing."""
    mirrors = run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Label: Debian", "Created-By: Packages"], work)
    if not mirrors.strip():
        sys.exit(f"no Go of at least {OLDEST[0]}.{OLDEST[1]} is here, and apt knows no Debian mirror to fetch one from")
    for name in ("lists/partial", "cache/archives/partial"):
        Path(work, name).mkdir(parents=True)
    source = f"deb [signed-by={KEYRING} target=Packages] {mirrors.split()[0]} {SUITE} main\n"
    Path(work, "sources.list").write_text(source, encoding="utf-8")
    options = [
        f"Dir::Etc::SourceList={work}/sources.list",
        "Dir::Etc::SourceParts=/dev/null",
        f"Dir::State::Lists={work}/lists",
        "Dir::State::Status=/dev/null",
        f"Dir::Cache={work}/cache",
        "Acquire::Languages=none",
        "APT::Sandbox::User=root",
    ]
    apt = ["apt-get", "--quiet=2", *(f"--option={option}" for option in options)]
    run([*apt, "update"], work)
    run([*apt, "download", *(f"{GO.replace('go-', 'golang-')}-{half}/{SUITE}" for half in ("go", "src"))], work)
    for package in work.glob("*.deb"):
        run(["dpkg-deb", "--extract", str(package), str(work / "tree")], work)
    return work / "tree"


def run(argv: list[str], work: Path) -> str:
    """Run a program in ``work`` and return what it printed; end with its words where it fails."""
    done = subprocess.run(argv, cwd=work, capture_output=True, text=True, check=False, timeout=FETCH_S)
    if done.returncode:
        sys.exit(f"no Go could be fetched: {argv[0]} failed: {done.stderr.strip()}")
    return done.stdout


def build(go: str, target: Path) -> None:
    """Build the program; what Go downloads is kept for the next version."""
    environment = {
        **os.environ,
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-modcacherw -buildvcs=false -mod=readonly",
        "CGO_ENABLED": "0",
    }
    partial = target.with_suffix(".part")
    with tempfile.TemporaryDirectory(prefix="coredns-") as folder:
        work = Path(folder, "source")
        shutil.copytree(SOURCE, work)
        argv = [go, "build", "-trimpath", "-ldflags=-s -w", "-o", str(partial), "."]
        done = subprocess.run(argv, cwd=work, env=environment, capture_output=True, text=True, check=False)
    sys.stderr.write(done.stderr)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        sys.exit(f"{go} build failed: {said[-1].strip()}")
    partial.replace(target)


def main() -> None:
    """Build where needed; print the path."""
    parser = argparse.ArgumentParser(description="Build CoreDNS into the user's cache; print where it is.")
    parser.add_argument("--go", default="", help="the Go to build with, where it is new enough")
    given = parser.parse_args().go
    try:
        cache().mkdir(parents=True, exist_ok=True)
    except OSError as error:
        sys.exit(f"there is no cache to build into: {error}")
    target = cache() / f"coredns-{digest()}"
    with (cache() / "coredns.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            build(find_go(given), target)
    sys.stdout.write(f"{target}\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Builds CoreDNS with the plugins of ``source/main.go`` into the user's cache, once, and prints where it is.

    build.py [--go PROGRAM]

A small module of our own requires CoreDNS at one version, with the sums of all it is made of in ``go.sum``; that also
goes where ``go install`` refuses CoreDNS for its replace directives. Go is this machine's when it is new enough, else a
toolchain from the module proxy (a zip of known sum), unpacked into the cache and not installed.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parent / "source"
OLDEST = (1, 24)
TOOLCHAIN = "go1.25.5"
SUMS = {
    "amd64": "8cea6783dab64d68b38f5b81ecd38d45155a3c06638991acc6af19e0fca80edb",
    "arm64": "4d31d22f75fed99025f7b082319eabeb74106d11e343fc203b336ba2afdeb3a1",
}
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
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
    """Return a Go that is new enough: the given one, this machine's, or one from the module proxy."""
    for one in (given, shutil.which("go"), "/usr/local/go/bin/go"):
        if one and version_of(one) >= OLDEST:
            return one
    return str(toolchain())


def toolchain() -> Path:
    """Return the Go of the cache; fetches it the first time (64 MB)."""
    root = cache() / TOOLCHAIN
    if not root.exists():
        machine = MACHINES.get(platform.machine(), "")
        if machine not in SUMS:
            sys.exit(f"no Go is known for a {platform.machine()}; install one of at least {OLDEST[0]}.{OLDEST[1]}")
        with tempfile.TemporaryDirectory(dir=cache(), prefix="go-") as folder:
            archive = Path(folder, "go.zip")
            fetch(machine, archive)
            unpack(archive, Path(folder, "go"))
            Path(folder, "go").rename(root)
    return root / "bin" / "go"


def fetch(machine: str, target: Path) -> None:
    """Fetch the toolchain's module and compare its sum."""
    proxy = next((one for one in re.split("[,|]", os.environ.get("GOPROXY", "")) if one.startswith("http")), "")
    name = f"v0.0.1-{TOOLCHAIN}.linux-{machine}.zip"
    url = f"{(proxy or '').rstrip('/')}/golang.org/toolchain/@v/{name}"
    with urllib.request.urlopen(url, timeout=FETCH_S) as answer, target.open("wb") as out:  # noqa: S310 - http(s) only
        shutil.copyfileobj(answer, out)
    found = hashlib.sha256(target.read_bytes()).hexdigest()
    if found != SUMS[machine]:
        sys.exit(f"{name} has the sum {found} instead of {SUMS[machine]}; nothing of it was run")


def unpack(archive: Path, root: Path) -> None:
    """Unpack a toolchain's module; its programs become executable (zips of modules know no modes)."""
    with zipfile.ZipFile(archive) as opened:
        for name in opened.namelist():
            inner = name.split("/", 2)[2]  # golang.org/toolchain@VERSION/…
            path = root / inner
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(opened.read(name))
            if inner.startswith(("bin/", "pkg/tool/")):
                path.chmod(0o755)


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
        done = subprocess.run(argv, cwd=work, env=environment, stdout=sys.stderr, check=False)
    if done.returncode:
        sys.exit(f"CoreDNS could not be built (go build: exit code {done.returncode}); its words stand above")
    partial.replace(target)


def main() -> None:
    """Build where needed; print the path."""
    parser = argparse.ArgumentParser(description="Build CoreDNS into the user's cache; print where it is.")
    parser.add_argument("--go", default="", help="the Go to build with, where it is new enough")
    given = parser.parse_args().go
    cache().mkdir(parents=True, exist_ok=True)
    target = cache() / f"coredns-{digest()}"
    with (cache() / "coredns.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            build(find_go(given), target)
    sys.stdout.write(f"{target}\n")


if __name__ == "__main__":
    main()

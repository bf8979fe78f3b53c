"""Programs in Go, built once from the Go module proxy into ``.cache``, at versions named here.

Each is built in a module of its own that requires nothing else, so with the versions its authors chose; checksums are
those of Go's checksum database. ``go`` is this machine's from 1.24 on, else Debian trixie's, unpacked and not
installed. Helm and stern are versions of one Kubernetes library (0.34.0): what the first compiles serves the second.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.support.clients import CACHE, locked, partial, run
from tests.support.debian import unpack

OLDEST = (1, 24)


class Tool(NamedTuple):
    """A program: its package, the module that holds it, the version."""

    package: str
    module: str
    version: str


TOOLS = {
    "helm": Tool("helm.sh/helm/v3/cmd/helm", "helm.sh/helm/v3", "v3.19.0"),
    "stern": Tool("github.com/stern/stern", "github.com/stern/stern", "v1.33.1"),
    "k9s": Tool("github.com/derailed/k9s", "github.com/derailed/k9s", "v0.50.18"),
}


def tool_path(name: str) -> Path:
    """Return where the program is, or will be once built."""
    return CACHE / f"{name}-{TOOLS[name].version}"


def tool(name: str) -> Path:
    """Return a program of ``TOOLS``; builds it the first time (helm and stern a minute each, k9s five).

    Raises:
        RuntimeError: no Go could be had, or it failed; the message holds its words.
    """
    target = tool_path(name)
    with locked(target) as missing:
        if missing:
            with tempfile.TemporaryDirectory(prefix=f"{name}-") as folder:
                _build(TOOLS[name], Path(folder), partial(target))
            partial(target).replace(target)
    return target


def _build(wanted: Tool, work: Path, output: Path) -> None:
    go = str(_go())
    environment = {
        "GOFLAGS": "-buildvcs=false",
        "GOTOOLCHAIN": "auto",
        "CGO_ENABLED": "0",
        "GOCACHE": str(CACHE / "go-build"),
        "GOMODCACHE": str(CACHE / "go-mod"),
    }
    steps = [
        [go, "mod", "init", "tool"],
        [go, "mod", "edit", f"-require={wanted.module}@{wanted.version}"],
        [go, "build", "-mod=mod", "-modcacherw", "-trimpath", "-ldflags=-s -w", "-o", str(output), wanted.package],
    ]
    for step in steps:
        run(step, cwd=work, env=environment, timeout_s=1800)


def _go() -> Path:
    found = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if found and _version(Path(found)) >= OLDEST:
        return Path(found)
    root = CACHE / "go-1.24"
    with locked(root) as missing:
        if missing:
            with tempfile.TemporaryDirectory(prefix="golang-") as folder:
                work = Path(folder)
                work.chmod(0o755)
                tree = unpack("trixie", ["golang-1.24-go", "golang-1.24-src"], work)
                _assemble(tree, partial(root))
            partial(root).replace(root)
    return root / "bin" / "go"


def _assemble(tree: Path, target: Path) -> None:
    """Join Debian's two halves, which refer to each other by absolute links, to one GOROOT."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(tree / "usr/share/go-1.24", target, symlinks=False, ignore_dangling_symlinks=True)
    shutil.copytree(tree / "usr/lib/go-1.24", target, symlinks=False, ignore_dangling_symlinks=True, dirs_exist_ok=True)


def _version(go: Path) -> tuple[int, int]:
    found = re.search(r"go(\d+)\.(\d+)", run([str(go), "version"]))
    return (int(found[1]), int(found[2])) if found else (0, 0)


if __name__ == "__main__":
    print(tool(sys.argv[1]))

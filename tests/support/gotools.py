"""Programs in Go, built once from the Go module proxy into ``.cache``, at versions named here.

Each is built in a module of its own that requires nothing else, so with the versions its authors chose; checksums are
those of Go's checksum database. ``go`` is the one that builds CoreDNS (``roles/coredns/files/build.py``). Helm and
stern are versions of one Kubernetes library (0.34.0): what the first compiles serves the second.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.support.clients import CACHE, locked, partial, run

BUILDER = Path(__file__).resolve().parents[2] / "roles" / "coredns" / "files"
FIND = "import build; build.cache().mkdir(parents=True, exist_ok=True); print(build.find_go(''))"


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
    """Return a Go that is new enough, found or fetched as for CoreDNS."""
    with locked(CACHE / "go-found"):
        return Path(run([sys.executable, "-c", FIND], cwd=BUILDER).strip())


if __name__ == "__main__":
    print(tool(sys.argv[1]))

"""Operators of others, unmodified: processes on a control plane of their own, or pods of the installed cluster."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.clusters.installed import KUBECONFIG
from tests.support.gotools import tool, tool_path

BUILDS = bool(os.environ.get("MINIK8S_BUILD_OPERATORS"))
CHECKED = frozenset({"gateway-cel-standard", "gateway-cel-experimental", "runtime-crd", "runtime-builtins"})
"""What `make test` builds, once: 190 s of processor time for the first, 25 s for the others of the same libraries."""


def built(name: str) -> Path:
    """Return a program; skips the test where it is not built and nobody asked for that."""
    if not BUILDS and name not in CHECKED and not tool_path(name).exists():
        pytest.skip("operators of others take minutes to build: make operators builds them")
    return tool(name)


@contextmanager
def running(
    program: Path, folder: Path, kubeconfig: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> Iterator[Path]:
    """Run an operator outside the cluster; gives its log, where it must not panic."""
    log = folder / f"{program.name}.log"
    known = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        **(environment or {}),
    }
    with log.open("w") as output:
        process = subprocess.Popen(
            [str(program), *arguments], stdout=output, stderr=subprocess.STDOUT, env=known, cwd=folder
        )
    try:
        yield log
        assert process.poll() is None, log.read_text()[-5000:]
    finally:
        process.terminate()
        try:
            process.wait(40)
        finally:
            process.kill()
            process.wait()
    assert "panic:" not in log.read_text()


def helm(folder: Path, *arguments: str) -> str:
    """Run Helm on the installed cluster and return what it prints."""
    environment = {**os.environ, "KUBECONFIG": str(KUBECONFIG), "HOME": str(folder)}
    argv = [str(built("helm")), *arguments]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout

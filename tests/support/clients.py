"""Clients of others, unmodified, each fetched once into ``.cache`` and kept there; nothing is installed.

Debian's kubectl of sid beside the 1.32 of ``tests/support/kubectl.py``, single programs of trixie, and a virtual
environment with the Python clients of ``tests/e2e/clients/requirements.txt``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.docker.debian import unpack

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "clients"
REQUIREMENTS = ROOT / "tests" / "e2e" / "clients" / "requirements.txt"


def kubectl_sid() -> Path:
    """Return the kubectl of Debian sid (1.36 in November 2026)."""
    return debian_program("sid", "kubectl", "usr/bin/kubectl")


def prometheus() -> Path:
    """Return the Prometheus of Debian trixie (2.53); bookworm's is built without Kubernetes."""
    return debian_program("trixie", "prometheus", "usr/bin/prometheus")


def promtool() -> Path:
    """Return the promtool beside that Prometheus: it checks configurations, rules and metrics."""
    return debian_program("trixie", "promtool", "usr/bin/promtool")


def node_exporter() -> Path:
    """Return the node exporter of Debian trixie (1.9)."""
    return debian_program("trixie", "prometheus-node-exporter", "usr/bin/prometheus-node-exporter")


def debian_program(suite: str, package: str, member: str) -> Path:
    """Return a program of a Debian package; fetches it the first time.

    Raises:
        RuntimeError: apt could not fetch or unpack the package; the message holds apt's words.
    """
    target = CACHE / f"{suite}-{Path(member).name}"
    with locked(target) as missing:
        if missing:
            with tempfile.TemporaryDirectory(prefix=f"{package}-") as folder:
                work = Path(folder)
                work.chmod(0o755)
                shutil.copy2(unpack(suite, [package], work, check_date=suite != "sid") / member, partial(target))
            partial(target).replace(target)
    return target


def python_clients() -> Path:
    """Return the bin folder of the virtual environment with the Python clients; makes it the first time.

    Raises:
        RuntimeError: pip failed; the message holds its words.
    """
    digest = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]
    target = CACHE / f"python-{digest}"
    with locked(target) as missing:
        if missing:
            for older in CACHE.glob("python-*"):
                if older.is_dir():
                    shutil.rmtree(older)
            run([sys.executable, "-m", "venv", str(target)])
            # of 15,000 files few are imported, and compiled then
            install = [str(target / "bin" / "pip"), "install", "--quiet", "--no-compile"]
            try:
                run([*install, "--requirement", str(REQUIREMENTS)])
            except BaseException:
                shutil.rmtree(target)
                raise
    return target / "bin"


@contextmanager
def locked(target: Path) -> Iterator[bool]:
    """Hold the lock of ``target`` and tell whether it is missing: two runs at once fetch a thing once."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield not target.exists()


def partial(target: Path) -> Path:
    """Return where ``target`` is written before it is whole."""
    return target.with_name(f"{target.name}.part")


def run(argv: list[str], *, cwd: Path | None = None, env: dict[str, str] | None = None, timeout_s: float = 600) -> str:
    """Run a command and return what it prints.

    Raises:
        RuntimeError: it failed; the message holds the end of its words.
    """
    full = {**os.environ, **(env or {})}
    done = subprocess.run(argv, cwd=cwd, env=full, capture_output=True, text=True, check=False, timeout=timeout_s)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)} failed:\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout

"""What was measured, and on what: the commit of this tree, the machine, and how fast that is at the moment.

The machine's factor is the CPU time of a fixed amount of work, so that figures of two machines, or of one that is
shared with others, can be compared: Python's, which most of what is measured here is made of, and openssl's, which is
neither ours nor Python's.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
TURNS, OBJECTS, ROUNDS = 5, 300, 400
OPENSSL = ["openssl", "speed", "-seconds", "1", "-bytes", "8192", "-evp", "sha256"]
WRITTEN = "BENCHMARKS.md"


class Run(NamedTuple):
    """One run: rows of another one say so where they stand beside its own.

    ``commit`` is "" where nobody can say what was measured: without git, or with changes that are in no commit.
    """

    commit: str
    python_s: float
    openssl_mb_s: float
    facts: str

    def opening(self) -> str:
        """Return the run as BENCHMARKS.md opens with it."""
        commit = self.commit or "none (changes that are in no commit)"
        factor = (
            f"machine factor: Python workload {self.python_s:.3f} s CPU, openssl sha256 {self.openssl_mb_s:.0f} MB/s"
        )
        return f"commit {commit} · {factor}\n\n{self.facts}"


def run_now() -> Run:
    """Return the run that begins now; takes some seconds."""
    return Run(commit(REPOSITORY), python_s(), openssl_mb_s(), facts())


def daemon_environment() -> dict[str, str]:
    """Return what the roles have in each daemon's environment."""
    found = yaml.safe_load((REPOSITORY / "roles/minik8s/vars/main.yml").read_text(encoding="utf-8"))
    return dict(found["minik8s_daemon_environment"])


def python_s() -> float:
    """Return the CPU seconds that a fixed workload takes, median of five: JSON, dicts, text and digests, one thread."""
    return statistics.median(_once() for _ in range(TURNS))


def _once() -> float:
    began = time.process_time()
    for turn in range(ROUNDS):
        made = [{"name": f"object-{each}", "labels": {"app": str(each % 7)}, "turn": turn} for each in range(OBJECTS)]
        text = json.dumps(made)
        found = [one for one in json.loads(text) if re.fullmatch(r"object-\d*7", one["name"])]
        hashlib.sha256((text + repr(sorted(found, key=lambda one: str(one["name"])))).encode()).hexdigest()
    return time.process_time() - began


def openssl_mb_s() -> float:
    """Return how many MB of SHA-256 openssl makes in a second of CPU; 0 where it is not installed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run(OPENSSL, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 0.0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    counted = re.search(r"(\d+) sha256's in", done.stderr)
    return int(counted[1]) * 8192 / 1e6 / spent_s if counted and spent_s else 0.0


def commit(tree: Path) -> str:
    """Return the commit that the tree is of; "" with changes beside BENCHMARKS.md, and where git knows nothing."""
    try:
        changed = _git(tree, "status", "--porcelain", "--", ".", f":!{WRITTEN}")
        return "" if changed else _git(tree, "rev-parse", "--short=12", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(tree: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(tree), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def facts() -> str:
    """Return what was measured on."""
    docker = subprocess.run(
        ["docker", "version", "--format", "{{.Server.Version}}"], capture_output=True, text=True, check=False
    )
    fields = {
        "cores": f"{os.cpu_count()}",
        "kernel": platform.release(),
        "Docker": docker.stdout.strip(),
        "Python": platform.python_version(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "load at the start": f"{os.getloadavg()[0]:.1f}",
    }
    return " · ".join(f"{name} {value}" for name, value in fields.items())


if __name__ == "__main__":
    sys.stdout.write(run_now().opening() + "\n")

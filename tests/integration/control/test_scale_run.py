"""The scale run of ``make scale`` with few nodes and Pods, all of its steps, so that it works when it is wanted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
STEPS = (
    "nodes s", "creation s", "rolling update s", "failure s", "apiserver restart s", "etcd restart s",
    "virtual restart s", "namespace deletion s",
)  # fmt: skip


def test_all_steps_of_a_small_scale_run_come_to_their_end(tmp_path: Path) -> None:
    few = ("--nodes", "10", "--pods", "40", "--rollout", "20", "--patience", "300")
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.scale", *few],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert [step for step in STEPS if step not in figures] == []
    assert figures["pods/s to Running"] > 0

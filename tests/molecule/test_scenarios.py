"""Each folder here is a scenario of molecule, run from creation to removal on lab machines of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
SCENARIOS = sorted(path.parent.name for path in HERE.glob("*/molecule.yml"))
TAIL = 12_000


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario: str) -> None:
    program = Path(sys.executable).with_name("molecule")
    argv: list[str | Path] = [
        program,
        "--base-config",
        HERE / "shared" / "base.yml",
        "test",
        "--scenario-name",
        scenario,
    ]
    environment = {
        **os.environ,
        "MOLECULE_GLOB": "tests/molecule/*/molecule.yml",
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "ANSIBLE_NOCOLOR": "1",
        "NO_COLOR": "1",
    }
    done = subprocess.run(
        argv,
        cwd=REPOSITORY,
        env=environment,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode:
        first = done.stdout.partition("fatal: ")[2][: TAIL // 4]
        pytest.fail(f"molecule ended with {done.returncode}; fatal: {first}\n...\n{done.stdout[-TAIL:]}", pytrace=False)

"""Tests that build on each other, tried again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
STORY = """
import pytest
servers, tries = [], []

@pytest.fixture(scope="module")
def server():
    servers.append([])
    yield servers[-1]
    servers[-1].append("ended")

def test_makes(server):
    server.append("made")

def test_uses(server):
    assert server == ["made"]
    server.append("used")
    tries.append(server)
    assert len(tries) {enough}, "the first try's reason"

def test_builds_on_both(server):
    assert server[:2] == ["made", "used"]
    assert "ended" not in server
    assert all(one[-1] == "ended" for one in servers[:-1])
"""


@pytest.mark.parametrize(
    ("enough", "counts", "processes"),
    [
        ("> 0", "3 passed in", 0),
        ("> 1", "3 passed, 1 rerun in", 0),
        ("> 1", "3 passed, 1 rerun in", 2),
        ("> 9", "1 failed, 2 passed, 1 rerun in", 0),
    ],
)
def test_a_second_try_finds_what_earlier_tests_made(tmp_path: Path, enough: str, counts: str, processes: int) -> None:
    (tmp_path / "test_story.py").write_text(STORY.format(enough=enough))
    (tmp_path / "conftest.py").write_text("")
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.second_try", "--reruns", "1", "--rootdir", "."]
    command += ["-p", "no:cacheprovider", "--numprocesses", str(processes), "--dist", "loadscope", "test_story.py"]
    environment = {"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert counts in done.stdout, done.stdout + done.stderr
    assert ("first try of test_story.py::test_uses" in done.stdout) == ("rerun" in counts)
    assert done.stdout.count("the first try's reason") >= ("rerun" in counts)

"""What tests leave open is told at their own module's end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
OPEN = """
import socket
import pytest

class Kept:
    def __init__(self):
        self.itself, self.ends = self, socket.socketpair()

@pytest.fixture
def kept():
    return Kept()

def test_opens({given}):
    {makes}

def test_another(): pass
"""
OTHER = """
import gc

def test_of_another_module():
    gc.collect()
"""


@pytest.mark.parametrize(("given", "makes"), [("", "Kept()"), ("kept", "pass")])
@pytest.mark.parametrize("last", [False, True], ids=["first test", "last test"])
def test_what_nobody_closed_is_told_where_it_was_opened(tmp_path: Path, given: str, makes: str, *, last: bool) -> None:
    text = OPEN.format(given=given, makes=makes)
    (tmp_path / "test_a.py").write_text(text.replace("def test_another(): pass\n", "") if last else text)
    (tmp_path / "test_b.py").write_text(OTHER)
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.left_overs", "--rootdir", ".", "-W", "error", "-rE"]
    environment = {"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert f"ERROR test_a.py::test_{'opens' if last else 'another'}" in done.stdout, done.stdout + done.stderr
    assert "unclosed <socket.socket" in done.stdout
    assert f"{2 if last else 3} passed, 1 error in" in done.stdout

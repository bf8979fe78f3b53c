"""Calls of one warm interpreter, with an archive in place of Ansible's: who answers each, and that none is lost."""

from __future__ import annotations

import base64
import contextlib
import io
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from minik8s_modules.plugins.warm import client
from minik8s_modules.plugins.warm.payload import Payload
from tests.support.processes import peer_pid

LOADER = """
import json, os, sys
def run_module(*, json_params, profile, module_fqn, modlib_path, extensions):
    print(json.dumps({"pid": os.getpid(), "asked": json.loads(json_params)}))
    sys.exit(json.loads(json_params).get("code", 0))
"""
PACKAGES = (
    "ansible",
    "ansible/module_utils",
    "ansible/module_utils/_internal",
    "ansible/module_utils/_internal/_ansiballz",
)


def archive() -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as file:
        for package in PACKAGES:
            file.writestr(f"{package}/__init__.py", "")
        file.writestr(f"{PACKAGES[-1]}/_loader.py", LOADER)
    return base64.b64encode(written.getvalue())


class Interpreter:
    """A running one, whose children take ``calls`` calls each."""

    def __init__(self, folder: str, calls: int) -> None:
        script = client.server_script(f"{folder}/w", 20.0).decode()
        assert "\\nMOST_CALLS = 200" in script
        script = script.replace("\\nMOST_CALLS = 200", f"\\nMOST_CALLS = {calls}")
        subprocess.run([sys.executable, "-I", "-"], input=script, text=True, check=True, capture_output=True)
        self._path, self._archive = client.server_path(f"{folder}/w"), archive()
        self.pid = peer_pid(Path(self._path))

    def call(self, module: str = "ansible.legacy.minik8s_thing", **asked: int) -> int:
        """Return the process that answered what was asked."""
        answer = client.call(self._path, Payload(self._archive, module, "legacy", json.dumps(asked)))
        told = json.loads(answer.out)
        assert (told["asked"], answer.err) == (asked, b"")
        return int(told["pid"])


@pytest.fixture
def folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="mk8s-") as found:  # sockets need short paths
        yield found


@pytest.fixture
def interpreter(folder: str) -> Iterator[Interpreter]:
    made = Interpreter(folder, calls=3)
    yield made
    with contextlib.suppress(ProcessLookupError):
        os.kill(made.pid, signal.SIGKILL)


def test_a_process_ends_with_its_last_call_and_none_is_lost(interpreter: Interpreter) -> None:
    found = [interpreter.call(number=number) for number in range(20)]
    counts = [len(list(group)) for _, group in itertools.groupby(sorted(found))]
    assert max(counts) <= 3
    assert len(counts) < len(found)


def test_what_is_not_ours_and_what_fails_is_followed_by_nobody(interpreter: Interpreter) -> None:
    foreign = [interpreter.call("ansible.legacy.command", number=number) for number in range(5)]
    failed = [interpreter.call(code=1) for _ in range(5)]
    assert len({*foreign, *failed}) == 10

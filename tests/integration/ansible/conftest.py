"""A real API server, gateway and dockerd (those of the streams' tests), with ansible's programs beside them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.streams.conftest import Streaming

ROOT = Path(__file__).resolve().parents[3]
# what the Makefile's minik8s.pth does for a module's Python
ENVIRONMENT = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", "PYTHONPATH": str(ROOT)}


def ansible(program: str, *arguments: str, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run one of Ansible's programs; with ``check`` a failure fails the test with its words."""
    argv = [str(Path(sys.executable).parent / program), *arguments]
    env = {**os.environ, **ENVIRONMENT, **environment}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


class Book:
    """Runs plays and reads back each task's result."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self._environment = environment
        self.printed = ""

    def play(self, plays: list[dict[str, Any]], *options: str, check: bool = True) -> list[dict[str, Any]]:
        """Run ``plays``; return the results in order, one a task and host."""
        path = self.folder / "play.json"
        path.write_text(json.dumps(plays))
        formats = {"ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default", "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"}
        environment = {**self._environment, **formats}
        done = ansible("ansible-playbook", "-v", *options, str(path), check=check, **environment)
        self.printed = done.stdout + done.stderr
        found = []
        for part in done.stdout.split("=> ")[1:]:
            try:
                found.append(json.JSONDecoder().raw_decode(part)[0])
            except ValueError:
                continue
        return found


@pytest.fixture(scope="package")
def cluster() -> Iterator[Streaming]:
    folder = Path(tempfile.mkdtemp(prefix="mk8s-"))
    made = Streaming(folder)
    try:
        made.start_gateway()
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def book(cluster: Streaming, tmp_path: Path) -> Book:
    return Book(tmp_path, KUBECONFIG=str(cluster.server.kubeconfig))

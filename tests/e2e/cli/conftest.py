"""The command against an API server of its own, as a process: kubectl takes its place."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.apiserver import ApiServerProcess, own_server
from tests.support.kubectl import kubectl_path


class Done(NamedTuple):
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[list[str]]:
        """The words of each line that was printed."""
        return [line.split() for line in self.out.splitlines()]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    """A running API server."""
    with own_server(tmp_path_factory.mktemp("server")) as api:
        yield api


class Cli:
    """Runs commands in a namespace of its own (the context's) and keeps files for them."""

    def __init__(self, server: ApiServerProcess, folder: Path, namespace: str) -> None:
        self.server, self.namespace, self.folder = server, namespace, folder
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(server.kubeconfig.read_text())
        self.kubeconfig.chmod(0o600)
        path = f"{kubectl_path().parent}:{os.environ['PATH']}"
        self.environment = {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "HOME": str(server.directory),
            "PATH": path,
        }

    def argv(self, *words: str) -> list[str]:
        """Return the command line of a command."""
        return [sys.executable, "-m", "minik8s_modules.cli.main", *words]

    def __call__(self, *words: str, stdin: str = "", code: int | None = 0) -> Done:
        """Run a command and expect it to end with ``code`` (None: any)."""
        ended = subprocess.run(
            self.argv(*words),
            input=stdin,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        done = Done(ended.returncode, ended.stdout, ended.stderr)
        assert code is None or done.code == code, done
        return done

    def file(self, name: str, text: str) -> str:
        """Write a file and return its path."""
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def pod(self, name: str, labels: str = "app: web") -> str:
        """Return a pod's manifest."""
        return f"""apiVersion: v1
kind: Pod
metadata:
  name: {name}
  labels: {{{labels}}}
spec:
  containers:
  - name: c
    image: minik8s/busybox:1
"""


@pytest.fixture
def cli(server: ApiServerProcess, tmp_path: Path) -> Cli:
    """The command in a fresh namespace."""
    made = Cli(server, tmp_path, f"t-{uuid.uuid4().hex[:8]}")
    made("create", "namespace", made.namespace)
    made("config", "set-context", "--current", "--namespace", made.namespace)
    return made

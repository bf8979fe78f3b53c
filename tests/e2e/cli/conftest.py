"""The command against an API server of its own: in this process, or as one of its own where a terminal matters."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from minik8s_modules.cli.main import main
from tests.support.apiserver import ApiServerProcess, own_server


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

    def __init__(self, server: ApiServerProcess, folder: Path, namespace: str, capsys, monkeypatch) -> None:
        self.server, self.namespace, self.folder = server, namespace, folder
        self._capsys, self._monkeypatch = capsys, monkeypatch
        text = server.kubeconfig.read_text()
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(text)
        self.kubeconfig.chmod(0o600)
        monkeypatch.setenv("KUBECONFIG", str(self.kubeconfig))

    def __call__(self, *words: str, stdin: str = "", code: int | None = 0) -> Done:
        """Run a command and expect it to end with ``code`` (None: any)."""
        self._monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        self._capsys.readouterr()
        try:
            ended = main(words)
        except SystemExit as end:
            ended = int(end.code or 0)
        done = Done(ended, *self._capsys.readouterr())
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
def cli(server: ApiServerProcess, tmp_path: Path, capsys, monkeypatch) -> Cli:
    """The command in a fresh namespace."""
    made = Cli(server, tmp_path, f"t-{uuid.uuid4().hex[:8]}", capsys, monkeypatch)
    made("create", "namespace", made.namespace)
    made("config", "set-context", "--current", "--namespace", made.namespace)
    return made

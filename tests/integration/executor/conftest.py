"""A runner of its own for each test: directories below /tmp (sockets need short paths), an own warm interpreter."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from ansible_runner import Runner

from minik8s_modules.reconcile.executor.runner import AnsibleRunner
from minik8s_modules.reconcile.values.items import Outcome, SectionRequest, WorkItem
from tests.support.etcd import free_port
from tests.support.processes import peer_pid
from tests.support.waiting import nap

HERE = Path(__file__).parent
PROJECT = HERE.parents[2]
PLAYBOOK = "tests/integration/executor/sections.yml"
LOCAL = {"ansible_connection": "warm_local"}
EXECUTORS = ["python_api", pytest.param("strategy", marks=pytest.mark.nightly)]


def wait_for(condition: Callable[[], Any], what: str, timeout_s: float = 60.0) -> Any:
    begun = time.monotonic()
    while time.monotonic() < begun + timeout_s:
        if value := condition():
            return value
        nap(begun)
    raise AssertionError(f"not within {timeout_s} s: {what}")


class Lab:
    """A runner over ``hosts`` with the outcomes and events it gave."""

    executor = "python_api"

    def __init__(self, hosts: dict[str, dict[str, Any]] | None = None, **options: Any) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="mk8s-"))
        self.files = self.home / "files"
        self.files.mkdir()
        self.inventory, self.private, self.warm = self.home / "hosts.yml", self.home / "p", self.home / "w"
        self.nodes = list(hosts or {"n0": LOCAL})
        self.set_hosts(hosts or {"n0": LOCAL})
        self.outcomes: dict[str, list[Outcome]] = {}
        self.events: list[dict[str, Any]] = []
        self._done = threading.Condition()
        self._ids = itertools.count(1)
        self.environment = {
            "MINIK8S_WARM_DIRECTORY": str(self.warm),
            "MINIK8S_WARM_IDLE_S": "5",
            **options.pop("environment", {}),
        }
        settings = {
            "playbook": PLAYBOOK,
            "executor": self.executor,
            "forks": 4,
            "on_event": self.events.append,
            **options,
        }
        self.runner = AnsibleRunner(
            inventory=self.inventory,
            private_data_dir=self.private,
            project_dir=PROJECT,
            on_outcome=self._on_outcome,
            environment=self.environment,
            **settings,
        )

    def set_hosts(self, hosts: dict[str, dict[str, Any]]) -> None:
        """Replace the inventory at once."""
        new = self.inventory.with_suffix(".new")
        new.write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
        new.replace(self.inventory)

    def _on_outcome(self, outcome: Outcome) -> None:
        with self._done:
            self.outcomes.setdefault(outcome.id, []).append(outcome)
            self._done.notify_all()

    def submit(self, node: str = "n0", *, check: bool = False, **sections: dict[str, Any]) -> str:
        """Submit an item and return its id."""
        item_id = f"item-{next(self._ids)}"
        requests = {
            name: SectionRequest({"directory": str(self.files), **options}) for name, options in sections.items()
        }
        self.runner.submit(WorkItem(item_id, node, check, (1, 7), requests))
        return item_id

    def outcome(self, item_id: str, timeout_s: float = 60.0) -> Outcome:
        """Wait for the first outcome of an item."""
        with self._done:
            assert self._done.wait_for(lambda: item_id in self.outcomes, timeout_s), f"no outcome of {item_id}"
            return self.outcomes[item_id][0]

    def run(self, node: str = "n0", *, check: bool = False, **sections: Any) -> Outcome:
        """Submit an item and wait for its outcome."""
        return self.outcome(self.submit(node, check=check, **sections))

    def event(self, item_id: str, section: str) -> dict[str, Any]:
        """Return the result in the runner event of one section of an item."""
        found = [
            event["event_data"]
            for event in self.events
            if event["event_data"]["res"]["minik8s_item"] == item_id and event["event_data"]["task"] == section
        ]
        assert len(found) == 1
        return dict(found[0]["res"])

    @property
    def play(self) -> psutil.Process:
        """Return the process of the current run."""
        run = wait_for(lambda: self.runner._current, "a current run")
        return psutil.Process(run.pid)

    def interpreter(self) -> int:
        """Return the process id of the warm interpreter, 0 where none runs."""
        return next((pid for path in self.warm.glob("*.sock") if (pid := peer_pid(path))), 0)

    def running_module(self, node: str = "n0") -> psutil.Process:
        """Wait for a sleeping probe and return its process."""
        path = self.files / f"pid-{node}"
        return psutil.Process(int(wait_for(lambda: path.exists() and path.read_text(), "a running module")))

    def _is_a_run(self, thread: threading.Thread) -> bool:
        run = getattr(getattr(thread, "_target", None), "__self__", None)
        return isinstance(run, Runner) and run.config.private_data_dir == str(self.private)

    def close(self) -> None:
        """End all that was started and remove it."""
        self.runner.stop(2)
        for thread in threading.enumerate():
            if self._is_a_run(thread):  # of a run that was killed, it writes its status into the folder yet
                thread.join(60)
        for path in [self.warm, *self.home.glob("*/")]:
            for each in path.glob("*.sock"):
                if pid := peer_pid(each):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.home)


@pytest.fixture(params=EXECUTORS)
def executor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The suite passes with each of them."""
    monkeypatch.setattr(Lab, "executor", request.param)
    return str(request.param)


@pytest.fixture
def lab(executor: str) -> Iterator[Lab]:
    made = Lab()
    made.runner.start()
    yield made
    made.close()


@pytest.fixture
def new_lab(executor: str) -> Iterator[Callable[..., Lab]]:
    made: list[Lab] = []

    def make(*arguments: Any, start: bool = True, **options: Any) -> Lab:
        made.append(Lab(*arguments, **options))
        if start:
            made[-1].runner.start()
        return made[-1]

    yield make
    for each in made:
        each.close()


class Sshd:
    """A private sshd on a random loopback port with its own host key and one client key."""

    def __init__(self, home: Path) -> None:
        self.home = home
        for name in ("host_key", "client_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(home / name)], check=True)
        shutil.copy(home / "client_key.pub", home / "authorized_keys")
        self.port = free_port()
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        (home / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {home}/host_key\nPidFile none\n"
            f"AuthorizedKeysFile {home}/authorized_keys\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
            "PermitRootLogin yes\nAllowStreamLocalForwarding yes\nMaxStartups 100\n"
        )
        self.trust("host_key.pub")
        command = ["/usr/sbin/sshd", "-D", "-e", "-f", str(home / "sshd_config")]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_for(self._answers, "sshd")

    def trust(self, public_key: str) -> None:
        """Pin ``public_key`` (a file of ours) as the host's."""
        key = (self.home / public_key).read_text()
        (self.home / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {key}")

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def host(self, **more: Any) -> dict[str, Any]:
        """Return the inventory entry that reaches it."""
        return {
            "ansible_connection": "warm_ssh",
            "ansible_host": "127.0.0.1",
            "ansible_port": self.port,
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.home / "client_key"),
            "minik8s_known_hosts": str(self.home / "known_hosts"),
            **more,
        }

    def close(self) -> None:
        """End all that was started and remove it."""
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()  # its sessions: the clients' masters end with them
        self.process.kill()
        self.process.wait()


@pytest.fixture
def sshd() -> Iterator[Sshd]:
    with tempfile.TemporaryDirectory(prefix="mk8s-sshd-") as home:
        server = Sshd(Path(home))
        yield server
        server.close()

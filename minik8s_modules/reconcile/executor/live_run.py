"""One live run seen from outside: its environment, its item socket, its process.

`runner.py` starts the process through ansible-runner and has one LiveRun per process; `plugins/live/serving.py` is the
other end of the socket.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import shlex
import signal
import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from minik8s_modules.base.errors import ConfigurationError, TemporaryError
from minik8s_modules.reconcile.values.items import WorkItem

# A start takes 1 to 2 s, on a starved machine minutes, and one that is killed begins from zero: what counts is whether
# the processor was used since the last look.
IDLE_START_S = 180.0
log = logging.getLogger(__name__)
TICKS = slice(13, 17)  # utime, stime, cutime, cstime in proc(5) stat, counted after the name
POLL_S = 0.02
MAX_EVENT_BYTES = 32 << 20  # above the strategy's limit for one section's result
PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid


STOP = b'{"op": "stop"}\n'
PROGRAM = "minik8s_modules.plugins.live.program"
Executor = Literal["python_api", "strategy"]
"""What a run is: a program on Ansible's Python API, or ansible-playbook with a strategy plugin."""


def executor_named(name: str) -> Executor:
    """Return the executor of that name.

    Raises:
        ConfigurationError: there is none.
    """
    for known in get_args(Executor):
        if name == known:
            return known  # type: ignore[no-any-return]  # one of the literals
    raise ConfigurationError(f"executor must be {' or '.join(get_args(Executor))}, not {name!r}")


class RunFailed(TemporaryError):
    """A run ended, or never became ready; the runner starts another."""


class Layout(NamedTuple):
    """Where a runner works: its private directory, the playbooks, the inventory; and as what its runs are started."""

    private: Path
    project: Path
    inventory: Path
    playbook: str
    forks: int
    executor: Executor

    def socket(self, generation: int) -> Path:
        """Return the item socket of the run ``generation``."""
        return self.private / f"items-{generation}.sock"

    def command(self) -> dict[str, str]:
        """Return what ansible-runner is told to run."""
        playbook = str(self.project / self.playbook)
        if self.executor == "strategy":
            return {"playbook": playbook}
        return {"binary": sys.executable, "cmdline": shlex.join(["-P", "-m", PROGRAM, playbook])}

    def environment(self, generation: int) -> dict[str, str]:
        """Return the environment of a run: everything that would cost time or leave traces is off."""
        return {
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
            "MINIK8S_ITEM_SOCKET": str(self.socket(generation)),
            "MINIK8S_PARENT": str(os.getpid()),
            "ANSIBLE_CONFIG": str(self.project / "ansible.cfg"),
            "ANSIBLE_CONNECTION_PLUGINS": str(self.project / "minik8s_modules/plugins/connection"),
            "ANSIBLE_CALLBACK_PLUGINS": str(
                self.project / "minik8s_modules/plugins/callback"
            ),  # the runner adds its own
            "ANSIBLE_HOME": str(self.private / "ansible"),
            "ANSIBLE_LOCAL_TEMP": str(self.private / "ansible/tmp"),
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.private / "ssh"),
            "ANSIBLE_FORKS": str(self.forks),
            "MAX_EVENT_RES": str(MAX_EVENT_BYTES),
            **SETTINGS,
            **(self._strategy() if self.executor == "strategy" else {}),
        }

    def _strategy(self) -> dict[str, str]:
        plugins = self.project / "minik8s_modules/plugins/strategy"
        return {"ANSIBLE_STRATEGY": "reconcile", "ANSIBLE_STRATEGY_PLUGINS": str(plugins)}


SETTINGS = {
    "ANSIBLE_PIPELINING": "1",  # payloads over standard input: no file, no argv
    "ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3",  # no discovery; an inventory may say otherwise
    "ANSIBLE_GATHERING": "explicit",
    "ANSIBLE_INJECT_FACT_VARS": "0",
    "ANSIBLE_VARS_ENABLED": "",
    "ANSIBLE_COLLECTIONS_SCAN_SYS_PATH": "0",
    "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "1",  # a half-written inventory must not look like an empty one
    "ANSIBLE_HOST_KEY_CHECKING": "1",
    # a silent node is given up after 3 * 5 s, so that the pass it held up is over when it is back
    "ANSIBLE_SSH_ARGS": "-C -o ControlMaster=auto -o ControlPersist=600s"
    " -o ServerAliveInterval=5 -o ServerAliveCountMax=3",
    "ANSIBLE_STDOUT_CALLBACK": "default",
    "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
    "ANSIBLE_DISPLAY_OK_HOSTS": "0",
    "ANSIBLE_SHOW_PER_HOST_START": "0",
    "ANSIBLE_DISPLAY_ARGS_TO_STDOUT": "0",
    "ANSIBLE_DEPRECATION_WARNINGS": "0",
    "ANSIBLE_DEVEL_WARNING": "0",
    "MINIK8S_WARM_KEEP_CODE": "1",  # a node's first item after a pause waits for its interpreter's start
    "ANSIBLE_NO_TARGET_SYSLOG": "1",  # the node's syslog would get every option of every call
    "ANSIBLE_DEBUG": "0",
    "ANSIBLE_VERBOSITY": "0",
    "ANSIBLE_KEEP_REMOTE_FILES": "0",
    "ANSIBLE_RETRY_FILES_ENABLED": "0",
    "ANSIBLE_NOCOLOR": "1",
    "ANSIBLE_FORCE_COLOR": "0",
    "PYTHONDONTWRITEBYTECODE": "",
}


def encode_item(item: WorkItem) -> bytes:
    """Return the line of ``item`` on the item socket.

    Raises:
        ValueError: its options are not JSON.
    """
    sections = {name: request.options for name, request in item.sections.items()}
    message = {"id": item.id, "host": item.node, "check": item.check, "token": list(item.token), "sections": sections}
    try:
        return json.dumps(message).encode() + b"\n"
    except TypeError as error:
        raise ValueError(f"item {item.id}: the options are not JSON: {error}") from error


def effort_of_children() -> int:
    """Return the processor time of this process's living children in clock ticks, 0 where the kernel lists none."""
    total = 0
    for listing in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in listing.read_text().split():
                stat = Path(f"/proc/{child}/stat").read_text()
                total += sum(map(int, f"pid name {stat.rpartition(')')[2]}".split()[TICKS]))
    return total


class LiveRun:
    """The run ``generation``: ``thread`` is ansible-runner's, ``cancelled`` is what its cancel callback returns."""

    def __init__(self, generation: int, path: Path, started_s: float) -> None:
        self.generation, self.path, self.started_s = generation, path, started_s
        self.sent = 0
        self.cancelled = False
        self.thread: threading.Thread | None = None
        self.pid = 0  # known once it listens
        self.first_words: deque[str] = deque(maxlen=8)  # what it printed until then: why it did not start
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._outgoing: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._ended = False

    def connect(
        self,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        effort: Callable[[], int] = effort_of_children,
    ) -> None:
        """Wait until the run listens, and connect.

        Raises:
            RunFailed: it ended, or did nothing for three minutes before it listened.
        """
        deadline, spent = clock() + IDLE_START_S, 0
        while True:
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                self._socket.connect(str(self.path))
                break
            if self.thread is not None and not self.thread.is_alive():
                raise RunFailed(f"the play ended before it was ready: {' '.join(self.first_words).strip()}"[:2000])
            if self.cancelled:
                raise RunFailed("the play was ended before it was ready")
            if clock() > deadline:
                if (now := effort()) <= spent:
                    raise RunFailed(f"the play was not ready, and has done nothing for {IDLE_START_S:.0f} s")
                log.info("the play is still starting after %.0f s", clock() - self.started_s)
                deadline, spent = clock() + IDLE_START_S, now
            sleep(POLL_S)
        threading.Thread(target=self._write, name=f"run-{self.generation}-writer", daemon=True).start()
        self.pid = PEER.unpack(self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))[0]

    def send(self, line: bytes) -> None:
        """Queue one line and return; a run that has gone is noticed by ``lines``, not here.

        Never blocks: the play may wait for the reader of its events, who may wait for a lock that our caller holds.
        """
        self._outgoing.put(line)

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._outgoing.get():
                self._socket.sendall(data)

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the strategy's lines until the run closes the socket."""
        with contextlib.suppress(OSError), self._socket.makefile("rb") as stream:
            for line in stream:
                yield json.loads(line)
        self._ended = True

    def kill(self) -> None:
        """End the play and its workers at once; safe to repeat.

        One that does not listen yet is ended by ansible-runner, which asks for ``cancelled`` each five seconds.
        """
        self.cancelled = True
        alive = (
            self.thread is not None and self.thread.is_alive()
        )  # it buries the play: until then the id is the play's
        if self.pid and (alive or not self._ended):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Release the socket and end the writer."""
        self._outgoing.put(b"")
        self._socket.close()
        self.path.unlink(missing_ok=True)

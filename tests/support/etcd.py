"""A real etcd for tests: own directory, random free ports, loopback only.

server = EtcdServer(tmp_path).start()
store = EtcdStore([server.endpoint])
server.kill9(); server.start()          # same data, same ports
server.stop()
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

START_TIMEOUT_S = 60.0
# a lone member elects itself at once instead of after a second
_QUICK = ("--heartbeat-interval", "10", "--election-timeout", "100")


def _ports() -> Iterator[int]:
    """Yield ports that no other of the test processes takes, each once in 2,000 calls."""
    first = 20_000 + 2_000 * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 6)
    begin = random.randrange(2_000)
    return (first + (begin + number) % 2_000 for number in itertools.count())


_free = _ports()


def free_port() -> int:
    """Return a port of loopback nobody listens on.

    It lies below the range that outgoing connections take theirs from (32768 up), so that it is still free when its
    server starts, and starts again after a kill.
    """
    while True:
        port = next(_free)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port


class EtcdServer:
    """One etcd process with its data below ``directory``.

    Args:
        directory: made if missing; holds ``data`` and ``log``.
        data_dir: data to serve instead of ``directory/data`` (a restored snapshot).
        arguments: further options of etcd (certificates, a cluster of several: ``peer`` is this one's URL); may
            be added to until ``start``.
        scheme: of the client endpoint; ``https`` needs certificates among ``arguments``.
        quick: elects itself at once and does not wait for the disk, as tests want it; else etcd's own defaults.
    """

    def __init__(
        self,
        directory: Path,
        *,
        data_dir: Path | None = None,
        arguments: Sequence[str] = (),
        scheme: str = "http",
        quick: bool = True,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.data_dir = data_dir or directory / "data"
        self.log = directory / "log"
        self.port = free_port()
        self.endpoint = f"{scheme}://127.0.0.1:{self.port}"
        self.peer = f"http://127.0.0.1:{free_port()}"
        self._health = f"http://127.0.0.1:{free_port()}"
        self.arguments = [*(_QUICK if quick else ()), *arguments]
        self._sync = not quick
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> EtcdServer:
        """Start and wait until it answers; returns itself."""
        self.launch()
        self._wait_healthy()
        return self

    def launch(self) -> None:
        """Start and wait for nothing."""
        program = shutil.which("etcd")
        assert program, "etcd is not installed: apt-get install etcd-server"
        argv = [
            *(program, "--name", "test", "--data-dir", str(self.data_dir)),
            *("--listen-client-urls", self.endpoint, "--advertise-client-urls", self.endpoint),
            *("--listen-peer-urls", self.peer, "--initial-advertise-peer-urls", self.peer),
            *("--initial-cluster", f"test={self.peer}", "--listen-metrics-urls", self._health),
            # tests kill the process, not the machine: the page cache survives, fsync would only cost time
            *(("--unsafe-no-fsync",) if not self._sync and _knows_no_fsync(program) else ()),
            *self.arguments,
        ]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(argv, stdout=log, stderr=log, env=_environment())

    def kill9(self) -> None:
        """Kill the process and wait for its end; data and ports stay."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the process, if it runs."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _wait_healthy(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            assert self._process is not None
            assert self._process.poll() is None, f"etcd ended at its start: {self.log.read_text()[-2000:]}"
            try:
                with urllib.request.urlopen(f"{self._health}/health", timeout=1) as answer:
                    if b'"true"' in answer.read():
                        return
            except OSError:
                pass
            time.sleep(0.02)
        raise AssertionError(f"etcd did not become healthy: {self.log.read_text()[-2000:]}")


def _environment() -> dict[str, str]:
    # etcd reads every ETCD_* variable as an option
    return {name: value for name, value in os.environ.items() if not name.startswith("ETCD_")}


def _knows_no_fsync(program: str) -> bool:
    answer = subprocess.run([program, "--help"], check=True, capture_output=True, text=True)
    return "--unsafe-no-fsync" in answer.stdout + answer.stderr

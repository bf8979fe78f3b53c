"""Where the API server's time goes under load: ``make profile WHAT=create`` or ``WHAT=get``, some twenty seconds.

A server of its own is asked by 16 clients while py-spy samples the worker's threads that hold the interpreter's lock.
``.cache/profile-<what>.txt`` has, of each function, the share of samples it was somewhere in the stack of and the share
in which it ran itself; before that, what a request costs: CPU, and how often threads gave up the processor or lost it.
``.cache/profile-<what>.raw`` has the stacks themselves, as flame graph programs read them.

``WHAT=pod`` is another file, profile_pod.py: what a pod's life costs all our processes.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import psutil

from tests.benchmarks import profile_pod
from tests.benchmarks.machine import REPOSITORY
from tests.benchmarks.shares import RATE, shares
from tests.support.apiserver import ApiServerProcess
from tests.support.etcd import EtcdServer

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
CLIENTS, SECONDS = 16, 10
MOST = 80


class Load:
    """Clients that ask until they are stopped; ``done`` counts answers."""

    def __init__(self, server: ApiServerProcess, what: str) -> None:
        self._server, self._what = server, what
        self._numbers, self._answers = itertools.count(), itertools.count()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(CLIENTS)]

    def start(self) -> None:
        """Begin to ask."""
        assert self._server.request("POST", CONFIG_MAPS, _config_map("one")).code < 300
        for thread in self._threads:
            thread.start()

    def stop(self) -> int:
        """Stop; return how many answers there were."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        return next(self._answers)

    def _run(self) -> None:
        connection = self._server.connection()
        while not self._stop.is_set():
            if self._what == "create":
                body = json.dumps(_config_map(f"load-{next(self._numbers)}")).encode()
                connection.request("POST", CONFIG_MAPS, body, {"Content-Type": "application/json"})
            else:
                connection.request("GET", f"{CONFIG_MAPS}/one")
            answer = connection.getresponse()
            answer.read()
            assert answer.status < 300, answer.status
            next(self._answers)
        connection.close()


def _config_map(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "x" * 20}}


def profile(what: str, raw: Path) -> str:
    """Sample a server under load into ``raw``; return the report."""
    with tempfile.TemporaryDirectory() as directory:
        etcd = EtcdServer(Path(directory) / "etcd").start()
        server = ApiServerProcess(Path(directory) / "api", etcd.endpoint)
        try:
            (worker,) = psutil.Process(server.start().pid).children()
            load = Load(server, what)
            load.start()
            cpu, switches = worker.cpu_times(), worker.num_ctx_switches()
            _sample(worker.pid, raw)
            answers = load.stop()
            after, then = worker.cpu_times(), worker.num_ctx_switches()
        finally:
            server.stop()
            etcd.stop()
    user, system = (getattr(after, each) - getattr(cpu, each) for each in ("user", "system"))
    lost = then.involuntary - switches.involuntary
    head = (
        f"{what}: {answers} answers; each {user / answers * 1e6:.0f} us of CPU in user mode and"
        f" {system / answers * 1e6:.0f} in the kernel, {(then.voluntary - switches.voluntary) / answers:.1f} waits,"
        f" {lost / answers:.1f} times the processor taken away\n\n   inside      own  function\n"
    )
    found = shares(raw.read_text(encoding="utf-8").splitlines())[:MOST]
    return head + "".join(f"{each.inside:8.1f} {each.own:8.1f}  {each.function}\n" for each in found)


def _sample(pid: int, raw: Path) -> None:
    program = Path(sys.executable).with_name("py-spy")
    argv = [str(program), "record", "--gil", "--rate", str(RATE), "--duration", str(SECONDS), "--pid", str(pid)]
    subprocess.run([*argv, "--format", "raw", "--output", str(raw)], check=True, capture_output=True)


def main() -> int:
    """Write both files, and print the report."""
    what = sys.argv[1] if len(sys.argv) > 1 else "create"
    if what not in {"create", "get", "pod"}:
        print(f"WHAT={what} is not profiled; WHAT is create, get or pod", file=sys.stderr)
        return 2
    folder = REPOSITORY / ".cache"
    folder.mkdir(exist_ok=True)
    report = profile_pod.profile(folder) if what == "pod" else profile(what, folder / f"profile-{what}.raw")
    (folder / f"profile-{what}.txt").write_text(report, encoding="utf-8")
    print(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What 500 probes a second cost a node, and one command: ``python -m tests.benchmarks.nodes.probes``, half a minute.

The first is the CPU time of 50 pause programs with 10 HTTP probes a second each, as their pods would have them, against
a server that is not counted; a gateway's part is nothing while no result changes. The second is a command run through
Docker's exec as the gateway runs it, with the CPU time of dockerd, containerd and the container's shim.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from minik8s_modules.gateway.probing.answers import Answers
from minik8s_modules.gateway.probing.checks import parse
from minik8s_modules.gateway.probing.running import Outcome, run_once
from minik8s_modules.gateway.probing.wire import table_of
from minik8s_modules.gateway.streams.reaching import NodeRoute
from minik8s_modules.module_utils.minik8s.core.docker import Docker
from tests.benchmarks.figures import Figure
from tests.support.docker.pause import compiled, http_check
from tests.support.node import SOCKET

PODS, EACH, MEASURED_S, EXECS = 50, 10, 10.0, 20
BAR_PERCENT = 10.0
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


@contextmanager
def server() -> Iterator[tuple[int, list[int]]]:
    """Answer 200 on the port given, from a thread; the list's only number counts."""
    answered = [0]
    loop = asyncio.new_event_loop()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        answered[0] += 1
        writer.write(_ANSWER)
        writer.close()

    made = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield made.sockets[0].getsockname()[1], answered
    loop.call_soon_threadsafe(made.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and its ended children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(fields[at]) for at in (11, 12, 13, 14)) * _TICK_S


def exact_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process of one thread, from the scheduler: a tick is longer than its probes."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def resident_kb(pid: int) -> int:
    """Return the memory of a process that no other shares."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_"))


def measure_network() -> Iterator[Figure]:
    """Yield the cost of 500 HTTP probes a second, and of a program that only waits."""
    with tempfile.TemporaryDirectory() as directory, server() as (port, answered):
        program = compiled(Path(directory))
        pods = [subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) for _ in range(PODS)]
        try:
            for number, pod in enumerate(pods):
                checks = [parse(http_check(f"c{index}/r", "127.0.0.1", port)) for index in range(EACH)]
                assert pod.stdin
                pod.stdin.write(table_of([(check, (number % 10) / 10) for check in checks], "1"))
                pod.stdin.flush()
            time.sleep(2)
            first = answered[0]
            before, began = sum(exact_cpu_s(pod.pid) for pod in pods), time.monotonic()
            time.sleep(MEASURED_S)
            probes = (answered[0] - first) / (time.monotonic() - began)
            percent = (sum(exact_cpu_s(pod.pid) for pod in pods) - before) / (time.monotonic() - began) * 100
            yield Figure(
                "500 HTTP probes a second", percent, "% of a core", BAR_PERCENT, f"50 pods; {probes:.0f} were answered"
            )
            kb = sum(resident_kb(pod.pid) for pod in pods) / PODS
            yield Figure("memory of a pause program", kb, "KB", note="private; its code is shared by all pods")
        finally:
            for pod in pods:
                pod.kill()
                pod.communicate()


def measure_commands() -> Iterator[Figure]:
    """Yield the cost of a command run in a container."""
    docker = Docker(SOCKET)
    body = {"Image": "minik8s/busybox:1", "Cmd": ["sleep", "300"], "HostConfig": {"NetworkMode": "none"}}
    container = docker.create("", body)
    try:
        docker.start(container)
        watched = [int(pid) for pid in _pids("dockerd", "containerd", f"containerd-shim.*{container}")]
        check = parse({"id": "c/l", "container": container, "timeout_s": 30, "exec": ["true"]})
        asyncio.run(run_once(check, NodeRoute(SOCKET, None), Answers()))
        before, began = sum(map(cpu_s, watched)), time.monotonic()
        for _ in range(EXECS):
            assert asyncio.run(run_once(check, NodeRoute(SOCKET, None), Answers())) == Outcome(good=True)
        wall_ms = (time.monotonic() - began) / EXECS * 1e3
        spent_ms = (sum(map(cpu_s, watched)) - before) / EXECS * 1e3
        yield Figure("a command as a probe", spent_ms, "ms of CPU", note=f"Docker's exec; wall {wall_ms:.0f} ms")
    finally:
        docker.remove(container)
        docker.close()


def _pids(*patterns: str) -> list[str]:
    found: list[str] = []
    for pattern in patterns:
        argv = ["pgrep", "-f" if "*" in pattern else "-x", pattern]
        found += subprocess.run(argv, capture_output=True, text=True, check=False).stdout.split()
    return found


def measure() -> Iterator[Figure]:
    """Yield all figures."""
    yield from measure_network()
    yield from measure_commands()


if __name__ == "__main__":
    for figure in measure():
        print(figure.line(), flush=True)

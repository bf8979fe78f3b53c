"""Streams on the installed cluster: ``python -m tests.benchmarks.server.streams``, half a minute.

Both kubectl and docker are whole processes here, in turn, so that both meet the same load: what a user waits for. A log
cannot be faster than dockerd reads it (60 to 75 MB a second of its CPU time with lines of 1,000 bytes, a third of that
with lines of 100), so its bar is the time of ``docker logs -f`` on the same container, and one for our own CPU.
"""

from __future__ import annotations

import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from minik8s_modules.api.kinds import POD
from minik8s_modules.client.api import ApiClient
from tests.benchmarks.figures import Figure
from tests.benchmarks.idle import FURTHER, Account
from tests.benchmarks.nodes.lifecycle import SLEEP, Watching, running
from tests.benchmarks.nodes.pods import installed
from tests.support.clusters.installed import IMAGE, KUBECONFIG, KUBECTL

EXECS, LOGS, LATE_S = 11, 5, 120.0
LINE_BYTES, LOG_MB = 1000, 40
BAR_EXEC_MS, BAR_LOGS_RATIO, BAR_CPU_MS_A_MB = 100.0, 1.25, 15.0
CARRYING = ("streams", "gateway", "apiserver", "apiserver worker", FURTHER)
"""Our processes that a log passes."""
WRITER = (
    f'BEGIN {{ t = sprintf("%{LINE_BYTES - 9}s", ""); '
    f'for (i = 0; i < {LOG_MB * 1_000_000 // LINE_BYTES}; i++) printf "%08d%s\\n", i, t }}'
)


def spent_ms(argv: Sequence[str]) -> float:
    """Return how long a command takes whose output nobody keeps.

    Its end is waited for without a time limit: with one, Python only looks every 50 ms.

    Raises:
        TimeoutExpired: it did not end within ``LATE_S``.
        CalledProcessError: it failed.
    """
    began = time.monotonic()
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        late = threading.Timer(LATE_S, process.kill)
        late.daemon = True
        late.start()
        try:
            code = process.wait()
        except BaseException:  # as when somebody ends the benchmark: no command outlives it
            process.kill()
            raise
        finally:
            late.cancel()
        spent_s = time.monotonic() - began
    if spent_s >= LATE_S:
        raise subprocess.TimeoutExpired(argv, LATE_S)
    if code:
        raise subprocess.CalledProcessError(code, argv)
    return spent_s * 1e3


def container_id(watching: Watching, name: str) -> str:
    """Return the Docker id of a pod's container."""
    statuses = watching.api.get(POD, name, watching.namespace)["status"]["containerStatuses"]
    return str(statuses[0]["containerID"]).removeprefix("docker://")


def kubectl(watching: Watching, *words: str) -> list[str]:
    """Return the command line of kubectl."""
    return [KUBECTL, "--kubeconfig", str(KUBECONFIG), "-n", watching.namespace, *words]


def in_turn(ours: Sequence[str], dockers: Sequence[str], rounds: int) -> list[tuple[float, float]]:
    """Return the milliseconds of both commands, round by round, after one for the caches."""
    return [(spent_ms(ours), spent_ms(dockers)) for _ in range(rounds + 1)][1:]


def measure_commands(watching: Watching) -> Iterator[Figure]:
    """Yield what ``kubectl exec`` takes more than ``docker exec``."""
    name, _ = watching.create(containers=[{"name": "app", **SLEEP}])
    watching.when(name, running)
    container = container_id(watching, name)
    found = in_turn(kubectl(watching, "exec", name, "--", "true"), ["docker", "exec", container, "true"], EXECS)
    more = statistics.median(ours - docker for ours, docker in found)
    text = f"n={EXECS}, of pairs; kubectl {statistics.median(pair[0] for pair in found):.0f} ms with its own start"
    yield Figure("exec, over docker exec, p50", more, "ms", BAR_EXEC_MS, text)
    watching.remove(name)


def measure_logs(watching: Watching) -> Iterator[Figure]:
    """Yield what a followed log takes, and how that stands to ``docker logs -f``."""
    writer = {"name": "app", "image": IMAGE, "command": ["awk", WRITER]}
    name, _ = watching.create(containers=[writer], restartPolicy="Never")
    watching.when(name, lambda _, pod: bool(pod.get("status", {}).get("phase") == "Succeeded"))
    container = container_id(watching, name)
    account = Account()
    account.sample(begin=True)
    found = in_turn(kubectl(watching, "logs", "-f", name), ["docker", "logs", "-f", container], LOGS)
    account.sample()
    ratio = statistics.median(ours / dockers for ours, dockers in found)
    text = f"n={LOGS}, of pairs; lines of {LINE_BYTES} bytes; kubectl's start is in it"
    yield Figure("logs -f: time to docker logs -f, p50", ratio, "x", BAR_LOGS_RATIO, text)
    spent = {part: s * 1e3 / LOG_MB / (LOGS + 1) for part, s in account.cpu_s().items() if part in CARRYING}
    text = ", ".join(f"{part} {ms:.1f}" for part, ms in spent.items())
    yield Figure("logs -f: CPU of ours", sum(spent.values()), "ms/MB", BAR_CPU_MS_A_MB, text)
    best, docker = min(pair[0] for pair in found) / LOG_MB, min(pair[1] for pair in found) / LOG_MB
    yield Figure(
        "logs -f", best, "ms/MB", None, f"best of {LOGS}; {1e3 / best:.0f} MB/s, docker logs -f {1e3 / docker:.0f}"
    )
    watching.remove(name)


def measure(connect: Callable[[], ApiClient] = installed) -> Iterator[Figure]:
    """Yield all figures."""
    watching = Watching(connect())
    try:
        yield from measure_commands(watching)
        yield from measure_logs(watching)
    finally:
        watching.close()


if __name__ == "__main__":
    for figure in measure():
        print(figure.line(), flush=True)

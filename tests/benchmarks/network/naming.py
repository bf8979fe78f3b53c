"""What cluster DNS answers, and how soon: ``python -m tests.benchmarks.network.naming [--kubectl]``.

Answers are timed on a CoreDNS of its own with 1,000 services, one question after the other over UDP. "Resolves after"
is the whole way on the installed cluster: from the moment the API has created a Service until the node's server answers
for it, asked every 5 ms. What the section costs is the module's own pass, without Ansible around it.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import statistics
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from minik8s_modules.module_utils.minik8s.core.section import Request, context_for, run_pass
from minik8s_modules.module_utils.minik8s.names.dns import Dns
from tests.benchmarks.figures import Figure
from tests.support.etcd import free_port
from tests.support.servers import coredns
from tests.support.waiting import until

SERVICES, QUESTIONS, ROUNDS = 1_000, 4_000, 10
ANSWER_MS, RESOLVES_S = 2.0, 1.0
INSTALLED = ("169.254.20.10", 53)
KUBECTL = ["kubectl", "--kubeconfig=/etc/minik8s/admin.kubeconfig"]


def _service(number: int) -> dict[str, Any]:
    base, address = f"web-{number}.default.svc", f"100.0.{number // 250}.{number % 250 + 1}"
    return {"records": [[base, "A", address]], "pointers": [[address, base]], "names": [[address, f"web-{number}"]]}


def _entries(port: int, services: int) -> dict[str, Any]:
    config = {"listen": "127.0.0.1", "port": port, "domain": "cluster.local", "forward": ["127.0.0.9"]}
    return {"server": config, **{f"service/default/web-{each}": _service(each) for each in range(services)}}


def _pass(folder: Path, entries: dict[str, Any]) -> float:
    """Return the CPU seconds of one pass."""
    asked = Request("n", entries=entries, state_dir=str(folder / "s"), run_dir=str(folder / "r"))
    before = resource.getrusage(resource.RUSAGE_SELF)
    run_pass(Dns(str(folder / "resolv.conf")), asked, context_for(asked))
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def answers() -> Iterator[Figure]:
    """Yield how long answers take, and what one service more costs the module."""
    server = ("127.0.0.1", free_port())
    with tempfile.TemporaryDirectory(prefix="mk8s-dns-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        _pass(folder, _entries(server[1], SERVICES))
        stack.enter_context(coredns.running(folder / "s/dns/Corefile", folder / "log"))
        until(lambda: coredns.ask(server, "web-1.default.svc.cluster.local")[0] == "NOERROR", 60)
        times = sorted(
            coredns.timed(server, f"web-{number % SERVICES}.default.svc.cluster.local") for number in range(QUESTIONS)
        )
        at = {share: times[int(len(times) * share)] * 1000 for share in (0.5, 0.95, 0.99)}
        text = f"median {at[0.5]:.2f}, 99 % {at[0.99]:.2f} ms, n={QUESTIONS}, {SERVICES:,} services"
        yield Figure("DNS answers, 95 % within", at[0.95], "ms", ANSWER_MS, text)
        costs = [_pass(folder, _entries(server[1], SERVICES + 1 + number)) * 1000 for number in range(ROUNDS)]
        yield Figure("one name more among 1,000, CPU of the module", statistics.median(costs), "ms", None, "full pass")


def resolves() -> Iterator[Figure]:
    """Yield how soon a new Service of the installed cluster resolves."""
    times = []
    for _ in range(ROUNDS):
        name = f"bench-{uuid.uuid4().hex[:8]}"
        subprocess.run([*KUBECTL, "create", "service", "clusterip", name, "--tcp=80"], check=True, capture_output=True)
        begun = time.perf_counter()
        while coredns.ask(INSTALLED, f"{name}.default.svc.cluster.local")[0] != "NOERROR":
            if time.perf_counter() - begun > 30:
                break
            time.sleep(0.005)
        times.append(time.perf_counter() - begun)
        subprocess.run([*KUBECTL, "delete", "service", name, "--wait=false"], check=True, capture_output=True)
    text = f"median {statistics.median(times):.2f} s, n={ROUNDS}, after kubectl has its answer"
    yield Figure("a new service resolves after, worst", max(times), "s", RESOLVES_S, text)


def measure(*, installed: bool = True) -> Iterator[Figure]:
    """Yield all figures; ``installed``: also on the installed cluster."""
    yield from answers()
    if installed:
        yield from resolves()


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Measure cluster DNS.")
    parser.add_argument("--installed", action="store_true", help="also on the installed cluster")
    for figure in measure(installed=parser.parse_args().installed):
        print(figure.line())


if __name__ == "__main__":
    main()

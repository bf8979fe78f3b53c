"""What two sidecars add to a request: ``python -m tests.benchmarks.network.sidecar_latency``, a minute, as root.

    client's network: what asks ─▶ Envoy ══veth══▶ server's network: Envoy ─▶ nginx, which answers 1 kB
                      what asks ════════════════════════════════════════════▶ the same nginx        (direct)
                      what asks ─▶ nginx ═════════════════════════▶ nginx ──▶ the same nginx        (nginx)

The first Envoy is told the Service by the pilot's own discovery service. The three take turns, so that what else the
machine does is shared by them. CPU is that of both Envoys, of both of nginx's proxies.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from minik8s_modules.mesh.mapping import Declared, decide_mapping
from minik8s_modules.mesh.messages import Packer, Snapshot
from tests.benchmarks.figures import Figure, load
from tests.benchmarks.network.mesh import service
from tests.benchmarks.network.sidecar_memory import PATIENCE_S, Pilot, envoy_options, ready

RATE, SECONDS, WARM_UP_S, TURNS, ADDED_MS = 1000, 5.0, 1.0, 3, 0.6
HERE, THERE, TARGET, PLAIN, NEAR, FAR = "198.18.254.1", "198.18.254.2", 8080, 8081, 9000, 9001
CLIENT, SERVER = f"mk8b-c{os.getpid()}", f"mk8b-s{os.getpid()}"
SETUP = f"""
ip netns add {CLIENT}
ip netns add {SERVER}
ip link add eth0 netns {CLIENT} type veth peer name eth0 netns {SERVER}
for each in {CLIENT} {SERVER}; do ip -n $each link set lo up; ip -n $each link set eth0 up; done
ip -n {CLIENT} addr add {HERE}/24 dev eth0
ip -n {SERVER} addr add {THERE}/24 dev eth0
ip -n {CLIENT} route add default via {THERE}
ip netns exec {CLIENT} nft 'table ip mesh {{
  chain out {{
    type nat hook output priority -100
    meta skuid != 1337 ip daddr 100.64.0.0/10 ip protocol tcp redirect to :15001
  }}
}}'
ip netns exec {SERVER} nft 'table ip mesh {{
  chain in {{
    type nat hook prerouting priority -100
    tcp dport {TARGET} redirect to :15006
  }}
}}'
"""
NGINX = """
daemon off; worker_processes 1; pid {folder}/{name}.pid; error_log stderr error;
events {{ worker_connections 512; }}
http {{
  access_log off;
  keepalive_requests 1000000;
  upstream next {{ server {next}; keepalive 32; }}
  {servers}
}}
"""
PROXY = """server {{
    listen {};
    location / {{ proxy_pass http://next; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}"""
ANSWER = 'server {{ listen {}; listen {}; location / {{ return 200 "{}"; }} }}'


class Way(NamedTuple):
    """Where requests are sent, and the processes whose CPU they take."""

    name: str
    address: str
    port: int
    pids: Sequence[int]


class Taken(NamedTuple):
    """What requests took."""

    latencies_ms: list[float]
    cpu_ms: float
    """For 1,000 of them."""

    def percentile(self, part: int) -> float:
        """Return a percentile of the latencies."""
        return statistics.quantiles(self.latencies_ms, n=100)[part - 1]


def snapshot() -> Snapshot:
    """Return a Service of one Pod, the server."""
    labels = {"kubernetes.io/service-name": "web-0"}
    endpoint = {"addresses": [THERE], "conditions": {"ready": True}}
    slices = {
        "metadata": {"name": "web-0", "namespace": "shop", "labels": labels},
        "addressType": "IPv4",
        "ports": [{"port": TARGET, "protocol": "TCP"}],
        "endpoints": [endpoint],
    }
    return Packer("shop").pack(decide_mapping(Declared([service(0)], [slices])))


def nginx(folder: Path, name: str, next_one: str, servers: Sequence[str]) -> list[str]:
    """Return the command of an nginx."""
    file = folder / f"{name}.conf"
    file.write_text(NGINX.format(folder=folder, name=name, next=next_one, servers="\n  ".join(servers)))
    return ["nginx", "-c", str(file), "-p", str(folder)]


async def started(stack: contextlib.AsyncExitStack, network: str, *words: str) -> int:
    """Start a program in a network until the stack ends; return its process."""
    run = ["ip", "netns", "exec", network, *words]
    process = await asyncio.create_subprocess_exec(*run, stdout=asyncio.subprocess.DEVNULL)

    async def end() -> None:
        process.terminate()
        await process.wait()

    stack.push_async_callback(end)
    return process.pid


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process and of its children, such as nginx's workers."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    ticks = 0
    for each in (pid, *children):
        ticks += sum(map(int, Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


async def asked(way: Way, seconds: float) -> Taken:
    """Ask for some seconds."""
    words = ["-m", "tests.benchmarks.network.steady_load", way.address, str(way.port), str(RATE), str(seconds)]
    before = [cpu_s(pid) for pid in way.pids]
    run = ["ip", "netns", "exec", CLIENT, sys.executable, *words]
    process = await asyncio.create_subprocess_exec(*run, stdout=asyncio.subprocess.PIPE)
    told, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    latencies = json.loads(told)
    spent = [cpu_s(pid) - earlier for pid, earlier in zip(way.pids, before, strict=True)]
    assert all(spent), f"{way.name}: requests have passed somebody by"
    return Taken(latencies, 1e6 * sum(spent) / len(latencies))


async def taken(folder: Path) -> dict[str, Taken]:
    """Return what requests took by each way."""
    async with contextlib.AsyncExitStack() as stack:
        pilot = Pilot(folder, snapshot())
        await pilot.start()
        stack.push_async_callback(pilot.stop)
        answer = ANSWER.format(TARGET, PLAIN, "x" * 1024)
        far = nginx(folder, "far", f"127.0.0.1:{PLAIN}", [PROXY.format(FAR)])
        await started(stack, SERVER, *nginx(folder, "app", f"127.0.0.1:{PLAIN}", [answer]))
        proxies = [await started(stack, SERVER, *far)]
        proxies.append(await started(stack, CLIENT, *nginx(folder, "near", f"{THERE}:{FAR}", [PROXY.format(NEAR)])))
        envoy = ["setpriv", "--reuid", "1337", "--clear-groups", *envoy_options(pilot.bootstrap)]
        envoys = [await started(stack, each, *envoy) for each in (SERVER, CLIENT)]
        await pilot.has_told()
        for each in (SERVER, CLIENT):
            await asyncio.wait_for(ready(["ip", "netns", "exec", each]), PATIENCE_S)
        ways = [Way("direct", THERE, PLAIN, ()), Way("nginx", "127.0.0.1", NEAR, proxies),
                Way("sidecars", str(service(0)["spec"]["clusterIP"]), 80, envoys)]  # fmt: skip
        for way in ways:
            await asked(way, WARM_UP_S)
        turns: dict[str, list[Taken]] = {way.name: [] for way in ways}
        for _ in range(TURNS):
            for way in ways:
                turns[way.name].append(await asked(way, SECONDS))
    return {name: _together(of) for name, of in turns.items()}


def _together(turns: Sequence[Taken]) -> Taken:
    latencies = [each for turn in turns for each in turn.latencies_ms]
    return Taken(latencies, statistics.mean(turn.cpu_ms for turn in turns))


def measure() -> Iterator[Figure]:
    """Yield the figures."""
    try:
        subprocess.run(["sh", "-ec", SETUP], check=True)
        with tempfile.TemporaryDirectory(prefix="mk8s-") as folder:
            found = asyncio.run(taken(Path(folder)))
    finally:
        for each in (CLIENT, SERVER):
            subprocess.run(["ip", "netns", "del", each], check=False, capture_output=True)
    note = f"{RATE} requests a second of 1 kB, load {load():.0f}"
    direct = found["direct"]
    for name, of in found.items():
        cpu = f", {of.cpu_ms:.0f} ms CPU for 1,000" if of.cpu_ms else ""
        yield Figure(f"a request, {name}, p50", of.percentile(50), "ms", None, note + cpu)
        yield Figure(f"a request, {name}, p99", of.percentile(99), "ms", None, note)
    added = found["sidecars"].percentile(50) - direct.percentile(50)
    nginx_added = found["nginx"].percentile(50) - direct.percentile(50)
    yield Figure(
        "two sidecars add to a request, p50", added, "ms", ADDED_MS, f"two nginx: {nginx_added:.2f} ms; {note}"
    )
    yield Figure("what two sidecars add, ratio to two nginx", added / nginx_added, "x", None, note)
    spent = found["sidecars"].cpu_ms / found["nginx"].cpu_ms
    yield Figure("CPU of two sidecars, ratio to two nginx", spent, "x", None, note)


def main() -> None:
    """Measure and print."""
    for figure in measure():
        print(figure.line(), flush=True)


if __name__ == "__main__":
    main()

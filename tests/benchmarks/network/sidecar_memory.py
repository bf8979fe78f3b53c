"""What a sidecar holds: ``python -m tests.benchmarks.network.sidecar_memory``, seconds, as root.

A real Envoy in a network of its own, with the bootstrap of sidecars, is told a thousand Services of five Pods by the
pilot's own discovery service; then it calls some of them, which it asks the pilot for. RssAnon is what no other Envoy
of the machine shares.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import yaml
from envoy.service.discovery.v3 import ads_pb2_grpc

from minik8s_modules.base.metrics import Registry
from minik8s_modules.mesh.catalogue import Catalogue, Configuration
from minik8s_modules.mesh.crowds import CROWD
from minik8s_modules.mesh.figures import Figures
from minik8s_modules.mesh.identity import Sidecar
from minik8s_modules.mesh.mapping import Declared, decide_mapping
from minik8s_modules.mesh.messages import Packer, Snapshot
from minik8s_modules.mesh.resources import API
from minik8s_modules.mesh.xds import Discovery
from tests.benchmarks.figures import Figure
from tests.benchmarks.network.mesh import PODS, SERVICES, service, slice_of
from tests.support.docker.envoy import ROLE, envoy_program

ALONE_MB, MORE_MB, PATIENCE_S, CALLED, SETTLED_S = 25.0, 15.0, 120.0, 50, 1.0
BEGIN = """
ip link set lo up
ip route add 100.64.0.0/10 dev lo src 127.0.0.1
nft 'table ip mesh {
  chain out {
    type nat hook output priority -100
    meta skuid != 1337 ip daddr 100.64.0.0/10 ip protocol tcp redirect to :15001
  }
}'
exec setpriv --reuid 1337 --clear-groups "$@"
"""
CALL = """
import sys, urllib.error, urllib.request
for address in sys.argv[1:]:
    try:
        urllib.request.urlopen(f"http://{address}/", timeout=60)
    except urllib.error.HTTPError as error:
        assert error.code == 503, error
"""


class Held(NamedTuple):
    """RssAnon of an Envoy in MB: when it has all that it was told, and when it has called some Services."""

    told: float
    called: float


def snapshot(services: int) -> Snapshot:
    """Return what the sidecars of a namespace with so many Services are told."""
    numbers = range(services)
    declared = Declared([service(each) for each in numbers], [slice_of(each) for each in numbers])
    return Packer("shop").pack(decide_mapping(declared))


def bootstrap(folder: Path, socket: Path) -> Path:
    """Return the file of the bootstrap of sidecars, which is told at a socket instead."""
    for each in ("ca.crt", "token"):
        (folder / each).write_text("")
    text = (ROLE / "files/bootstrap.yaml").read_text()
    whole: dict[str, Any] = yaml.safe_load(text.replace("/var/run/secrets/kubernetes.io/serviceaccount", str(folder)))
    whole["dynamic_resources"]["ads_config"]["grpc_services"] = [{"envoy_grpc": {"cluster_name": "pilot"}}]
    options = f"{API}extensions.upstreams.http.v3.HttpProtocolOptions"
    http2 = {"@type": options, "explicit_http_config": {"http2_protocol_options": {}}}
    endpoint = {"endpoint": {"address": {"pipe": {"path": str(socket)}}}}
    pilot = {
        "name": "pilot",
        "type": "STATIC",
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2},
        "load_assignment": {"cluster_name": "pilot", "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
    whole["static_resources"]["clusters"].append(pilot)
    file = folder / "bootstrap.yaml"
    file.write_text(yaml.safe_dump(whole))
    return file


class Pilot:
    """Discovery at a socket in a folder: Envoys that begin with ``bootstrap`` are told of one namespace."""

    def __init__(self, folder: Path, told: Snapshot) -> None:
        self.settled = asyncio.Event()
        self._asked, self._told, self._loop = asyncio.Event(), told, asyncio.get_running_loop()
        self._catalogue = Catalogue(self._is_asked)
        self._discovery = Discovery(
            self._catalogue,
            lambda _header: Sidecar("shop", "client"),
            Figures(Registry()),
            lambda _sidecar, _behind, message: sys.exit(f"the Envoy refused its configuration: {message}"),
            lambda _sidecar, _withholdings: self.settled.set(),
        )
        self._socket = folder / "pilot.sock"
        self.bootstrap = bootstrap(folder, self._socket)
        self._server = grpc.aio.server()

    def _is_asked(self, _scope: str) -> None:
        self._loop.call_soon_threadsafe(self._asked.set)

    async def start(self) -> None:
        """Answer from now on."""
        ads_pb2_grpc.add_AggregatedDiscoveryServiceServicer_to_server(self._discovery, self._server)
        self._server.add_insecure_port(f"unix:{self._socket}")
        await self._server.start()
        for each in (self._socket.parent, self._socket):
            each.chmod(0o777)

    async def has_told(self) -> None:
        """Wait for an Envoy to have all."""
        await asyncio.wait_for(self._asked.wait(), PATIENCE_S)
        self._catalogue.put("shop", Configuration(self._told, {}))
        if any(self._told.values()):  # who is told nothing has nothing to take
            await asyncio.wait_for(self.settled.wait(), PATIENCE_S)

    async def stop(self) -> None:
        """End."""
        self._discovery.end()
        await self._server.stop(0)


def envoy_options(file: Path) -> list[str]:
    """Return Envoy's program, and what it is started with."""
    options = ["--config-path", str(file), "--concurrency", "1", "--use-dynamic-base-id", "--log-level", "error"]
    return [str(envoy_program()), *options]


async def held(told: Snapshot, called: Sequence[str] = ()) -> Held:
    """Return what an Envoy holds."""
    with tempfile.TemporaryDirectory(prefix="mk8s-") as folder:
        pilot = Pilot(Path(folder), told)
        await pilot.start()
        run = ["unshare", "--net", "sh", "-ec", BEGIN, "run", *envoy_options(pilot.bootstrap)]
        process = await asyncio.create_subprocess_exec(*run, stdout=asyncio.subprocess.DEVNULL)
        inside = ["nsenter", f"--net=/proc/{process.pid}/ns/net"]
        try:
            await pilot.has_told()
            await asyncio.wait_for(ready(inside), PATIENCE_S)
            first = await _anonymous_mb(process.pid)
            if called:
                calling = await asyncio.create_subprocess_exec(*inside, sys.executable, "-c", CALL, *called)
                assert await asyncio.wait_for(calling.wait(), PATIENCE_S) == 0
            return Held(first, await _anonymous_mb(process.pid))
        finally:
            process.kill()
            await process.wait()
            await pilot.stop()


async def ready(inside: Sequence[str]) -> None:
    """Wait for the Envoy of a network to take connections; ``inside`` runs a program there."""
    words = [*inside, "curl", "-sf", "-m", "5", "http://127.0.0.1:15000/ready"]
    while True:
        asking = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.DEVNULL)
        if await asking.wait() == 0:
            return
        await asyncio.sleep(0.1)


async def _anonymous_mb(pid: int) -> float:
    await asyncio.sleep(SETTLED_S)
    status = await asyncio.to_thread(Path(f"/proc/{pid}/status").read_text)
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon:")) / 1024


def measure() -> Iterator[Figure]:
    """Yield the figures."""
    alone = asyncio.run(held(snapshot(0))).told
    yield Figure("RssAnon of a sidecar", alone, "MB", ALONE_MB, "without Services")
    few = asyncio.run(held(snapshot(CROWD))).told - alone
    yield Figure("RssAnon more with the most Services that are told at once", few, "MB", None, f"{CROWD} of one port")
    note = f"{SERVICES} Services of {PODS} Pods"
    addresses = [str(service(each)["spec"]["clusterIP"]) for each in range(CALLED)]
    found = asyncio.run(held(snapshot(SERVICES), addresses))
    yield Figure("RssAnon more with all of a large namespace", found.told - alone, "MB", MORE_MB, note)
    each_kb = 1024 * (found.called - found.told) / CALLED
    yield Figure("RssAnon more for a Service that is called", each_kb, "kB", None, f"{CALLED} of {SERVICES} called")


def main() -> None:
    """Measure and print."""
    for figure in measure():
        print(figure.line(), flush=True)


if __name__ == "__main__":
    main()

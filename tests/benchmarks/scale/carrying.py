"""What a process holds that carries very many simulated nodes and Pods, by itself: no server, and nothing is written.

    python -m tests.benchmarks.scale.carrying --nodes 5000 --pods 100000

The Pods run already, as after a restart of the daemon; what the API would keep, nobody keeps here.
"""

from __future__ import annotations

import argparse
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import POD, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.interface import Api, Keep, ObjectList
from minik8s_modules.client.watches import WatchEvent
from minik8s_modules.virtual.carrying import Carrier, Options
from minik8s_modules.virtual.nodes.controller import Timing
from minik8s_modules.virtual.wishes import wishes_of
from tests.benchmarks.machine import run_now
from tests.benchmarks.scale.restarting import pod, tell

_REST_S = 5.0


class Silence:
    """A watch that tells nothing until it is closed."""

    def __init__(self) -> None:
        self._closed = threading.Event()

    def __iter__(self) -> Iterator[WatchEvent]:
        """Return itself."""
        return self

    def __next__(self) -> WatchEvent:
        """Wait for the end."""
        self._closed.wait()
        raise StopIteration

    def close(self) -> None:
        """End."""
        self._closed.set()


class Told:
    """An API with so many running Pods on so many nodes; it takes everything, and keeps nothing."""

    def __init__(self, nodes: int, pods: int) -> None:
        self._nodes, self._pods = nodes, pods
        self.written = 0

    def list(self, kind: Kind, *_args: Any, keep: Keep = lambda obj: obj, **_options: Any) -> ObjectList:
        """Return the Pods; nothing of another kind."""
        return ObjectList([keep(self._pod(number)) for number in range(self._pods)] if kind is POD else [], "1")

    def _pod(self, number: int) -> JsonObject:
        made = pod(number)
        made["spec"]["nodeName"] = f"node-{number % self._nodes}"
        made["metadata"]["resourceVersion"] = "1"
        return made

    def watch(self, *_args: Any, **_options: Any) -> Silence:
        """Return a watch that tells nothing."""
        return Silence()

    def get(self, kind: Kind, name: str, _namespace: str = "") -> JsonObject:
        """Say that it is not there."""
        raise NotFound(kind, name)

    def create(self, _kind: Kind, obj: Mapping[str, Any], **_options: Any) -> JsonObject:
        """Return what would have been made."""
        return self.update(_kind, obj)

    def update(self, _kind: Kind, obj: Mapping[str, Any], **_options: Any) -> JsonObject:
        """Return what would have been written."""
        self.written += 1
        return {**obj, "metadata": {"uid": str(uuid.uuid4()), **objects.metadata(dict(obj)), "resourceVersion": "1"}}

    def patch(self, _kind: Kind, name: str, _namespace: str, body: Any, **_options: Any) -> JsonObject:
        """Return something of that name."""
        self.written += 1
        return {"metadata": {"name": name, "resourceVersion": "1"}, **body}


def resident_mb() -> tuple[float, float]:
    """Return what the process holds in memory now, and what it held at most."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines())
    return int(lines["VmRSS"].split()[0]) / 1024, int(lines["VmHWM"].split()[0]) / 1024


def main() -> int:
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=100_000)
    said = parser.parse_args()
    print(run_now().opening(), flush=True)
    row = {"name": "node-{index}", "count": said.nodes, "provider": "simulated", "config": {"pods": "1000"}}
    options = Options(timing=Timing(lease_s=240, status_s=300))
    tell("RSS before MB", resident_mb()[0])
    carrier = Carrier(cast("Api", Told(said.nodes, said.pods)), wishes_of([row], "the command line"), options)
    tell("RSS with the nodes MB", resident_mb()[0])
    began = time.monotonic()
    carrier.start()
    while sum(len(provider.get_pods()) for provider in carrier.providers.values()) < said.pods:
        time.sleep(_REST_S)
    tell("all Pods known to their providers s", time.monotonic() - began)
    time.sleep(_REST_S)
    began_s = time.process_time()
    tell("RSS MB", resident_mb()[0])
    tell("RSS at most MB", resident_mb()[1])
    time.sleep(2 * _REST_S)
    tell("CPU at rest %", 100 * (time.process_time() - began_s) / (2 * _REST_S))
    carrier.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

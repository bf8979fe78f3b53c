"""2,000 objects by one ``kubectl apply -f``: ``python -m tests.benchmarks.nodes.applying``, about 30 seconds.

Real kubectl 1.32 against a real server on a real etcd, over TLS with client certificates, audit and admission on: first
all objects are new, then the same file again, and by ``--server-side``. CPU is the server's worker's.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks.figures import Figure
from tests.support.apiserver import ApiServerProcess
from tests.support.etcd import EtcdServer

OBJECTS, BAR_S = 2_000, 25.0


def objects() -> Iterator[dict[str, Any]]:
    """Yield the objects: mostly ConfigMaps, and pods and services among them, as in a large application."""
    for number in range(OBJECTS):
        name, labels = f"bench-{number:04}", {"app": "bench", "part": f"p{number % 7}"}
        meta = {"name": name, "labels": labels}
        container = {"name": "c", "image": "minik8s/busybox:1", "env": [{"name": "A", "value": "b"}]}
        if number % 10 == 0:
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}}
        else:
            yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"k": "x" * 200}}


def measure() -> list[Figure]:
    """Start etcd and the server, apply thrice, stop them."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        etcd = EtcdServer(folder / "etcd").start()
        server = ApiServerProcess(folder / "api", etcd.endpoint)
        try:
            server.start()
            file = folder / "objects.yml"
            file.write_text("".join(f"---\n{json.dumps(obj)}\n" for obj in objects()))
            return list(_applied(server, file))
        finally:
            server.stop()
            etcd.stop()


def _applied(server: ApiServerProcess, file: Path) -> Iterator[Figure]:
    (worker,) = psutil.Process(server.pid).children()
    for each, options, verb in (
        ("new", (), "created"),
        ("unchanged", (), "unchanged"),
        ("server-side", ("--server-side", "--force-conflicts"), "serverside-applied"),
    ):
        before, began = worker.cpu_times(), time.monotonic()
        argv = server.kubectl_argv("apply", "-f", str(file), *options)
        done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
        wall_s, after = time.monotonic() - began, worker.cpu_times()
        count = done.stdout.count(verb)
        assert (done.returncode, count) == (0, OBJECTS), done.stderr[-2000:]
        cpu_s = after.user + after.system - before.user - before.system
        kubectl = f"{OBJECTS} objects by one kubectl apply"
        yield Figure(
            f"{kubectl}, {each}", wall_s, "s", BAR_S, f"{cpu_s / OBJECTS * 1e3:.1f} ms of server CPU an object"
        )


def main() -> None:
    """Print the figures."""
    for figure in measure():
        print(figure.line())


if __name__ == "__main__":
    main()

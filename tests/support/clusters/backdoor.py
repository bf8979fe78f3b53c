"""The Dockers of native lab nodes, seen from the host: a node that is cut off, or whose SSH hangs, can be watched, too.

    with Sampler(cluster) as sampler: ...
    assert not sampler.doubles

A native node is a tree of namespaces on this host's kernel, so its socket is reached by ``/proc/<pid>/root``.
"""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from minik8s_modules.module_utils.minik8s.core.docker import Docker, DockerError
from tests.lab import processes
from tests.support.clusters.labcluster import LabCluster
from tests.support.clusters.wholeness import Container, containers, doubled

EVERY_S = 0.3
LABEL = "minik8s.io/node"


def socket_of(cluster: LabCluster, node: str) -> str:
    """Return the path of a node's Docker socket on this host, "" while the node is off."""
    top = cluster.lab.machine(node).running()
    for one in processes.descendants(top) if top else ():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{one.pid}/comm").read_text(encoding="ascii").strip() == "dockerd":
                return f"/proc/{one.pid}/root/run/docker.sock"
    return ""


def held(cluster: LabCluster, node: str, path: str = "") -> list[Container]:
    """Return the containers of ours that a node's Docker, at ``path``, has; none while it does not answer."""
    path = path or socket_of(cluster, node)
    if not path:
        return []
    docker = Docker(path, timeout_s=20)
    try:
        listed = docker.call("GET", "/containers/json", query={"all": "1", "filters": '{"label": ["minik8s.io/node"]}'})
    except DockerError:
        return []
    finally:
        docker.close()
    rows = [{"id": one["Id"], "state": one["State"], "started": "", "labels": one["Labels"]} for one in listed]
    return containers(node, {"containers": rows})


class Sampler:
    """Looks at all nodes several times a second; ``doubles`` is every breach of the promise it has seen."""

    def __init__(self, cluster: LabCluster) -> None:
        self._cluster = cluster
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._paths: dict[str, str] = {}
        self.samples = 0
        self.doubles: set[str] = set()

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End; fails where the promise was broken."""
        self._over.set()
        self._thread.join(30)
        if kind is None:
            assert self.samples, "nothing was looked at"
            assert not self.doubles, sorted(self.doubles)

    def _run(self) -> None:
        while not self._over.wait(EVERY_S):
            found = [one for node in self._cluster.nodes for one in held(self._cluster, node, self._path(node))]
            self.doubles.update(doubled(found))
            self.samples += 1

    def _path(self, node: str) -> str:
        """Return the node's socket; looking for it costs a walk over all processes, so it is kept while it is there."""
        known = self._paths.get(node, "")
        if not known or not Path(known).exists():
            known = self._paths[node] = socket_of(self._cluster, node)
        return known

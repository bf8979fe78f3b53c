"""What somebody breaks on a node by hand, again and again until it is put right."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

from minik8s_modules.api.kinds import EVENT
from tests.integration.reconcile.conftest import Cluster

WHOLE_S = 2.0


def command(*argv: str) -> str:
    """Return what a command prints; that what it is about is not there just now is no failure."""
    return subprocess.run(argv, check=False, capture_output=True, text=True).stdout


def healed(cluster: Cluster, module: str) -> bool:
    """Return whether an Event of the node says that ``module`` put something right."""
    found = cluster.admin.list(EVENT, "default", field_selector="involvedObject.kind=Node,reason=DriftHealed").items
    return any(f"put right by minik8s_{module}" in one["message"] for one in found)


def watching(cluster: Cluster) -> bool:
    """Return whether the reconciler has the programs running."""
    process = cluster.daemons["reconcile"].process
    assert process is not None
    return "nft monitor" in command("ps", "-ww", "-o", "args", "--ppid", str(process.pid))


class Harm:
    """Does something whenever its effect is not there, but not at once after it was: that is taken for an echo."""

    def __init__(self, is_whole: Callable[[], bool], *argv: str) -> None:
        self._is_whole, self._argv = is_whole, argv
        self._whole_since: float | None = None

    def done_until(self, cluster: Cluster, module: str) -> bool:
        """Do it if it is time; return whether ``module`` has put it right."""
        if not self._is_whole():
            self._whole_since = None
        elif self._whole_since is None:
            self._whole_since = time.monotonic()
        elif time.monotonic() - self._whole_since > WHOLE_S:
            command(*self._argv)
        return healed(cluster, module)

"""A living node's Lease in kube-node-lease, renewed every 10 s as the kubelet does; the proof others judge it by.

The Lease also says where streams to the node's containers begin (annotation ``minik8s.io/stream-endpoint``): the
gateway's own address, which is not the node's; and by how much the node's clock is off (``api/nodes/clocks.py``).
Renewed are only nodes whose Docker has answered lately. One thread serves all nodes: each renewal is one small request,
and when the API is away all of them fail alike.
Source of names and times: kubelet, ``pkg/kubelet/kubelet.go``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from minik8s_modules.api.errors import NotFound, StatusError
from minik8s_modules.api.kinds import LEASE
from minik8s_modules.api.nodes.clocks import CLOCK_AHEAD
from minik8s_modules.base.clock import Clock, SystemClock, rfc3339_micro
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.interface import Api

log = logging.getLogger(__name__)

NAMESPACE = "kube-node-lease"
RENEW_S = 10.0
DURATION_S = 40
# longer than one ping interval and one ping's timeout: a single slow ping costs no renewal
FRESH_S = 25.0
STREAM_ENDPOINT = "minik8s.io/stream-endpoint"
CLOCK_REPORTED_S = 3.0
"""Smaller differences are as good as none: Docker tells its time in whole seconds."""


class NodeLeases:
    """Keeps the Leases of the nodes that ``living`` names.

    Args:
        client: of the API.
        living: names nodes.
        clock: this machine's.
        endpoint: where API servers ask for streams.
        ahead_s: by how much a node's clock is ahead of this machine's.
    """

    def __init__(
        self,
        client: Api,
        living: Callable[[], Iterable[str]],
        clock: Clock | None = None,
        endpoint: str = "",
        ahead_s: Callable[[str], float] = lambda _: 0.0,
    ) -> None:
        self._client = client
        self._living = living
        self._ahead_s = ahead_s
        self._annotations = {STREAM_ENDPOINT: endpoint} if endpoint else {}
        self._unmarked: set[str] = set()
        """Nodes whose Lease says nothing of a clock; one that an earlier gateway wrote on is not known to be one."""
        self._clock = clock or SystemClock()
        self._now = threading.Event()
        self._stop = threading.Event()
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="node-leases", daemon=True)

    def start(self) -> None:
        """Renew from now on."""
        self._thread.start()

    def stop(self) -> None:
        """End renewing."""
        self._stop.set()
        self._now.set()
        if self._thread.is_alive():
            self._thread.join(timeout=3.0)

    def renew_soon(self) -> None:
        """Renew without waiting for the interval, because a node came to life."""
        self._now.set()

    def renew_all(self) -> None:
        """Renew the Lease of every living node once; failures are logged, and tried again next time."""
        for node in self._living():
            try:
                self._renew(node)
            except (TemporaryError, StatusError) as error:
                level = logging.DEBUG if self._failing else logging.WARNING
                log.log(level, "lease of %s was not renewed: %s", node, error)
                self._failing = True
            else:
                self._failing = False

    def _renew(self, node: str) -> None:
        now = rfc3339_micro(self._clock.now())
        spec = {"holderIdentity": node, "leaseDurationSeconds": DURATION_S, "renewTime": now}
        published = self._annotations_to_write(node)
        try:
            self._client.patch(
                LEASE, node, NAMESPACE, {"metadata": {"annotations": published} if published else {}, "spec": spec}
            )
            if published.get(CLOCK_AHEAD) is None:
                self._unmarked.add(node)
        except NotFound:
            kept = {name: value for name, value in published.items() if value is not None}
            metadata = {"name": node, "namespace": NAMESPACE, **({"annotations": kept} if kept else {})}
            self._client.create(
                LEASE,
                {
                    "apiVersion": LEASE.api_version,
                    "kind": LEASE.kind,
                    "metadata": metadata,
                    "spec": {**spec, "acquireTime": now},
                },
            )

    def _annotations_to_write(self, node: str) -> dict[str, str | None]:
        """Return the Lease's annotations to write; None removes one."""
        ahead_s = self._ahead_s(node)
        if abs(ahead_s) >= CLOCK_REPORTED_S:
            self._unmarked.discard(node)
            return {**self._annotations, CLOCK_AHEAD: f"{ahead_s:.0f}"}
        if node in self._unmarked:
            return {**self._annotations}
        return {**self._annotations, CLOCK_AHEAD: None}

    def _run(self) -> None:
        while not self._stop.is_set():
            self._now.clear()
            try:
                self.renew_all()
            except Exception:
                log.exception("renewing node leases failed")
            self._clock.wait(self._now, RENEW_S)

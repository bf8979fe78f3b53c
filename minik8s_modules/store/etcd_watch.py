"""One watch of etcd that outlives connections and servers.

A watch is a gRPC stream from ``after + 1`` on. Each answer's changes move ``after`` on before they are handed
out, so a stream that breaks is opened again (at the next member, with back-off) exactly where the last batch
ended: nothing is lost and nothing comes twice. etcd never spreads one revision over two answers unless
fragments are asked for, and they are not.

Two things end in Compacted, which tells the reader to list again: etcd no longer has the history, or etcd's
own revision lies before ``after`` (its data directory was emptied; it would wait in silence until it gets
there).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

from minik8s_modules.base.backoff import RECONNECT
from minik8s_modules.module_utils.minik8s.rpc.http2 import Broken, CallFailed, Channel
from minik8s_modules.store.errors import Compacted, StoreError, StoreUnavailable
from minik8s_modules.store.interface import Change
from minik8s_modules.store.stubs import rpc
from minik8s_modules.store.wire.connection import UNREACHABLE, Connections

log = logging.getLogger(__name__)

# a member cut off from the others ends the stream instead of staying silent (clientv3.WithRequireLeader)
REQUIRE_LEADER = {"hasleader": "true"}
WATCH = "/etcdserverpb.Watch/Watch"


class EtcdWatch:
    """The Watch protocol over etcd; iterate in one thread, cancel from any."""

    def __init__(
        self,
        connections: Connections,
        first: bytes,
        end: bytes,
        after: int,
        latest: Callable[[], int],
    ) -> None:
        self._connections = connections
        self._first, self._end = first, end
        self._after = after
        self._latest = latest
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._channel: Channel | None = None
        self._failures = 0

    def __iter__(self) -> Iterator[list[Change]]:
        """Yield batches of changes for ever; raises Compacted."""
        while not self._cancelled.is_set():
            try:
                number, channel = self._connections.watching(REQUIRE_LEADER)
            except StoreUnavailable as error:
                if self._connections.closed:
                    return
                self._after_failure(error)
                continue
            try:
                yield from self._batches(channel)
            except (Broken, CallFailed) as error:
                if self._connections.closed:
                    return
                self._connections.failed(number)
                self._after_failure(error)
            except StoreUnavailable as error:
                self._after_failure(error)
            finally:
                self._connections.end(channel)

    def cancel(self) -> None:
        """End the iteration; may be called again."""
        self._cancelled.set()
        with self._lock:
            if self._channel is not None:
                self._channel.cut()

    def _batches(self, channel: Channel) -> Iterator[list[Change]]:
        for message in self._begin(channel):
            answer = rpc.WatchResponse.FromString(message)
            if answer.canceled:
                raise self._refused(answer)
            if answer.created:
                self._check_not_back(answer.header.revision)
            self._failures = 0
            if not message:
                yield []
            elif answer.events:
                batch = [_change(event) for event in answer.events]
                self._after = batch[-1].revision
                yield batch

    def _begin(self, channel: Channel) -> Iterator[bytes]:
        with self._lock:
            self._channel = channel
            if self._cancelled.is_set():
                channel.cut()
        create = rpc.WatchCreateRequest(key=self._first, range_end=self._end, start_revision=self._after + 1)
        return channel.stream(WATCH, rpc.WatchRequest(create_request=create).SerializeToString())

    def _check_not_back(self, revision: int) -> None:
        # a lagging member may answer an older revision: only a read through the leader proves that etcd went
        # back
        if revision < self._after and self._latest() < self._after:
            raise Compacted(f"cannot watch after revision {self._after}: etcd went back to {revision}")

    def _refused(self, answer: Any) -> StoreError | StoreUnavailable:
        if answer.compact_revision:
            return Compacted(f"cannot watch after revision {self._after}: the oldest kept is {answer.compact_revision}")
        return StoreUnavailable(f"etcd ended the watch: {answer.cancel_reason or 'no reason given'}")

    def _after_failure(self, error: Exception) -> None:
        if self._cancelled.is_set():
            return
        self._failures += 1
        if isinstance(error, CallFailed) and error.code not in UNREACHABLE:
            log.warning("watch of etcd failed: %s", error)
        else:
            log.info("watch of etcd interrupted after revision %d; resuming: %s", self._after, error)
        self._cancelled.wait(RECONNECT.delay_s(self._failures))


def _change(event: Any) -> Change:
    kv = event.kv
    if event.type == event.DELETE:
        return Change(kv.key.decode(), None, kv.mod_revision, created=False)
    return Change(kv.key.decode(), kv.value, kv.mod_revision, kv.create_revision == kv.mod_revision)

"""The store in etcd: every write is one transaction that compares the key's revision first.

Requests are etcd's protobuf messages (stubs/); connections and fail-over are in connection.py, what goes over them in
http2.py, watches in etcd_watch.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minik8s_modules.module_utils.minik8s.rpc.http2 import CallFailed
from minik8s_modules.store.errors import (
    Compacted,
    FutureRevision,
    StaleWrite,
    StoreError,
    ValueTooLarge,
    check_expected,
)
from minik8s_modules.store.etcd_watch import EtcdWatch
from minik8s_modules.store.interface import Entry, Page, Put
from minik8s_modules.store.stubs import rpc
from minik8s_modules.store.wire.connection import CALL_TIMEOUT_S, Connections, Tls

# how etcd words what is told apart only by text (api/v3rpc/rpctypes/error.go)
COMPACTED = "required revision has been compacted"
TOO_LARGE = ("request is too large", "message larger than max")
OUT_OF_RANGE = 11  # gRPC's status
RANGE, TXN, COMPACT = (f"/etcdserverpb.KV/{method}" for method in ("Range", "Txn", "Compact"))


class EtcdStore:
    """The Store protocol over one etcd cluster, whose key space is ours alone.

    Args:
        endpoints: ``https://HOST:PORT`` of the members (``http`` only where ``tls`` is None, for tests).
        tls: our client certificate and etcd's authority.
        timeout_s: deadline of every call.
    """

    def __init__(self, endpoints: Sequence[str], tls: Tls | None = None, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        self._connections = Connections(endpoints, tls, timeout_s)

    def get(self, key: str) -> Entry | None:
        """Return the latest state of ``key``, or None."""
        answer = self._range(rpc.RangeRequest(key=key.encode()))
        return _entry(answer.kvs[0]) if answer.kvs else None

    def range(self, prefix: str, *, limit: int = 0, start: str = "", revision: int = 0) -> Page:
        """Return the entries below ``prefix`` from ``start`` on, at ``revision``."""
        first, end = bounds(prefix)
        first = max(first, start.encode())
        if end != b"\0" and first >= end:
            return Page([], revision or self.revision(), 0)
        answer = self._range(rpc.RangeRequest(key=first, range_end=end, limit=limit, revision=revision))
        entries = [_entry(kv) for kv in answer.kvs]
        return Page(entries, revision or answer.header.revision, answer.count - len(entries))

    def create(self, key: str, value: bytes) -> int:
        """Write a new key and return its revision."""
        return self.write([Put(key, value, 0)])

    def update(self, key: str, value: bytes, expected: int) -> int:
        """Replace the value if the key's revision is ``expected``; return the new revision."""
        return self.write([Put(key, value, expected)])

    def write(self, puts: Sequence[Put]) -> int:
        """Make all of ``puts`` in one revision, or none; return the revision."""
        operations = [rpc.RequestOp(request_put=rpc.PutRequest(key=put.key.encode(), value=put.value)) for put in puts]
        answer = self._if_unchanged([(put.key, put.expected) for put in puts], operations)
        if answer.succeeded:
            return int(answer.header.revision)
        for put, response in zip(puts, answer.responses, strict=True):
            found = response.response_range.kvs
            check_expected("update", put.key, put.expected, found[0].mod_revision if found else 0)
        raise StaleWrite(f"cannot write {puts[0].key}: it was changed and changed back")

    def delete(self, key: str, expected: int) -> int:
        """Remove the key if its revision is ``expected``; return the removal's revision."""
        delete = rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key.encode()))
        answer = self._if_unchanged([(key, expected)], [delete])
        if not answer.succeeded:
            found = answer.responses[0].response_range.kvs
            check_expected("delete", key, expected, found[0].mod_revision if found else 0)
        return int(answer.header.revision)

    def watch(self, prefix: str, after: int) -> EtcdWatch:
        """Return the changes below ``prefix`` after the revision ``after``."""
        return EtcdWatch(self._connections, *bounds(prefix), after, self.revision)

    def revision(self) -> int:
        """Return the store's latest revision; the read goes through etcd's leader."""
        return int(self._range(rpc.RangeRequest(key=b"\0", count_only=True)).header.revision)

    def compact(self, revision: int) -> None:
        """Forget what was overwritten or deleted before ``revision``."""
        request = rpc.CompactionRequest(revision=revision)
        try:
            self._connections.read(COMPACT, request.SerializeToString())
        except CallFailed as error:
            refusal = _refusal(error)
            if not isinstance(refusal, Compacted):
                raise refusal from error

    def close(self) -> None:
        """Close the connections; running watches end."""
        self._connections.close()

    def _range(self, request: Any) -> Any:
        try:
            return rpc.RangeResponse.FromString(self._connections.read(RANGE, request.SerializeToString()))
        except CallFailed as error:
            raise _refusal(error) from error

    def _if_unchanged(self, expected: Sequence[tuple[str, int]], operations: Sequence[Any]) -> Any:
        request = rpc.TxnRequest(
            compare=[
                rpc.Compare(key=key.encode(), target=rpc.Compare.MOD, mod_revision=revision)
                for key, revision in expected
            ],
            success=operations,
            failure=[
                rpc.RequestOp(request_range=rpc.RangeRequest(key=key.encode(), keys_only=True)) for key, _ in expected
            ],
        )
        try:
            return rpc.TxnResponse.FromString(self._connections.write(TXN, request.SerializeToString()))
        except CallFailed as error:
            raise _refusal(error) from error


def bounds(prefix: str) -> tuple[bytes, bytes]:
    """Return etcd's first key and excluded end for everything below ``prefix``; NUL, NUL is all keys."""
    first = prefix.encode()
    if not first:
        return b"\0", b"\0"
    # UTF-8 never holds the byte 0xff, so the last byte can always be raised
    return first, first[:-1] + bytes([first[-1] + 1])


def _entry(kv: Any) -> Entry:
    return Entry(kv.key.decode(), kv.value, kv.mod_revision)


def _refusal(error: CallFailed) -> StoreError:
    """Return our error for an answer of etcd that is no result."""
    text = error.details
    if COMPACTED in text:
        return Compacted(f"the revision asked for is compacted: {text}")
    if error.code == OUT_OF_RANGE:
        return FutureRevision(f"the store has not reached the revision asked for: {text}")
    if any(words in text for words in TOO_LARGE):
        return ValueTooLarge(f"the value is too large for etcd: {text}")
    return StoreError(f"etcd refused the call: status {error.code} of gRPC: {text}")

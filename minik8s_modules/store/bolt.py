"""Raise the last revision in etcd's database file, in place, for etcd before 3.6, which cannot do it itself.

etcd keeps its keys in one bolt file: a B+tree, bucket ``key``, from revision (8 bytes main, ``_``, 8 bytes
sub, big endian) to the write. At its start etcd takes the main part of the last revision for the store's own;
``etcdutl snapshot restore --bump-revision`` uses that by inserting an entry with a greater one. A key of the
same length can be changed where it stands instead, as it stays the last; no page moves, and only meta pages
have a checksum. The caller puts a scratch key first, so that the entry changed is nobody's object.

Layout: go.etcd.io/bbolt, page.go and bucket.go (file format version 2, the only one since 2014).
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from minik8s_modules.store.errors import StoreError

MAGIC, VERSION = 0xED0CDAED, 2
PAGE_HEADER = struct.Struct("<QHHI")  # id, flags, count, overflow
META = struct.Struct("<IIIIQQQQQQ")  # magic, version, page size, flags, root, sequence, freelist, high, txid, checksum
LEAF_ELEMENT = struct.Struct("<IIII")  # flags, position (from the element), key size, value size
BRANCH_ELEMENT = struct.Struct("<IIQ")  # position (from the element), key size, page
BUCKET_HEADER = struct.Struct("<QQ")  # root page (0: inline, a page follows), sequence
BRANCH, LEAF = 0x01, 0x02
REVISION_BYTES = 17  # a deletion's has one more: "t"


class BoltError(StoreError):
    """The database file is not laid out as expected; nothing was changed."""


class _Element(NamedTuple):
    key_at: int
    key: bytes
    value_at: int
    value: bytes
    page: int


def raise_last_revision(path: Path, to: int, scratch_key: bytes) -> int:
    """Make the last write of the database ``path`` have revision ``to``; return the revision it had.

    Args:
        path: the ``db`` file of a stopped etcd.
        to: greater than every revision in the file.
        scratch_key: the key that was written last; anything else there is an error.

    Raises:
        BoltError: the file is laid out otherwise, or its last write is another one.
    """
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        try:
            trail = list(_last_elements(data))
        except struct.error as error:  # a page or element beyond the file's end
            raise BoltError(f"{path} is not a bolt database of version {VERSION}, or it is damaged") from error
        last = trail[-1]
        if len(last.key) != REVISION_BYTES or scratch_key not in last.value:
            raise BoltError(f"the last write in {path} is not that of {scratch_key.decode()}")
        before = int.from_bytes(last.key[:8], "big")
        if to <= before:
            raise BoltError(f"revision {to} is not after {before}, the last in {path}")
        # a branch repeats the first key of the page below it; bolt relies on both being equal
        for element in trail:
            if element.key == last.key:
                data[element.key_at : element.key_at + 8] = to.to_bytes(8, "big")
        data.flush()
        os.fsync(file.fileno())
    return before


def _last_elements(data: mmap.mmap) -> Iterator[_Element]:
    """Yield the last element of each page from the root of bucket ``key`` down to its last leaf."""
    page_bytes, root = _meta(data)
    at = _bucket_root(data, page_bytes, root)
    while True:
        _, flags, count, _ = PAGE_HEADER.unpack_from(data, at)
        if not count or flags & (BRANCH | LEAF) not in {BRANCH, LEAF}:
            raise BoltError(f"page at byte {at} has flags {flags:#x} and {count} elements")
        element = _element(data, at, flags, count - 1)
        yield element
        if flags & LEAF:
            return
        at = element.page * page_bytes


def _meta(data: mmap.mmap) -> tuple[int, int]:
    """Return the page size and the root bucket's page, from the newer of the two valid meta pages."""
    found = []
    first = META.unpack_from(data, PAGE_HEADER.size)
    for at in (0, first[2]):
        meta = META.unpack_from(data, at + PAGE_HEADER.size)
        raw = data[at + PAGE_HEADER.size : at + PAGE_HEADER.size + META.size - 8]
        if meta[:2] == (MAGIC, VERSION) and meta[-1] == _fnv1a(raw):
            found.append((meta[8], meta[2], meta[4]))
    if not found:
        raise BoltError(f"no meta page is of version {VERSION} and intact: this is not a bolt database")
    _, page_bytes, root = max(found)
    return page_bytes, root


def _bucket_root(data: mmap.mmap, page_bytes: int, root: int) -> int:
    """Return the byte where the root page of bucket ``key`` begins."""
    at = root * page_bytes
    _, flags, count, _ = PAGE_HEADER.unpack_from(data, at)
    # etcd has about ten buckets: their names fill one leaf, never a branch
    for index in range(count if flags & LEAF else 0):
        element = _element(data, at, flags, index)
        if element.key == b"key":
            page, _ = BUCKET_HEADER.unpack_from(element.value)
            return page * page_bytes if page else element.value_at + BUCKET_HEADER.size
    raise BoltError("the file has no bucket of etcd's keys")


def _element(data: mmap.mmap, page_at: int, flags: int, index: int) -> _Element:
    kind = LEAF_ELEMENT if flags & LEAF else BRANCH_ELEMENT
    at = page_at + PAGE_HEADER.size + index * kind.size
    if flags & LEAF:
        _, position, key_bytes, value_bytes = kind.unpack_from(data, at)
        page = 0
    else:
        position, key_bytes, page = kind.unpack_from(data, at)
        value_bytes = 0
    key_at = at + position
    value_at = key_at + key_bytes
    return _Element(key_at, data[key_at:value_at], value_at, data[value_at : value_at + value_bytes], page)


def _fnv1a(data: bytes) -> int:
    """Return the 64-bit FNV-1a hash, bolt's checksum of a meta page."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value

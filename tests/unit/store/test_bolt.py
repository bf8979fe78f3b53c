"""The rare bolt file whose last leaf has only the entry to raise; test_snapshots.py has files of a real etcd."""

from __future__ import annotations

from pathlib import Path

import pytest

from minik8s_modules.store import bolt
from minik8s_modules.store.bolt import BoltError, raise_last_revision

PAGE = 4096
SCRATCH = b"/minik8s/restored"


def revision_key(main: int) -> bytes:
    return main.to_bytes(8, "big") + b"_" + bytes(8)


def leaf(pairs: list[tuple[bytes, bytes]]) -> bytes:
    heads, tail = b"", b""
    for index, (key, value) in enumerate(pairs):
        position = (len(pairs) - index) * bolt.LEAF_ELEMENT.size + len(tail)
        heads += bolt.LEAF_ELEMENT.pack(0, position, len(key), len(value))
        tail += key + value
    return (bolt.PAGE_HEADER.pack(0, bolt.LEAF, len(pairs), 0) + heads + tail).ljust(PAGE, b"\0")


def branch(pairs: list[tuple[bytes, int]]) -> bytes:
    heads, tail = b"", b""
    for index, (key, page) in enumerate(pairs):
        position = (len(pairs) - index) * bolt.BRANCH_ELEMENT.size + len(tail)
        heads += bolt.BRANCH_ELEMENT.pack(position, len(key), page)
        tail += key
    return (bolt.PAGE_HEADER.pack(0, bolt.BRANCH, len(pairs), 0) + heads + tail).ljust(PAGE, b"\0")


def meta(txid: int, root: int, *, whole: bool = True) -> bytes:
    packed = bolt.META.pack(bolt.MAGIC, bolt.VERSION, PAGE, 0, root, 0, 0, 9, txid, 0)[:-8]
    checksum = bolt._fnv1a(packed) if whole else 0
    return (bolt.PAGE_HEADER.pack(0, 4, 0, 0) + packed + checksum.to_bytes(8, "little")).ljust(PAGE, b"\0")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Page 2: buckets; 3: branch of bucket key; 4 and 5: leaves. The newer meta page is torn."""
    buckets = leaf([(b"alarm", bytes(16)), (b"key", bolt.BUCKET_HEADER.pack(3, 0))])
    keys = branch([(revision_key(2), 4), (revision_key(4), 5)])
    first = leaf([(revision_key(2), b"two"), (revision_key(3), b"three")])
    last = leaf([(revision_key(4), b"value of " + SCRATCH)])
    path = tmp_path / "db"
    path.write_bytes(meta(7, 2) + meta(8, 99, whole=False) + buckets + keys + first + last)
    return path


def test_the_key_above_a_lone_last_entry_is_raised_with_it(file):
    before = file.read_bytes()
    assert raise_last_revision(file, 1_000_000_004, SCRATCH) == 4
    after = file.read_bytes()
    assert after.count(revision_key(1_000_000_004)) == 2
    assert after.count(revision_key(4)) == 0
    assert after.replace(revision_key(1_000_000_004), revision_key(4)) == before


@pytest.mark.parametrize(("to", "key"), [(4, SCRATCH), (10, b"/somebody/elses")])
def test_what_does_not_fit_is_refused_and_nothing_changed(file, to, key):
    before = file.read_bytes()
    with pytest.raises(BoltError):
        raise_last_revision(file, to, key)
    assert file.read_bytes() == before

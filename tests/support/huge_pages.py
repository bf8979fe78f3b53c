"""Huge pages of this machine: a test sets some aside, and gives them back."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SIZE = 2 << 20
FOLDER = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")
# processes that share the tests change one number: each adds to what it finds, and takes the same away
LOCK = Path(tempfile.gettempdir(), "minik8s-huge-pages.lock")


@contextmanager
def set_aside(count: int) -> Iterator[None]:
    """Set so many pages of 2 MiB aside; skips the test where the kernel has none."""
    if not FOLDER.exists():
        pytest.skip("this kernel has no huge pages of 2 MiB")
    got = _change(count)
    try:
        if got < count:
            pytest.skip(f"the memory of this machine has no room for {count} huge pages in one piece each, but {got}")
        yield
    finally:
        _change(-got)


def _change(by: int) -> int:
    """Change the number of pages; return by how many it changed."""
    number = FOLDER / "nr_hugepages"
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = int(number.read_text())
        number.write_text(str(before + by))
        return int(number.read_text()) - before

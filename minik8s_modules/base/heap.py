"""What the C library keeps of memory that was freed, for daemons that live for months.

glibc takes large blocks from the system one by one and gives them back when they are freed. But each one that is freed
raises the size from which it does so, up to 32 MB: after the first list of 10 MB, lists come from the heap. What is
allocated meanwhile, and stays, lies behind them, so their place is never given back. An API server over 3,000 Pods held
224 MB of heap for the 55 MB that it used once they had been deleted.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import re
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)
LARGE = 128 * 1024
"""glibc's own first limit. Whoever sets it has it stay."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
OF_CALLS = 8 << 20
"""What a call of a module takes and frees in all is less; with limits of 1 and 2 MB a call costs a third more CPU."""
HUGE = 2 << 20
_IN_USE = 0.9
_ENTRY = 8  # bytes of pagemap for a page; the last bit says whether it is there (admin-guide/mm/pagemap.rst)
_MADV_COLLAPSE = 25  # asm-generic/mman-common.h
_AREA = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p \S+ 00:00 0 *(?:\[heap\])?")


def keep_large_apart(limit: int = LARGE) -> bool:
    """Have blocks from ``limit`` bytes on always taken from the system, and given back when they are freed.

    Returns:
        False where the C library knows no such thing (musl, which does so anyway).
    """
    mallopt = _of_libc("mallopt")
    return mallopt is not None and mallopt(_M_MMAP_THRESHOLD, limit) == 1


def keep_for_calls() -> None:
    """Have blocks below `OF_CALLS` come from the heap again, and their place stay there, for who takes many.

    To take each from the system costs a third of a call's CPU: most of it for pages that are made empty again.
    """
    mallopt = _of_libc("mallopt")
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, 2 * OF_CALLS)
        mallopt(_M_MMAP_THRESHOLD, OF_CALLS)


def give_back() -> None:
    """Give whole pages of freed memory back to the system; nothing where the C library cannot."""
    trim = _of_libc("malloc_trim")
    if trim is not None:
        trim(ctypes.c_size_t(0))


def use_huge_pages() -> int:
    """Have the kernel put huge pages where memory of this process's own is in use anyway; return how many there are.

    What wakes after a pause finds its caches cold, those of page tables among them. A huge page is taken whole, so what
    is not nearly in use stays as it is: threads' stacks are mostly empty. Kernels before 6.1 know no such request.
    """
    advise = _of_libc("madvise")
    try:
        full = _full_pages() if advise is not None and not _are_forbidden() else []
    except OSError as error:
        log.info("no huge pages are asked for: %s", error)
        return 0
    return sum(advise(ctypes.c_void_p(at), ctypes.c_size_t(HUGE), _MADV_COLLAPSE) == 0 for at in full)


def _are_forbidden() -> bool:
    """Return whether somebody wants no huge pages on this machine: the kernel would make them all the same."""
    return "[never]" in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text(encoding="ascii")


def _full_pages() -> list[int]:
    """Return where a huge page would replace pages that are there, nearly all of them."""
    found = []
    with Path("/proc/self/pagemap").open("rb", buffering=0) as pages:  # mincore is not among @system-service
        for first, end in _own_areas(Path("/proc/self/maps").read_text(encoding="utf-8")):
            for at in range(-(-first // HUGE) * HUGE, end - HUGE + 1, HUGE):
                pages.seek(at // mmap.PAGESIZE * _ENTRY)
                there = pages.read(HUGE // mmap.PAGESIZE * _ENTRY)[_ENTRY - 1 :: _ENTRY]
                if sum(each >> 7 for each in there) >= _IN_USE * HUGE // mmap.PAGESIZE:
                    found.append(at)
    return found


def _own_areas(maps: str) -> list[tuple[int, int]]:
    """Return the beginnings and ends of what is private, writable and of no file, as maps tells it (proc(5))."""
    areas = filter(None, map(_AREA.fullmatch, maps.splitlines()))
    return [(int(area[1], 16), int(area[2], 16)) for area in areas]


def _of_libc(name: str) -> Any:
    try:
        return getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        log.debug("the C library has no %s", name)
        return None

"""What the C library says of its heap (mallinfo(3), of glibc alone)."""

from __future__ import annotations

import ctypes
from typing import cast

_FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class Mallinfo(ctypes.Structure):
    """``struct mallinfo2``; bytes, but for the counts ``ordblks``, ``smblks`` and ``hblks``."""

    arena: int
    ordblks: int
    hblks: int
    hblkhd: int
    uordblks: int
    fordblks: int
    _fields_ = tuple((name, ctypes.c_size_t) for name in _FIELDS)


def mallinfo2() -> Mallinfo:
    """Return what the heap of this process holds now."""
    function = ctypes.CDLL(None).mallinfo2
    function.restype = Mallinfo
    return cast("Mallinfo", function())

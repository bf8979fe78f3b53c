"""Random ids that cost no system call each: the kernel's randomness, drawn for hundreds at once.

Each ``os.urandom`` gives the interpreter's lock away and waits for its turn to come again; a created object took eight.
"""

from __future__ import annotations

import os
from collections import deque

_BYTES = 16
_AT_ONCE = 256
_VARIANTS = "89ab"
_drawn: deque[bytes] = deque()
os.register_at_fork(after_in_child=_drawn.clear)  # two processes must not hand out the same


def random_uid() -> str:
    """Return a fresh UUID (version 4) as text."""
    drawn = _draw()
    text = drawn.hex()
    # RFC 9562, 5.4: four bits are the version, two the variant
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{_VARIANTS[drawn[8] >> 6]}{text[17:20]}-{text[20:]}"


def random_word(alphabet: str, length: int) -> str:
    """Return ``length`` random characters of ``alphabet``; no more of them than 16 bytes tell apart evenly."""
    number = int.from_bytes(_draw(), "big")
    characters = []
    for _ in range(length):
        number, index = divmod(number, len(alphabet))
        characters.append(alphabet[index])
    return "".join(characters)


def _draw() -> bytes:
    try:
        return _drawn.popleft()  # atomic: no two threads get the same
    except IndexError:
        fresh = os.urandom(_BYTES * _AT_ONCE)
        _drawn.extend(fresh[at : at + _BYTES] for at in range(_BYTES, len(fresh), _BYTES))
        return fresh[:_BYTES]

"""What is freed goes back to the system. Each case is a process of its own: what a heap does depends on its past."""

from __future__ import annotations

import subprocess
import sys
import textwrap

_APART = """
    import ctypes, sys
    from minik8s_modules.base.heap import keep_large_apart

    class Told(ctypes.Structure):
        _fields_ = [(name, ctypes.c_size_t) for name in
                    "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]

    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = Told
    if sys.argv[1] == "apart":
        assert keep_large_apart()
    for _ in range(3):
        held = bytes(8 << 20)
        del held
    before = mallinfo2().hblkhd
    held = bytes(8 << 20)
    print(mallinfo2().hblkhd - before >= 8 << 20)
"""
_GIVEN_BACK = """
    from pathlib import Path
    from minik8s_modules.base.heap import give_back

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1])

    held = [bytes(4000) for _ in range(20_000)]
    after_all = bytes(4000)
    held.clear()
    before = resident()
    give_back()
    print(before - resident() > 10_000)
"""


def _run(program: str, *arguments: str) -> str:
    words = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def test_large_blocks_stay_apart_from_the_heap():
    assert _run(_APART, "apart") == "True"
    assert _run(_APART, "as it is") == "False"  # why this is done: glibc has learned to take them from the heap


def test_freed_memory_before_what_stays_is_given_back():
    assert _run(_GIVEN_BACK) == "True"

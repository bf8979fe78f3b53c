"""What is freed goes back to the system. Each case is a process of its own: what a heap does depends on its past."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.benchmarks.machine import daemon_environment

_APART = """
    import sys
    from minik8s_modules.base.heap import keep_large_apart
    from tests.support.c_heap import mallinfo2

    if sys.argv[1] == "apart":
        assert keep_large_apart()
    for _ in range(3):
        held = bytes(8 << 20)
        del held
    before = mallinfo2().hblkhd
    held = bytes(8 << 20)
    print(mallinfo2().hblkhd - before >= 8 << 20)
"""
_CALLS = """
    from minik8s_modules.base.heap import keep_for_calls, keep_large_apart
    from tests.support.c_heap import mallinfo2

    def apart(size):
        before = mallinfo2().hblkhd
        held = bytes(size)
        return mallinfo2().hblkhd - before >= size

    keep_large_apart()
    first = apart(600_000)
    keep_for_calls()
    second, grown = apart(600_000), mallinfo2().arena
    print(first, second, apart(16 << 20), apart(600_000), mallinfo2().arena >= grown)
"""
_PLAY = """
    import sys
    from minik8s_modules.plugins.live import program
    from tests.support.c_heap import mallinfo2

    sys.argv = ["ansible-playbook", "--version"]
    try:
        program.main()
    except SystemExit:
        for _ in range(3):
            held = bytes(8 << 20)
            del held
        before = mallinfo2().hblkhd
        held = bytes(8 << 20)
        print("apart:", mallinfo2().hblkhd - before >= 8 << 20)
"""
_SETTLED = """
    import logging
    import sys
    from pathlib import Path
    from minik8s_modules.base import process
    from minik8s_modules.base.config import Configuration

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1])

    logging.basicConfig(format="%(message)s", stream=sys.stdout)
    held = [bytes(4000) for _ in range(20_000)]
    after_all = bytes(4000)
    held.clear()
    before = resident()
    process._settle(Configuration({"prot": 1}, "f.yml"), Path("f.yml"))
    print(before - resident() > 10_000)
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
_THREADS = """
    import threading
    from ctypes import CDLL, c_void_p
    from tests.support.c_heap import mallinfo2

    libc = CDLL(None)
    libc.malloc.restype, libc.free.argtypes = c_void_p, [c_void_p]
    idle, end = threading.Barrier(17), threading.Event()

    def work():
        for size in range(100, 1000, 16):
            for block in [libc.malloc(size) for _ in range(10)]:
                libc.free(block)
        idle.wait()
        end.wait()

    before = mallinfo2().uordblks
    for _ in range(16):
        threading.Thread(target=work).start()
    idle.wait()
    print(mallinfo2().uordblks - before > 1_000_000)
    end.set()
"""
_HUGE = """
    import mmap
    import sys
    from pathlib import Path
    from minik8s_modules.base.heap import HUGE, use_huge_pages

    if "never" in sys.argv:
        text = Path.read_text
        Path.read_text = lambda self, **how: "always madvise [never]" if self.name == "enabled" else text(self, **how)
    def told(of):
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(of)) * 1024

    used, empty = (mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(2))
    used[:], empty[0] = b"x" * len(used), 1
    before = told("Rss:")
    found = use_huge_pages()
    print(found >= 7 and told("AnonHugePages:") == found * HUGE and used[-1] == ord("x"), told("Rss:") - before < HUGE)
"""


def _run(program: str, *arguments: str, **environment: str) -> str:
    words = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    done = subprocess.run(words, check=True, capture_output=True, text=True, env={**os.environ, **environment})
    return done.stdout.strip()


def test_large_blocks_stay_apart_from_the_heap():
    assert _run(_APART, "apart") == "True"
    assert _run(_APART, "as it is") == "False"  # why this is done: glibc has learned to take them from the heap


def test_calls_have_large_blocks_from_a_heap_that_keeps_their_place():
    assert _run(_CALLS) == "True False True False True"


def test_a_play_keeps_large_blocks_apart():
    assert _run(_PLAY).endswith("apart: True")


def test_a_daemon_that_has_begun_gives_back_what_it_freed_and_tells_what_it_did_not_read():
    assert _run(_SETTLED) == "f.yml: prot is not a setting of this daemon and is ignored\nTrue"


def test_freed_memory_before_what_stays_is_given_back():
    assert _run(_GIVEN_BACK) == "True"


def test_threads_of_installed_daemons_keep_nothing_that_they_freed():
    assert _run(_THREADS, **daemon_environment()) == "False"
    assert _run(_THREADS, GLIBC_TUNABLES="") == "True"  # why the roles say so


@pytest.mark.skipif(
    tuple(map(int, os.uname().release.split(".")[:2])) < (6, 1)
    or not Path("/sys/kernel/mm/transparent_hugepage").exists(),
    reason="this kernel makes no huge pages when it is asked to",
)
def test_what_is_in_use_has_huge_pages_and_what_is_empty_stays_so():
    assert _run(_HUGE) == "True True"
    assert _run(_HUGE, "never") == "False True"

"""An API server whose worker tells what its memory is used for: for ``holding --inside``.

The worker looks twice a second for a file ``ask`` beside its configuration, and writes ``told-<process>``: what parts
of the process are in memory, Python's and the C library's accounts of their heaps, and the objects that Python's
collector knows and that came after the start, by type.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import resource
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from minik8s_modules.apiserver import main as apiserver
from tests.support.c_heap import mallinfo2

PERIOD_S = 0.5
MOST = 25
_REGION = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \d+ *(.*)$")
_STACK_KIB = resource.getrlimit(resource.RLIMIT_STACK)[0] // 1024
_CLASS = re.compile(r"^ +\d+ +(\d+) +(\d+) +(\d+) +(\d+)$", re.MULTILINE)


def c_heap() -> str:
    """Return what the C library has from the system, has given out, and holds free."""
    found = mallinfo2()
    return (
        f"C library: heap {found.arena / 1e6:.1f} MB, of it in use {found.uordblks / 1e6:.1f}, free in"
        f" {found.ordblks} holes {found.fordblks / 1e6:.1f}; apart {found.hblks} blocks, {found.hblkhd / 1e6:.1f} MB"
    )


def resident() -> str:
    """Return what parts of the process are in memory: the C library's heaps, Python's arenas, stacks, files."""
    sizes: Counter[str] = Counter()
    part = ""
    for line in Path("/proc/self/smaps").read_text(encoding="ascii", errors="replace").splitlines():
        if found := _REGION.match(line):
            kib, name = (int(found[2], 16) - int(found[1], 16)) // 1024, found[3].strip()
            part = _part(kib, name)
            sizes[f"{part}, regions"] += 1
        elif line.startswith("Pss:"):
            sizes[part] += int(line.split()[1])
    return "resident: " + ", ".join(
        f"{name} {value}" if "regions" in name else f"{name} {value / 1024:.1f} MB"
        for name, value in sorted(sizes.items())
    )


def _part(kib: int, name: str) -> str:
    if name:
        return "heap" if name == "[heap]" else "files"
    if kib % 1024 == 0 and kib < _STACK_KIB:
        return "arenas"
    return "stacks" if kib in {_STACK_KIB, _STACK_KIB + 4} else "other"


def python_heap(folder: Path) -> str:
    """Return Python's own account of its small objects: the totals, and the size classes that hold most."""
    path = folder / f"stats-{os.getpid()}"
    kept = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
        sys._debugmallocstats()
        ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 2)
    os.close(kept)
    text = path.read_text(encoding="utf-8", errors="replace")
    path.unlink()
    totals = [line for line in text.splitlines() if line.startswith("# ") and "=" in line]
    classes = [tuple(map(int, found.groups())) for found in _CLASS.finditer(text)]
    rows = sorted(classes, key=lambda row: -row[0] * row[2])[:MOST]
    table = [
        f"  {size:5} B: {pools:5} pools, {size * blocks / 1e6:6.2f} MB used, {size * free / 1e6:6.2f} MB free"
        for size, pools, blocks, free in rows
    ]
    return "\n".join([*totals, *table])


def told(folder: Path) -> str:
    """Return everything that is told."""
    counts = Counter(type(each).__qualname__ for each in gc.get_objects())
    common = "\n".join(f"  {count:7} {name}" for name, count in counts.most_common(MOST))
    threads = Counter(re.sub(r"[\d-]+$", "", each.name) for each in threading.enumerate())
    return f"{resident()}\n{c_heap()}\n{python_heap(folder)}\nobjects:\n{common}\nthreads: {dict(threads)}"


def _answer(folder: Path) -> None:
    while True:
        time.sleep(PERIOD_S)
        asked = folder / "ask"
        if asked.exists():
            asked.unlink()
            made = folder / f"told-{os.getpid()}"
            made.with_suffix(".new").write_text(told(folder), encoding="utf-8")
            made.with_suffix(".new").rename(made)


def main() -> int:
    """Run the daemon; each worker gets the thread."""
    folder = Path(sys.argv[sys.argv.index("--config") + 1]).parent
    os.register_at_fork(
        after_in_child=lambda: threading.Thread(target=_answer, args=(folder,), name="inside", daemon=True).start()
    )
    return apiserver.main()


if __name__ == "__main__":
    raise SystemExit(main())

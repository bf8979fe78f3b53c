"""CPU time in units of this machine: bounds that hold on a slow machine and on a busy one.

``fast_seconds(t)`` are the seconds of a fast machine that ``t`` seconds of CPU are here. The measure is work like the
API server's (JSON, dictionaries, texts), done right beside what it is compared with, because a neighbour on the other
half of a core slows both.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import orjson
import psutil

# what ``_work`` takes on a fast machine (a quiet core of a server of 2023)
_FAST_S = 0.05
_ITEMS, _ROUNDS = 20_000, 5


def _work() -> int:
    document = orjson.dumps({"items": [{"name": f"n{i}", "value": i, "on": True} for i in range(_ITEMS)]})
    length = 0
    for _ in range(_ROUNDS):
        for item in orjson.loads(document)["items"]:
            for key, value in item.items():
                if isinstance(value, str):
                    length += len(f"{key}.{value}")
    return length


def factor() -> float:
    """Return how much slower than a fast machine this one is just now."""
    began = time.process_time()
    _work()
    return max(1.0, (time.process_time() - began) / _FAST_S)


def fast_seconds(spend: Callable[[], float], rounds: int = 10, enough: float = 0.0) -> float:
    """Return the least of ``rounds`` costs in seconds of a fast machine; ``spend`` does the work and returns its CPU.

    A round of ``enough`` at most is the last: what neighbours take of caches comes and goes, and makes nothing cheaper.
    It counts as it is where it takes no more here, as no machine counts as faster than a fast one.
    """
    least = float("inf")
    for _ in range(rounds):
        spent = spend()
        least = min(least, spent if spent <= enough else spent / factor())
        if least <= enough:
            break
    return least


def spent_by(pid: int) -> float:
    """Return the CPU seconds that a process and its children have used."""
    process = psutil.Process(pid)
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return sum(each.user + each.system for each in times)

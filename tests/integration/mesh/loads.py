"""Load on a mesh: one client's, and that of several side by side, which is judged with what the machine can do.

A machine that is full serves fewer requests than it is asked for, with sidecars or without. So beside the clients
another asks a Pod past all sidecars, at the rate of one of them: of what is demanded of the mesh, a machine owes the
share that it serves there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[3]
LONG_S = 120.0
DEMAND, RATE = 200, 100
"""Requests a second: that all clients together have to get answered, and that each asks for."""
CLIENTS = 3


class Load:
    """Requests at a steady rate, until it is stopped; ``words`` run a program in the client's network namespace."""

    def __init__(self, words: Sequence[str], address: str, port: int, rate: int, path: str = "/") -> None:
        asking = [sys.executable, "-m", "tests.support.requesting", address, str(port), path, str(rate)]
        self._process = subprocess.Popen(
            [*words, *asking], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=REPOSITORY
        )

    def ask_no_more(self) -> None:
        """Let it end once all that it has asked is answered; does not wait for that."""
        stdin, self._process.stdin = self._process.stdin, None
        if stdin is not None:
            stdin.close()

    def stop(self) -> dict[str, Any]:
        """Return what was answered: ``answers``, ``failures``, ``latencies_ms``, ``seconds``."""
        told, _ = self._process.communicate(timeout=LONG_S)
        found: dict[str, Any] = json.loads(told)
        return found

    def kill(self) -> None:
        """Ask no more, whatever was answered."""
        self._process.kill()
        self._process.wait()


class Together:
    """The loads of several clients, and one past all sidecars."""

    def __init__(self, loads: Sequence[Load], beside: Load) -> None:
        self._loads, self._beside = loads, beside

    def stop(self) -> Counter[str]:
        """Return what was answered; fails where a request has failed, or fewer than demanded were answered."""
        for each in (*self._loads, self._beside):
            each.ask_no_more()
        found, beside = [each.stop() for each in self._loads], self._beside.stop()
        failures = [failure for each in (*found, beside) for failure in each["failures"]]
        assert failures == []
        share = min(1.0, rate_of(beside) / RATE)
        served = sum(map(rate_of, found))
        p50_ms = max(each["latencies_ms"][len(each["latencies_ms"]) // 2] for each in found)
        answers = sum((Counter(each["answers"]) for each in found), Counter[str]())
        seconds = max(each["seconds"] for each in found)
        print(f"{answers.total()} requests in {seconds:.1f} s, {served:.0f} a second, p50 {p50_ms:.1f} ms at most,")
        print(f"and {rate_of(beside):.0f} of {RATE} a second past the sidecars")
        assert served >= DEMAND * share, (
            f"{served:.0f} requests a second, of {DEMAND * share:.0f} that the machine owes"
        )
        return answers


def rate_of(found: dict[str, Any]) -> float:
    """Return the answers of a load a second, until the last one."""
    answered: int = sum(found["answers"].values())
    return answered / float(found["seconds"])

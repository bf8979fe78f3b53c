"""One measured value, the bar it is held to, and what it is printed as."""

from __future__ import annotations

import os
from typing import NamedTuple


class Figure(NamedTuple):
    """One measured value, and the bar (an upper limit) it is held to where there is one; ``note`` says how."""

    name: str
    value: float
    unit: str
    bar: float | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        """Return whether the bar holds, "" without one."""
        if self.bar is None:
            return ""
        return "met" if self.value <= self.bar else "missed"

    def line(self) -> str:
        """Return one line for a terminal."""
        bar = "" if self.bar is None else f"   bar {self.bar:g} {self.verdict.upper()}"
        return f"{self.name:<56} {self.value:9.2f} {self.unit}{bar}  {self.note}"


def load() -> float:
    """Return the machine's load average of the last minute."""
    return os.getloadavg()[0]

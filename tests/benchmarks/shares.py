"""What py-spy's stacks say: each function's share of the samples."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

RATE = 200
_LINE = re.compile(r":\d+\)")


class Share(NamedTuple):
    """A function's share of the samples, in percent: in the stack, and on top of it."""

    inside: float
    own: float
    function: str


def shares(stacks: Iterable[str]) -> list[Share]:
    """Return the functions by share, the largest first.

    Args:
        stacks: lines ``frame (file:line);frame (file:line) COUNT``, the outermost frame first.
    """
    inside: Counter[str] = Counter()
    own: Counter[str] = Counter()
    total = 0
    for line in stacks:
        stack, _, count = line.rpartition(" ")
        frames = [_LINE.sub(")", frame) for frame in stack.split(";")]
        for function in {*frames}:
            inside[function] += int(count)
        own[frames[-1]] += int(count)
        total += int(count)
    return [Share(100 * n / total, 100 * own[name] / total, name) for name, n in inside.most_common()]

"""What a node becomes: a closure, and its fixed cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Frame = list[Any]  # [0]: spent; [1]: the most that may be spent; from [2]: variables
Run = Callable[[Frame], Any]
SPENT, LIMIT, FIRST_SLOT = 0, 1, 2


class Code(NamedTuple):
    """A closure and the cost that it always has.

    ``attribute``: a variable with what follows it; it costs one less as a branch of ``?:``. ``slot`` and ``names``:
    where it can be read at once. ``constant``: a value that is known now.
    """

    run: Run
    cost: int = 0
    attribute: bool = False
    branch_discount: int = 0
    constant: bool = False
    slot: int = -1
    names: tuple[str, ...] = ()

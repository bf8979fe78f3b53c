"""Order of two values: numbers of all types by value, all else within its type."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from minik8s_modules.cel.declarations import functions

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "_<_": operator.lt,
    "_<=_": operator.le,
    "_>_": operator.gt,
    "_>=_": operator.ge,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    overload.id: compare for name, compare in _OPERATORS.items() for overload in functions()[name]
}

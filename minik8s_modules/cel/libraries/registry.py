"""All implementations by the overload's name, and which values an overload takes.

The order of two values is Python's own: numbers of all types by value, all else within its type.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from minik8s_modules.cel.declarations import functions
from minik8s_modules.cel.libraries import (
    authorization,
    formats,
    lists,
    network,
    numbers,
    quantities,
    regex,
    strings,
    times,
    urls,
)
from minik8s_modules.cel.types import Type
from minik8s_modules.cel.values import type_of

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "_<_": operator.lt,
    "_<=_": operator.le,
    "_>_": operator.gt,
    "_>=_": operator.ge,
}
IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    name: function
    for library in (
        authorization, formats, lists, network, numbers, quantities, regex, strings, times, urls,
    )
    for name, function in library.FUNCTIONS.items()
} | {
    overload.id: compare for name, compare in _COMPARISONS.items() for overload in functions()[name]
}  # fmt: skip


def takes(wanted: Type, value: Any) -> bool:
    """Return whether a value may stand where an overload wants a type (what lists and maps hold is not looked at)."""
    if wanted.kind in {"dyn", "param"}:
        return True
    kind = type_of(value)
    return kind.kind == wanted.kind and (kind.name == wanted.name or kind.kind not in {"object", "opaque"})

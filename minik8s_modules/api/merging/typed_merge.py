"""Merging an applied configuration into a live object, as server-side apply does.

Maps merge key by key, lists by the keys of their items (or their values), atomic values are replaced whole. Nothing is
removed here (``server_side_apply`` prunes). The order of merged lists follows structured-merge-diff ``typed/merge.go``:
items the configuration does not name keep their places, shared and new ones come in the configuration's order.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

from minik8s_modules.api.merging.fieldsets import Fields, element_of
from minik8s_modules.api.schema.shapes import Shape


def merge(shape: Shape, live: Any, config: Any) -> Any:
    """Return ``live`` with all that ``config`` says; results share parts with both arguments.

    Raises:
        ValueError: items of ``config`` lack a key or share one; the text begins with the path.
    """
    if shape.of(live, config).relation in {"", "atomic"} or not (live or config):
        return config
    if isinstance(config, list) or isinstance(live, list):
        return _merge_items(shape, live or [], config or [])
    return _merge_fields(shape, live or {}, config or {})


def _merge_fields(shape: Shape, live: Fields, config: Fields) -> Fields:
    merged = dict(live)
    for name, wanted in config.items():
        sub = shape.below(name)
        if sub is None:
            continue
        try:
            merged[name] = merge(sub, live[name], wanted) if name in live else _checked(sub, wanted)
        except ValueError as error:
            raise ValueError(f".{name}{error}") from error
    return merged


def _checked(shape: Shape, config: Any) -> Any:
    """Return ``config``, new in the object, once its lists are known to be in order."""
    if shape.relation in {"set", "map"} and isinstance(config, list):
        _merge_items(shape, [], config)
    elif shape.relation == "granular" and isinstance(config, dict):
        _merge_fields(shape, {}, config)
    return config


def _elements(shape: Shape, items: list[Any], *, strict: bool) -> list[str]:
    found: dict[str, None] = {}
    elements = []
    for index, item in enumerate(items):
        try:
            element = element_of(shape, item)
        except ValueError as error:
            if strict:
                raise ValueError(f": element {index}: {error}") from error
            element = f"?{index}"
        if strict and element in found:
            raise ValueError(f": duplicate entries for key {element[2:]}")
        found[element] = None
        elements.append(element)
    return elements


def _merge_items(shape: Shape, live: list[Any], config: list[Any]) -> list[Any]:
    theirs = _elements(shape, config, strict=True)
    mine = _elements(shape, live, strict=False)
    wanted = dict(zip(theirs, config, strict=True))
    counts = Counter(mine)
    present = {element: item for element, item in zip(mine, live, strict=True) if counts[element] == 1}
    merged = []
    for element, index in _order(mine, theirs):
        if element not in wanted:
            merged.append(live[index])
        elif element in present:
            merged.append(_merged_item(shape.item, element, present[element], wanted[element]))
        else:
            merged.append(_checked(shape.item, wanted[element]))
    return merged


def _merged_item(shape: Shape, element: str, live: Any, config: Any) -> Any:
    try:
        return merge(shape, live, config)
    except ValueError as error:
        raise ValueError(f"[{element[2:]}]{error}") from error


def _order(mine: list[str], theirs: list[str]) -> list[tuple[str, int]]:
    """Return the elements of the merged list, each with its index in the live list (of use for live items only)."""
    wanted, present = set(theirs), set(mine)
    shared = deque(element for element in theirs if element in present)
    following = shared.popleft() if shared else None
    done: set[str] = set()
    order: list[tuple[str, int]] = []
    left = right = 0
    while left < len(mine) or right < len(theirs):
        if left < len(mine) and right < len(theirs):
            element = mine[left]
            if element == theirs[right]:
                done.add(element)
                order.append((element, left))
                left, right = left + 1, right + 1
                following = shared.popleft() if shared else None
                continue
            if element in wanted and following is not None and following != element:
                left += 1  # shared, but not the one whose turn it is
                continue
        if left < len(mine):
            element = mine[left]
            if element not in wanted:
                order.append((element, left))
                left += 1
                continue
            if element in done:
                left += 1
        if right < len(theirs):
            element = theirs[right]
            done.add(element)
            order.append((element, -1))
            right += 1
            if following == element:
                following = shared.popleft() if shared else None
    return order

"""Macros as loops. Each step is charged what cel-go's general loop would cost, and the limit is looked at.

In cel-go a macro is a loop with an accumulator: ``all`` pays 2 for its condition and 1 for reading the accumulator
each step, ``exists`` 3 and 1, lists 12 for each item they collect; reading the result costs 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from minik8s_modules.cel.errors import CostExceeded, EvaluationError, no_such_overload
from minik8s_modules.cel.running.code import LIMIT, SPENT, Code, Frame, Run
from minik8s_modules.cel.values import BoolKey, from_key, key_of

Step = Callable[[Frame], Any]
_RESULT = 1
_CONDITION = {True: 3, False: 2}  # of exists and all
_COUNTED = 2  # accumulator + 1
_APPENDED = 12  # reading the accumulator, a list of one, concatenation
_INSERTED = 3  # reading the accumulator and the key, insertion
_MERGED = 2  # reading the accumulator, insertion


def items_of(value: Any) -> Iterable[Any]:
    """Return what a loop with one variable runs over: items of a list, keys of a map."""
    if value.__class__ is list:
        return iter(value)
    if isinstance(value, dict):
        return map(from_key, value)
    raise EvaluationError(f"got '{value.__class__.__name__}', expected iterable type")


def pairs_of(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return what a loop with two variables runs over: index and item, key and value."""
    if value.__class__ is list:
        return enumerate(value)
    if isinstance(value, dict):
        return ((from_key(key), each) for key, each in value.items())
    raise EvaluationError("unsupported comprehension range type")


def _loop(source: Run, slots: tuple[int, ...], step_cost: int) -> Callable[[Frame], Iterable[None]]:
    """Return what sets the variables for each step, after charging for it."""
    first = slots[0]

    def one(frame: Frame) -> Iterable[None]:
        for item in items_of(source(frame)):
            frame[SPENT] += step_cost
            if frame[SPENT] > frame[LIMIT]:
                raise CostExceeded
            frame[first] = item
            yield

    def two(frame: Frame) -> Iterable[None]:
        for key, item in pairs_of(source(frame)):
            frame[SPENT] += step_cost
            if frame[SPENT] > frame[LIMIT]:
                raise CostExceeded
            frame[first], frame[slots[1]] = key, item
            yield

    return one if len(slots) == 1 else two


def quantifier(source: Code, slots: tuple[int, ...], test: Code, *, decisive: bool) -> Code:
    """Return ``exists`` (True decides) or ``all`` (False decides): an error counts only where nothing decides."""
    fetch, predicate, slot, second = source.run, test.run, slots[0], slots[-1]
    pairs = len(slots) > 1
    condition = _CONDITION[decisive]
    step = condition + 1 + test.cost

    def run(frame: Frame) -> Any:
        failure: EvaluationError | None = None
        values = iter(pairs_of(fetch(frame)) if pairs else items_of(fetch(frame)))
        limit = frame[LIMIT]
        for item in values:
            frame[SPENT] += step
            if frame[SPENT] > limit:
                raise CostExceeded
            if pairs:
                frame[slot], frame[second] = item
            else:
                frame[slot] = item
            try:
                value = predicate(frame)
            except EvaluationError as error:
                failure = failure or error
                continue
            if value is decisive:
                if next(values, _END) is not _END:
                    frame[SPENT] += condition  # upstream's loop ends at the next item's condition
                return decisive
            if value.__class__ is not bool:
                failure = failure or no_such_overload()
        if failure is not None:
            raise failure
        return not decisive

    return Code(run, source.cost + _RESULT)


_END = object()


def exactly_one(source: Code, slots: tuple[int, ...], test: Code) -> Code:
    """Return ``exists_one``: no short way, and any error is one of the whole."""
    predicate = test.run
    loop = _loop(source.run, slots, test.cost)

    def run(frame: Frame) -> bool:
        count = 0
        for _ in loop(frame):
            value = predicate(frame)
            if value is True:
                frame[SPENT] += _COUNTED
                count += 1
            elif value is not False:
                raise no_such_overload()
        return count == 1

    return Code(run, source.cost + 2)


def collecting(kind: str, source: Code, slots: tuple[int, ...], test: Code | None, result: Code) -> Code:
    """Return ``map``, ``filter``, ``transformList`` (kind list), ``transformMap`` (map) or ``…MapEntry`` (entries)."""
    start, add, price = _COLLECTORS[kind]
    loop = _loop(source.run, slots, test.cost if test else 0)
    predicate, collect, key = test.run if test else None, result.run, slots[0]
    price += result.cost

    def run(frame: Frame) -> Any:
        gathered = start()
        for _ in loop(frame):
            if predicate is not None:
                value = predicate(frame)
                if value is False:
                    continue
                if value is not True:
                    raise no_such_overload()
            frame[SPENT] += price
            add(gathered, frame[key], collect(frame))
        return gathered

    return Code(run, source.cost + _RESULT)


def _append(gathered: list[Any], _: Any, value: Any) -> None:
    gathered.append(value)


def _insert(gathered: dict[Any, Any], key: Any, value: Any) -> None:
    stored = key_of(key)
    if stored in gathered:
        raise EvaluationError(f"insert failed: key {_shown(stored)} already exists")
    gathered[stored] = value


def _merge(gathered: dict[Any, Any], _: Any, entries: Any) -> None:
    if not isinstance(entries, dict):
        raise no_such_overload()
    for key, value in entries.items():
        _insert(gathered, from_key(key), value)


def _shown(key: Any) -> Any:
    return key.value if isinstance(key, BoolKey) else key


_COLLECTORS: dict[str, tuple[Callable[[], Any], Callable[[Any, Any, Any], None], int]] = {
    "list": (list, _append, _APPENDED),
    "map": (dict, _insert, _INSERTED),
    "entries": (dict, _merge, _MERGED),
}

"""Calls of functions: directly where types are known, else by looking at the values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minik8s_modules.cel.declarations import Overload, functions
from minik8s_modules.cel.errors import CostExceeded, EvaluationError, no_such_overload
from minik8s_modules.cel.libraries.lists import contains
from minik8s_modules.cel.libraries.registry import IMPLEMENTATIONS, takes
from minik8s_modules.cel.running import costs
from minik8s_modules.cel.running.code import LIMIT, SPENT, Code, Frame, Run
from minik8s_modules.cel.running.equality import Equal, adding, equality
from minik8s_modules.cel.types import SCALARS, Type
from minik8s_modules.cel.values import UInt, key_of, type_of

Function = Callable[..., Any]


def call(function: str, overloads: Sequence[str], args: Sequence[Code], given: Sequence[Type]) -> Code:
    """Return what calls a function; ``given`` are the static types of the arguments."""
    cost = costs.of(function, overloads)
    if function in {"_==_", "_!=_"}:
        return _comparison(function, args, given)
    body = _implementation(function, overloads, given)
    fixed = sum(arg.cost for arg in args)
    runs = [arg.run for arg in args]
    if isinstance(cost, int):
        return Code(_plain(body, runs), fixed + cost)
    measured = _measured_after if function == "join" else _measured
    return Code(measured(body, runs, cost), fixed)


def _plain(body: Function, runs: list[Run]) -> Run:
    if len(runs) == 1:
        only = runs[0]
        return lambda frame: body(only(frame))
    if len(runs) == 2:  # noqa: PLR2004 - most functions have one or two arguments
        first, second = runs
        return lambda frame: body(first(frame), second(frame))
    return lambda frame: body(*[run(frame) for run in runs])


def _measured(body: Function, runs: list[Run], measure: costs.Measure) -> Run:
    """Return a call whose cost depends on its arguments: they are charged before anything is done with them."""

    def run(frame: Frame) -> Any:
        try:
            args = [each(frame) for each in runs]
        except EvaluationError:
            frame[SPENT] += 1  # upstream counts an error as a value of size 1
            raise
        frame[SPENT] += measure(args, None)
        if frame[SPENT] > frame[LIMIT]:
            raise CostExceeded
        return body(*args)

    return run


def _measured_after(body: Function, runs: list[Run], measure: costs.Measure) -> Run:
    """Return a call whose cost depends on its result, which is bounded."""

    def run(frame: Frame) -> Any:
        args = [each(frame) for each in runs]
        result = body(*args)
        frame[SPENT] += measure(args, result)
        return result

    return run


def _implementation(function: str, overloads: Sequence[str], given: Sequence[Type]) -> Function:
    declared = [each for each in functions()[function] if each.id in overloads]
    bodies = [(each, _body(each, given)) for each in declared]
    if len(bodies) == 1 and _certain(declared[0], given):
        return bodies[0][1]
    return _guarded(bodies)


def _certain(overload: Overload, given: Sequence[Type]) -> bool:
    """Whether static types leave no doubt that values fit."""
    return all(
        wanted.kind in {"param", "dyn"} or kind.kind == wanted.kind
        for wanted, kind in zip(overload.params, given, strict=True)
    )


def _body(overload: Overload, given: Sequence[Type]) -> Function:
    if overload.id == "add_list" and (special := adding(given[0])) is not None:
        return special
    if overload.id == "in_list":
        return _in_list(equality(given[1].params[0], given[0]) if given[1].params else None)
    return _SPECIAL.get(overload.id) or IMPLEMENTATIONS[overload.id]


def _guarded(bodies: list[tuple[Overload, Function]]) -> Function:
    def run(*args: Any) -> Any:
        for overload, body in bodies:
            if all(map(takes, overload.params, args)):
                return body(*args)
        raise no_such_overload()

    return run


def _in_list(same: Equal | None) -> Function:
    plain = IMPLEMENTATIONS["in_list"]
    if same is None:
        return plain

    def within(wanted: Any, items: list[Any]) -> bool:
        if wanted.__class__ is str:
            return wanted in items
        return any(same(item, wanted) for item in items)

    return within


def membership(wanted: Code, items: list[Any], kind: Type) -> Code:
    """Return ``x in […]`` with constants, which upstream makes a look into a set that it does not count."""
    run = wanted.run
    if items and all(item.__class__ is str for item in items):
        known = frozenset(items)

        def within(frame: Frame) -> bool:
            value = run(frame)
            return value.__class__ is str and value in known

        return Code(within, wanted.cost)
    if not items or any(item.__class__ not in _PRIMITIVE for item in items):
        return call("@in", ["in_list"], [wanted, Code(lambda _: items, constant=True)], [kind.params[0], kind])
    return Code(lambda frame: contains(items, run(frame)), wanted.cost)


_PRIMITIVE = frozenset({bool, float, int, str, UInt})


def _comparison(function: str, args: Sequence[Code], given: Sequence[Type]) -> Code:
    left, right = args[0].run, args[1].run
    fixed = args[0].cost + args[1].cost
    negated = function == "_!=_"
    if given[0].kind in SCALARS and given[0] == given[1]:
        if negated:
            return Code(lambda frame: left(frame) != right(frame), fixed + 1)
        return Code(lambda frame: left(frame) == right(frame), fixed + 1)
    same = equality(given[0], given[1])
    if given[0].kind == given[1].kind == "string":

        def texts(frame: Frame) -> bool:
            try:
                one, other = left(frame), right(frame)
                size = min(len(one), len(other))
            except EvaluationError:
                frame[SPENT] += 1  # upstream counts an error as a value of size 1
                raise
            frame[SPENT] += (size + 9) // 10
            return (one == other) is not negated

        return Code(texts, fixed)

    def compare(frame: Frame) -> bool:
        try:
            one, other = left(frame), right(frame)
        except EvaluationError:
            frame[SPENT] += 1
            raise
        frame[SPENT] += _equality_cost(function, one, other)
        return same(one, other) is not negated

    return Code(compare, fixed)


def _equality_cost(function: str, one: Any, other: Any) -> int:
    if function == "_==_" and hasattr(one, "cel_type"):
        return 1
    return int(costs.of(function, ["equals"])((one, other), None))  # type: ignore[operator]


def _in_map(key: Any, entries: dict[Any, Any]) -> bool:
    return key_of(key) in entries


_SPECIAL: dict[str, Function] = {"in_map": _in_map, "type": type_of}

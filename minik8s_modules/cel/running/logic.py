"""``&&``, ``||`` and ``?:``: what may be skipped, and what absorbs errors."""

from __future__ import annotations

from typing import Any

from minik8s_modules.cel.errors import EvaluationError, no_such_overload
from minik8s_modules.cel.running.code import SPENT, Code, Frame, Run
from minik8s_modules.cel.values import Optional


def junction(terms: list[Code], *, decisive: bool) -> Code:
    """Return ``||`` (True decides) or ``&&`` (False decides): an error counts only where nothing decides."""
    if len(terms) == 2:  # noqa: PLR2004 - the common case has a closure of its own
        return Code(_two(terms[0], terms[1], decisive=decisive), terms[0].cost)
    rest = [(term.run, term.cost) for term in terms[1:]]
    return Code(_many(terms[0].run, rest, decisive=decisive), terms[0].cost)


def _two(first: Code, second: Code, *, decisive: bool) -> Run:
    left, right, cost, other = first.run, second.run, second.cost, not decisive

    def run(frame: Frame) -> Any:
        failure: EvaluationError | None = None
        try:
            value = left(frame)
        except EvaluationError as error:
            failure = error
        else:
            if value is decisive:
                return decisive
            if value is not other:
                failure = no_such_overload()
        frame[SPENT] += cost
        if failure is not None:
            return _despite(failure, right, frame, decisive=decisive)
        result = right(frame)
        if result is other or result is decisive:
            return result
        raise no_such_overload()

    return run


def _despite(failure: EvaluationError, run: Run, frame: Frame, *, decisive: bool) -> bool:
    """Return what the second term decides after the first failed, or raise the failure."""
    try:
        result = run(frame)
    except EvaluationError:
        raise failure from None
    if result is not decisive:
        raise failure
    return bool(result)


def _many(first: Run, rest: list[tuple[Run, int]], *, decisive: bool) -> Run:
    parts = [(first, 0), *rest]

    def run(frame: Frame) -> Any:
        failure: EvaluationError | None = None
        for term, cost in parts:
            frame[SPENT] += cost
            try:
                value = term(frame)
            except EvaluationError as error:
                failure = failure or error
                continue
            if value is decisive:
                return decisive
            if value.__class__ is not bool:
                failure = failure or no_such_overload()
        if failure is not None:
            raise failure
        return not decisive

    return run


def choice(condition: Code, yes: Code, no: Code) -> Code:
    """Return ``condition ? yes : no``. It has no cost of its own, and a variable as branch costs one less."""
    test, first, second = condition.run, yes.run, no.run
    cost_yes, cost_no = yes.cost - yes.branch_discount, no.cost - no.branch_discount

    def run(frame: Frame) -> Any:
        chosen = test(frame)
        if chosen is True:
            frame[SPENT] += cost_yes
            return first(frame)
        if chosen is False:
            frame[SPENT] += cost_no
            return second(frame)
        raise no_such_overload()

    return Code(run, condition.cost, attribute=True)


def alternative(option: Code, other: Code, *, unwrap: bool) -> Code:
    """Return ``option.or(other)``, or ``option.orValue(other)`` with ``unwrap``."""
    first, second, cost = option.run, other.run, other.cost

    def run(frame: Frame) -> Any:
        value = first(frame)
        if value.__class__ is not Optional:
            raise no_such_overload()
        if value.present:
            return value.value if unwrap else value
        frame[SPENT] += cost
        return second(frame)

    return Code(run, option.cost)


def mapped(option: Code, slot: int, body: Code, *, flat: bool) -> Code:
    """Return ``option.optMap(x, body)``; the option is charged twice, for upstream's macro evaluates it twice."""
    source, fixed, run_body = option.run, option.cost, body.run
    # hasValue 1; value 1; body; optional.of 1 unless flat
    beyond = fixed + 1 + body.cost + (0 if flat else 1)

    def run(frame: Frame) -> Any:
        before = frame[SPENT]
        value = source(frame)
        if value.__class__ is not Optional:
            raise no_such_overload()
        if not value.present:
            frame[SPENT] += 1  # optional.none()
            return value
        frame[SPENT] += frame[SPENT] - before + beyond
        saved = frame[slot]
        frame[slot] = value.value
        try:
            result = run_body(frame)
        finally:
            frame[slot] = saved
        return result if flat else Optional(present=True, value=result)

    return Code(run, fixed + 1)

"""Tables of constraints: a row says which field, and a rule what its value must keep.

A rule is called with the field's path and its value (None when absent) and returns what is wrong. ``fields`` makes a
rule of rows, for an object; ``each`` one for a list; the others are for single values. Rows are asked in their order,
and so the causes come in kube-apiserver's. What several fields decide together stands in a row without a name: a
function that is given the whole object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from minik8s_modules.api import cause, syntax
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, spec

Rule = Callable[[str, Any], list[Cause]]
Row = tuple[str | tuple[str, ...], Rule]


def fields(*rows: Row) -> Rule:
    """Return the rule of an object; a row's field may stand deeper in it (``backend.service.name``)."""
    single = [(name, rule) for names, rule in rows for name in ((names,) if isinstance(names, str) else names)]
    # a rule that has nothing to say of an absent value is not asked about one: most fields are absent
    compiled = [(name, rule, not name or bool(rule("", None))) for name, rule in map(_shallow, single)]

    def check(at: str, obj: JsonObject | None) -> list[Cause]:
        causes: list[Cause] = []
        found = obj or {}
        for name, rule, asked_when_absent in compiled:
            if not name:
                causes += rule(at, found)
            elif (value := found.get(name)) is not None or asked_when_absent:
                causes += rule(f"{at}.{name}" if at else name, value)
        return causes

    return check


def _shallow(row: tuple[str, Rule]) -> tuple[str, Rule]:
    first, dot, rest = row[0].partition(".")
    return (first, fields((rest, row[1]))) if dot else row


def of_spec(*rows: Row) -> Callable[[JsonObject], list[Cause]]:
    """Return the check of a kind of which only ``spec`` is looked at."""
    rule = fields(*rows)
    return lambda obj: rule("spec", spec(obj))


def each(rule: Rule, *, key: tuple[str, Rule] | None = None) -> Rule:
    """Return the rule of a list whose items keep ``rule``; first comes the field ``key``, alike in no two of them."""

    def check(at: str, items: Iterable[Any] | None) -> list[Cause]:
        causes: list[Cause] = []
        seen: set[Any] = set()
        for index, item in enumerate(items or ()):
            here = f"{at}[{index}]"
            if key:
                name, of_key = key
                value = item.get(name) or ""
                causes += of_key(f"{here}.{name}", value)
                if value in seen:
                    causes.append(cause.duplicate(f"{here}.{name}", value))
                seen.add(value)
            causes += rule(here, item)
        return causes

    return check


def no_rule(_at: str, _value: Any) -> list[Cause]:
    """Keep nothing."""
    return []


def every(*rules: Rule) -> Rule:
    """Return the rule that keeps all of ``rules``."""
    return lambda at, value: [one for rule in rules for one in rule(at, value)]


def mandatory(rule: Rule | None = None, detail: str = "") -> Rule:
    """Return the rule of a value that must be there and not be empty, and then keep ``rule``."""

    def check(at: str, value: Any) -> list[Cause]:
        if not value:
            return [cause.required(at, detail)]
        return rule(at, value) if rule else []

    return check


def if_set(rule: Rule) -> Rule:
    """Return the rule of a value that must keep ``rule`` unless it is absent or empty."""
    return lambda at, value: rule(at, value) if value else []


def if_given(rule: Rule) -> Rule:
    """Return the rule of a value that must keep ``rule`` unless it is absent."""
    return lambda at, value: [] if value is None else rule(at, value)


def absent_as(default: Any, rule: Rule) -> Rule:
    """Return the rule of a value that stands for ``default`` when it is absent or empty, and must keep ``rule``."""
    return lambda at, value: rule(at, value or default)


def syntax_of(problems: Callable[[Any], list[str]]) -> Rule:
    """Return the rule of a text that ``problems`` (of ``syntax``) finds nothing wrong with; absent is ""."""

    def check(at: str, value: Any) -> list[Cause]:
        given = "" if value is None else value
        return [cause.invalid(at, given, detail) for detail in problems(given)]

    return check


def one_of(*allowed: str) -> Rule:
    """Return the rule of a value that must be one of a few."""
    return lambda at, value: [] if value in allowed else [cause.not_supported(at, value, allowed)]


def held(holds: Callable[[Any], bool], detail: str) -> Rule:
    """Return the rule of a value for which ``holds`` must be true; otherwise ``detail`` says what it must be."""
    return lambda at, value: [] if holds(value) else [cause.invalid(at, value, detail)]


def at_least(lowest: int, detail: str = "") -> Rule:
    """Return the rule of a number that may be absent, and not below ``lowest``."""
    detail = detail or f"must be greater than or equal to {lowest}"
    return lambda at, value: [] if value is None or value >= lowest else [cause.invalid(at, value, detail)]


def at_most(highest: int) -> Rule:
    """Return the rule of a number that may be absent, and not above ``highest``."""
    return if_given(held(lambda value: value <= highest, f"must be less than or equal to {highest}"))


def between(lowest: int, highest: int, detail: str = "") -> Rule:
    """Return the rule of a number that may be absent, and not outside of ``lowest`` to ``highest``."""
    detail = detail or f"must be between {lowest} and {highest}, inclusive"
    return if_given(held(lambda value: lowest <= value <= highest, detail))


not_negative = at_least(0)
label = syntax_of(syntax.dns1123_label)
subdomain = syntax_of(syntax.dns1123_subdomain)
label_value = syntax_of(syntax.label_value)
qualified_name = syntax_of(syntax.qualified_name)
port_number = syntax_of(syntax.port_number)
port_name = syntax_of(syntax.port_name)
ipv4 = syntax_of(syntax.ipv4)

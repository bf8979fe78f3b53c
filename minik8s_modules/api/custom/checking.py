"""Validation of custom objects: a structural schema compiled into closures, once per definition.

A check returns the faults of a value, each with its path and what makes a ``Cause`` of it; paths and words are made
only when something is wrong. Words are kube-openapi's (``pkg/validation/errors``), fields those of
apiextensions-apiserver ``pkg/apiserver/validation``. On update, faults of what has not changed do not count
(ratcheting, KEP-4008).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import orjson

from minik8s_modules.api import cause
from minik8s_modules.api.custom import formats
from minik8s_modules.api.custom.closest import closest
from minik8s_modules.api.custom.faults import Fault, Path, unchanged
from minik8s_modules.api.errors import MOST_TOLD, Cause
from minik8s_modules.api.objects import JsonObject

Check = Callable[[Any], list[Fault]]
_NOTHING: list[Fault] = []


def checker(schema: JsonObject) -> Callable[[JsonObject, JsonObject | None], list[Cause]]:
    """Return what tells the faults of a new object, given the old one (None on create)."""
    check, keys = _compiled(schema), schema

    def causes_of(new: JsonObject, old: JsonObject | None) -> list[Cause]:
        faults = check(new)
        if faults and old is not None:
            faults = [fault for fault in faults if not unchanged(fault, new, old, keys)]
        return [fault.tell(_named(fault.path)) for fault in faults[:MOST_TOLD]]

    return causes_of


def _named(path: Path) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".") or "<nil>"


# --- one schema -----------------------------------------------------------------------------------


def _compiled(schema: JsonObject) -> Check:
    """Return the check of a schema; what it says nothing about is not looked at."""
    of_type = _type_check(schema)
    rules = [rule for make in _RULES for rule in make(schema)]
    below = [walk for walk in (_fields(schema), _items(schema), _list_type(schema)) if walk is not None]
    nullable = bool(schema.get("nullable"))
    every = (*rules, *below)

    def check(value: Any) -> list[Fault]:
        if value is None and nullable:
            return _NOTHING
        if of_type is not None and (faults := of_type(value)):
            return faults
        found: list[Fault] = _NOTHING
        for each in every:
            if faults := each(value):
                found = found + faults
                if len(found) >= MOST_TOLD:
                    break
        return found

    return check


def _fault(tell: Callable[[str], Cause]) -> list[Fault]:
    return [Fault((), tell)]


def _wrong(reason: str, value: Any, words: str) -> list[Fault]:
    """Return the fault of a value; ``words`` follow its path."""
    shown = orjson.dumps(value).decode()
    return _fault(
        lambda at: Cause(reason, f"Invalid value: {shown}: {'' if at == '<nil>' else at} in body {words}", at)
    )


_INVALID, _TYPE_INVALID = "FieldValueInvalid", "FieldValueTypeInvalid"
_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "number": lambda value: type(value) in {int, float},
    "integer": lambda value: type(value) is int or (type(value) is float and value.is_integer()),
}


def _json_type(value: Any) -> str:
    if value is None:
        return "null"
    return next(name for name in ("object", "array", "string", "boolean", "integer", "number") if _TYPES[name](value))


def _type_check(schema: JsonObject) -> Check | None:
    names = ("integer", "string") if schema.get("x-kubernetes-int-or-string") else (schema.get("type") or "",)
    if names == ("",):
        return None
    tests, text = [_TYPES[name] for name in names], ",".join(names)

    def check(value: Any) -> list[Fault]:
        if any(test(value) for test in tests):
            return _NOTHING
        got = _json_type(value)
        return _wrong(_TYPE_INVALID, got, f'must be of type {text}: "{got}"')

    return check


def _fields(schema: JsonObject) -> Check | None:
    fields = {name: _compiled(inner) for name, inner in (schema.get("properties") or {}).items()}
    extra = schema.get("additionalProperties")
    others = _compiled(extra) if isinstance(extra, dict) else None
    if not fields and others is None:
        return None

    def check(value: Any) -> list[Fault]:
        found: list[Fault] = _NOTHING
        if isinstance(value, dict):
            for name, inner in value.items():
                of_field = fields.get(name, others)
                if of_field is not None and (faults := of_field(inner)):
                    found = found + [fault.below(name) for fault in faults]
        return found

    return check


def _items(schema: JsonObject) -> Check | None:
    items = schema.get("items")
    if not isinstance(items, dict):
        return None
    of_item = _compiled(items)

    def check(value: Any) -> list[Fault]:
        found: list[Fault] = _NOTHING
        if isinstance(value, list):
            for index, inner in enumerate(value):
                if faults := of_item(inner):
                    found = found + [fault.below(index) for fault in faults]
        return found

    return check


def _list_type(schema: JsonObject) -> Check | None:
    kind, keys = schema.get("x-kubernetes-list-type"), tuple(schema.get("x-kubernetes-list-map-keys") or ())
    if kind not in {"set", "map"}:
        return None
    defaults = _key_defaults(schema, keys)

    def named(item: Any) -> Any:
        if kind == "set":
            return item
        return {key: item.get(key, defaults.get(key)) for key in keys} if isinstance(item, dict) else item

    def check(value: Any) -> list[Fault]:
        found, seen = _NOTHING, set()
        for index, item in enumerate(value if isinstance(value, list) else ()):
            one = named(item)
            text = orjson.dumps(one, option=orjson.OPT_SORT_KEYS)
            if text in seen:
                found = [*found, Fault((index,), lambda at, one=one: cause.duplicate(at, one))]  # type: ignore[misc]
            seen.add(text)
        return found

    return check


def _key_defaults(schema: JsonObject, keys: Iterable[str]) -> JsonObject:
    items = schema.get("items")
    fields = (items.get("properties") or {}) if isinstance(items, dict) else {}
    return {key: fields[key]["default"] for key in keys if key in fields and "default" in fields[key]}


# --- rules of single values -----------------------------------------------------------------------


def _required(schema: JsonObject) -> Iterator[Check]:
    names = tuple(schema.get("required") or ())

    def check(value: Any) -> list[Fault]:
        if not isinstance(value, dict):
            return _NOTHING
        return [Fault((name,), cause.required, absent=True) for name in names if name not in value]

    if names:
        yield check


def _enum(schema: JsonObject) -> Iterator[Check]:
    allowed = schema.get("enum")
    if not allowed:
        return
    known = {orjson.dumps(each, option=orjson.OPT_SORT_KEYS) for each in allowed}
    accepted = [each if isinstance(each, str) else orjson.dumps(each).decode() for each in allowed]

    def check(value: Any) -> list[Fault]:
        if orjson.dumps(value, option=orjson.OPT_SORT_KEYS) in known:
            return _NOTHING
        return _fault(lambda at: cause.not_supported(at, value, accepted, in_order=True))

    yield check


def _texts(schema: JsonObject) -> Iterator[Check]:
    most, least, pattern = schema.get("maxLength"), schema.get("minLength"), schema.get("pattern")
    if most is not None:
        limit = int(most)
        yield (
            lambda value: (
                _fault(lambda at: cause.too_long(at, limit))
                if isinstance(value, str) and len(value) > limit
                else _NOTHING
            )
        )
    if least is not None:
        words = f"should be at least {least} chars long"
        yield (
            lambda value: _wrong(_INVALID, value, words) if isinstance(value, str) and len(value) < least else _NOTHING
        )
    if pattern:
        import re2  # noqa: PLC0415 - 2 MB, for schemas with patterns alone

        search, text = re2.compile(pattern).search, f"should match '{pattern}'"
        yield (
            lambda value: (
                _wrong(_INVALID, value, text) if isinstance(value, str) and search(value) is None else _NOTHING
            )
        )


def _format(schema: JsonObject) -> Iterator[Check]:
    name = schema.get("format") or ""
    reads = formats.check_of(name)
    if reads is not None:
        yield (
            lambda value: (
                _wrong(_TYPE_INVALID, value, f"must be of type {name}: {orjson.dumps(value).decode()}")
                if isinstance(value, str) and not reads(value)
                else _NOTHING
            )
        )


_BOUNDS: Mapping[tuple[str, bool], tuple[Callable[[Any, Any], bool], str]] = {
    ("minimum", False): (lambda value, bound: value >= bound, "greater than or equal to"),
    ("minimum", True): (lambda value, bound: value > bound, "greater than"),
    ("maximum", False): (lambda value, bound: value <= bound, "less than or equal to"),
    ("maximum", True): (lambda value, bound: value < bound, "less than"),
}


def _numbers(schema: JsonObject) -> Iterator[Check]:
    for name, exclusive in (("maximum", "exclusiveMaximum"), ("minimum", "exclusiveMinimum")):
        bound = schema.get(name)
        if bound is not None:
            yield _bound(bound, *_BOUNDS[name, bool(schema.get(exclusive))])
    factor = schema.get("multipleOf")
    if factor:
        yield (
            lambda value: (
                _wrong(_INVALID, value, f"should be a multiple of {_number(factor)}")
                if _TYPES["number"](value) and not _is_multiple(value, factor)
                else _NOTHING
            )
        )


def _bound(bound: float, holds: Callable[[Any, Any], bool], words: str) -> Check:
    text = f"should be {words} {_number(bound)}"
    return lambda value: (
        _wrong(_INVALID, value, text) if type(value) in {int, float} and not holds(value, bound) else _NOTHING
    )


def _is_multiple(value: Any, factor: Any) -> bool:
    if isinstance(value, int) and isinstance(factor, int):
        return value % factor == 0
    return float(value / factor).is_integer()


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)


def _counts(schema: JsonObject) -> Iterator[Check]:
    for kind, most, least, what in (
        (list, schema.get("maxItems"), schema.get("minItems"), "items"),
        (dict, schema.get("maxProperties"), schema.get("minProperties"), "properties"),
    ):
        if most is not None:
            yield _at_most(kind, int(most))
        if least is not None:
            yield _at_least(kind, int(least), what)


def _at_most(kind: type, most: int) -> Check:
    def check(value: Any) -> list[Fault]:
        if not isinstance(value, kind) or len(value) <= most:  # type: ignore[arg-type]
            return _NOTHING
        count = len(value)  # type: ignore[arg-type]
        return _fault(lambda at: cause.too_many(at, count, most))

    return check


def _at_least(kind: type, least: int, what: str) -> Check:
    def check(value: Any) -> list[Fault]:
        if not isinstance(value, kind) or len(value) >= least:  # type: ignore[arg-type]
            return _NOTHING
        return _wrong(_INVALID, len(value), f"should have at least {least} {what}")  # type: ignore[arg-type]

    return check


# --- several schemas ------------------------------------------------------------------------------


def _junctors(schema: JsonObject) -> Iterator[Check]:
    every, some, one, no = (schema.get(name) for name in ("allOf", "anyOf", "oneOf", "not"))
    if every:
        yield _all_of([_compiled(each) for each in every])
    if some:
        yield _any_of(some)
    if one:
        yield _one_of(one)
    if no is not None:
        refused = _compiled(no)
        yield lambda value: _NOTHING if refused(value) else _juncture("must not validate the schema (not)")


def _juncture(words: str) -> list[Fault]:
    return _fault(lambda at: Cause(_INVALID, f'Invalid value: "": "{"" if at == "<nil>" else at}" {words}', "<nil>"))


def _all_of(checks: list[Check]) -> Check:
    def check(value: Any) -> list[Fault]:
        faults = [found for each in checks if (found := each(value))]
        if not faults:
            return _NOTHING
        none = ". None validated" if len(faults) == len(checks) else ""
        return list(chain(*faults)) + _juncture(f"must validate all the schemas (allOf){none}")

    return check


def _any_of(schemas: list[JsonObject]) -> Check:
    checks = [_compiled(each) for each in schemas]

    def check(value: Any) -> list[Fault]:
        faults: list[list[Fault]] = []
        for each in checks:
            if not (found := each(value)):
                return _NOTHING
            faults.append(found)
        return _juncture("must validate at least one schema (anyOf)") + faults[closest(schemas, value)]

    return check


def _one_of(schemas: list[JsonObject]) -> Check:
    checks = [_compiled(each) for each in schemas]

    def check(value: Any) -> list[Fault]:
        faults = [each(value) for each in checks]
        valid = sum(1 for each in faults if not each)
        if valid == 1:
            return _NOTHING
        if valid:
            return _juncture(f"must validate one and only one schema (oneOf). Found {valid} valid alternatives")
        none = _juncture("must validate one and only one schema (oneOf). Found none valid")
        return none + faults[closest(schemas, value)]

    return check


_RULES: tuple[Callable[[JsonObject], Iterator[Check]], ...] = (
    _texts,
    _format,
    _numbers,
    _counts,
    _required,
    _enum,
    _junctors,
)

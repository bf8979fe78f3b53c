"""What of a policy's expressions does not fit the kinds that its rules name: warnings for its status.

A policy is refused for what no object could make right; objects are dyn then. Here the same expressions are checked
once more for each kind, with the types of its schema. It never changes what the policy does, and is given up where it
would cost other requests too much.
Source: apiserver ``plugin/policy/validating/typechecking.go``, ``pkg/cel/openapi/resolver/refs.go``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import Any

from minik8s_modules import cel
from minik8s_modules.api.kind import Kind, Registry
from minik8s_modules.api.objects import JsonObject, spec
from minik8s_modules.api.schema.shapes import definition
from minik8s_modules.cel import CelSyntaxError, CelTypeError, CompileError, Type
from minik8s_modules.cel.admission import environment
from minik8s_modules.cel.schema.declared import declare

MOST_KINDS = 10
# of all expressions for all kinds; to compile a character takes some 15 µs
MOST_CHARACTERS = 500_000
# so much an expression costs, however short it is
_LEAST_CHARACTERS = 100
_UNCHECKED = "not checked, nor is what follows: the policy has too many expressions for the kinds that its rules name"
_PLAIN = frozenset({"type", "format", "required", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"})
_INT_OR_STRING = "x-kubernetes-int-or-string"  # whose values may be of any type


def warnings_of(policy: JsonObject, kinds: Registry) -> list[JsonObject]:
    """Return the ``expressionWarnings`` of a policy's status; where it is too much to check, the last one says so."""
    declared, budget = spec(policy), _Budget()
    about = declared.get("paramKind")
    params = kinds.by_api_version(about["apiVersion"], about["kind"]) if about else None
    params_type = type_of(params) if params is not None else cel.DYN if about else None
    variables = declared.get("variables") or ()
    checks = [_Check(kind, params_type, variables, budget) for kind in kinds_named(declared, kinds)]
    found: list[JsonObject] = []
    for index, validation in enumerate(declared.get("validations") or ()):
        for field in ("expression", "messageExpression"):
            place, source = f"spec.validations[{index}].{field}", validation.get(field)
            try:
                warnings = [wrong for each in checks if source and (wrong := each.wrong(source))]
            except _SpentError:
                return [*found, {"fieldRef": place, "warning": _UNCHECKED}]
            if warnings:
                found.append({"fieldRef": place, "warning": "\n".join(warnings)})
    return found


def kinds_named(declared: JsonObject, kinds: Registry) -> list[Kind]:
    """Return the kinds that a policy's rules name without wildcards, at most ``MOST_KINDS``, ordered."""
    found: dict[tuple[str, str, str], Kind] = {}
    for rule in (declared.get("matchConstraints") or {}).get("resourceRules") or ():
        groups, versions = (sorted(rule.get(field) or ()) for field in ("apiGroups", "apiVersions"))
        if any("*" in each for each in (*groups, *versions)):
            continue
        resources = sorted(each for each in rule.get("resources") or () if not {"*", "/"} & {*each})
        for place in product(groups, versions, resources):
            kind = kinds.by_resource(*place)
            if kind is not None and len(found) < MOST_KINDS:
                found[kind.group, kind.version, kind.kind] = kind
    return [found[key] for key in sorted(found)]


def type_of(kind: Kind) -> Type:
    """Return the type of a kind's objects, with all fields that its schema declares."""
    schema = kind.custom.schema() if kind.custom is not None else definition(kind.definition)
    return declare(resolved(schema), kind.kind, root=True) or cel.DYN


def resolved(schema: Mapping[str, Any], within: frozenset[str] = frozenset()) -> JsonObject:
    """Return a schema without references; where it contains itself, an object of which nothing is known ends it."""
    reference = str(schema.get("$ref", "")).rpartition("/")[2]
    if reference:
        return {"type": "object"} if reference in within else resolved(definition(reference), within | {reference})
    found: JsonObject = {
        keyword: value for keyword, value in schema.items() if keyword in _PLAIN or keyword[:2] == "x-"
    }
    kinds = [schema["type"]] if isinstance(schema.get("type"), str) else schema.get("type") or ()
    found["type"] = next((each for each in kinds if each != "null"), None)
    if found["type"] is None or schema.get("format") == "int-or-string":
        found[_INT_OR_STRING] = True
    if "properties" in schema:
        found["properties"] = {name: resolved(inner, within) for name, inner in schema["properties"].items()}
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), Mapping):
            found[keyword] = resolved(schema[keyword], within)
    return found


class _SpentError(Exception):
    """There is too much to check."""


class _Budget:
    """What may still be compiled of a policy."""

    def __init__(self) -> None:
        self._left = MOST_CHARACTERS

    def spend(self, source: str, variables: Mapping[str, Type]) -> None:
        """Take what compiling ``source`` where there are ``variables`` costs; raises _SpentError."""
        self._left -= len(source) + len(variables) + _LEAST_CHARACTERS
        if self._left < 0:
            raise _SpentError


class _Check:
    """Checks expressions where objects are of one kind; variables are compiled once, when the first is checked."""

    def __init__(self, kind: Kind, params: Type | None, variables: Sequence[JsonObject], budget: _Budget) -> None:
        self._kind, self._params, self._declared, self._budget = kind, params, variables, budget
        self._object = type_of(kind)

    def wrong(self, source: str) -> str:
        """Return why an expression does not compile, "" if it does. Raises _SpentError."""
        variables = self._variables
        self._budget.spend(source, variables)
        _, message = _checked(source, self._object, self._params, variables)
        kind = self._kind
        return f"{kind.group}/{kind.version}, Kind={kind.kind}: compilation failed: {message}\n" if message else ""

    @cached_property
    def _variables(self) -> Mapping[str, Type]:
        found: dict[str, Type] = {}
        for each in self._declared:
            self._budget.spend(each["expression"], found)
            found[each["name"]], _ = _checked(each["expression"], self._object, self._params, found)
        return found


def _checked(source: str, obj: Type, params: Type | None, variables: Mapping[str, Type]) -> tuple[Type, str]:
    """Return the type of an expression, and why it has none."""
    try:
        return cel.compile(source, environment(obj=obj, params=params, variables={**variables})).type, ""
    except (CelSyntaxError, CelTypeError) as error:
        return cel.DYN, str(error)
    except CompileError:  # a constant that cannot be used has nothing to do with types
        return cel.DYN, ""

"""What of a policy's expressions does not fit the kinds that its rules name: warnings for its status.

A policy is refused for what no object could make right; objects are dyn then. Here the same expressions are checked
once more for each kind, with the types of its schema. It never changes what the policy does.
Source: apiserver ``plugin/policy/validating/typechecking.go``, ``pkg/cel/openapi/resolver/refs.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
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
_PLAIN = frozenset({"type", "format", "required", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"})
_INT_OR_STRING = "x-kubernetes-int-or-string"  # whose values may be of any type


def warnings_of(policy: JsonObject, kinds: Registry) -> list[JsonObject]:
    """Return the ``expressionWarnings`` of a policy's status."""
    declared = spec(policy)
    objects = [(kind, type_of(kind)) for kind in kinds_named(declared, kinds)]
    about = declared.get("paramKind")
    params = kinds.by_api_version(about["apiVersion"], about["kind"]) if about else None
    params_type = type_of(params) if params is not None else cel.DYN if about else None
    found = []
    for index, validation in enumerate(declared.get("validations") or ()):
        for field in ("expression", "messageExpression"):
            told = [
                f"{kind.group}/{kind.version}, Kind={kind.kind}: compilation failed: {wrong}\n"
                for kind, type_ in objects
                if (wrong := _wrong(validation.get(field) or "", declared, type_, params_type))
            ]
            if told:
                found.append({"fieldRef": f"spec.validations[{index}].{field}", "warning": "\n".join(told)})
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


def _wrong(source: str, declared: JsonObject, obj: Type, params: Type | None) -> str:
    """Return why an expression does not compile where objects are of the type ``obj``, "" if it does."""
    variables: dict[str, Type] = {}
    for each in declared.get("variables") or ():
        variables[each["name"]], _ = _checked(each["expression"], obj, params, variables)
    return _checked(source, obj, params, variables)[1] if source else ""


def _checked(source: str, obj: Type, params: Type | None, variables: Mapping[str, Type]) -> tuple[Type, str]:
    """Return the type of an expression, and why it has none."""
    try:
        return cel.compile(source, environment(obj=obj, params=params, variables={**variables})).type, ""
    except (CelSyntaxError, CelTypeError) as error:
        return cel.DYN, str(error)
    except CompileError:  # a constant that cannot be used has nothing to do with types
        return cel.DYN, ""

"""CustomResourceDefinitions: their defaults, and whether one may be stored, in apiextensions-apiserver's words.

Whether its converter is described well says ``validation/extensions/webhooks.py``, as of every webhook.

Source: ``pkg/apis/apiextensions/v1/defaults.go`` and ``pkg/apis/apiextensions/validation/validation.go`` of v0.32.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any

from minik8s_modules.api import cause, syntax
from minik8s_modules.api.custom import approval, checking, filling, lists_and_maps, paths, rules, schemas
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, condition, name, spec, status

_SCOPES = ("Cluster", "Namespaced")
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_MAX_SELECTABLE = 8
_MAX_DEPRECATION = 256
_AT_ROOT = frozenset(
    (
        "description", "type", "format", "title", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum",
        "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "multipleOf", "required", "items",
        "properties", "externalDocs", "example", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations",
    )
)  # fmt: skip


def fill(definition: JsonObject) -> None:
    """Fill in, in place, what a definition leaves out."""
    declared = definition.setdefault("spec", {})
    names = declared.setdefault("names", {})
    kind = names.get("kind") or ""
    if not names.get("singular"):
        names["singular"] = kind.lower()
    if not names.get("listKind") and kind:
        names["listKind"] = f"{kind}List"
    if not declared.get("conversion"):
        declared["conversion"] = {"strategy": "None"}
    service = _dug(declared["conversion"], ("webhook", "clientConfig", "service"))
    if service is not None and service.get("port") is None:
        service["port"] = 443
    for version in declared.get("versions") or []:
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if isinstance(schema, dict):
            schemas.drop_unknown(schema)


def remember_storage(definition: JsonObject) -> None:
    """Note in ``status.storedVersions``, in place, the version objects are kept in from now on."""
    wanted = [each.get("name") or "" for each in versions(definition) if each.get("storage")][:1]
    known = status(definition).get("storedVersions") or []
    definition["status"] = {
        "conditions": [], "acceptedNames": {"plural": "", "kind": ""}, **status(definition),
        "storedVersions": [*known, *(each for each in wanted if each not in known)],
    }  # fmt: skip


def versions(definition: JsonObject) -> list[JsonObject]:
    """Return the versions a definition declares."""
    return spec(definition).get("versions") or []


def is_true(definition: JsonObject, kind: str) -> bool:
    """Return whether a condition of the definition holds."""
    return (condition(definition, kind) or {}).get("status") == "True"


# --- validation -----------------------------------------------------------------------------------


def validate(definition: JsonObject) -> list[Cause]:
    """Return why a definition may not be stored."""
    declared = spec(definition)
    wanted = f"{(declared.get('names') or {}).get('plural') or ''}.{declared.get('group') or ''}"
    causes = []
    if name(definition) != wanted:
        text = 'must be spec.names.plural+"."+spec.group'
        causes.append(cause.invalid("metadata.name", name(definition), text))
    causes += [*_group(declared.get("group") or ""), *_scope(declared.get("scope") or "")]
    if declared.get("preserveUnknownFields"):
        text = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        causes.append(cause.invalid("spec.preserveUnknownFields", declared["preserveUnknownFields"], text))
    causes += _versions(definition)
    causes += _names(declared.get("names") or {}, "spec.names", complete=True)
    return causes + _stored(definition)


def validate_new(definition: JsonObject) -> list[Cause]:
    """Return why a definition may not be created, beside ``validate``."""
    return approval.causes(definition)


def validate_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why ``old`` may not become ``new``, beside ``validate``."""
    after, before = spec(new), spec(old)
    fixed = [("group",), ("names", "plural")]
    if is_true(old, "Established"):
        fixed += [("scope",), ("names", "kind")]
    causes = []
    for path in fixed:
        wanted, present = _dug(after, path), _dug(before, path)
        if wanted != present:
            causes.append(cause.immutable(".".join(("spec", *path)), wanted))
    if approval.state_of(new)[0] != approval.state_of(old)[0]:
        causes += approval.causes(new)
    return causes


def validate_status(definition: JsonObject) -> list[Cause]:
    """Return why a definition's status may not be stored."""
    accepted = status(definition).get("acceptedNames") or {}
    return [*_names(accepted, "status.acceptedNames"), *_stored(definition)]


def _dug(obj: JsonObject, path: Iterable[str]) -> Any:
    found: Any = obj
    for step in path:
        found = (found or {}).get(step)
    return found


def _group(group: str) -> list[Cause]:
    if not group:
        return [cause.required("spec.group")]
    if wrong := syntax.dns1123_subdomain(group):
        return [cause.invalid("spec.group", group, ",".join(wrong))]
    return [] if "." in group else [cause.invalid("spec.group", group, "should be a domain with at least one dot")]


def _scope(scope: str) -> list[Cause]:
    if not scope:
        return [cause.required("spec.scope")]
    return [] if scope in _SCOPES else [cause.not_supported("spec.scope", scope, _SCOPES)]


def _versions(definition: JsonObject) -> list[Cause]:
    declared, causes = versions(definition), []
    for index, version in enumerate(declared):
        at = f"spec.versions[{index}]"
        if wrong := syntax.dns1035_label(version.get("name") or ""):
            causes.append(cause.invalid(f"{at}.name", version.get("name"), ",".join(wrong)))
        causes += _version(version, at)
    called = [version.get("name") for version in declared]
    if len(set(called)) < len(called):
        causes.append(cause.invalid("spec.versions", called, "must contain unique version names"))
    if sum(1 for version in declared if version.get("storage")) != 1:
        text = "must have exactly one version marked as storage version"
        causes.append(cause.invalid("spec.versions", called, text))
    return causes


def _version(version: JsonObject, at: str) -> list[Cause]:
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    causes = _deprecation(version, f"{at}.deprecationWarning")
    if schema is None:
        causes.append(cause.required(f"{at}.schema.openAPIV3Schema", "schemas are required"))
    else:
        subresources = version.get("subresources") or {}
        causes += _schema(schema, f"{at}.schema.openAPIV3Schema", status="status" in subresources)
    causes += _scale((version.get("subresources") or {}).get("scale"), f"{at}.subresources.scale")
    for index, column in enumerate(version.get("additionalPrinterColumns") or []):
        causes += _column(column, f"{at}.additionalPrinterColumns[{index}]")
    if schema is not None:
        causes += _selectable(version.get("selectableFields") or [], schema, f"{at}.selectableFields")
    return causes


def _deprecation(version: JsonObject, at: str) -> list[Cause]:
    warning = version.get("deprecationWarning")
    if warning is None:
        return []
    wrong = []
    if not version.get("deprecated"):
        wrong.append("can only be set for deprecated versions")
    if len(warning) > _MAX_DEPRECATION:
        wrong.append("must be <= 256 characters long")
    if not warning:
        wrong.append("must not be an empty string")
    if not warning.isprintable():
        wrong.append("must only contain printable UTF-8 characters")
    return cause.all_invalid(at, warning, wrong)


def _schema(schema: JsonObject, at: str, *, status: bool) -> list[Cause]:
    causes = schemas.well_formed(schema, at)
    if causes:
        return causes
    if status and (others := {*schema} - _AT_ROOT):
        text = (
            f"only {sorted(_AT_ROOT)} fields are allowed at the root of the schema if the status subresource is enabled"
        )
        causes.append(cause.invalid(at, sorted(others), text))
    causes += [*schemas.structural(schema, at), *lists_and_maps.openapi(schema, at)]
    return causes or [*_defaults(schema, at), *_rules(schema, at)]


def _rules(schema: JsonObject, at: str) -> list[Cause]:
    """Return what is wrong with the CEL rules of a schema that is in order otherwise: their text, types and cost."""
    from minik8s_modules.cel import compile_schema  # noqa: PLC0415 - see the top of rules.py

    _, errors = compile_schema(schema, at)
    return [rules.cause_of(error.type, error.path, error.value, error.detail) for error in errors]


def _defaults(schema: JsonObject, at: str, *, root: bool = True) -> list[Cause]:
    """Return which defaults are not valid, or would be pruned."""
    causes = []
    if "default" in schema and not root:
        here, value = f"{at}.default", schema["default"]
        pruned = copy.deepcopy(value)
        if isinstance(pruned, dict | list):
            holder = {"value": pruned}
            filling.Filler({"properties": {"value": schema}}).prune(holder)
        if pruned != value:
            causes.append(cause.invalid(here, value, "must not have unknown fields"))
        filling.Filler(schema).default(pruned)
        found = checking.checker({"properties": {"default": schema}})({"default": pruned}, None)
        causes += [each._replace(field=f"{at}.{each.field}") for each in found]
    for keyword, inner in schemas.children(schema):
        if not keyword.startswith((".allOf", ".anyOf", ".oneOf", ".not")):
            top = root and keyword in {".properties[metadata]", ".properties[kind]", ".properties[apiVersion]"}
            if top and "default" in inner:
                text = f"must not be set in top-level {keyword[12:-1]}"
                causes.append(cause.forbidden(f"{at}{keyword}.default", text))
            else:
                causes += _defaults(inner, at + keyword, root=False)
    return causes


def _scale(scale: JsonObject | None, at: str) -> list[Cause]:
    if scale is None:
        return []
    causes = []
    for field, below in (("specReplicasPath", (".spec.",)), ("statusReplicasPath", (".status.",))):
        value = scale.get(field) or ""
        causes += _plain_path(value, below, f"{at}.{field}") if value else [cause.required(f"{at}.{field}")]
    selector = scale.get("labelSelectorPath") or ""
    return causes + (_plain_path(selector, (".spec.", ".status."), f"{at}.labelSelectorPath") if selector else [])


def _plain_path(value: str, below: tuple[str, ...], at: str) -> list[Cause]:
    if not value.startswith("."):
        return [cause.invalid(at, value, "must be a simple json path starting with .")]
    if not value.startswith(below):
        where = " or ".join(each.strip(".") for each in below)
        where = f"either .{where.replace(' or ', ' or .')}" if len(below) > 1 else f".{where}"
        return [cause.invalid(at, value, f"should be a json path under {where}")]
    try:
        paths.fields_of(value)
    except ValueError as error:
        return [cause.invalid(at, value, str(error))]
    return []


def _column(column: JsonObject, at: str) -> list[Cause]:
    causes = [] if column.get("name") else [cause.required(f"{at}.name")]
    kind, form, path = (column.get(field) or "" for field in ("type", "format", "jsonPath"))
    if not kind:
        causes.append(cause.required(f"{at}.type", f"must be one of {','.join(_COLUMN_TYPES)}"))
    elif kind not in _COLUMN_TYPES:
        causes.append(cause.invalid(f"{at}.type", kind, f"must be one of {','.join(_COLUMN_TYPES)}"))
    if form and form not in _COLUMN_FORMATS:
        causes.append(cause.invalid(f"{at}.format", form, f"must be one of {','.join(_COLUMN_FORMATS)}"))
    if not path:
        causes.append(cause.required(f"{at}.JSONPath"))
    elif not path.startswith("."):
        causes.append(cause.invalid(f"{at}.JSONPath", path, "must be a simple json path starting with ."))
    else:
        try:
            paths.compile_path(path)
        except ValueError as error:
            causes.append(cause.invalid(f"{at}.JSONPath", path, str(error)))
    return causes


def _selectable(fields: list[JsonObject], schema: JsonObject, at: str) -> list[Cause]:
    causes, seen = [], set()
    for index, field in enumerate(fields):
        here, path = f"{at}[{index}].jsonPath", field.get("jsonPath") or ""
        if not path:
            causes.append(cause.required(here))
            continue
        try:
            steps = paths.fields_of(path)
        except ValueError as error:
            causes.append(cause.invalid(here, path, f"is an invalid path: {error}"))
            continue
        if steps[0] == "metadata":
            causes.append(cause.invalid(here, path, "must not point to fields in metadata"))
        if (_dug_schema(schema, steps) or {}).get("type") not in {"string", "boolean", "integer"}:
            text = (
                "must point to a field of type string, boolean or integer. "
                "Enum string fields and strings with formats are allowed."
            )
            causes.append(cause.invalid(here, path, text))
        if path in seen:
            causes.append(cause.duplicate(here, path))
        seen.add(path)
    if len(seen) > _MAX_SELECTABLE:
        causes.append(cause.too_many(at, len(seen), _MAX_SELECTABLE))
    return causes


def _dug_schema(schema: JsonObject | None, steps: Iterable[str]) -> JsonObject | None:
    for step in steps:
        schema = ((schema or {}).get("properties") or {}).get(step)
    return schema


def _names(names: JsonObject, at: str, *, complete: bool = False) -> list[Cause]:
    causes = []
    if complete:
        needed = ("plural", "singular", "kind", "listKind")
        causes += [cause.required(f"{at}.{each}") for each in needed if not names.get(each)]
    causes += list(_labels(names, at))
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        causes.append(cause.invalid(f"{at}.listKind", names["listKind"], "kind and listKind may not be the same"))
    return causes


def _labels(names: JsonObject, at: str) -> Iterator[Cause]:
    for field in ("plural", "singular"):
        if (value := names.get(field)) and (wrong := syntax.dns1035_label(value)):
            yield cause.invalid(f"{at}.{field}", value, ",".join(wrong))
    for field in ("kind", "listKind"):
        if (value := names.get(field)) and (wrong := syntax.dns1035_label(value.lower())):
            text = f"may have mixed case, but should otherwise match: {','.join(wrong)}"
            yield cause.invalid(f"{at}.{field}", value, text)
    for field in ("shortNames", "categories"):
        for index, value in enumerate(names.get(field) or []):
            if wrong := syntax.dns1035_label(value):
                yield cause.invalid(f"{at}.{field}[{index}]", value, ",".join(wrong))


def _stored(definition: JsonObject) -> list[Cause]:
    at, stored = "status.storedVersions", status(definition).get("storedVersions") or []
    if not stored:
        return [cause.invalid(at, stored, "must have at least one stored version")]
    called = [version.get("name") for version in versions(definition)]
    kept = [version.get("name") for version in versions(definition) if version.get("storage")]
    causes = [cause.invalid(at, stored, f"must have the storage version {each}") for each in kept if each not in stored]
    return causes + [
        cause.invalid(f"{at}[{index}]", each, "must appear in spec.versions")
        for index, each in enumerate(stored)
        if each not in called
    ]

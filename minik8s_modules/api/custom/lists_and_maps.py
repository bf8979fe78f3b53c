"""What else a schema must keep: types, and what its lists, sets and maps say of their items.

Source: apiextensions-apiserver ``ValidateCustomResourceDefinitionOpenAPISchema``, in its words.
"""

from __future__ import annotations

from minik8s_modules.api import cause
from minik8s_modules.api.custom.schemas import LIST_TYPE, MAP_KEYS, MAP_TYPE, PRESERVE, TYPES, children
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject


def openapi(schema: JsonObject, at: str, *, root: bool = True) -> list[Cause]:
    """Return what else is wrong with a well-formed schema: types, lists, maps, sets, keys."""
    causes = _standard(schema, at)
    if root and schema.get("nullable"):
        causes.append(cause.forbidden(f"{at}.nullable", "nullable cannot be true at the root"))
    causes += [*_map_type(schema, at), *_list_type(schema, at)]
    for step, inner in children(schema):
        causes += openapi(inner, at + step, root=False)
    return causes


def _standard(schema: JsonObject, at: str) -> list[Cause]:
    causes = []
    kind = schema.get("type") or ""
    if kind and kind not in TYPES:
        causes.append(cause.not_supported(f"{at}.type", kind, TYPES))
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        causes.append(cause.forbidden(f"{at}.uniqueItems", text))
    extra = schema.get("additionalProperties")
    if extra is not None and schema.get("properties") and extra is not True:
        text = "additionalProperties and properties are mutual exclusive"
        causes.append(cause.forbidden(f"{at}.additionalProperties", text))
    if extra is False:
        causes.append(cause.forbidden(f"{at}.additionalProperties", "additionalProperties cannot be set to false"))
    if schema.get(PRESERVE) is False:
        causes.append(cause.invalid(f"{at}.{PRESERVE}", schema[PRESERVE], "must be true or undefined"))
    return causes


def _map_type(schema: JsonObject, at: str) -> list[Cause]:
    kind = schema.get(MAP_TYPE)
    if kind is None:
        return []
    causes = _must_be(schema, "object", MAP_TYPE, at)
    if kind not in {"atomic", "granular"}:
        causes.append(cause.not_supported(f"{at}.{MAP_TYPE}", kind, ("atomic", "granular")))
    return causes


def _must_be(schema: JsonObject, kind: str, keyword: str, at: str) -> list[Cause]:
    got = schema.get("type") or ""
    text = f"must be {kind} if {keyword} is specified"
    if got == kind:
        return []
    return [cause.invalid(f"{at}.type", got, text) if got else cause.required(f"{at}.type", text)]


def _list_type(schema: JsonObject, at: str) -> list[Cause]:
    kind, keys = schema.get(LIST_TYPE), schema.get(MAP_KEYS) or []
    causes = _must_be(schema, "array", LIST_TYPE, at) if kind is not None else []
    items = schema.get("items") or {}
    if kind == "set" and not causes:
        causes += _atomic_items(items, at)
    if kind is not None and kind not in {"atomic", "set", "map"}:
        causes.append(cause.not_supported(f"{at}.{LIST_TYPE}", kind, ("atomic", "set", "map")))
    if keys and kind != "map":
        text, here = "must be map if x-kubernetes-list-map-keys is non-empty", f"{at}.{LIST_TYPE}"
        causes.append(cause.required(here, text) if kind is None else cause.invalid(here, kind, text))
    if kind == "map":
        causes += _map_keys(keys, items, at)
    if kind in {"map", "set"} and items.get("nullable"):
        text = f"cannot be nullable when x-kubernetes-list-type is {kind}"
        causes.append(cause.forbidden(f"{at}.items.nullable", text))
    return causes


def _atomic_items(items: JsonObject, at: str) -> list[Cause]:
    text = "must be atomic as item of a list with x-kubernetes-list-type=set"
    of_list, of_map = items.get(LIST_TYPE), items.get(MAP_TYPE)
    if items.get("type") == "array" and of_list not in {None, "atomic"}:
        return [cause.invalid(f"{at}.items.{LIST_TYPE}", of_list, text)]
    if items.get("type") == "object" and of_map != "atomic":
        return [cause.invalid(f"{at}.items.{MAP_TYPE}", of_map, text)]
    return []


def _map_keys(keys: list[str], items: JsonObject, at: str) -> list[Cause]:
    here = f"{at}.{MAP_KEYS}"
    if not keys:
        return [cause.required(here, "must not be empty if x-kubernetes-list-type is map")]
    if items.get("type") != "object":
        text = "must be object if parent array's x-kubernetes-list-type is map"
        return [cause.invalid(f"{at}.items.type", items.get("type") or "", text)]
    causes, fields = [], items.get("properties") or {}
    for index, key in enumerate(keys):
        field, place = fields.get(key), f"{at}.items.properties[{key}]"
        if field is None:
            causes.append(cause.invalid(here, keys, "entries must all be names of item properties"))
            continue
        if field.get("type") in {"array", "object"}:
            text = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            causes.append(cause.invalid(f"{place}.type", field["type"], text))
        if key in keys[:index]:
            causes.append(cause.invalid(here, keys, "must not contain duplicate entries"))
        if field.get("nullable"):
            text = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable"
            causes.append(cause.forbidden(f"{place}.nullable", text))
        if key not in (items.get("required") or ()) and "default" not in field:
            text = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            causes.append(cause.required(f"{place}.default", text))
    return causes

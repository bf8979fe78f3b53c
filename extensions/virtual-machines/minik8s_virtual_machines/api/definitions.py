"""CustomResourceDefinitions of the kinds, from ``schema.yml``, and what that table says of a path.

Every object keeps fields that it does not know (``x-kubernetes-preserve-unknown-fields``): else the API server would
prune them before the webhook could refuse them by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

import yaml

from minik8s_modules.api.kind import Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_virtual_machines.api.kinds import KINDS

_KEEP = "x-kubernetes-preserve-unknown-fields"
_WARNING = "warning: "


@cache
def table() -> Mapping[str, Any]:
    """Return the kinds of ``schema.yml``."""
    text = resources.files(__package__ or "").joinpath("schema.yml").read_text(encoding="utf-8")
    kinds: Mapping[str, Any] = yaml.safe_load(text)["kinds"]
    return kinds


def definitions() -> list[JsonObject]:
    """Return the CustomResourceDefinitions of all kinds."""
    return [_definition(kind, table()[kind.kind]) for kind in KINDS]


def _definition(kind: Kind, told: Mapping[str, Any]) -> JsonObject:
    schema = {
        "type": "object",
        "description": told["description"],
        "required": ["spec"],
        "properties": {"spec": _kept(told["spec"]), "status": {"type": "object", _KEEP: True}},
    }
    names = {
        "kind": kind.kind,
        "listKind": kind.list_kind,
        "plural": kind.plural,
        "singular": kind.singular_name,
        "shortNames": [*kind.short_names],
        "categories": [*kind.categories],
    }
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": told["columns"],
        "subresources": {"status": {}, **({"scale": told["scale"]} if "scale" in told else {})},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.resource},
        "spec": {"group": kind.group, "names": names, "scope": "Namespaced", "versions": [version]},
    }


def _kept(schema: Any) -> Any:
    """Return a schema whose objects keep what they do not know."""
    if isinstance(schema, list):
        return [_kept(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    copied = {key: _kept(value) for key, value in schema.items()}
    if "properties" in schema and schema.get("type") == "object":
        copied[_KEEP] = True
    return copied


def unknown(kind: Kind, spec: Any) -> list[str]:
    """Return the paths of fields that the table does not have, which KubeVirt may know and this extension does not."""
    return [path for path, _ in _walk(table()[kind.kind]["spec"], spec, "spec", wanted="unknown")]


def warnings(kind: Kind, spec: Any) -> list[str]:
    """Return what is to be told whoever writes ``spec``: fields that change nothing."""
    found = _walk(table()[kind.kind]["spec"], spec, "spec", wanted="warning")
    return [f"{path} changes nothing: {text}" for path, text in found]


def _walk(schema: Mapping[str, Any], value: Any, path: str, wanted: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, list) and "items" in schema:
        for index, each in enumerate(value):
            yield from _walk(schema["items"], each, f"{path}[{index}]", wanted)
    if not isinstance(value, dict) or not value:
        return
    told = str(schema.get("description", ""))
    if wanted == "warning" and told.startswith(_WARNING):
        yield path, told.removeprefix(_WARNING)
    known = schema.get("properties")
    if known is None:
        return
    for name, below in value.items():
        if name in known:
            yield from _walk(known[name], below, f"{path}.{name}", wanted)
        elif wanted == "unknown":
            yield f"{path}.{name}", ""

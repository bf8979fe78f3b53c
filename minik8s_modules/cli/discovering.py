"""What the server serves: ``api-resources``, ``api-versions``, ``explain``, ``version``."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from minik8s_modules import __version__
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli import output
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.resources import find_kind, served
from minik8s_modules.client.api import ApiClient, error_of

WIDTH = 80


def version(client: ApiClient, _options: argparse.Namespace) -> int:
    """Print the versions of this command and of the server."""
    server = _json(client, "/version")
    print(f"Client: {__version__}\nServer: {server.get('gitVersion', 'unknown')}")
    return 0


def api_versions(client: ApiClient, _options: argparse.Namespace) -> int:
    """Print every group and version that is served."""
    print("\n".join(sorted({kind.api_version for kind in served(client)})))
    return 0


def api_resources(client: ApiClient, options: argparse.Namespace) -> int:
    """Print every resource type."""
    kinds = [kind for kind in served(client) if _wanted(kind, options)]
    if options.output == "name":
        print("\n".join(kind.resource for kind in kinds))
        return 0
    wide = options.output == "wide"
    rows = [
        [
            kind.plural,
            ",".join(kind.short_names),
            kind.api_version,
            str(kind.namespaced).lower(),
            kind.kind,
            *([",".join(kind.verbs), ",".join(kind.categories)] if wide else []),
        ]
        for kind in kinds
    ]
    header = ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND", *(["VERBS", "CATEGORIES"] if wide else [])]
    print(output.aligned([] if options.no_headers else header, rows, output.Paint()))
    return 0


def _wanted(kind: Kind, options: argparse.Namespace) -> bool:
    if options.api_group is not None and kind.group != options.api_group:
        return False
    if options.namespaced is not None and kind.namespaced != (options.namespaced == "true"):
        return False
    return set(options.verbs.split(",")) <= {*kind.verbs, ""}


def _json(client: ApiClient, path: str) -> JsonObject:
    answer = client.raw("GET", path)
    if answer.status != HTTPStatus.OK:
        raise error_of(answer)
    found = json.loads(answer.data)
    return found if isinstance(found, dict) else {}


# --- explain --------------------------------------------------------------------------------------


def explain(client: ApiClient, options: argparse.Namespace) -> int:
    """Print what a field of a type is for, from the server's OpenAPI."""
    if len(options.words) != 1:
        raise UsageError("name one type or field, as in `minik8s explain pod.spec.containers`")
    resource, *path = options.words[0].split(".")
    kind = _of_version(client, find_kind(resource, client), options.api_version)
    root = f"apis/{kind.group}" if kind.group else "api"
    document = _json(client, f"/openapi/v3/{root}/{kind.version}")
    schemas = document["components"]["schemas"]
    print("\n".join(_explained(kind, _root(document, kind), path, schemas, recursive=options.recursive)))
    return 0


def _of_version(client: ApiClient, kind: Kind, api_version: str) -> Kind:
    if not api_version or kind.api_version == api_version:
        return kind
    for other in served(client):
        if (other.api_version, other.kind) == (api_version, kind.kind):
            return other
    raise UsageError(f"{kind.kind} is not served in {api_version}")


def _root(document: JsonObject, kind: Kind) -> JsonObject:
    """Return the schema of a kind: what its operations answer."""
    wanted = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    for operations in document["paths"].values():
        for operation in operations.values():
            if isinstance(operation, dict) and operation.get("x-kubernetes-group-version-kind") == wanted:
                answer = operation["responses"]["200"]
                if "$ref" in answer:
                    answer = document["components"]["responses"][answer["$ref"].rsplit("/", 1)[-1]]
                found: JsonObject = answer["content"]["application/json"]["schema"]
                return found
    raise UsageError(f"the server describes no {kind.kind} of {kind.api_version}")


def _explained(
    kind: Kind, schema: JsonObject, path: Sequence[str], schemas: Mapping[str, JsonObject], *, recursive: bool
) -> Iterator[str]:
    told, walked = "", kind.plural
    for name in path:
        fields = _fields(schema, schemas)
        if name not in fields:
            known = ", ".join(sorted(fields)) or "no fields"
            raise UsageError(f'field "{name}" does not exist in {walked}; there is {known}')
        schema, walked = fields[name], f"{walked}.{name}"
        told = name
    if kind.group:
        yield f"GROUP:      {kind.group}"
    yield from (f"KIND:       {kind.kind}", f"VERSION:    {kind.version}", "")
    if told:
        yield from (f"FIELD: {told} <{type_of(schema, schemas)}>", "")
    yield "DESCRIPTION:"
    text = schema.get("description") or _item(schema, schemas).get("description") or "<empty>"
    yield from textwrap.wrap(" ".join(text.split()), WIDTH, initial_indent="    ", subsequent_indent="    ")
    if values := _item(schema, schemas).get("enum"):
        yield from ("", f"ENUM: {', '.join(map(str, values))}")
    if fields := _fields(schema, schemas):
        yield from ("", "FIELDS:")
        yield from _listed(schema, schemas, "  ", recursive=recursive, above=())


def _listed(
    schema: JsonObject, schemas: Mapping[str, JsonObject], indent: str, *, recursive: bool, above: tuple[int, ...]
) -> Iterator[str]:
    """Yield a line a field, with its description or (``recursive``) what is below; a type inside itself ends there."""
    item = _item(schema, schemas)
    required = item.get("required") or []
    for name, field in sorted(_fields(schema, schemas).items()):
        needed = " -required-" if name in required else ""
        yield f"{indent}{name}\t<{type_of(field, schemas)}>{needed}"
        if not recursive:
            text = " ".join((field.get("description") or _item(field, schemas).get("description") or "").split())
            yield from textwrap.wrap(text, WIDTH, initial_indent=f"{indent}  ", subsequent_indent=f"{indent}  ")
            yield ""
        elif id(item) not in above:
            yield from _listed(field, schemas, f"{indent}  ", recursive=True, above=(*above, id(item)))


def _resolved(schema: JsonObject, schemas: Mapping[str, JsonObject]) -> JsonObject:
    """Return the schema a reference leads to, with what stands beside the reference."""
    references = [schema, *(schema.get("allOf") or [])]
    name = next((each["$ref"] for each in references if "$ref" in each), "").rsplit("/", 1)[-1]
    if not name:
        return schema
    beside = {key: value for key, value in schema.items() if key not in {"allOf", "$ref"}}
    return {**schemas[name], **beside} if beside else schemas[name]


def _item(schema: JsonObject, schemas: Mapping[str, JsonObject]) -> JsonObject:
    """Return the type of a field, or of the items of a list or map."""
    found = _resolved(schema, schemas)
    inner = found.get("items") or found.get("additionalProperties")
    return _item(inner, schemas) if isinstance(inner, dict) else found


def _fields(schema: JsonObject, schemas: Mapping[str, JsonObject]) -> dict[str, Any]:
    found: dict[str, Any] = _item(schema, schemas).get("properties") or {}
    return found


def type_of(schema: JsonObject, schemas: Mapping[str, JsonObject]) -> str:
    """Return a type as kubectl writes it: ``string``, ``[]Container``, ``map[string]string``."""
    found = _resolved(schema, schemas)
    if "items" in found:
        return f"[]{type_of(found['items'], schemas)}"
    if isinstance(found.get("additionalProperties"), dict):
        return f"map[string]{type_of(found['additionalProperties'], schemas)}"
    references = [schema, *(schema.get("allOf") or [])]
    name = next((each["$ref"] for each in references if "$ref" in each), "").rsplit(".", 1)[-1]
    plain = {"boolean": "boolean", "integer": "integer", "number": "number", "string": "string"}
    known = plain.get(str(found.get("type", "")))
    return known if known and name not in {"Quantity", "IntOrString"} else name or "Object"

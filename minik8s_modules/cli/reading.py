"""``get`` and ``describe``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any

from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import KINDS, NODE, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli import describing, output
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.resources import Target, parse_targets
from minik8s_modules.client.api import ApiClient, error_of, resource_path, with_query

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
FORMATS = ("wide", "yaml", "json", "name")


def get(client: ApiClient, options: argparse.Namespace) -> int:
    """Print what ``options.words`` name; returns 0, or 1 when a named object does not exist."""
    targets = parse_targets(options.words)
    if options.watch:
        return _watch(client, targets, options)
    shown = [(target.kind, _fetch(client, target, options)) for target in targets]
    if options.output in ("yaml", "json"):
        _print_documents([obj for _, objects in shown for obj in objects], options)
    elif options.output == "name":
        for kind, objects in shown:
            for obj in objects:
                print(f"{kind.singular_name}/{obj['metadata']['name']}")
    else:
        _print_tables(client, targets, options)
    return 0


def describe(client: ApiClient, options: argparse.Namespace) -> int:
    """Print each object that ``options.words`` name, with its events."""
    first = True
    for target in parse_targets(options.words):
        for obj in _fetch(client, target, options):
            if not first:
                print()
            first = False
            print(describing.describe(obj, events_of(client, obj), lambda name: _node(client, name)))
    return 0


def _node(client: ApiClient, name: str) -> JsonObject | None:
    try:
        return client.get(NODE, name)
    except NotFound:
        return None


def events_of(client: ApiClient, obj: JsonObject) -> list[JsonObject]:
    """Return the Events whose involvedObject is ``obj``, oldest first."""
    metadata = obj["metadata"]
    selector = f"involvedObject.name={metadata['name']},involvedObject.uid={metadata['uid']}"
    event_kind = _event_kind()
    found = client.list(event_kind, metadata.get("namespace", ""), field_selector=selector).items
    return sorted(found, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))


def _event_kind() -> Kind:
    kind = KINDS.by_kind("", "v1", "Event")
    if kind is None:
        raise UsageError("the cluster serves no events")
    return kind


def _namespace(kind: Kind, options: argparse.Namespace) -> str:
    return "" if options.all_namespaces or not kind.namespaced else str(options.namespace)


def _fetch(client: ApiClient, target: Target, options: argparse.Namespace) -> list[JsonObject]:
    namespace = _namespace(target.kind, options)
    if target.names:
        if options.all_namespaces and target.kind.namespaced:
            raise UsageError("a resource cannot be named across all namespaces; leave out --all-namespaces")
        return [client.get(target.kind, name, namespace) for name in target.names]
    found = client.list(target.kind, namespace, label_selector=options.selector)
    return found.items


def _print_documents(objects: Sequence[JsonObject], options: argparse.Namespace) -> None:
    single = len(objects) == 1 and len(options.words) > 1
    for obj in objects:
        obj["metadata"].pop("managedFields", None)  # as kubectl does: twice the length, and nobody reads it
    value: Any = objects[0] if single else {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    print(output.as_yaml(value) if options.output == "yaml" else output.as_json(value))


def _print_tables(client: ApiClient, targets: Sequence[Target], options: argparse.Namespace) -> None:
    tables = [table for target in targets for table in _tables(client, target, options)]
    filled = [table for table in tables if table.get("rows")]
    if not filled:
        where = "" if options.all_namespaces else f" in {options.namespace} namespace"
        scoped = any(target.kind.namespaced for target in targets)
        print(f"No resources found{where if scoped else ''}", file=sys.stderr)
    if filled:
        print("\n\n".join(_table_text(table, options) for table in filled))


def _tables(client: ApiClient, target: Target, options: argparse.Namespace) -> Iterable[JsonObject]:
    namespace = _namespace(target.kind, options)
    if target.names:
        merged: JsonObject = {}
        for name in target.names:
            table = _table(client, resource_path(target.kind, namespace, name))
            merged = table if not merged else {**merged, "rows": [*merged["rows"], *table["rows"]]}
        return [merged]
    path = resource_path(target.kind, namespace)
    return [_table(client, with_query(path, {"labelSelector": options.selector}))]


def _table(client: ApiClient, path: str) -> JsonObject:
    answer = client.raw("GET", path, headers={"Accept": TABLE})
    if answer.status != HTTPStatus.OK:
        raise error_of(answer)
    value = json.loads(answer.data)
    if not isinstance(value, dict):
        raise UsageError(f"the server answered {path} with no table")
    return value


def _table_text(table: JsonObject, options: argparse.Namespace) -> str:
    shown = [
        (position, column)
        for position, column in enumerate(table["columnDefinitions"])
        if column.get("priority", 0) == 0 or options.output == "wide"
    ]
    header = [str(column["name"]).upper() for _, column in shown]
    rows = [[str(row["cells"][position]) for position, _ in shown] for row in table["rows"]]
    if options.all_namespaces:
        header = ["NAMESPACE", *header]
        rows = [
            [row["object"]["metadata"].get("namespace", ""), *cells]
            for row, cells in zip(table["rows"], rows, strict=True)
        ]
    return output.aligned(header, rows)


def _watch(client: ApiClient, targets: Sequence[Target], options: argparse.Namespace) -> int:
    if len(targets) != 1 or len(targets[0].names) > 1:
        raise UsageError("watch one resource type, or one object of it, at a time")
    target = targets[0]
    if options.output not in ("", "wide"):
        raise UsageError("--watch prints tables only; leave out --output")
    _print_tables(client, targets, options)
    namespace = _namespace(target.kind, options)
    field_selector = f"metadata.name={target.names[0]}" if target.names else ""
    listed = client.list(target.kind, namespace, label_selector=options.selector, limit=1)
    for event in client.watch(
        target.kind,
        namespace,
        resource_version=listed.resource_version,
        label_selector=options.selector,
        field_selector=field_selector,
    ):
        _print_change(client, target.kind, event.type, event.object, options)
    return 0


def _print_change(client: ApiClient, kind: Kind, change: str, obj: JsonObject, options: argparse.Namespace) -> None:
    metadata = obj.get("metadata", {})
    if change == "DELETED":
        print(f"{metadata.get('name', '')}   deleted")
        return
    if change not in ("ADDED", "MODIFIED"):
        return
    path = resource_path(kind, metadata.get("namespace", ""), metadata["name"])
    try:
        text = _table_text(_table(client, path), options)
    except NotFound:
        return
    print(text.splitlines()[-1], flush=True)

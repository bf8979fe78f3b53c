"""``get``, ``describe`` and ``why``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound, StatusError
from minik8s_modules.api.field_selectors import exactly
from minik8s_modules.api.kinds import EVENT, NODE, SERVICE, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli import describing, output, printing, watching
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.manifests import read_manifests
from minik8s_modules.cli.printing import Form, TableStyle
from minik8s_modules.cli.resources import LEGACY, Target, parse_targets
from minik8s_modules.cli.route_causes import route_causes
from minik8s_modules.cli.service_endpoints import Behind, behind
from minik8s_modules.cli.workload_causes import pods_of
from minik8s_modules.client.api import ApiClient, error_of, resource_path, with_query

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PAGE = 500


class Place(NamedTuple):
    """A collection, or one object of it, in a namespace."""

    kind: Kind
    namespace: str
    name: str = ""


def get(client: ApiClient, options: argparse.Namespace) -> int:
    """Print what the words or files name; returns 1 when something was not found or not readable."""
    if options.raw:
        return _raw(client, options.raw)
    form = printing.form_of(options.output)
    wanted = list(places(client, options))
    if options.watch or options.watch_only:
        if len(wanted) != 1:
            raise UsageError("watch one resource type, or one object of it, at a time")
        return watching.watch(client, wanted[0], form, options)
    return _print_tables(client, wanted, form, options) if form.is_table else _print(client, wanted, form, options)


def _raw(client: ApiClient, path: str) -> int:
    answer = client.raw("GET", path)
    if answer.status >= HTTPStatus.BAD_REQUEST:
        raise error_of(answer)
    sys.stdout.write(answer.data.decode("utf-8", "replace"))
    return 0


def places(client: ApiClient, options: argparse.Namespace) -> Iterator[Place]:
    """Yield what words or files name; ``all`` is several collections."""
    if getattr(options, "filename", None):
        if options.words:
            raise UsageError("give either --filename or a resource type with names, not both")
        for manifest in read_manifests(options.filename, options.namespace, recursive=options.recursive):
            yield Place(manifest.kind, objects.namespace(manifest.object), objects.name(manifest.object))
        return
    for target in parse_targets(options.words, client):
        yield from _places(target, options)


def _places(target: Target, options: argparse.Namespace) -> Iterator[Place]:
    namespace = "" if options.all_namespaces or not target.kind.namespaced else str(options.namespace)
    if not target.names:
        yield Place(target.kind, namespace)
        return
    if options.all_namespaces and target.kind.namespaced:
        raise UsageError("a resource cannot be named across all namespaces; leave out --all-namespaces")
    if options.selector or options.field_selector:
        raise UsageError("a selector cannot be given together with names")
    for name in target.names:
        yield Place(target.kind, namespace, name)


def fetch(client: ApiClient, place: Place, options: argparse.Namespace) -> list[tuple[Kind, JsonObject]]:
    """Return the objects at a place, each with its kind: one the original has under the same name may stand in."""
    kind, namespace, name = place
    if not name:
        found = client.list(kind, namespace, options.selector, options.field_selector, PAGE).items
        return [(kind, obj) for obj in found]
    try:
        return [(kind, client.get(kind, name, namespace))]
    except NotFound:
        if kind not in LEGACY:
            raise
        try:
            return [(LEGACY[kind], client.get(LEGACY[kind], name, namespace))]
        except NotFound:
            pass
        raise


def _fetch_all(
    client: ApiClient, wanted: Iterable[Place], options: argparse.Namespace
) -> tuple[list[tuple[Kind, JsonObject]], bool]:
    """Return what was found, and whether all was; what was not is told."""
    found, complete = [], True
    for place in wanted:
        try:
            found += fetch(client, place, options)
        except NotFound as error:
            complete = complete and getattr(options, "ignore_not_found", False)
            if not getattr(options, "ignore_not_found", False):
                output.fail(error)
    return found, complete


def _print(client: ApiClient, wanted: list[Place], form: Form, options: argparse.Namespace) -> int:
    found, complete = _fetch_all(client, wanted, options)
    if options.sort_by:
        found = [found[index] for index in printing.sorted_by(options.sort_by, [obj for _, obj in found])]
    shown = [(kind, printing.printable(obj, managed_fields=options.show_managed_fields)) for kind, obj in found]
    single = len(wanted) == 1 and bool(wanted[0].name)
    if shown or (not single and complete):
        text = printing.documents(form, shown, single=single, header=not options.no_headers)
        print(text, end="" if form.name == "jsonpath" else "\n")
    return int(not complete)


# --- tables ---------------------------------------------------------------------------------------


def _print_tables(client: ApiClient, wanted: list[Place], form: Form, options: argparse.Namespace) -> int:
    complete, tables = True, dict[Kind, JsonObject]()
    for place in wanted:
        try:
            kind, found = table_of(client, place, options)
        except NotFound as error:
            complete = complete and options.ignore_not_found
            if not options.ignore_not_found:
                output.fail(error)
            continue
        tables[kind] = {**found, "rows": [*tables.get(kind, {}).get("rows", []), *found["rows"]]}
    filled = {kind: table for kind, table in tables.items() if table["rows"]}
    mixed = len({place.kind for place in wanted}) > 1
    texts = [
        printing.table_text(_ordered(table, options), style_of(options, form, kind if mixed else None), output.Paint())
        for kind, table in filled.items()
    ]
    if texts:
        print("\n\n".join(texts))
    elif complete and not options.ignore_not_found:
        scoped = any(place.kind.namespaced for place in wanted) and not options.all_namespaces
        print(f"No resources found{f' in {options.namespace} namespace' if scoped else ''}", file=sys.stderr)
    return int(not complete)


def style_of(options: argparse.Namespace, form: Form, prefix: Kind | None = None) -> TableStyle:
    """Return how the options want tables."""
    return TableStyle(form.name == "wide", options.all_namespaces, not options.no_headers, options.show_labels, prefix)


def _ordered(table: JsonObject, options: argparse.Namespace) -> JsonObject:
    if not options.sort_by:
        return table
    rows = table["rows"]
    return {**table, "rows": [rows[i] for i in printing.sorted_by(options.sort_by, [row["object"] for row in rows])]}


def table_of(client: ApiClient, place: Place, options: argparse.Namespace) -> tuple[Kind, JsonObject]:
    """Return the table of a place, all pages of it, and the kind it is of (the original's may stand in).

    Raises:
        StatusError: the server refused, or has no such object.
    """
    kind, namespace, name = place
    query = {} if name else {"labelSelector": options.selector, "fieldSelector": options.field_selector, "limit": PAGE}
    if options.sort_by:
        query["includeObject"] = "Object"
    try:
        return kind, _pages(client, resource_path(kind, namespace, name), query)
    except NotFound:
        if name and kind in LEGACY:
            try:
                return LEGACY[kind], _pages(client, resource_path(LEGACY[kind], namespace, name), query)
            except NotFound:
                pass
        raise


def _pages(client: ApiClient, path: str, query: dict[str, str | int]) -> JsonObject:
    whole: JsonObject = {}
    while True:
        answer = client.raw("GET", with_query(path, query), headers={"Accept": TABLE})
        if answer.status != HTTPStatus.OK:
            raise error_of(answer)
        table = json.loads(answer.data)
        if not isinstance(table, dict) or table.get("kind") != "Table":
            raise UsageError(f"the server answered {path} with no table")
        whole = {**table, "rows": [*whole.get("rows", []), *(table.get("rows") or [])]}
        query = {**query, "continue": (table.get("metadata") or {}).get("continue", "")}
        if not query["continue"]:
            return whole


# --- describe and why -----------------------------------------------------------------------------


class About(NamedTuple):
    """What is known around an object; in the order of ``describing.describe``."""

    events: list[JsonObject]
    node_of: describing.NodeOf
    pods: list[JsonObject]
    found: Behind | None
    ways: list[str]


def describe(client: ApiClient, options: argparse.Namespace) -> int:
    """Print each object that words or files name, with its events."""
    found, complete = _fetch_all(client, places(client, options), options)
    texts = [describing.describe(obj, *_about(client, kind, obj)) for kind, obj in found]
    if texts:
        print("\n\n".join(texts))
    elif complete:
        print("No resources found", file=sys.stderr)
    return int(not complete)


def why(client: ApiClient, options: argparse.Namespace) -> int:
    """Print in one line each what keeps the named objects from being as wished."""
    found, complete = _fetch_all(client, places(client, options), options)
    rows = []
    for kind, obj in found:
        cause = describing.find_cause(obj, *_about(client, kind, obj))
        if cause or not options.faults:
            rows.append(
                [objects.namespace(obj), f"{kind.singular_name}/{objects.name(obj)}", cause or "as it should be"]
            )
    print(output.aligned(["NAMESPACE", "OBJECT", "CAUSE"], rows, output.Paint()) if rows else "nothing is wrong")
    return int(not complete)


def _about(client: ApiClient, kind: Kind, obj: JsonObject) -> About:
    """Return what ``describing`` wants to know besides the object."""
    events = events_of(client, obj)

    def node_of(name: str) -> JsonObject | None:
        return _node(client, name)

    ways = route_causes(client, obj, events, lambda pod: describing.find_cause(pod, (), node_of))
    return About(events, node_of, pods_of(client, obj), _behind(client, kind, obj), ways)


def _behind(client: ApiClient, kind: Kind, obj: JsonObject) -> Behind | None:
    """Return what is behind a Service, None for other kinds and where it may not be read."""
    if kind != SERVICE:
        return None
    try:
        return behind(client, obj)
    except StatusError:
        return None


def _node(client: ApiClient, name: str) -> JsonObject | None:
    try:
        return client.get(NODE, name)
    except NotFound:
        return None


def events_of(client: ApiClient, obj: JsonObject) -> list[JsonObject]:
    """Return the Events whose involvedObject is ``obj``, oldest first; [] where they may not be read."""
    metadata = obj["metadata"]
    selector = exactly(involvedObject__name=metadata["name"], involvedObject__uid=metadata.get("uid", ""))
    try:
        found = client.list(EVENT, metadata.get("namespace", ""), field_selector=selector).items
    except StatusError:
        return []
    return sorted(found, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))

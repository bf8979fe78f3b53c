"""``get -w``: what there is, then every change as the server tells it, in tables or documents."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from minik8s_modules.api.errors import Expired
from minik8s_modules.api.field_selectors import exactly
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli import output, printing
from minik8s_modules.cli.printing import Form, TableStyle
from minik8s_modules.client.api import ApiClient, resource_path, with_query
from minik8s_modules.client.watches import Watch, WatchEvent

if TYPE_CHECKING:
    from minik8s_modules.cli.reading import Place

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
TIMEOUT_S = 300


def watch(client: ApiClient, place: Place, form: Form, options: argparse.Namespace) -> int:
    """Print the objects at ``place``, unless told not to, and their changes until interrupted."""
    style = TableStyle(form.name == "wide", options.all_namespaces, not options.no_headers, options.show_labels)
    columns = _Columns(style)
    for event in _events(client, place, options, {"Accept": TABLE} if form.is_table else {}):
        if form.is_table:
            columns.show(event.object, deleted=event.type == "DELETED")
        else:
            _show(place, form, event, options)
    return 0


def _show(place: Place, form: Form, event: WatchEvent, options: argparse.Namespace) -> None:
    obj = printing.printable(event.object, managed_fields=options.show_managed_fields)
    text = printing.documents(form, [(place.kind, obj)], single=True, header=False)
    print(f"---\n{text}" if form.name == "yaml" else text, flush=True)


def _events(
    client: ApiClient, place: Place, options: argparse.Namespace, headers: dict[str, str]
) -> Iterator[WatchEvent]:
    """Yield changes; a watch that the server ends goes on where it stopped, one that is too old begins anew."""
    selector = exactly(metadata__name=place.name) if place.name else options.field_selector
    query = {"watch": "true", "labelSelector": options.selector, "fieldSelector": selector, "timeoutSeconds": TIMEOUT_S}
    path = resource_path(place.kind, place.namespace)
    if place.name:
        client.get(place.kind, place.name, place.namespace)
    revision = _revision(client, path, query) if options.watch_only else ""
    while True:
        asked = {**query, "resourceVersion": revision, "allowWatchBookmarks": "true"}
        try:
            for event in Watch(client.stream(with_query(path, asked), headers)):
                revision = _revision_of(event.object) or revision
                if event.type != "BOOKMARK":
                    yield event
        except Expired:
            output.warn("changes were missed: the history is gone; beginning anew")
            revision = ""


def _revision(client: ApiClient, path: str, query: dict[str, str | int]) -> str:
    asked = {key: value for key, value in query.items() if key.endswith("Selector")}
    answer = client.raw("GET", with_query(path, {**asked, "limit": 1}))
    return str((json.loads(answer.data).get("metadata") or {}).get("resourceVersion") or "")


def _revision_of(obj: JsonObject) -> str:
    """Return the revision of an object, or of the row of a table."""
    if obj.get("kind") == "Table":
        rows = obj.get("rows") or []
        obj = (rows[0].get("object") or {}) if rows else obj
    return str((obj.get("metadata") or {}).get("resourceVersion") or "")


class _Columns:
    """Prints rows one by one below a header, as wide as what was seen so far."""

    def __init__(self, style: TableStyle) -> None:
        self._style = style
        self._definitions: list[JsonObject] = []
        self._widths: list[int] = []

    def show(self, table: JsonObject, *, deleted: bool) -> None:
        """Print the rows of a table; the first call prints the header, too. Later tables may lack definitions."""
        self._definitions = table.get("columnDefinitions") or self._definitions
        table = {**table, "columnDefinitions": self._definitions}
        lines = printing.table_rows(table, self._style)
        if not self._widths:
            header = printing.table_header(table, self._style)
            self._widths = [max(len(name), 8) for name in header]
            lines = [header, *lines] if self._style.header else lines
        for line in lines:
            self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, line, strict=True)]
            text = "   ".join(cell.ljust(width) for cell, width in zip(line, self._widths, strict=True)).rstrip()
            print(f"{text}   (deleted)" if deleted else text, flush=True)

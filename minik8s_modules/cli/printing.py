"""``-o``: which form objects are printed in, and tables as the server makes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli import jsonpath, output
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.resources import name_of

FORMATS = (
    "wide",
    "yaml",
    "json",
    "name",
    "custom-columns=NAME:PATH,...",
    "custom-columns-file=FILE",
    "jsonpath=TEMPLATE",
)
_TABLES = ("", "wide")
NONE = "<none>"


class Form(NamedTuple):
    """A form of output and what follows its equals sign."""

    name: str
    argument: str = ""

    @property
    def is_table(self) -> bool:
        """Return whether the server makes the columns."""
        return self.name in _TABLES


def form_of(text: str) -> Form:
    """Return the form that ``-o TEXT`` means.

    Raises:
        UsageError: there is no such form, or it lacks its argument.
    """
    name, _, argument = text.partition("=")
    if name in {"jsonpath", "custom-columns", "custom-columns-file"}:
        if not argument:
            raise UsageError(f"-o {name} needs what to print, as in {_example(name)}")
        return _columns_file(argument) if name == "custom-columns-file" else Form(name, argument)
    if name not in {*_TABLES, "yaml", "json", "name"} or argument:
        raise UsageError(f'"{text}" is no form of output; there are {", ".join(FORMATS)}')
    return Form(name)


def _example(name: str) -> str:
    return next(example for example in FORMATS if example.startswith(f"{name}="))


def _columns_file(path: str) -> Form:
    """Return the columns of a file: a line of names above a line of paths, as kubectl has it."""
    try:
        names, paths = (line.split() for line in Path(path).read_text(encoding="utf-8").splitlines()[:2])
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} must hold a line of column names and a line of paths: {error}") from error
    if len(names) != len(paths):
        raise UsageError(f"{path} has {len(names)} names and {len(paths)} paths of columns")
    return Form("custom-columns", ",".join(f"{name}:{at}" for name, at in zip(names, paths, strict=True)))


def printable(obj: JsonObject, *, managed_fields: bool = False) -> JsonObject:
    """Return the object without managedFields, as kubectl does: twice the length, and nobody reads it."""
    if managed_fields:
        return obj
    meta = {field: value for field, value in (obj.get("metadata") or {}).items() if field != "managedFields"}
    return {**obj, "metadata": meta}


def documents(form: Form, found: Sequence[tuple[Kind, JsonObject]], *, single: bool, header: bool = True) -> str:
    """Return objects in a form that is no table; ``single`` prints one object as itself, not in a List."""
    if form.name == "name":
        return "\n".join(name_of(kind, objects.name(obj)) for kind, obj in found)
    shown = [obj for _, obj in found]
    if form.name == "custom-columns":
        return _custom_columns(form.argument, shown, header=header)
    value: Any = shown[0] if single and shown else _list(shown)
    if form.name == "jsonpath":
        return jsonpath.render(form.argument, value)
    return output.as_yaml(value) if form.name == "yaml" else output.as_json(value)


def _list(items: Sequence[JsonObject]) -> JsonObject:
    return {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": list(items)}


def _custom_columns(columns: str, found: Sequence[JsonObject], *, header: bool) -> str:
    specs = [column.partition(":") for column in columns.split(",")]
    if bad := [name for name, _, path in specs if not path]:
        raise UsageError(f'column "{bad[0]}" has no path; write NAME:.metadata.name')
    rows = [[_column(path, obj) for _, _, path in specs] for obj in found]
    return output.aligned([name for name, _, _ in specs] if header else [], rows, output.Paint())


def _column(path: str, obj: JsonObject) -> str:
    return ",".join(jsonpath.shown(value) for value in jsonpath.find(path, obj)) or NONE


def sorted_by(path: str, found: Sequence[JsonObject]) -> list[int]:
    """Return the positions of ``found`` in the order of what stands at ``path``; what lacks it comes first.

    Raises:
        UsageError: no object has it, which is mostly a misspelled path.
    """
    values = [next(iter(jsonpath.find(path, obj)), None) for obj in found]
    if found and all(value is None for value in values):
        raise UsageError(f'nothing to sort by: no object has "{path}"')
    return sorted(range(len(found)), key=lambda index: _rank(values[index]))


def _rank(value: Any) -> tuple[int, float, str]:
    if value is None:
        return (0, 0, "")
    if isinstance(value, int | float):
        return (1, value, "")
    return (2, 0, jsonpath.shown(value))


class TableStyle(NamedTuple):
    """How a table is shown."""

    wide: bool = False
    namespaces: bool = False
    header: bool = True
    labels: bool = False
    prefix: Kind | None = None


def table_text(table: JsonObject, style: TableStyle, paint: output.Paint | None = None) -> str:
    """Return a Table (meta.k8s.io/v1) as text; with ``prefix`` names are ``TYPE/NAME``."""
    rows = list(table_rows(table, style))
    return output.aligned(table_header(table, style) if style.header else [], rows, paint)


def table_header(table: JsonObject, style: TableStyle) -> list[str]:
    """Return the names of the columns that are shown."""
    names = [str(column["name"]).upper() for column in table["columnDefinitions"] if _is_shown(column, style)]
    return [*(["NAMESPACE"] if style.namespaces else []), *names, *(["LABELS"] if style.labels else [])]


def _is_shown(column: JsonObject, style: TableStyle) -> bool:
    return style.wide or column.get("priority", 0) == 0


def table_rows(table: JsonObject, style: TableStyle) -> list[list[str]]:
    """Return the cells of each row that are shown, as text."""
    columns = table["columnDefinitions"]
    return [_cells(row, columns, style) for row in table.get("rows") or []]


def _cells(row: JsonObject, columns: Sequence[JsonObject], style: TableStyle) -> list[str]:
    cells = ["" if value is None else str(value) for value in row["cells"]]
    if style.prefix is not None:
        cells[0] = name_of(style.prefix, cells[0])
    shown = [cell for cell, column in zip(cells, columns, strict=True) if _is_shown(column, style)]
    obj = row.get("object") or {}
    if style.labels:
        shown.append(",".join(f"{name}={value}" for name, value in sorted(objects.labels(obj).items())) or NONE)
    return [objects.namespace(obj), *shown] if style.namespaces else shown

"""What a table of figures is made of, and how an object becomes its lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from minik8s_modules.api import objects, quantities
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import parse_rfc3339

Rows = Iterable[tuple[tuple[str, ...], float]]
"""Values of labels, and the figure."""
RowsOf = Callable[[JsonObject], Rows]


class Family(NamedTuple):
    """One metric. ``labels`` come after those that say which object it is."""

    name: str
    type: str
    help: str
    labels: tuple[str, ...]
    rows: RowsOf


class Table(NamedTuple):
    """The metrics of a kind. ``identity`` returns the labels that every one of them has, by name."""

    kind: Kind
    identity: Callable[[JsonObject], dict[str, str]]
    families: tuple[Family, ...]


def gauge(name: str, help_text: str, labels: tuple[str, ...], rows: RowsOf) -> Family:
    """Return a metric that goes up and down."""
    return Family(name, "gauge", help_text, labels, rows)


def counter(name: str, help_text: str, labels: tuple[str, ...], rows: RowsOf) -> Family:
    """Return a metric that only grows."""
    return Family(name, "counter", help_text, labels, rows)


def lines(table: Table, obj: JsonObject) -> list[str]:
    """Return the lines of an object, one text a family; all of them end with a line break, or are empty."""
    identity = "".join(f'{name}="{escaped(value)}",' for name, value in table.identity(obj).items())
    return ["".join(_lines(family, identity, obj)) for family in table.families]


def _lines(family: Family, identity: str, obj: JsonObject) -> Iterator[str]:
    for values, figure in family.rows(obj):
        pairs = zip(family.labels, values, strict=True)
        own = "".join(f'{name}="{escaped(value)}",' for name, value in pairs)
        yield f"{family.name}{{{(identity + own)[:-1]}}} {figure!r}\n"


def escaped(text: str) -> str:
    """Return a label's value as it stands between quotes (exposition format 0.0.4)."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def named(label: str) -> Callable[[JsonObject], dict[str, str]]:
    """Return the identity of a kind with namespaces: ``namespace``, and the name as ``label``."""
    return lambda obj: {"namespace": objects.namespace(obj), label: objects.name(obj)}


def number(*path: str, default: float | None = None) -> RowsOf:
    """Return the number at a path, in one row without labels; none, or ``default``, where it is not there."""

    def rows(obj: JsonObject) -> Rows:
        value = objects.dig(obj, *path)
        found = default if value is None else float(value)
        return [] if found is None else [((), found)]

    return rows


def moment(*path: str) -> RowsOf:
    """Return the time at a path in Unix seconds; no row where it is not there."""

    def rows(obj: JsonObject) -> Rows:
        text = objects.dig(obj, *path)
        return [((), parse_rfc3339(text).timestamp())] if text else []

    return rows


def phases(known: Sequence[str]) -> RowsOf:
    """Return a row for each phase: 1 for the one that the status has."""

    def rows(obj: JsonObject) -> Rows:
        now = objects.status(obj).get("phase")
        return [((phase,), float(phase == now)) for phase in known] if now else []

    return rows


def conditions(obj: JsonObject) -> Rows:
    """Return three rows for each condition: it is true, false, unknown."""
    for each in objects.status(obj).get("conditions") or []:
        for status in ("true", "false", "unknown"):
            yield (str(each.get("type")), status), float(str(each.get("status")).lower() == status)


def owners(obj: JsonObject) -> Rows:
    """Return a row for each owner, with its kind, name and whether it controls; one empty row where there is none."""
    found = objects.owner_references(obj) or [{}]
    return [
        ((str(each.get("kind", "")), str(each.get("name", "")), flag(each.get("controller")) if each else ""), 1.0)
        for each in found
    ]


def condition(kind: str) -> RowsOf:
    """Return three rows for a condition that is there: it is true, false, unknown."""

    def rows(obj: JsonObject) -> Rows:
        now = str((objects.condition(obj, kind) or {}).get("status", "")).lower()
        return [((each,), float(each == now)) for each in ("true", "false", "unknown")] if now else []

    return rows


def amounts(found: JsonObject) -> Iterator[tuple[str, str, float]]:
    """Yield resource, unit and amount of a ResourceList, as kube-state-metrics names them (``nvidia_com_gpu``)."""
    for name, quantity in found.items():
        unit = "core" if name == "cpu" else "byte" if name in {"memory", "ephemeral-storage", "storage"} else "integer"
        unit = "byte" if name.startswith("hugepages-") else unit
        label = "".join(each if each.isalnum() else "_" for each in name)
        yield label, unit, quantities.to_milli(str(quantity)) / 1000


def flag(value: object) -> str:
    """Return a truth value as a label has it."""
    return "true" if value else "false"

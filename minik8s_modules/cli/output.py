"""What a person sees: aligned tables, YAML, colours only where a terminal reads them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

import yaml

RED, GREEN, YELLOW, CYAN, BOLD = "31", "32", "33", "36", "1"


class Paint:
    """Wraps text in ANSI colours when ``stream`` is a terminal and NO_COLOR (no-color.org) is unset."""

    def __init__(self, stream: TextIO | None = None) -> None:
        stream = stream or sys.stdout
        self._on = stream.isatty() and "NO_COLOR" not in os.environ

    def __call__(self, text: str, colour: str) -> str:
        """Return ``text``, coloured if this output shows colours."""
        return f"\x1b[{colour}m{text}\x1b[0m" if self._on and text else text


def aligned(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with columns three spaces apart, as kubectl prints."""
    lines = [list(header), *[list(row) for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def as_yaml(value: Any) -> str:
    """Return ``value`` as YAML in the order it has."""
    return yaml.safe_dump(value, sort_keys=False, default_flow_style=False, allow_unicode=True).rstrip()


def as_json(value: Any) -> str:
    """Return ``value`` as indented JSON."""
    return json.dumps(value, indent=4, ensure_ascii=False)


def coloured_diff(lines: Iterable[str], paint: Paint) -> str:
    """Return unified diff ``lines`` with additions green, removals red and positions cyan."""
    colours = {"+": GREEN, "-": RED, "@": CYAN}
    return "\n".join(paint(line, colours[line[0]]) if line[:1] in colours else line for line in lines)

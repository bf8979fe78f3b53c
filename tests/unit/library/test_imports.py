"""What modules import of ours is there: on nodes it has another name, under which neither mypy nor pytest finds it."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
OURS = "ansible.module_utils.minik8s"
MODULES = sorted((ROOT / "library").glob("*.py"))


def imported(module: Path) -> Iterator[tuple[str, str]]:
    """Yield what a module imports of ours, as (where, name)."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(OURS):
            yield from (
                ((node.module or "").replace("ansible", "minik8s_modules", 1), each.name) for each in node.names
            )


def exists(where: str, name: str) -> bool:
    try:
        importlib.import_module(f"{where}.{name}")
    except ModuleNotFoundError:
        return hasattr(importlib.import_module(where), name)
    return True


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_what_a_module_imports_is_there(module: Path) -> None:
    assert [f"{where}.{name}" for where, name in imported(module) if not exists(where, name)] == []


def test_most_modules_import_something_of_ours() -> None:
    assert sum(any(imported(module)) for module in MODULES) > len(MODULES) / 2

"""tests/defects.yml: what was wrong with the original is shown gone by tests that exist."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
NAMED: dict[str, list[str]] = yaml.safe_load((ROOT / "tests" / "defects.yml").read_text(encoding="utf-8"))
KNOWN = [
    *(f"S-{number:02d}" for number in (1, 2, 3, 4, 5, 7, 8, 12, 13, 18, 19)),
    *(f"W-N{number}" for number in range(1, 5)),
    *(f"W-K{number}" for number in range(1, 15)),
    *(f"W-P{number}" for number in range(1, 11)),
]


@cache
def functions(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_defect_of_nodes_pods_and_services_is_there():
    assert set(KNOWN) <= set(NAMED)


@pytest.mark.parametrize("defect", sorted(NAMED))
def test_a_defect_is_shown_gone_by_tests_that_exist(defect: str):
    assert NAMED[defect]
    for test in NAMED[defect]:
        file, _, function = test.partition("::")
        assert function in functions(file), test

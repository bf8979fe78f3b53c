"""The node fixture: everything of it is gone after the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.node import TestNode


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TestNode]:
    made = TestNode(tmp_path)
    try:
        yield made
    finally:
        made.close()

"""Labs for tests: of their own names, removed whatever happens."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from tests.lab.lab import Lab


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab(fresh_name()) as made:
        yield made


@pytest.fixture(scope="module", params=["native", "uml"])
def pair(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Two nodes of each kind, shared by the tests of a module; each test leaves them as it found them."""
    with Lab(fresh_name()) as made:
        made.up(2, request.param)
        yield made


@pytest.fixture
def kind(pair: Lab) -> str:
    return pair.machine("node1").node.kind


def fresh_name() -> str:
    return f"t{uuid.uuid4().hex[:7]}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() != 0:
        for item in items:
            if "integration/lab" in str(item.path):
                item.add_marker(pytest.mark.skip(reason="a lab needs root"))

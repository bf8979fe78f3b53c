"""Clusters on lab machines, made with ``LabCluster``: a test module has its own, or a folder one for its modules."""

from __future__ import annotations

import os
import uuid

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() != 0:
        for item in items:
            if "tests/machines" in str(item.path):
                item.add_marker(pytest.mark.skip(reason="a lab needs root"))


@pytest.fixture(scope="module")
def lab_name() -> str:
    """A name for a lab that no other has."""
    return f"i{uuid.uuid4().hex[:7]}"

"""A namespace of the installed cluster for each module."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from minik8s_modules.api.kinds import NAMESPACE
from tests.support.clusters.installed import Installed


@pytest.fixture(scope="module")
def namespace(cluster: Installed) -> Iterator[str]:
    name = f"causes-{uuid.uuid4().hex[:8]}"
    cluster.admin.create(NAMESPACE, {"metadata": {"name": name}})
    yield name
    cluster.drop_namespace(name)

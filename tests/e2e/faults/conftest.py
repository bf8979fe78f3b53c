"""For fault tests: a namespace whose end must leave nothing behind."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from minik8s_modules.api.kinds import NAMESPACE
from tests.support.clusters.installed import Installed
from tests.support.clusters.orphans import added, descriptors, leaking, lost, picture, settled

SETTLES_S = 60.0  # what ends by itself after the last pod has gone: sandboxes' devices, written files


@pytest.fixture
def namespace(cluster: Installed) -> Iterator[str]:
    """A namespace; after it has gone the node is as before, and no daemon holds more than before."""
    cluster.until(cluster.whole, 120)
    before, held = settled(cluster), descriptors(cluster)
    name = f"fault-{uuid.uuid4().hex[:8]}"
    cluster.admin.create(NAMESPACE, {"metadata": {"name": name}})
    try:
        yield name
    finally:
        cluster.drop_namespace(name)
    settle(lambda: added(before, picture(cluster)), "left behind")
    settle(lambda: leaking(held, descriptors(cluster)), "descriptors not closed")
    assert not lost(before, picture(cluster))


def settle(left: Callable[[], object], what: str) -> None:
    """Wait until ``left`` finds nothing."""
    deadline = time.monotonic() + SETTLES_S
    while found := left():
        assert time.monotonic() < deadline, f"{what}: {found}"
        time.sleep(0.2)

"""The installed cluster, for whoever asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.clusters.installed import KUBECONFIG, Installed


@pytest.fixture(scope="session")
def cluster() -> Iterator[Installed]:
    """The installed cluster, whole; fails where there is none."""
    if not KUBECONFIG.exists():
        pytest.fail(f"{KUBECONFIG} does not exist: run `make cluster` first")
    made = Installed()
    made.until(made.whole, 60, "the cluster is not whole before the test")
    yield made
    made.close()

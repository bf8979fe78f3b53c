"""A check of a pod that is not there yet shows its containers too, though its sandbox is not made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.node import TestNode


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[TestNode]:
    made = TestNode(tmp_path)
    yield made
    made.close()


def test_a_check_of_a_new_pod_is_what_the_run_does(fresh: TestNode):
    pod = fresh.pod()
    container = fresh.container(pod)
    entries = {
        "network": fresh.network(),
        "sandboxes": {pod["pod"]["uid"]: pod},
        "containers": {f"{pod['pod']['uid']}/app": container},
    }
    checked = {section: fresh.run(section, found, check=True) for section, found in entries.items()}
    done = {section: fresh.run(section, found) for section, found in entries.items()}
    for section in entries:
        assert checked[section]["errors"] == {}
        assert checked[section]["steps"] == done[section]["steps"]
    assert [step["action"] for step in checked["containers"]["steps"]] == ["create", "start"]

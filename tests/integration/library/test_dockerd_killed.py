"""kill -9 of a (private) dockerd: containers go on, the pass says why it cannot, and finds nothing to do afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core.docker import DockerError
from tests.support import node as support
from tests.support.docker.dockerd import Dockerd, private_dockerd
from tests.support.node import TestNode, assert_answers


@pytest.fixture
def dockerd(monkeypatch: pytest.MonkeyPatch) -> Iterator[Dockerd]:
    with private_dockerd() as made:
        monkeypatch.setattr(support, "SOCKET", str(made.socket))
        yield made


@pytest.fixture
def private(dockerd: Dockerd, tmp_path: Path) -> Iterator[TestNode]:
    made = TestNode(tmp_path)
    try:
        yield made
    finally:
        made.close()


def test_containers_names_and_network_outlive_dockerd(private: TestNode, dockerd: Dockerd) -> None:
    sandboxes, containers = private.start_pod(7)
    (status,) = private.run("containers", containers)["status"].values()
    found: Any = private.docker.inspect(status["id"])
    dockerd.kill()
    with pytest.raises(DockerError, match="docker"):
        private.run("containers", containers)
    assert Path(f"/proc/{found['State']['Pid']}").exists()
    assert_answers(private.pod(7)["ip"])
    dockerd.start()
    for section, entries in (("network", private.network()), ("sandboxes", sandboxes), ("containers", containers)):
        result = private.run(section, entries)
        assert not result["changed"], result["steps"]
        assert not result["errors"]
    assert private.execute(status["id"], "hostname").strip() == "pod-7"
    assert private.pod(7)["ip"] in private.execute(status["id"], "cat", "/etc/hosts")
    assert "ndots:5" in private.execute(status["id"], "cat", "/etc/resolv.conf")

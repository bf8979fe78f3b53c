"""An API server that clients reach over both families."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from minik8s_modules.api.kinds import CONFIG_MAP
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.kubeconfig import Access
from tests.support.apiserver import ApiServerProcess
from tests.support.etcd import EtcdServer
from tests.support.waiting import until


@pytest.fixture
def both(tmp_path: Path, etcd: EtcdServer) -> Iterator[ApiServerProcess]:
    server = ApiServerProcess(tmp_path / "both", etcd.endpoint, addresses=("::1",), listen_address="::")
    try:
        yield server.start()
    finally:
        server.stop()


def test_a_client_is_known_by_its_address_of_either_family(both: ApiServerProcess) -> None:
    ca, cert, key = (path.read_bytes() for path in (both.authority.ca, both.admin.cert, both.admin.key))
    for url in (f"https://[::1]:{both.port}", both.url):
        client = ApiClient.of(Access(url, ca, cert, key))
        client.create(CONFIG_MAP, {"metadata": {"generateName": "a-", "namespace": "default"}})
        client.close()
    until(lambda: {"::1", "127.0.0.1"} <= sources(both))
    assert not any("ffff" in address for address in sources(both))


def sources(server: ApiServerProcess) -> set[str]:
    """Return whom the audit log names as having created ConfigMaps."""
    lines = (json.loads(line) for line in server.audit.read_text().splitlines())
    made = (line for line in lines if (line["verb"], line["objectRef"]["resource"]) == ("create", "configmaps"))
    return {address for line in made for address in line["sourceIPs"]}

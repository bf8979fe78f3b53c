"""Several API servers and one APIService: all come to the same, and one that is killed is followed by another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.apiserver import ApiServerProcess, beside
from tests.support.etcd import EtcdServer
from tests.support.extension import GROUP, PATH, VERSION, Extension, front_proxy
from tests.support.waiting import until

ADDRESSES = ("192.0.2.1", "192.0.2.2", "192.0.2.3")
SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
NAME = f"{VERSION}.{GROUP}"
FLUNDERS = f"{PATH}/namespaces/default/flunders"
SLICE = "/apis/discovery.k8s.io/v1/namespaces/wardle/endpointslices/api"
MERGE = {"Content-Type": "application/merge-patch+json"}
AGGREGATED = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}


class Several(NamedTuple):
    """The servers; the first has the least name, so it writes conditions."""

    servers: list[ApiServerProcess]
    extension: Extension

    def all(self, found: Callable[[ApiServerProcess], bool], servers: Sequence[ApiServerProcess] = ()) -> None:
        """Wait until ``found`` is true of each server."""
        for server in servers or self.servers:
            until(partial(found, server))


@pytest.fixture
def several(tmp_path: Path) -> Iterator[Several]:
    """Three servers that know one APIService."""
    authority, client = front_proxy(tmp_path)
    files = {"cert": str(client.cert), "key": str(client.key), "ca": str(authority.ca)}
    etcd = EtcdServer(tmp_path / "etcd").start()
    first = ApiServerProcess(tmp_path / "a", etcd.endpoint, advertise_address=ADDRESSES[0], front_proxy=files)
    others = [
        beside(first, tmp_path / name, [etcd.endpoint], address, front_proxy=files)
        for name, address in zip("bc", ADDRESSES[1:], strict=True)
    ]
    servers = [first, *others]
    try:
        with Extension(tmp_path, authority.ca) as extension:
            for server in servers:
                server.start()
            for path, obj in extension.objects():
                assert first.request("POST", path, obj).code == 201
            assert others[0].request("POST", SERVICES, extension.api_service()).code == 201
            yield Several(servers, extension)
    finally:
        for server in servers:
            server.stop()
        etcd.stop()


def reason(server: ApiServerProcess) -> str:
    """Return the reason of the condition ``Available``."""
    answer = server.request("GET", f"{SERVICES}/{NAME}")
    conditions = answer.json.get("status", {}).get("conditions") or [{}] if answer.code == 200 else [{}]
    return str(conditions[0].get("reason", ""))


def serves(server: ApiServerProcess) -> bool:
    """Return whether a server passes requests on, and tells of the kind in discovery."""
    found = server.request("GET", "/apis", headers=AGGREGATED).json["items"]
    versions = [each["versions"][0] for each in found if each["metadata"]["name"] == GROUP]
    fresh = [each["freshness"] for each in versions if each["resources"]] == ["Current"]
    return fresh and server.request("GET", FLUNDERS).code == 200


def endpoint(server: ApiServerProcess, *, ready: bool) -> None:
    """Have the extension's endpoint be ready, or not."""
    present = server.request("GET", SLICE).json["endpoints"]
    changed = {"endpoints": [{**each, "conditions": {"ready": ready}} for each in present]}
    assert server.request("PATCH", SLICE, changed, headers=MERGE).code == 200


def test_all_come_to_the_same_and_the_next_writes_when_the_first_is_killed(several: Several) -> None:
    several.all(serves)
    assert {reason(server) for server in several.servers} == {"Passed"}
    first, *others = several.servers
    endpoint(others[1], ready=False)
    several.all(lambda server: reason(server) == "MissingEndpoints")
    several.all(lambda server: server.request("GET", FLUNDERS).code == 503)
    first.kill9()
    endpoint(others[1], ready=True)
    several.all(serves, others)
    assert {reason(server) for server in others} == {"Passed"}
    first.start()
    several.all(serves)
    assert first.request("DELETE", f"{SERVICES}/{NAME}").code == 200
    several.all(lambda server: server.request("GET", FLUNDERS).code == 404)

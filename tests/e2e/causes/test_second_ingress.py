"""Of two namespaces with one host and path, the second one is told whose the place is, until it is free."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minik8s_modules.api.kinds import INGRESS, NAMESPACE, SERVICE
from minik8s_modules.api.objects import JsonObject
from tests.support.clusters.installed import Installed


@pytest.fixture
def other(cluster: Installed, namespace: str) -> Iterator[str]:
    """One more namespace."""
    name = f"{namespace}-other"
    cluster.admin.create(NAMESPACE, {"metadata": {"name": name}})
    yield name
    cluster.drop_namespace(name)


def _ingress(space: str, host: str) -> JsonObject:
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
    return {
        "metadata": {"name": "site", "namespace": space},
        "spec": {"rules": [{"host": host, "http": {"paths": paths}}]},
    }


def test_the_second_ingress_is_told_whose_its_place_is(cluster: Installed, namespace: str, other: str) -> None:
    host = f"{namespace}.example"
    for space in (namespace, other):
        ports = {"ports": [{"port": 80}], "selector": {"app": "web"}}
        cluster.admin.create(SERVICE, {"metadata": {"name": "web", "namespace": space}, "spec": ports})
        cluster.admin.create(INGRESS, _ingress(space, host))
    text = f"HostConflict: host {host} path / is in use by Ingress {namespace}/site; namespaces share a host only where"

    def why() -> str:
        return cluster.minik8s("why", "-n", other, "ingress", "site").stdout

    cluster.until(lambda: "HostConflict" in cluster.kubectl("-n", other, "describe", "ingress", "site").stdout, 60)
    columns = ("-o", "custom-columns=R:.reason,M:.message", "--no-headers")
    events = cluster.kubectl("-n", other, "get", "events", *columns).stdout
    assert text in ": ".join(events.split(maxsplit=1))
    assert text in why()
    assert text in cluster.minik8s("get", "ingress", "-n", other, "--why").stdout
    assert "HostConflict" not in cluster.minik8s("why", "-n", namespace, "ingress", "site").stdout
    cluster.admin.delete(INGRESS, "site", namespace)
    cluster.until(lambda: "no endpoints" in why() and "HostConflict" not in why(), 60)

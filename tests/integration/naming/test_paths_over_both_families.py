"""Hosts and paths in a cluster with both families: nginx answers at IPv6 addresses, too, and Ingresses say so."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from pathlib import Path

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import INGRESS, NODE, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.names.dns_guard import NOWHERE, guard
from minik8s_modules.module_utils.minik8s.pods.dns_host import remove_address
from tests.integration.naming.conftest import Cluster, nginx, request
from tests.integration.naming.test_names_and_paths_on_pods import ingress
from tests.integration.reconcile.conftest import running

HOST = "shop.example.test"


class DualCluster(Cluster):
    """A cluster whose Pods have an IPv6 address, too."""

    def _configs(self) -> dict[str, JsonObject]:
        found, digits = super()._configs(), uuid.uuid4().hex
        second = {"cluster_cidr_ipv6": f"fd{digits[:2]}:{digits[2:6]}:{digits[6:10]}::/48"}
        found["reconcile"] |= second
        found["controllers"] |= {"cluster_cidr": found["reconcile"]["cluster_cidr"], **second}
        return found


@pytest.fixture(scope="module")
def dual() -> Iterator[DualCluster]:
    with running(DualCluster) as made:
        assert isinstance(made, DualCluster)
        made.folder.chmod(0o755)
        with nginx(Path(made.node.state_dir, "nginx"), made.folder / "nginx.log"):
            made.service("web", {"app": "web"})
            made.web("web", {"app": "web"})
            made.admin.create(INGRESS, ingress("web", HOST, [("Prefix", "/", "web")]))
            yield made
    remove_address(made.listen)
    guard(made.node.name, NOWHERE)


def answers(dual: DualCluster, address: str) -> bool:
    return request(dual.http_port, HOST, address=address) == (200, "web")


def test_an_ingress_is_answered_where_it_says(dual: DualCluster) -> None:
    dual.until(lambda: len(dual.admin.get(POD, "web", "default").get("status", {}).get("podIPs", [])) == 2, 60)
    told = objects.status(dual.admin.get(NODE, dual.node.name))["addresses"]
    own = [each["address"] for each in told if each["type"] == "InternalIP"]
    assert [":" in each for each in own] == [False, True]

    def said() -> list[str]:
        points = objects.dig(dual.admin.get(INGRESS, "web", "default"), "status", "loadBalancer", "ingress") or []
        return [each["ip"] for each in points]

    dual.until(lambda: said() == own)
    for address in (*own, "::1"):
        dual.until(partial(answers, dual, address), 60)
        assert request(dual.http_port, "other.test", address=address)[0] == HTTPStatus.NOT_FOUND


def test_what_somebody_takes_of_ipv6_is_drift_and_comes_back(dual: DualCluster) -> None:
    main = Path(dual.node.state_dir, "nginx/nginx.conf")
    before = main.read_text()
    assert f"listen [::]:{dual.http_port};" in before
    main.write_text(before.replace("listen [::]", "listen [::1]"))
    drift = dual.plan()["nodes"].get(dual.node.name, {"steps": []})
    assert "ingress" in {step["section"] for step in drift["steps"]}, drift
    dual.admin.patch(NODE, dual.node.name, "", {"metadata": {"annotations": {"minik8s.io/observe": uuid.uuid4().hex}}})
    dual.until(lambda: main.read_text() == before, 60)

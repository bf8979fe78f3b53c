"""A Service or NetworkPolicy that cannot be read keeps no node from the rules of the others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minik8s_modules.api.kinds import ENDPOINT_SLICE, NAMESPACE, NETWORK_POLICY, POD, SERVICE
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.reconcile.feeds.policies_feed import PolicyFeed
from minik8s_modules.reconcile.feeds.services_feed import ServiceFeed
from tests.support.waiting import until
from tests.unit.reconcile.worlds import NODE, SETTINGS

WRONG = ("text", ["x"], 5, {"ports": "text", "clusterIPs": ["100.0.0.9"]}, {"podSelector": "text"})


@pytest.fixture
def api() -> FakeApi:
    made = FakeApi()
    for number, spec in enumerate(WRONG):
        meta = {"name": f"bad{number}", "namespace": "default"}
        for kind in (SERVICE, NETWORK_POLICY, POD):
            made.create(kind, {"metadata": {**meta, "uid": f"{kind.kind}{number}"}, "spec": spec})
        labels = {"kubernetes.io/service-name": "web"}
        made.create(
            ENDPOINT_SLICE,
            {"metadata": {"name": f"of{number}", "namespace": "other", "labels": labels}, "endpoints": spec},
        )
    made.create(NAMESPACE, {"metadata": {"name": "default"}})
    return made


@pytest.fixture
def services(api: FakeApi) -> Iterator[ServiceFeed]:
    made = ServiceFeed(api, SETTINGS, lambda: None)
    made.start()
    assert made.wait_synced(60)
    yield made
    made.stop()


def test_rules_follow_a_service_beside_others_that_cannot_be_read(api: FakeApi, services: ServiceFeed) -> None:
    spec = {"type": "ClusterIP", "clusterIP": "100.0.0.7", "clusterIPs": ["100.0.0.7"], "ports": [{"port": 80}]}
    api.create(SERVICE, {"metadata": {"name": "web", "namespace": "default"}, "spec": spec})
    until(lambda: "default/web:80" in services.entries(NODE))
    found = api.get(SERVICE, "web", "default")
    api.update(SERVICE, {**found, "spec": "text"})
    api.create(SERVICE, {"metadata": {"name": "later", "namespace": "default"}, "spec": spec})
    until(lambda: "default/later:80" in services.entries(NODE))
    assert "default/web:80" in services.entries(NODE), "it stays as it was"


def test_policies_are_followed_beside_others_that_cannot_be_read(api: FakeApi) -> None:
    feed = PolicyFeed(api, SETTINGS, lambda _uid: None, lambda: None, active=True)
    feed.start()
    try:
        spec = {"podSelector": {}, "policyTypes": ["Ingress"]}
        api.create(NETWORK_POLICY, {"metadata": {"name": "good", "namespace": "default"}, "spec": spec})
        until(lambda: "default/good" in [one.key for one in feed.known().policies])
        until(lambda: "default" in feed.known().namespaces)
    finally:
        feed.stop()

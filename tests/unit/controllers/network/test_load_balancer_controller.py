"""What the controller of load balancers writes: a finalizer, then an address; Events where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import EVENT, NODE, SERVICE
from minik8s_modules.api.network.balancing import read_balancing
from minik8s_modules.api.network.load_balancers import FINALIZER
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.config import Configuration
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.controllers.network.load_balancers import LoadBalancerController
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from tests.support.waiting import until

SETTINGS = {"default": "pool", "addresses": ["203.0.113.10"], "kept_ports": [22], "health_checks": False}


@pytest.fixture
def api() -> Iterator[FakeApi]:
    made = FakeApi()
    balancing = read_balancing(Configuration({"load_balancer": SETTINGS}, "test"), ())
    recorder = EventRecorder(made, "test")
    context = Context(made, recorder, Informers(made))
    controller = LoadBalancerController(context, balancing)
    status = {
        "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    made.create(NODE, {"metadata": {"name": "n1"}, "status": status})
    for part in (recorder, context.informers, controller):
        part.start()
    yield made
    for part in (controller, context.informers, recorder):
        part.stop()
    context.pool.shutdown()


def create(api: FakeApi, name: str, **spec: Any) -> None:
    declared = {"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP"}], **spec}
    api.create(SERVICE, {"metadata": {"name": name, "namespace": "default"}, "spec": declared})


def points(api: FakeApi, name: str) -> list[JsonObject]:
    found = api.get(SERVICE, name, "default")
    return list(objects.dig(found, "status", "loadBalancer", "ingress") or [])


def test_what_cannot_be_read_keeps_no_service_from_its_address(api: FakeApi):
    for number, spec in enumerate(("text", ["x"], 5, {"type": ["LoadBalancer"]})):
        api.create(SERVICE, {"metadata": {"name": f"a{number}", "namespace": "default"}, "spec": spec})
        api.create(NODE, {"metadata": {"name": f"a{number}"}, "spec": spec, "status": {"addresses": spec}})
        api.create(NODE, {"metadata": {"name": f"b{number}"}, "status": spec})
    create(api, "web")
    until(lambda: [one["ip"] for one in points(api, "web")] == ["203.0.113.10"])


def test_an_address_that_a_virtual_node_tells_is_taken_from_the_pool(api: FakeApi):
    create(api, "web")
    until(lambda: [one["ip"] for one in points(api, "web")] == ["203.0.113.10"])
    status = {"addresses": [{"type": "ExternalIP", "address": "203.0.113.10"}]}
    api.create(NODE, {"metadata": {"name": "v1", "labels": {"type": "virtual-kubelet"}}, "status": status})
    until(lambda: points(api, "web") == [])


def told(api: FakeApi, name: str) -> set[str]:
    events = api.list(EVENT, "default").items
    return {str(one["reason"]) for one in events if one["involvedObject"]["name"] == name}


def test_an_address_is_given_held_and_freed(api: FakeApi) -> None:
    create(api, "first")
    until(lambda: points(api, "first") == [{"ip": "203.0.113.10", "ipMode": "VIP"}])
    assert objects.finalizers(api.get(SERVICE, "first", "default")) == [FINALIZER]
    create(api, "second")
    until(lambda: "AddressNotAvailable" in told(api, "second"))
    assert points(api, "second") == []
    api.delete(SERVICE, "first", "default")
    until(lambda: points(api, "second") == [{"ip": "203.0.113.10", "ipMode": "VIP"}])
    with pytest.raises(NotFound):
        api.get(SERVICE, "first", "default")


def test_one_that_is_no_load_balancer_any_more_lets_go(api: FakeApi) -> None:
    create(api, "web")
    until(lambda: bool(points(api, "web")))
    api.patch(SERVICE, "web", "default", {"spec": {"type": "ClusterIP"}})
    until(lambda: not points(api, "web"))
    until(lambda: objects.finalizers(api.get(SERVICE, "web", "default")) == [])


def test_a_port_of_the_nodes_and_a_machines_address_are_refused_with_an_event(api: FakeApi) -> None:
    create(api, "ssh", loadBalancerClass="minik8s.io/nodes", ports=[{"port": 22}])
    until(lambda: "PortKept" in told(api, "ssh"))
    create(api, "forged", loadBalancerClass="example.com/lb")
    forged = api.get(SERVICE, "forged", "default")
    balancer = {"ingress": [{"ip": "192.0.2.1"}]}
    api.update(SERVICE, {**forged, "status": {"loadBalancer": balancer}}, subresource="status")
    until(lambda: "AddressRefused" in told(api, "forged"))
    assert objects.finalizers(api.get(SERVICE, "forged", "default")) == []


def test_health_checks_that_no_node_answers_are_told_once(api: FakeApi) -> None:
    create(api, "web", externalTrafficPolicy="Local", healthCheckNodePort=30090)
    create(api, "plain")
    until(lambda: "HealthCheckUnavailable" in told(api, "web"))
    api.patch(SERVICE, "web", "default", {"metadata": {"labels": {"seen": "again"}}})
    until(lambda: "AddressNotAvailable" in told(api, "plain") or bool(points(api, "plain")))
    assert "HealthCheckUnavailable" not in told(api, "plain")
    (event,) = [one for one in api.list(EVENT, "default").items if one["reason"] == "HealthCheckUnavailable"]
    assert event.get("count", 1) == 1

"""A plan tells what Services would be when all new pods are ready."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.planning.simulated_services import (
    Cluster,
    PlannedServices,
    addresses,
    planned_services,
    with_services,
)
from minik8s_modules.reconcile.planning.simulation import PlannedState

PLANE = {"mode": "nftables"}
OLD = {"protocol": "TCP", "address": "100.0.0.2", "port": 80, "endpoints": [["192.0.2.7", 80]]}
ENTRIES: dict[str, JsonObject] = {"dataplane": PLANE, "default/old:80": OLD}
NODE = {"metadata": {"name": "n1"}, "spec": {"podCIDR": "10.0.0.0/29"}, "status": {}}


def service(name: str, selector: dict[str, str] | None, **spec: Any) -> JsonObject:
    """Return a Service at 100.0.0.2, port 81 to 8080."""
    port = {"port": 81, "targetPort": 8080, "protocol": "TCP"}
    body = {"type": "ClusterIP", "clusterIP": "100.0.0.2", "ports": [port], "selector": selector, **spec}
    return {"metadata": {"name": name, "namespace": "default", "uid": "u"}, "spec": body}


def pod(name: str, ip: str = "", namespace: str = "default", app: str = "web") -> JsonObject:
    """Return a pod on n1: ready at ``ip``, new without one."""
    metadata = {"name": name, "namespace": namespace, "uid": name, "labels": {"app": app}}
    ready = {"podIP": ip, "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": metadata, "spec": {"nodeName": "n1", "containers": []}, "status": ready if ip else {}}


def user_slice(name: str, of: str, ip: str) -> JsonObject:
    """Return a slice that a user wrote."""
    metadata = {"name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": of}}
    endpoints = [{"addresses": [ip], "conditions": {}}]
    return {"metadata": metadata, "addressType": "IPv4", "endpoints": endpoints, "ports": [{"name": "", "port": 9}]}


def made(pods: dict[str, JsonObject | None], **network: JsonObject | None) -> PlannedState:
    """Return what would be; ``network`` by ``<Kind>__<name>``."""
    changed = {(key.partition("__")[0], f"default/{key.partition('__')[2]}"): obj for key, obj in network.items()}
    return PlannedState(pods, {}, (), network=changed)


def entries(found: PlannedState, cluster: Cluster, stuck: frozenset[str] = frozenset()) -> dict[str, Mapping[str, Any]]:
    """Return the section as it would be."""
    seen = planned_services(found, cluster, addresses(found.pods, cluster), stuck)
    return dict(with_services(ENTRIES, seen, "n1"))


WEB = service("web", {"app": "web"})


def test_a_new_service_has_the_pods_of_its_namespace() -> None:
    cluster = Cluster((pod("a", "10.0.0.4"), pod("b", "10.0.0.5", "other")), (NODE,), ("n1",))
    found = entries(made({}, Service__web=WEB), cluster)
    assert found["default/web:81"]["endpoints"] == [["10.0.0.4", 8080]]
    assert found["default/old:80"] is OLD


def test_new_pods_are_behind_a_service_with_the_addresses_they_will_claim() -> None:
    cluster = Cluster((), (NODE,), ("n1",), services=(WEB,), taken=frozenset({"10.0.0.2"}))
    planned_state = made({"a": pod("a"), "b": pod("b"), "c": pod("c", app="other")})
    assert addresses(planned_state.pods, cluster) == {"a": "10.0.0.3", "b": "10.0.0.4", "c": "10.0.0.5"}
    assert entries(planned_state, cluster)["default/web:81"]["endpoints"] == [["10.0.0.3", 8080], ["10.0.0.4", 8080]]
    seen = planned_services(planned_state, cluster, addresses(planned_state.pods, cluster), frozenset())
    assert seen.awaited == {"a", "b"}


def test_a_pod_that_cannot_run_or_finds_no_address_is_no_endpoint() -> None:
    cluster = Cluster((), (NODE,), ("n1",), services=(WEB,))
    planned_state = made({"a": pod("a"), "b": pod("b")})
    assert entries(planned_state, cluster, frozenset({"a"}))["default/web:81"]["endpoints"] == [["10.0.0.3", 8080]]
    full = cluster._replace(taken=frozenset(f"10.0.0.{last}" for last in range(2, 7)))
    assert entries(planned_state, full)["default/web:81"]["endpoints"] == []


def test_pods_that_go_leave_and_what_comes_in_their_place_has_another_address() -> None:
    cluster = Cluster((pod("a", "10.0.0.2"),), (NODE,), ("n1",), services=(WEB,), taken=frozenset({"10.0.0.2"}))
    assert entries(made({"a": None}), cluster)["default/web:81"]["endpoints"] == []
    found = entries(made({"a": None, "b": pod("b")}), cluster)
    assert found["default/web:81"]["endpoints"] == [["10.0.0.3", 8080]]


def test_a_pod_that_loses_its_label_and_a_service_that_changes_its_selector() -> None:
    standing = (pod("a", "10.0.0.2"), pod("b", "10.0.0.3", app="other"))
    cluster = Cluster(standing, (NODE,), ("n1",), services=(WEB,))
    assert entries(made({"a": pod("a", "10.0.0.2", app="x")}), cluster)["default/web:81"]["endpoints"] == []
    found = entries(made({}, Service__web=service("web", {"app": "other"})), cluster)
    assert found["default/web:81"]["endpoints"] == [["10.0.0.3", 8080]]


def test_a_deleted_service_leaves_and_what_concerns_none_changes_nothing() -> None:
    cluster = Cluster((), (NODE,), ("n1",), services=(service("old", None),))
    assert entries(made({}, Service__old=None), cluster) == {"dataplane": PLANE}
    assert with_services(ENTRIES, PlannedServices(), "n1") is ENTRIES
    seen = planned_services(made({"a": pod("a")}), cluster, {}, frozenset())
    assert with_services(ENTRIES, seen, "n1") is ENTRIES
    assert with_services({}, PlannedServices({"default/web": WEB}), "n1") == {}


def test_endpoints_of_a_user_stay_come_and_go() -> None:
    bare = service("own", None)
    mine = user_slice("mine", "own", "192.0.2.7")
    cluster = Cluster((), (NODE,), ("n1",), services=(bare,), slices=lambda key: [mine] if key == "default/own" else [])
    assert entries(made({}, Service__own=bare), cluster)["default/own:81"]["endpoints"] == [["192.0.2.7", 9]]
    other = user_slice("other", "own", "192.0.2.8")
    found = entries(made({}, EndpointSlice__other=other), cluster)
    assert found["default/own:81"]["endpoints"] == [["192.0.2.7", 9], ["192.0.2.8", 9]]
    assert entries(made({}, EndpointSlice__mine=None), cluster)["default/own:81"]["endpoints"] == []
    subsets = [{"addresses": [{"ip": "192.0.2.9"}], "ports": [{"port": 7, "protocol": "TCP"}]}]
    written = {"metadata": {"name": "own", "namespace": "default"}, "subsets": subsets}
    found = entries(made({}, Endpoints__own=written), cluster)
    assert found["default/own:81"]["endpoints"] == [["192.0.2.7", 9], ["192.0.2.9", 7]]

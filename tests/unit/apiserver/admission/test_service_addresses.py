"""Cluster IPs: one Service an address, given back, and found again after a crash."""

from __future__ import annotations

import copy
import ipaddress
from dataclasses import replace
from typing import Any

import pytest

from minik8s_modules.api.errors import AlreadyExists, InternalError, Invalid
from minik8s_modules.api.kinds import SERVICE
from minik8s_modules.api.network import service_ranges
from minik8s_modules.apiserver.admission import service_addresses
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.verbs import deleting, writing
from minik8s_modules.base.clock import FakeClock

COLLECTION = Target(SERVICE, "default")


def _create(backend: Backend, options: Options, name: str, **spec: Any) -> str:
    obj = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}
    return str(writing.create(backend, COLLECTION, obj, options).object["spec"].get("clusterIP", ""))


def _claims(backend: Backend) -> list[str]:
    return [
        entry.key.removeprefix(service_addresses.ADDRESSES)
        for entry in backend.store.range(service_addresses.ADDRESSES).entries
    ]


def test_the_first_is_for_the_api_and_the_network_address_goes_last():
    assert list(service_ranges.candidates(ipaddress.IPv4Network("10.0.0.0/29"))) == [
        "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.0",
    ]  # fmt: skip


def test_a_full_range_says_what_to_do(backend: Backend, options: Options):
    small = replace(backend, service_cidr=ipaddress.IPv4Network("10.0.0.0/30"))
    assert [_create(small, options, name) for name in "ab"] == ["10.0.0.2", "10.0.0.0"]
    with pytest.raises(InternalError, match="is full; delete Services"):
        _create(small, options, "c")


def test_a_deleted_service_gives_its_address_back(backend: Backend, options: Options):
    address = _create(backend, options, "a")
    deleting.delete(backend, Target(SERVICE, "default", "a"), {}, options)
    assert _claims(backend) == []
    assert _create(backend, options, "b") == address


def test_a_service_that_could_not_be_stored_gives_its_address_back(backend: Backend, options: Options):
    _create(backend, options, "a")
    with pytest.raises(AlreadyExists):
        _create(backend, options, "a")
    assert len(_claims(backend)) == 1


def test_an_address_of_another_is_refused_and_left_to_it(backend: Backend, options: Options):
    address = _create(backend, options, "a")
    with pytest.raises(Invalid, match="already allocated"):
        _create(backend, options, "b", clusterIP=address)
    assert _claims(backend) == [address]


def test_headless_and_external_services_need_none(backend: Backend, options: Options):
    assert _create(backend, options, "a", clusterIP="None") == "None"
    assert _create(backend, options, "b", type="ExternalName", externalName="example.com") == ""
    assert _claims(backend) == []


def test_a_dry_run_claims_nothing(backend: Backend, options: Options):
    assert _create(backend, options._replace(dry_run=True), "a") == "100.0.0.2"
    assert _claims(backend) == []


def test_a_claim_left_by_a_crash_goes_after_a_minute(backend: Backend, options: Options, clock: FakeClock):
    kept = _create(backend, options, "a")
    lost = {"metadata": {"name": "lost", "namespace": "default", "uid": "u"}, "spec": {}}
    service_addresses.Claims(backend, lost, None, dry_run=False).make()
    service_addresses.repair(backend)
    assert len(_claims(backend)) == 2
    clock.advance(61)
    service_addresses.repair(backend)
    assert _claims(backend) == [kept]


# --- node ports


def _service(backend: Backend, name: str) -> dict[str, Any]:
    return dict(backend.get(Target(SERVICE, "default", name)).object)


def _node_ports(backend: Backend) -> list[str]:
    return [
        entry.key.removeprefix(service_addresses.PORTS)
        for entry in backend.store.range(service_addresses.PORTS).entries
    ]


def _change(backend: Backend, options: Options, name: str, **spec: Any) -> dict[str, Any]:
    def apply(old: dict[str, Any]) -> dict[str, Any]:
        return {**old, "spec": {**old["spec"], **spec}}

    return dict(writing.patch(backend, Target(SERVICE, "default", name), apply, options).object["spec"])


def test_node_ports_are_given_once_and_come_back(backend: Backend, options: Options):
    _create(backend, options, "a", type="NodePort")
    _create(backend, options, "b", type="NodePort", ports=[{"name": "x", "port": 1}, {"name": "y", "port": 2}])
    given = [port["nodePort"] for name in "ab" for port in _service(backend, name)["spec"]["ports"]]
    assert given == [30086, 30087, 30088]
    deleting.delete(backend, Target(SERVICE, "default", "a"), {}, options)
    _create(backend, options, "c", type="NodePort")
    assert _service(backend, "c")["spec"]["ports"][0]["nodePort"] == 30086


def test_a_load_balancers_service_has_node_ports_unless_it_wants_none(backend: Backend, options: Options):
    _create(backend, options, "a", type="LoadBalancer")
    named = [{"name": "x", "port": 1, "nodePort": 30007}, {"name": "y", "port": 2}]
    _create(backend, options, "b", type="LoadBalancer", allocateLoadBalancerNodePorts=False, ports=named)
    assert _node_ports(backend) == ["30007", "30086"]
    kept = _change(backend, options, "a", allocateLoadBalancerNodePorts=False)
    assert kept["ports"][0]["nodePort"] == 30086
    with pytest.raises(Invalid, match="already allocated"):
        _create(backend, options, "c", type="NodePort", ports=[{"port": 80, "nodePort": 30007}])
    changed = _change(backend, options, "a", type="ClusterIP")
    assert "nodePort" not in changed["ports"][0]
    assert not {"allocateLoadBalancerNodePorts", "externalTrafficPolicy"} & set(changed)
    assert _node_ports(backend) == ["30007"]


def test_a_local_load_balancer_has_a_port_for_health_checks(backend: Backend, options: Options):
    local: dict[str, Any] = {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}
    _create(backend, options, "a", **local)
    spec = _service(backend, "a")["spec"]
    assert (spec["ports"][0]["nodePort"], spec["healthCheckNodePort"]) == (30086, 30087)
    assert _node_ports(backend) == ["30086", "30087"]
    assert _change(backend, options, "a", healthCheckNodePort=0)["healthCheckNodePort"] == 30087
    with pytest.raises(Invalid, match="healthCheckNodePort: Forbidden: field is immutable"):
        _change(backend, options, "a", healthCheckNodePort=30099)
    with pytest.raises(Invalid, match="already allocated to service default/a"):
        _create(backend, options, "b", **local, healthCheckNodePort=30087)
    _create(backend, options, "b", **local, healthCheckNodePort=30088)
    assert _service(backend, "b")["spec"]["ports"][0]["nodePort"] == 30089, "what is asked for goes first"
    tried = _change(
        backend, options._replace(dry_run=True), "b", ports=[{"name": "a", "port": 1}, {"name": "b", "port": 2}]
    )
    assert len({port["nodePort"] for port in tried["ports"]} - {30088}) == 2, "a dry run gives each port once, too"
    assert "healthCheckNodePort" not in _change(backend, options, "a", externalTrafficPolicy="Cluster")
    assert "30087" not in _node_ports(backend)
    assert _change(backend, options, "a", externalTrafficPolicy="Local")["healthCheckNodePort"] == 30087


def test_a_wanted_node_port_is_honoured_or_refused_with_its_holder(backend: Backend, options: Options):
    _create(backend, options, "a", type="NodePort", ports=[{"port": 80, "nodePort": 30080}])
    with pytest.raises(Invalid, match="already allocated to service default/a"):
        _create(backend, options, "b", type="NodePort", ports=[{"port": 80, "nodePort": 30080}])
    with pytest.raises(Invalid, match="The range of valid ports is 30000-32767"):
        _create(backend, options, "b", type="NodePort", ports=[{"port": 80, "nodePort": 80}])
    assert _node_ports(backend) == ["30080"]
    assert len(_claims(backend)) == 1


def test_one_number_serves_both_protocols_of_a_service(backend: Backend, options: Options):
    ports = [{"name": "t", "port": 53}, {"name": "u", "port": 53, "protocol": "UDP"}]
    _create(backend, options, "dns", type="NodePort", ports=ports)
    assert {port["nodePort"] for port in _service(backend, "dns")["spec"]["ports"]} == {30086}


def test_a_change_of_type_allocates_and_releases(backend: Backend, options: Options):
    address = _create(backend, options, "a")
    assert _change(backend, options, "a", type="NodePort")["ports"][0]["nodePort"] == 30086
    assert _node_ports(backend) == ["30086"]
    assert "nodePort" not in _change(backend, options, "a", type="ClusterIP")["ports"][0]
    assert _node_ports(backend) == []
    assert "clusterIP" not in _change(backend, options, "a", type="ExternalName", externalName="example.org")
    assert _claims(backend) == []
    assert _change(backend, options, "a", type="ClusterIP", externalName=None)["clusterIP"] == address
    assert _claims(backend) == [address]


def test_the_address_of_a_service_stays_until_its_type_needs_none(backend: Backend, options: Options):
    address = _create(backend, options, "a")
    cleared: list[dict[str, Any]] = [{"clusterIP": ""}, {"clusterIPs": []}, {"clusterIP": "", "clusterIPs": []}]
    for spec in cleared:
        assert _change(backend, options, "a", **spec)["clusterIPs"] == [address]
    refused: list[dict[str, Any]] = [{"clusterIP": "100.0.0.99"}, {"clusterIPs": ["100.0.0.99"]}, {"clusterIP": "None"}]
    for spec in refused:
        with pytest.raises(Invalid, match="may not change once set"):
            _change(backend, options, "a", **spec)
    assert not _change(backend, options, "a", type="ExternalName", externalName="example.org", clusterIP="")[
        "clusterIP"
    ]
    assert _claims(backend) == []
    assert _change(backend, options, "a", type="ClusterIP", clusterIP="100.0.0.99")["clusterIPs"] == ["100.0.0.99"]
    assert _claims(backend) == ["100.0.0.99"]


def test_a_headless_service_says_so_in_both_fields_and_claims_nothing(backend: Backend, options: Options):
    _create(backend, options, "a", clusterIP="None", selector={"app": "db"})
    assert _change(backend, options, "a", selector={"app": "web"})["clusterIPs"] == ["None"]
    assert "clusterIPs" not in _change(backend, options, "a", type="ExternalName", externalName="example.org")
    assert _change(backend, options, "a", type="ClusterIP", externalName=None)["clusterIPs"] == _claims(backend)


@pytest.mark.parametrize("addresses", [["100.0.0.9"], ["None"], ["100.0.0.8", "100.0.0.9"]])
def test_addresses_that_would_not_be_given_are_refused_and_not_claimed(
    backend: Backend, options: Options, addresses: list[str]
):
    with pytest.raises(Invalid, match="clusterIPs: Invalid"):
        _create(backend, options, "a", clusterIPs=addresses)
    assert _claims(backend) == []


def test_a_dry_run_of_a_change_claims_nothing(backend: Backend, options: Options):
    _create(backend, options, "a")
    changed = _change(backend, options._replace(dry_run=True), "a", type="NodePort")
    assert changed["ports"][0]["nodePort"] == 30086
    assert _node_ports(backend) == []


def test_a_dry_run_that_fails_gives_back_nothing_that_a_write_has_claimed_meanwhile(backend: Backend, options: Options):
    _create(backend, options, "a")
    old = backend.cache.get(SERVICE.key("default", "a"))
    assert old is not None
    tried = copy.deepcopy(old.object)
    tried["spec"].update(type="NodePort", ports=[{"port": 80, "nodePort": 30088}])
    claims = service_addresses.Claims(backend, tried, old.object, dry_run=True)
    claims.make()
    _change(backend, options, "a", type="NodePort", ports=[{"port": 80, "nodePort": 30088}])
    claims.undo()
    assert _node_ports(backend) == ["30088"]


def test_a_lost_claim_is_made_again(backend: Backend, options: Options):
    address = _create(backend, options, "a", type="NodePort")
    for entry in [*backend.store.range(service_addresses.ADDRESSES).entries, *backend.store.range("/minik8s/").entries]:
        if backend.store.get(entry.key) is not None:
            backend.store.delete(entry.key, entry.revision)
    service_addresses.repair(backend)
    assert (_claims(backend), _node_ports(backend)) == ([address], ["30086"])


def test_300_services_of_a_large_range(backend: Backend, options: Options):
    large = replace(backend, service_cidr=ipaddress.IPv4Network("100.64.0.0/16"))
    given = {_create(large, options, f"s{number}") for number in range(300)}
    assert len(given) == 300
    assert all(ipaddress.ip_address(each) in large.service_cidr for each in given)

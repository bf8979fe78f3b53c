"""An editor of a namespace takes no address that is another Service's, a machine's, the API's or the cluster DNS'.

The attacks: name it as an external address, by each way to write; bring a status along, or write one; ask a load
balancer for it; ask for a port that the machines use themselves, or for health checks at one of another's.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest

from minik8s_modules.api import objects, syntax
from minik8s_modules.api.network.balancing import read_balancing
from minik8s_modules.api.network.load_balancers import by_age, decide_addresses, decide_outside
from minik8s_modules.api.network.surroundings import Machine, World, world_of
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.config import Configuration
from tests.attacks.people import editor_of
from tests.integration.apiserver.conftest import Namespace
from tests.support.apiserver import Answer

NODE, SERVER, VICTIMS = "192.0.2.1", "192.0.2.10", "203.0.113.10"
NODE_IPV6, SERVER_IPV6, VICTIMS_IPV6 = "2001:db8:1::1", "2001:db8:1::10", "2001:db8::10"
WORLD = World((Machine("n1", NODE, ready=True, silent=False, second=NODE_IPV6),), frozenset({SERVER, SERVER_IPV6}))
SPELLED = (
    NODE_IPV6, "2001:DB8:1::1", "2001:0db8:0001:0:0:0:0:1", SERVER_IPV6, "2001:db8:1:0::10", VICTIMS_IPV6,
    "2001:db8:0:0::10", "fd00:96::1", "FD00:96:0::1", "fd00:77::5", "fd00:77:0:ffff::1",
)  # fmt: skip
"""Addresses of IPv6 that are a machine's, an API server's, another Service's, of the range of Services or of Pods."""
SPECIAL = (
    "::1", "::", "fe80::1", "ff02::1", "ff0e::1", "::ffff:192.0.2.1", "::ffff:c000:201", "::192.0.2.1", "::c000:201",
    "64:ff9b::192.0.2.1", "fe80::1%eth0", "2001:db8:1::1%eth0",
)  # fmt: skip
"""Those that are nobody's from outside: of this machine, of a link, of many, of IPv4 within IPv6."""
SETTINGS = {"default": "pool", "addresses": [VICTIMS, SERVER, VICTIMS_IPV6], "kept_ports": [22], "external_ips": True}
OWN = ("10.244.0.0/16", "100.0.0.0/24", "fd00:77::/48", "fd00:96::/112")
BALANCING = read_balancing(Configuration({"load_balancer": SETTINGS}, "test"), OWN)
NAME_SERVERS = ("169.254.20.10", "203.0.113.11", "fd00:169:254:20::10", "2001:db8::11")
APPLY = {"Content-Type": "application/apply-patch+yaml"}
MERGE = {"Content-Type": "application/merge-patch+json"}


class Mallory:
    """Whoever may edit in one namespace, and nowhere else."""

    def __init__(self, namespace: Namespace) -> None:
        self._server, self._client = namespace.server, editor_of(namespace)
        self.path = f"/api/v1/namespaces/{namespace.name}/services"

    def send(self, method: str, path: str, body: Any, headers: dict[str, str] | None = None) -> Answer:
        """Ask as the editor."""
        return self._server.request(method, path, body, client=self._client, headers=headers)

    def create(self, name: str, status: JsonObject | None = None, **spec: Any) -> Answer:
        """Create a Service."""
        body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "status": status or {}}
        return self.send("POST", self.path, {**body, "spec": {"ports": [{"port": 80}], **spec}})


@pytest.fixture
def mallory(namespace: Namespace) -> Mallory:
    return Mallory(namespace)


def test_no_way_to_write_names_an_external_address(mallory: Mallory) -> None:
    assert mallory.create("direct", externalIPs=[VICTIMS]).code == 403
    both: JsonObject = {"ipFamilyPolicy": "PreferDualStack", "externalIPs": [VICTIMS_IPV6]}
    assert mallory.create("direct", **both).code == 403
    assert mallory.create("web").code == 201
    patch = {"spec": {"externalIPs": [SERVER]}}
    applied = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, **patch}
    assert mallory.send("PATCH", f"{mallory.path}/web", patch, MERGE).code == 403
    assert mallory.send("PATCH", f"{mallory.path}/web?fieldManager=m&force=true", applied, APPLY).code == 403
    found = mallory.send("GET", f"{mallory.path}/web", None).json
    assert mallory.send("PUT", f"{mallory.path}/web", {**found, "spec": {**found["spec"], **patch["spec"]}}).code == 403


def test_nobody_brings_a_status_along_or_writes_one(mallory: Mallory) -> None:
    forged = {"loadBalancer": {"ingress": [{"ip": VICTIMS}]}}
    made = mallory.create("web", forged, type="LoadBalancer", loadBalancerClass="example.com/mine")
    assert (made.code, made.json["status"]) == (201, {"loadBalancer": {}})
    updated = mallory.send("PUT", f"{mallory.path}/web", {**made.json, "status": forged})
    assert (updated.code, updated.json["status"]) == (200, {"loadBalancer": {}})
    for method, headers in (("PUT", {}), ("PATCH", MERGE)):
        written = mallory.send(method, f"{mallory.path}/web/status", {**made.json, "status": forged}, headers)
        assert written.code == 403, method


@pytest.mark.parametrize("asked", [VICTIMS, NODE, SERVER, "100.0.0.1", "10.244.0.5", *SPELLED])
def test_no_load_balancer_gives_what_is_anothers(mallory: Mallory, asked: str) -> None:
    made = mallory.create("web", type="LoadBalancer", loadBalancerIP=asked, loadBalancerClass="minik8s.io/pool").json
    victim = {
        "metadata": {"name": "web", "namespace": "bank", "creationTimestamp": "2999-01-01T00:00:00Z"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "ipFamilies": ["IPv4", "IPv6"]},
        "status": {"loadBalancer": {"ingress": [{"ip": one, "ipMode": "VIP"} for one in (VICTIMS, VICTIMS_IPV6)]}},
    }
    given = decide_addresses(by_age([made, victim]), WORLD, lambda _: frozenset(), BALANCING)
    assert given["bank/web"].addresses == [VICTIMS, VICTIMS_IPV6]
    assert given[str(objects.key(made))].addresses == []


@pytest.mark.parametrize("name_server", NAME_SERVERS)
@pytest.mark.parametrize("pooled", [False, True])
def test_the_address_of_the_clusters_dns_is_led_to_no_service(
    mallory: Mallory, name_server: str, *, pooled: bool
) -> None:
    told = {**SETTINGS, "addresses": [VICTIMS, name_server] if pooled else [VICTIMS]}
    configured = Configuration({"load_balancer": told, "dns": {"listen": name_server}}, "test")
    balancing, spelled = read_balancing(configured, OWN), ip_address(name_server).exploded.upper()
    ports = [{"port": 53, "protocol": "UDP"}]
    asked: JsonObject = {"type": "LoadBalancer", "ports": ports, "loadBalancerClass": "minik8s.io/pool"}
    made = mallory.create("dns", **asked).json
    # even if the API took what it refuses of these
    made["spec"] |= {"ipFamilies": ["IPv4", "IPv6"], "loadBalancerIP": spelled}
    given = decide_addresses([made], WORLD, lambda _: frozenset(), balancing)[str(objects.key(made))]
    assert (given.addresses, given.reason) == ([], "AddressNotInPool")
    del made["spec"]["loadBalancerIP"]
    given = decide_addresses([made], WORLD, lambda _: frozenset(), balancing)[str(objects.key(made))]
    assert name_server not in given.addresses
    for kind in ("minik8s.io/pool", "example.com/mine"):
        forged = {
            **made,
            "spec": {**made["spec"], "loadBalancerClass": kind, "externalIPs": [spelled]},
            "status": {"loadBalancer": {"ingress": [{"ip": spelled}]}},
        }
        outside = decide_outside(forged, WORLD, frozenset(), balancing)
        assert (outside.addresses, outside.refused) == ({}, (name_server,)), kind


def test_no_service_has_the_port_of_ssh(mallory: Mallory) -> None:
    ports = [{"name": "web", "port": 81}, {"name": "ssh", "port": 22}]
    made = mallory.create("ssh", type="LoadBalancer", loadBalancerClass="minik8s.io/nodes", ports=ports).json
    given = decide_addresses([made], WORLD, lambda _: frozenset(), BALANCING)[str(objects.key(made))]
    assert (given.addresses, given.reason) == ([], "PortKept")


def test_health_checks_open_no_port_of_the_machines_or_of_another(mallory: Mallory) -> None:
    local: JsonObject = {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}
    taken = mallory.create("victim", type="NodePort").json["spec"]["ports"][0]["nodePort"]
    for port in (22, 80, 6443, 10250, 32768, taken):
        assert mallory.create("web", **local, healthCheckNodePort=port).code == 422, port
    own = [{"port": 80, "nodePort": 30999}]
    assert mallory.create("web", **local, ports=own, healthCheckNodePort=30999).code == 422
    made = mallory.create("web", **local).json
    moved = {"spec": {"healthCheckNodePort": taken}}
    assert mallory.send("PATCH", f"{mallory.path}/web", moved, MERGE).code == 422
    assert mallory.send("GET", f"{mallory.path}/web", None).json["spec"] == made["spec"]


@pytest.mark.parametrize(
    "address", [NODE, SERVER, VICTIMS, "100.0.0.1", "10.244.0.5", "127.0.0.1", "224.0.0.5", *SPELLED, *SPECIAL]
)
def test_not_even_a_status_that_an_administrator_forges_takes_them(address: str) -> None:
    forged: JsonObject = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerClass": "example.com/mine",
            "externalIPs": [address],
            "ipFamilies": ["IPv4", "IPv6"],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": address}]}},
    }
    outside = decide_outside(forged, WORLD, frozenset(), BALANCING)
    assert (outside.addresses, outside.at_nodes, outside.refused) == ({}, False, (syntax.shortest_ip(address),))
    # nor does one of the pool's class
    forged["spec"] |= {"loadBalancerClass": "minik8s.io/pool", "externalIPs": []}
    taken = decide_outside(
        forged, WORLD._replace(servers=WORLD.servers | {VICTIMS, VICTIMS_IPV6}), frozenset(), BALANCING
    )
    assert taken.addresses == {}


TOLD = ("198.51.100.7", "192.0.2.77", "2001:db8:1::77", "2001:DB8:2::7", "10.99.3.1", "10.99.3.200", "fd00:99::1")
"""What nodes have beside their first address of each family, and their Pods' gateways where these are others."""


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("address", TOLD)
def test_what_else_a_node_has_is_nobodys(mallory: Mallory, address: str, *, pooled: bool) -> None:
    told = [
        {"type": kind, "address": each}
        for kind, each in (
            ("ExternalIP", TOLD[0]), ("InternalIP", NODE), ("InternalIP", TOLD[1]), ("InternalIP", NODE_IPV6),
            ("InternalIP", TOLD[2]), ("ExternalIP", TOLD[3]), ("Hostname", "n1"),
        )
    ]  # fmt: skip
    spec = {"podCIDR": "10.99.3.0/24", "podCIDRs": ["10.99.3.0/24", "fd00:99::/64", "no range"]}
    node = {"metadata": {"name": "n1"}, "spec": spec, "status": {"addresses": told}}
    settings = {**SETTINGS, "addresses": [VICTIMS, *([address] if pooled else [])]}
    balancing = read_balancing(Configuration({"load_balancer": settings}, "test"), OWN)
    world, spelled = world_of([node], [], balancing), syntax.shortest_ip(address)
    kinds = ("minik8s.io/pool", "example.com/mine")
    made = mallory.create("web", type="LoadBalancer", loadBalancerClass=kinds[0]).json
    made["spec"] |= {"ipFamilies": ["IPv4", "IPv6"], "loadBalancerIP": address}
    assert decide_addresses([made], world, lambda _: frozenset(), balancing)[str(objects.key(made))].addresses == []
    del made["spec"]["loadBalancerIP"]
    given = decide_addresses([made], world, lambda _: frozenset(), balancing)[str(objects.key(made))]
    assert spelled not in given.addresses
    for kind in kinds:
        forged = {
            **made,
            "spec": {**made["spec"], "loadBalancerClass": kind, "externalIPs": [address]},
            "status": {"loadBalancer": {"ingress": [{"ip": address}]}},
        }
        outside = decide_outside(forged, world, frozenset(), balancing)
        assert (outside.addresses, outside.refused) == ({}, (spelled,)), kind
    # what is nobody's else is led there
    free = {**made, "spec": {**made["spec"], "externalIPs": ["198.51.100.8"]}}
    assert decide_outside(free, world, frozenset(), balancing).addresses == {"198.51.100.8": None}


@pytest.mark.parametrize("labels", [{}, {"type": "virtual-kubelet"}, {"type": "kwok"}])
def test_nor_is_what_a_node_has_that_is_no_machine(mallory: Mallory, labels: JsonObject) -> None:
    told = [{"type": "ExternalIP", "address": VICTIMS}, {"type": "ExternalIP", "address": "2001:DB8:2::7"}]
    spec = {"podCIDRs": ["10.244.0.0/15"]}
    node = {"metadata": {"name": "v1", "labels": labels}, "spec": spec, "status": {"addresses": told}}
    world = world_of([node], [], BALANCING)
    made = mallory.create("web", type="LoadBalancer", loadBalancerClass="example.com/mine").json
    for address in (VICTIMS, "2001:db8:2::7", "10.245.0.1"):
        forged = {
            **made,
            "spec": {**made["spec"], "externalIPs": [address]},
            "status": {"loadBalancer": {"ingress": [{"ip": address}]}},
        }
        outside = decide_outside(forged, world, frozenset(), BALANCING)
        assert (outside.addresses, outside.refused) == ({}, (address,))

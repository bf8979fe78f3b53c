"""Who has which address and port from outside, and which node announces it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from minik8s_modules.api.network.balancing import Balancing, read_balancing
from minik8s_modules.api.network.load_balancers import Given, by_age, decide_addresses, decide_announcer, decide_outside
from minik8s_modules.api.network.surroundings import Machine, World, machines_of
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError

WORLD = World(
    tuple(Machine(f"n{number}", f"192.0.2.{number}", ready=True, silent=False) for number in (1, 2, 3)),
    frozenset({"192.0.2.11"}),
)
OWN = ("10.244.0.0/16", "100.0.0.0/24", "fd00:77::/48", "")


def settings(default: str = "pool", addresses: Iterable[str] = ("192.0.2.10-192.0.2.12",), **more: Any) -> Balancing:
    told = {"default": default, "addresses": [*addresses], "kept_ports": [22, "6443-6449"], **more}
    return read_balancing(Configuration({"load_balancer": told}, "test"), OWN)


def service(name: str, *, ports: Iterable[int] = (80,), had: Any = (), age: int = 0, **spec: Any) -> JsonObject:
    points = [{"ip": one} if isinstance(one, str) else one for one in had]
    metadata = {"name": name, "namespace": "default", "creationTimestamp": f"2026-01-01T00:00:{age:02}Z"}
    declared = {"type": "LoadBalancer", "ports": [{"port": port, "protocol": "TCP"} for port in ports], **spec}
    return {"metadata": metadata, "spec": declared, "status": {"loadBalancer": {"ingress": points}}}


def given(balancing: Balancing, *services: JsonObject, serving: frozenset[str] = frozenset()) -> dict[str, Given]:
    found = decide_addresses(by_age(services), WORLD, lambda _: serving, balancing)
    return {key.partition("/")[2]: one for key, one in found.items()}


def test_the_pool_gives_each_the_next_free_address_and_none_of_a_machine():
    found = given(settings(), service("a", age=2), service("b", age=1), service("c", age=3))
    assert (found["b"].addresses, found["a"].addresses) == (["192.0.2.10"], ["192.0.2.12"])
    assert (found["c"].addresses, found["c"].reason) == ([], "AddressNotAvailable")


def test_who_has_an_address_keeps_it_whoever_is_older():
    found = given(settings(), service("young", had=["192.0.2.10"], age=9), service("old", age=1))
    assert found["young"].addresses == ["192.0.2.10"]
    assert found["old"].addresses == ["192.0.2.12"]


def test_an_address_is_had_by_asking():
    asking = service("a", loadBalancerIP="192.0.2.12")
    assert given(settings(), asking)["a"].addresses == ["192.0.2.12"]
    taken = given(settings(), asking, service("b", had=["192.0.2.12"], age=9))
    assert (taken["a"].reason, taken["a"].message) == ("AddressInUse", "address 192.0.2.12 is Service default/b's")
    assert taken["b"].addresses == ["192.0.2.12"]


@pytest.mark.parametrize(
    ("asked", "why"),
    [("192.0.2.11", "a machine's own"), ("192.0.2.1", "not in the pool"), ("8.8.8.8", "not in the pool")],
)
def test_nobody_gets_a_machines_address_or_one_that_is_not_in_the_pool(asked: str, why: str):
    found = given(settings(), service("a", loadBalancerIP=asked))["a"]
    assert found.addresses == []
    assert why in found.message


def test_one_that_is_deleted_holds_its_address_until_it_is_gone():
    ending = service("ending", had=["192.0.2.10"])
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    found = given(settings(), ending, service("next", age=5))
    assert (found["ending"].addresses, found["next"].addresses) == ([], ["192.0.2.12"])


def test_at_the_nodes_addresses_each_port_is_one_services():
    held = [{"ip": "192.0.2.1", "ports": [{"port": 80, "protocol": "TCP"}]}]
    found = given(
        settings("nodes"), service("old", age=1), service("young", had=held, age=9), service("other", ports=[81])
    )
    assert found["young"].addresses == found["other"].addresses == ["192.0.2.1", "192.0.2.2", "192.0.2.3"]
    assert found["old"].message == "port 80/TCP of the nodes is Service default/young's"
    assert found["young"].points[0]["ipMode"] == "Proxy"


def test_who_moves_to_a_port_does_not_take_it_from_its_holder():
    held = [{"ip": "192.0.2.1", "ports": [{"port": 81, "protocol": "TCP"}]}]
    had = [{"ip": "192.0.2.1", "ports": [{"port": 80, "protocol": "TCP"}]}]
    found = given(
        settings("nodes"), service("old", ports=[81], had=had, age=1), service("young", ports=[81], had=held, age=9)
    )
    assert (found["old"].reason, found["young"].reason) == ("PortInUse", "")


@pytest.mark.parametrize("port", [22, 6443, 6449, 30000, 32767])
def test_no_service_gets_a_port_of_the_machines_themselves(port: int):
    assert given(settings("nodes"), service("a", ports=[80, port]))["a"].reason == "PortKept"
    assert given(settings("pool"), service("a", ports=[port]))["a"].addresses == ["192.0.2.10"]


def test_with_policy_local_the_nodes_that_serve_are_told():
    local = service("a", externalTrafficPolicy="Local")
    assert given(settings("nodes"), local, serving=frozenset({"n2"}))["a"].addresses == ["192.0.2.2"]
    assert given(settings("nodes"), local)["a"].reason == "NoNodes"


def test_classes_of_others_are_left_alone():
    others = service("a", loadBalancerClass="example.com/lb"), service("b")
    assert given(settings("none"), *others) == {}
    chosen = service("c", loadBalancerClass="minik8s.io/pool"), service("d", loadBalancerClass="minik8s.io/nodes")
    found = given(settings("none"), *chosen)
    assert (found["c"].addresses, len(found["d"].addresses)) == (["192.0.2.10"], 3)


def test_the_announcer_stays_while_it_can_and_falls_to_another():
    before = {f"192.0.2.{number}": decide_announcer(f"192.0.2.{number}", WORLD.machines, None) for number in range(60)}
    assert {*before.values()} == {"n1", "n2", "n3"}
    for gone in (Machine("n2", "192.0.2.2", False, False), Machine("n2", "192.0.2.2", True, True)):  # noqa: FBT003
        less = [gone if one.name == "n2" else one for one in WORLD.machines]
        after = {address: decide_announcer(address, less, None) for address in before}
        assert {address for address in before if before[address] != after[address]} == {
            address for address, name in before.items() if name == "n2"
        }


def test_where_all_are_silent_nothing_moves():
    silent = [one._replace(silent=True) for one in WORLD.machines]
    assert decide_announcer("192.0.2.50", silent, None) == decide_announcer("192.0.2.50", WORLD.machines, None)
    assert decide_announcer("192.0.2.50", WORLD.machines, frozenset()) == ""


def test_only_a_node_that_serves_announces_a_local_service():
    local = service("a", had=["192.0.2.10"], externalTrafficPolicy="Local")
    assert decide_outside(local, WORLD, frozenset({"n3"}), settings()).addresses == {"192.0.2.10": "n3"}
    assert decide_outside(local, WORLD, frozenset(), settings()).addresses == {"192.0.2.10": ""}


@pytest.mark.parametrize("address", ["192.0.2.2", "192.0.2.11", "100.0.0.1", "10.244.3.4", "127.0.0.1", "192.0.2.12"])
def test_a_status_that_names_a_machine_the_api_or_the_cluster_takes_nothing_over(address: str):
    forged = service("a", had=[address], loadBalancerClass="example.com/lb")
    assert decide_outside(forged, WORLD, frozenset(), settings()) == decide_outside(
        forged, WORLD, frozenset(), settings()
    )._replace(addresses={}, refused=(address,))


def test_what_another_load_balancer_gave_counts_unless_it_is_a_proxy():
    metal = service(
        "a", had=["203.0.113.5", {"ip": "203.0.113.6", "ipMode": "Proxy"}], loadBalancerClass="example.com/lb"
    )
    assert decide_outside(metal, WORLD, frozenset(), settings()).addresses == {"203.0.113.5": None}


def test_external_addresses_count_where_they_are_allowed():
    named = service("a", type="ClusterIP", externalIPs=["203.0.113.5", "192.0.2.2"])
    assert decide_outside(named, WORLD, frozenset(), settings()).addresses == {}
    found = decide_outside(named, WORLD, frozenset(), settings(external_ips=True))
    assert (found.addresses, found.refused) == ({"203.0.113.5": None}, ("192.0.2.2",))


def test_a_machine_is_a_node_with_an_address():
    def node(name: str, *conditions: tuple[str, str], **labels: str) -> JsonObject:
        told = [{"type": kind, "status": state} for kind, state in conditions]
        status = {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}], "conditions": told}
        return {"metadata": {"name": name, "labels": labels}, "status": status}

    ready, silent = ("Ready", "True"), ("minik8s.io/Silent", "True")
    found = machines_of(
        [
            node("a", ready),
            node("b", ready, silent),
            node("c", ("Ready", "Unknown")),
            node("d", ready, **{"node.kubernetes.io/exclude-from-external-load-balancers": ""}),
            node("e", ready, type="virtual-kubelet"),
            {"metadata": {"name": "f"}},
        ]
    )
    assert [(one.name, one.ready, one.silent) for one in found] == [
        ("a", True, False), ("b", True, True), ("c", False, False), ("d", False, False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"default": "all"}, "default"),
        ({"default": "pool"}, "names no address"),
        ({"addresses": ["10.0.0.9-10.0.0.5"]}, "in order"),
        ({"addresses": ["web"]}, "no address"),
        ({"addresses": ["10.0.0.0/8"]}, "must have"),
        ({"addresses": ["2001:db8::/64"]}, "must have"),
        ({"addresses": ["192.0.2.1-2001:db8::1"]}, "in order"),
        ({"addresses": ["fd00:77:0:1::5"]}, "overlaps fd00:77::/48"),
        ({"addresses": ["100.0.0.200-100.0.1.5"]}, "overlaps 100.0.0.0/24"),
        ({"kept_ports": ["ssh"]}, "no port"),
    ],
)
def test_settings_that_cannot_be_used_say_why(told: JsonObject, why: str):
    with pytest.raises(ConfigurationError, match=why):
        read_balancing(Configuration({"load_balancer": told}, "test"), OWN)


def test_a_pool_may_have_the_name_servers_address_which_is_given_to_nobody():
    told = {"load_balancer": {"addresses": ["192.0.2.10-192.0.2.12"]}, "dns": {"listen": "192.0.2.10"}}
    balancing = read_balancing(Configuration(told, "test"), OWN)
    pooled = service("a", loadBalancerClass="minik8s.io/pool")
    assert given(balancing, pooled)["a"].addresses == ["192.0.2.12"]
    with pytest.raises(ConfigurationError, match=r"dns\.listen must be an IP address"):
        read_balancing(Configuration({"dns": {"listen": "web"}}, "test"), OWN)


def test_a_range_leaves_out_its_first_and_last_address():
    both = settings(addresses=["192.0.2.64/29", "2001:db8::/125"]).pool
    assert [(*span.addresses(),)[::5] for span in both] == [
        ("192.0.2.65", "192.0.2.70"),
        ("2001:db8::1", "2001:db8::6"),
    ]


POOLS = settings(addresses=["192.0.2.10-192.0.2.12", "2001:db8::a-2001:db8::b"])
BOTH: dict[str, Any] = {"ipFamilies": ["IPv4", "IPv6"]}


def test_a_service_has_an_address_of_each_of_its_families():
    six = service("six", ipFamilies=["IPv6"], age=2)
    found = given(POOLS, service("both", **BOTH, age=1), six, service("four", age=3), service("late", **BOTH, age=4))
    assert found["both"].addresses == ["192.0.2.10", "2001:db8::a"]
    assert found["six"].addresses == ["2001:db8::b"]
    assert found["four"].addresses == ["192.0.2.12"]
    assert found["late"].message == "every address of the pool is given out"
    partly = given(POOLS, six, service("b", ipFamilies=["IPv6"]), service("late", **BOTH, age=4))["late"]
    assert (partly.addresses, partly.message) == (["192.0.2.10"], "every address of IPv6 of the pool is given out")


def test_an_address_of_ipv6_is_kept_and_asked_for_however_it_is_written():
    kept = service("kept", had=["2001:db8::b", "192.0.2.12"], ipFamilies=["IPv6", "IPv4"])
    assert given(POOLS, kept)["kept"].addresses == ["2001:db8::b", "192.0.2.12"]
    asking = service("a", loadBalancerIP="2001:DB8:0::B", **BOTH)
    assert given(POOLS, asking)["a"].addresses == ["192.0.2.10", "2001:db8::b"]
    assert given(POOLS, asking, kept)["a"].message == "address 2001:DB8:0::B is Service default/kept's"
    assert "not of IPv4" in given(POOLS, service("a", loadBalancerIP="2001:db8::b"))["a"].message


def test_what_a_pool_has_no_addresses_of_is_said():
    six, both = service("six", ipFamilies=["IPv6"]), service("both", **BOTH)
    found = given(settings(), six, both)
    assert (found["six"].message, found["both"].addresses) == (
        "the pool has no addresses of IPv6, as the Service is",
        ["192.0.2.10"],
    )
    found = given(settings("nodes"), six, both)
    assert found["six"].message == "no node has an address of IPv6, as the Service is"
    assert len(found["both"].addresses) == 3


def test_at_the_nodes_addresses_a_service_has_those_of_its_families():
    world = World(
        (
            Machine("n1", "192.0.2.1", ready=True, silent=False, second="2001:db8::b"),
            Machine("n2", "2001:db8::a", ready=True, silent=False),
            Machine("n3", "192.0.2.3", ready=False, silent=False, second="2001:db8::3"),
        )
    )

    def had(**spec: Any) -> list[str]:
        one = service("a", **spec)
        return decide_addresses([one], world, lambda _: frozenset(), settings("nodes"))["default/a"].addresses

    assert had() == ["192.0.2.1"]
    assert had(ipFamilies=["IPv6"]) == ["2001:db8::a", "2001:db8::b"]
    assert had(**BOTH) == ["192.0.2.1", "2001:db8::a", "2001:db8::b"]
    two = service("b", had=[{"ip": "2001:db8::a", "ports": [{"port": 80, "protocol": "TCP"}]}], age=9, **BOTH)
    found = decide_addresses(by_age([service("a"), two]), world, lambda _: frozenset(), settings("nodes"))
    assert found["default/a"].reason == "PortInUse", "a port is one Service's, whatever the family"
    outside = decide_outside(two, world, frozenset(), settings("nodes"))
    assert [outside.of_family(family).at_nodes for family in ("IPv4", "IPv6")] == [True, True]


def test_external_addresses_of_ipv6_count_unless_they_are_a_machines_however_they_are_written():
    world = World((Machine("n1", "192.0.2.1", ready=True, silent=False, second="2001:db8::1"),), frozenset())
    named = service("a", type="ClusterIP", externalIPs=["2001:DB8:0::9", "2001:db8:0:0::1"], **BOTH)
    found = decide_outside(named, world, frozenset(), settings(external_ips=True))
    assert (found.addresses, found.refused) == ({"2001:db8::9": None}, ("2001:db8::1",))
    assert decide_outside(named, world, frozenset(), settings()).addresses == {}


def test_addresses_of_both_families_are_announced_and_led_each_by_its_own():
    both = service("both", had=["192.0.2.10", "2001:db8::a"], **BOTH)
    found = decide_outside(both, WORLD, frozenset(), POOLS)
    assert set(found.addresses) == {"192.0.2.10", "2001:db8::a"}
    assert all(found.addresses.values())
    assert list(found.of_family("IPv6").addresses) == ["2001:db8::a"]
    alone = {**both, "spec": {**both["spec"], "ipFamilies": ["IPv4"]}}
    assert list(decide_outside(alone, WORLD, frozenset(), POOLS).addresses) == ["192.0.2.10"]
    forged = {**both, "spec": {**both["spec"], "loadBalancerClass": "example.com/lb"}}
    assert decide_outside(forged, WORLD, frozenset(), POOLS).addresses == {}, "they are of the pool"
    metal = service("a", had=["2001:db8:1::5"], loadBalancerClass="example.com/lb", **BOTH)
    assert decide_outside(metal, WORLD, frozenset(), POOLS).addresses == {"2001:db8:1::5": None}

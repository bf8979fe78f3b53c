"""Who speaks TLS, what is told of it, and that nothing is where nobody has it."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mutual_tls import (
    DISABLED,
    MARK,
    MTLS,
    PERMISSIVE,
    STRICT,
    Peer,
    asked_mode,
    can_speak,
    peer,
    unguarded,
)
from minik8s_modules.api.pods.sidecars import ENABLED, INJECT, causes, injection, with_sidecar
from minik8s_modules.mesh.endpoints import Endpoint
from minik8s_modules.mesh.identities.securing import NOBODY, PLAIN, inbound, peers_of, secured
from minik8s_modules.mesh.mapping import Branch, Mapped, Port
from minik8s_modules.mesh.messages import Packer
from minik8s_modules.mesh.resources import AS_ASKED, CLUSTER, ENDPOINTS, Resource, assignment, cluster
from minik8s_modules.module_utils.minik8s.core.faults import KeyFault
from minik8s_modules.module_utils.minik8s.network.interception import check, rules_of, rules_of_ipv6, shown

APP: JsonObject = {"containers": [{"name": "app", "image": "i"}]}
CAN, CANNOT = with_sidecar(APP, mutual=True), with_sidecar(APP)
ENDS = (Endpoint("a", "10.0.0.1", 80), Endpoint("b", "10.0.0.2", 80))


def pod(name: str = "a", spec: JsonObject = CAN, ip: str = "10.0.0.1", phase: str = "Running", mode: str = "") -> Any:
    meta = {"name": name, "namespace": "shop", "labels": {MTLS: mode} if mode else {}}
    return {"metadata": meta, "spec": spec, "status": {"podIPs": [{"ip": ip}], "phase": phase}}


@pytest.mark.parametrize(
    ("own", "space", "mode"),
    [
        (None, None, ""),
        (None, STRICT, STRICT),
        (PERMISSIVE, STRICT, PERMISSIVE),
        (STRICT, PERMISSIVE, STRICT),
        (DISABLED, STRICT, ""),
        (STRICT, None, ""),
        ("odd", STRICT, ""),
    ],
)
def test_a_pods_own_label_goes_before_where_its_namespace_has_it(own: str | None, space: str | None, mode: str):
    labels = [{MTLS: value} if value else {} for value in (own, space)]
    assert asked_mode(*labels) == mode
    wanted = injection({"metadata": {"labels": {INJECT: ENABLED, **labels[0]}}, "spec": APP}, labels[1]).spec
    assert wanted is not None
    assert can_speak(wanted) is bool(mode)


def test_who_can_takes_tls_always_and_who_cannot_never():
    assert peer(pod(), {}) == Peer(PERMISSIVE, is_called_by_tls=False)
    assert peer(pod(), {MTLS: STRICT}) == Peer(STRICT, is_called_by_tls=True)
    assert peer(pod(mode=DISABLED), {MTLS: STRICT}) == Peer(PERMISSIVE, is_called_by_tls=False)
    assert peer(pod(spec=CANNOT), {MTLS: STRICT}) is None


BESIDE = {"containers": [{"name": "app", "image": "i", "env": [MARK]}]}


@pytest.mark.parametrize(
    "spec",
    [
        BESIDE,  # no sidecar at all
        with_sidecar(BESIDE),  # beside one that cannot
        {"containers": [{"name": "app", "image": "minik8s/envoy:1", "command": ["sh"], "env": [MARK]}]},
        {**CAN, "hostNetwork": True},
    ],
)
def test_a_mark_anywhere_but_in_the_sidecar_of_a_pod_with_a_network_of_its_own_is_none(spec: JsonObject):
    assert not can_speak(spec)
    assert peer(pod(spec=spec), {MTLS: STRICT}) is None
    assert "takes connections of anybody" in unguarded(pod(spec=spec), {MTLS: STRICT})


def test_what_asks_in_vain_is_said():
    assert unguarded(pod(), {MTLS: STRICT}) == ""
    assert unguarded(pod(spec=CANNOT), {}) == ""
    assert "takes connections of anybody" in unguarded(pod(spec=CANNOT), {MTLS: STRICT})
    assert "Namespace does not have it" in unguarded(pod(mode=STRICT), {})


def test_labels_have_few_values():
    kinds = {("", "Namespace"): [STRICT, PERMISSIVE], ("", "Pod"): [STRICT, PERMISSIVE, DISABLED]}
    for kind, good in kinds.items():
        for value in (STRICT, PERMISSIVE, DISABLED, "STRICT", ""):
            found = [*causes(kind, {"metadata": {"labels": {MTLS: value}}})]
            assert bool(found) is (value not in good), (kind, value)


def made(ends: tuple[Endpoint, ...] = ENDS) -> list[Resource]:
    name = "web.shop:80"
    return [
        Resource(CLUSTER, name, cluster(name, AS_ASKED), "100.0.0.1:80"),
        Resource(ENDPOINTS, name, assignment(name, Branch("", None, ends)), "100.0.0.1:80"),
    ]


def test_only_pods_that_can_are_called_by_tls():
    peers = peers_of(
        {"shop": {MTLS: STRICT}}, [pod(), pod("b", CANNOT, "10.0.0.2"), pod("c", ip="10.0.0.3", phase="Failed")]
    )
    assert peers.addresses == {("shop", "10.0.0.1")}
    assert peers.pods == {"shop": {"a": Peer(STRICT, is_called_by_tls=True)}}
    told, ends = (each.body for each in secured(made(), peers, "shop"))
    (mutual, plain) = told["transport_socket_matches"]
    context = mutual["transport_socket"]["typed_config"]["common_tls_context"]
    (wanted,) = context["combined_validation_context"]["default_validation_context"]["match_typed_subject_alt_names"]
    assert wanted["matcher"] == {"prefix": "spiffe://cluster.local/ns/shop/sa/"}
    assert plain["match"] == {}
    marks = [each.get("metadata") is not None for each in ends["endpoints"][0]["lb_endpoints"]]
    assert marks == [True, False]


def test_nothing_is_told_of_it_where_nobody_has_it_or_another_namespace():
    assert secured(made(), NOBODY, "shop") == made()
    elsewhere = peers_of({"bank": {MTLS: STRICT}}, [])
    assert secured(made(), elsewhere, "shop") == made()
    assert NOBODY.mode("shop", "a") == PERMISSIVE
    assert elsewhere.mode("bank", "unknown yet") == STRICT


def test_an_address_is_a_pods_of_its_own_namespace_alone():
    """Endpoints that somebody wrote, or that are older than the Pod there, are elsewhere at the same address."""
    spaces = {"shop": {MTLS: PERMISSIVE}, "bank": {MTLS: PERMISSIVE}}
    theirs = {**pod(), "metadata": {"name": "a", "namespace": "bank"}}
    _cluster, ends = (each.body for each in secured(made(), peers_of(spaces, [theirs]), "shop"))
    assert not any("metadata" in each for each in ends["endpoints"][0]["lb_endpoints"])


def test_a_pod_is_taken_strictly_until_it_is_known_itself():
    known = {**pod(mode=PERMISSIVE), "metadata": {"name": "a", "namespace": "shop", "uid": "1"}}
    for mode in (PERMISSIVE, STRICT):
        peers = peers_of({"shop": {MTLS: mode}}, [known])
        assert [peers.mode("shop", *of) for of in (("a", "1"), ("a", "2"), ("b", "1"))] == [mode, STRICT, STRICT]


def test_namespaces_with_other_peers_are_told_apart():
    shop, both = {"shop": {MTLS: STRICT}}, {"shop": {MTLS: STRICT}, "bank": {MTLS: STRICT}}
    one = peers_of(shop, [pod()])
    assert one.other_namespaces(one) == frozenset()
    assert one.other_namespaces(NOBODY) == {"shop"}
    for other in (
        peers_of(shop, []),
        peers_of(shop, [pod(ip="10.0.0.9")]),
        peers_of(shop, [pod(mode=PERMISSIVE)]),
        peers_of({"shop": {MTLS: PERMISSIVE}}, []),
    ):
        assert other.other_namespaces(one) == one.other_namespaces(other) == {"shop"}
    assert peers_of(both, [pod()]).other_namespaces(one) == {"bank"}


def test_a_strict_listener_has_no_way_for_what_is_no_tls_of_the_mesh():
    for mode in (STRICT, PERMISSIVE):
        listener = inbound(mode).body
        chains = {each["name"]: each for each in listener["filter_chains"]}
        assert (PLAIN in chains) is (mode == PERMISSIVE)
        assert chains["tls"]["transport_socket"]["typed_config"]["require_client_certificate"] is True
        rest = [each for each in chains.values() if "transport_socket" not in each and each["name"] != PLAIN]
        assert all(each["filters"][0]["typed_config"]["cluster"] == "nowhere" for each in rest)
    assert inbound(STRICT).body["listener_filters"] == inbound(PERMISSIVE).body["listener_filters"]


def test_a_port_is_packed_again_when_its_pods_speak_otherwise():
    packer = Packer("shop")
    mapped = Mapped({"100.0.0.1:80": Port("web", "100.0.0.1", 80, (Branch("", None, ENDS),))}, {}, {})
    told = [
        packer.pack(mapped, (), peers)[kind]["web.shop:80"].version
        for peers in (
            NOBODY,
            peers_of({"shop": {MTLS: PERMISSIVE}}, []),
            peers_of({"shop": {MTLS: PERMISSIVE}}, [pod()]),
            peers_of({"shop": {MTLS: STRICT}}, [pod()]),
            NOBODY,
        )
        for kind in (CLUSTER, ENDPOINTS)
    ]
    clusters, ends = told[::2], told[1::2]
    assert clusters[0] == clusters[4] != clusters[1] == clusters[2] == clusters[3]
    assert ends[0] == ends[1] == ends[4] != ends[2] == ends[3]


def test_services_that_share_a_listener_are_called_by_tls_too():
    addresses = [f"100.0.0.{each}" for each in range(60)]
    ports = {f"{each}:80": Port(f"web-{each[8:]}", each, 80, (Branch("", None, ENDS),)) for each in addresses}
    told = Packer("shop").pack(Mapped(ports, {}, {}), (), peers_of({"shop": {MTLS: STRICT}}, [pod()]))
    plain = Packer("shop").pack(Mapped(ports, {}, {}))
    for kind in (CLUSTER, ENDPOINTS):
        assert told[kind].keys() == plain[kind].keys()
        assert all(told[kind][name].version != plain[kind][name].version for name in ports)


def test_the_rules_of_a_pod_that_can_lead_what_is_left_to_a_port_of_its_own():
    entry = {"attempt": 0, "exclude_inbound_ports": [22]}
    plain, mutual = (rules_of({**entry, **more})["MINIK8S_INBOUND"] for more in ({}, {"mutual_tls": True}))
    late, *rest = plain
    assert "! --tcp-flags" in late.iptables
    *others, own = mutual
    assert others == rest, "no first packet passes by not being one"
    assert own == ("-p tcp -j REDIRECT --to-ports 15008", "meta l4proto tcp redirect to :15008")


def test_what_comes_in_by_ipv6_is_led_to_it_too_and_nowhere_at_a_pod_that_cannot():
    own = {"attempt": 0, "node_addresses": ["10.0.0.9", "fd00::9"], "exclude_inbound_ports": [22], "mutual_tls": True}
    check("u", own)
    assert shown(rules_of_ipv6(own), "iptables") == {
        "PREROUTING": ["-p tcp -j MINIK8S_INBOUND"],
        "MINIK8S_INBOUND": [
            "-i lo -j ACCEPT",
            "-s fd00::9/128 -j ACCEPT",
            "-p tcp -m tcp --dport 15090 -j ACCEPT",
            "-p tcp -m tcp --dport 22 -j ACCEPT",
            "-p tcp -j REDIRECT --to-ports 15008",
        ],
    }
    assert rules_of(own) == rules_of({**own, "node_addresses": ["10.0.0.9"]})
    assert rules_of_ipv6({"attempt": 0, "exclude_inbound_ports": [22]}) == {}


@pytest.mark.parametrize(
    ("address", "more"),
    [
        ("fd00::9", {}),
        ("fd00:0::9", {"mutual_tls": True}),
        ("::ffff:192.0.2.1", {"mutual_tls": True}),
        ("fe80::1%eth0", {"mutual_tls": True}),
        ("fd00::1/0 -j ACCEPT", {"mutual_tls": True}),
    ],
)
def test_addresses_that_no_rule_would_have_are_refused(address: str, more: dict[str, Any]):
    with pytest.raises(KeyFault, match="is not an IPv"):
        check("u", {"attempt": 0, "node_addresses": [address], **more})


def test_the_listener_of_ipv6_is_as_strict_and_no_caller_comes_to_loopback_by_it():
    for mode in (STRICT, PERMISSIVE):
        first, second = inbound(mode).body, inbound(mode, ipv6=True).body
        assert second["address"]["socket_address"] == {"address": "::", "port_value": 15008}
        assert str(second["filter_chains"]).replace("'passthrough'", "'application'") == str(first["filter_chains"])
        assert "127.0.0." not in str(second)
    two = peers_of({"shop": {MTLS: STRICT}}, [pod(), pod("b", ip="fd00::1")])
    assert [two.has_ipv6("shop", name) for name in ("a", "b", "unknown yet")] == [False, True, False]


def test_peers_are_compared_by_what_they_say():
    one, other = (peers_of({"shop": {MTLS: STRICT}}, [pod()]) for _ in range(2))
    assert one == other

"""Many Services of one port number: what is told of each, of all, and when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.mesh import crowds
from minik8s_modules.mesh.catalogue import Configuration
from minik8s_modules.mesh.crowds import CROWD, FEW, crowds_of, own_places, owners, told
from minik8s_modules.mesh.gateways.meshing import LedPort
from minik8s_modules.mesh.gateways.rules import Routed, Rule
from minik8s_modules.mesh.mapping import Branch, Declared, Mapped, Port, decide_mapping
from minik8s_modules.mesh.messages import Packer, Snapshot, message_of
from minik8s_modules.mesh.pacing import DRAIN_S
from minik8s_modules.mesh.resources import CLUSTER, ENDPOINTS, LISTENER, ROUTES, TYPES, Resource
from minik8s_modules.mesh.subscriptions import Subscription
from tests.unit.mesh.namespaces import endpoint_slice, service, subset, virtual_service

BY_PATH: dict[str, Any] = {"serviceRef": "web-1", "port": 80, "subsets": [{"name": "v1", "url": "/1"}]}
BY_WEIGHT: dict[str, Any] = {"serviceRef": "web-1", "port": 80, "subsets": [{"name": "v1", "weight": 1}]}
WEB_1 = "100.0.0.1:80"


def decided(number: int, *, pods: str = "ab", **virtual: Any) -> Mapped:
    """Return what becomes of so many Services; the first has these Pods and may be split."""
    services = [service(each, f"web-{each}", [80]) for each in range(1, number + 1)]
    slices = [endpoint_slice(f"web-{each}", pods if each == 1 else "ab") for each in range(1, number + 1)]
    split = [virtual_service("x", **virtual)] if virtual else []
    return decide_mapping(Declared(services, slices, split, [subset("v1", ["a"])]))


def of(kind: str, mapped: Mapped) -> dict[str, Resource]:
    return {each.name: each for each in told("shop", mapped.ports) if each.type_url == kind}


def chosen(listener: JsonObject, address: str, protocol: str) -> str:
    """Return the chain that a connection has, as Envoy chooses."""
    outer = listener["filter_chain_matcher"]
    spoken = outer["matcher_tree"]["prefix_match_map"]["map"]
    inner = next((found for prefix, found in spoken.items() if protocol.startswith(prefix)), outer["on_no_match"])
    matcher = inner["matcher"]
    found = matcher["matcher_tree"]["exact_match_map"]["map"].get(address, matcher["on_no_match"])
    return str(found["action"]["typed_config"]["value"])


def test_few_services_are_told_at_once_and_many_when_they_are_asked_for():
    few = of(LISTENER, decided(CROWD))
    assert len(few) == CROWD
    assert not any(each.on_demand for each in of(CLUSTER, decided(CROWD)).values())
    many = decided(CROWD + 1)
    assert [*of(LISTENER, many)] == [*of(ROUTES, many)] == ["*.shop:80"]
    clusters = of(CLUSTER, many)
    assert all(each.on_demand for each in clusters.values())
    assert clusters[WEB_1].body["alt_stat_name"] == "web-1.shop:80", "by which it is counted"
    assert of(ENDPOINTS, many).keys() == clusters.keys()
    assert crowds_of([f"fd00::{each}:80" for each in range(CROWD + 1)]) == {}


def test_only_connections_to_services_are_looked_into():
    listener = of(LISTENER, decided(CROWD + 1, **BY_PATH))["*.shop:80"].body
    assert chosen(listener, "100.0.0.2", "'http/1.1'") == chosen(listener, "100.0.0.1", "'h2c'") == "http"
    assert chosen(listener, "100.0.0.2", "") == "tcp"
    assert chosen(listener, "100.0.0.1", "") == "web-1.shop:80", "of paths, connections know nothing"
    assert {chosen(listener, "192.0.2.1", each) for each in ("", "'http/1.1'")} == {"passthrough"}
    assert {each["name"] for each in listener["filter_chains"]} == {"http", "tcp", "passthrough", "web-1.shop:80"}


def test_what_tells_requests_apart_is_a_host_of_its_own_and_weights_are_endpoints():
    plain, weighted, split = (decided(CROWD + 1, **more) for more in ({}, BY_WEIGHT, BY_PATH))
    assert of(ROUTES, plain) == of(ROUTES, weighted)
    assert of(CLUSTER, plain) == of(CLUSTER, weighted)
    hosts = of(ROUTES, split)["*.shop:80"].body["virtual_hosts"]
    assert [(each["name"], each["domains"]) for each in hosts] == [("web-1.shop:80", [WEB_1]), ("*", ["*"])]
    assert not of(CLUSTER, split)["web-1.shop:80/v1"].on_demand
    fault: dict[str, Any] = {"fault": {"abort": {"httpStatus": 418}}}
    (host, _) = of(ROUTES, decided(CROWD + 1, **{**BY_PATH, **fault}))["*.shop:80"].body["virtual_hosts"]
    assert host["typed_per_filter_config"]["fault"]["abort"]["http_status"] == 418


def test_who_may_be_behind_a_refusal_is_whose_routes_are_in_it():
    cases: list[tuple[dict[str, Any], dict[str, str]]] = [({}, {}), (BY_WEIGHT, {}), (BY_PATH, {"0.0.0.0:80": "x"})]
    for virtual, found in cases:
        mapped = decided(CROWD + 1, **virtual)
        crowd = crowds_of(own_places("shop", mapped.ports))
        assert owners(crowd, mapped.ports, mapped.split_by) == found


def versions(snapshot: Snapshot) -> dict[tuple[str, str], str]:
    return {(kind, name): each.version for kind, of in snapshot.items() for name, each in of.items()}


def test_a_change_of_pods_is_one_resource_and_a_service_more_three():
    clock = FakeClock()
    packer = Packer("shop", clock.monotonic)
    first = packer.pack(decided(CROWD + 1))
    assert set(first) == set(TYPES)
    second = packer.pack(decided(CROWD + 1, pods="a"))
    clock.advance(2.0)
    third = packer.pack(decided(CROWD + 2, pods="a"))
    assert dict(versions(second).items() - versions(first).items()).keys() == {(ENDPOINTS, WEB_1)}
    new = f"100.0.0.{CROWD + 2}:80"
    assert dict(versions(third).items() - versions(second).items()).keys() == {
        (LISTENER, "*.shop:80"), (CLUSTER, new), (ENDPOINTS, new),
    }  # fmt: skip
    assert versions(third) == versions(Packer("shop").pack(decided(CROWD + 2, pods="a")))


def test_packed_or_not_the_same_is_told_whatever_was_before():
    clock = FakeClock()
    packer = Packer("shop", clock.monotonic)
    history = [(CROWD + 1, {}), (FEW, BY_PATH), (CROWD + 1, BY_PATH), (CROWD + 1, BY_WEIGHT), (3, {})]
    for number, virtual in history:
        mapped = decided(number, **virtual)
        for _ in range(2):  # that few are told as few, and that what they had is taken away, waits for its time
            packer.pack(mapped)
            clock.advance(DRAIN_S)
        packed = {(kind, name) for kind, each in packer.pack(mapped).items() for name in each}
        assert packed == {(each.type_url, each.name) for each in told("shop", mapped.ports)}


def test_where_one_more_makes_many_open_connections_lead_on_as_they_did():
    clock = FakeClock()
    packer = Packer("shop", clock.monotonic)
    packer.pack(decided(CROWD))
    for number, added in ((CROWD + 1, "web-1.shop:80"), (FEW, WEB_1)):
        mapped = decided(number, pods="a")
        plain = {(each.type_url, each.name) for each in told("shop", mapped.ports)}
        snapshot = packer.pack(mapped)
        also = versions(snapshot).keys() - plain
        assert {(CLUSTER, added), (ENDPOINTS, added)} <= also
        assert {kind for kind, _name in also} == {CLUSTER, ENDPOINTS}
        assert packer.due_in_s is not None
        changed = packer.pack(decided(number, pods="b"))
        assert changed[ENDPOINTS][added].version != snapshot[ENDPOINTS][added].version, "they follow their Pods"
        clock.advance(DRAIN_S)
        assert versions(packer.pack(mapped)).keys() == plain
        clock.advance(DRAIN_S)


def test_services_that_come_one_after_the_other_wait_for_each_other_and_one_that_goes_does_not():
    clock = FakeClock()
    packer, told_s = Packer("shop", clock.monotonic), []
    listener = packer.pack(decided(CROWD + 1))[LISTENER]["*.shop:80"].version
    for number in range(CROWD + 2, CROWD + 102):  # one every two seconds
        clock.advance(2.0)
        snapshot = packer.pack(decided(number))
        assert f"100.0.0.{number}:80" in snapshot[ENDPOINTS]
        if snapshot[LISTENER]["*.shop:80"].version != listener:
            listener = snapshot[LISTENER]["*.shop:80"].version
            told_s.append(clock.monotonic())
        assert (packer.due_in_s is None) == (snapshot[LISTENER] == Packer("shop").pack(decided(number))[LISTENER])
    assert len(told_s) < 8
    clock.advance(2.0)
    fewer = packer.pack(decided(CROWD + 50))
    assert fewer[LISTENER] == Packer("shop").pack(decided(CROWD + 50))[LISTENER]
    packer.pack(decided(CROWD + 51))
    assert packer.due_in_s is not None
    clock.advance(packer.due_in_s)
    assert versions(packer.pack(decided(CROWD + 51))) == versions(Packer("shop").pack(decided(CROWD + 51)))
    assert packer.due_in_s is None


def listeners_told(numbers: Sequence[int], every_s: float) -> int:
    """Return how many listeners are told, and taken away, when there are so many Services one after the other."""
    clock = FakeClock()
    packer = Packer("shop", clock.monotonic)
    found, before = 0, None
    for number in numbers:
        clock.advance(every_s)
        listeners = {name: each.version for name, each in packer.pack(decided(number))[LISTENER].items()}
        found += len(listeners.items() ^ before.items()) if before is not None else 0
        before = listeners
    return found


def test_services_that_come_and_go_do_not_change_all_the_others():
    one = [CROWD, CROWD + 1] * 10
    assert listeners_told(one, 10.0) < 2 * CROWD + 20
    many = [FEW, CROWD + 1] * 20
    assert listeners_told(many, 15.0) < 10 * CROWD, "in 600 s, as long as an Envoy keeps each"
    gone = [CROWD + 101 - each for each in range(100)]
    assert listeners_told(gone, 1.0) < 2 * 12, "all of them urgent"


def test_what_was_a_crowd_is_told_as_few_when_they_are_few_for_a_while():
    clock = FakeClock()
    packer = Packer("shop", clock.monotonic)
    packer.pack(decided(CROWD + 1))
    for number in (FEW + 1, FEW):
        clock.advance(2.0)
        assert [*packer.pack(decided(number))[LISTENER]] == ["*.shop:80"]
        assert versions(packer.pack(decided(number))) == versions_of(told("shop", decided(number).ports, {80}))
    assert packer.due_in_s is not None
    clock.advance(packer.due_in_s)
    assert len(packer.pack(decided(FEW))[LISTENER]) == FEW
    packer.pack(decided(CROWD + 1))
    assert packer.pack(decided(0))[LISTENER] == {}, "of none there is nothing to be told"
    assert [*packer.pack(decided(CROWD + 1))[LISTENER]] == ["*.shop:80"], "at once, whatever was before"


def versions_of(resources: Iterable[Resource]) -> dict[tuple[str, str], str]:
    return {(each.type_url, each.name): message_of(each).version for each in resources}


def elsewhere(number: int) -> dict[str, LedPort]:
    """Return so many Services of namespace evil, all led by HTTPRoutes there."""
    found: dict[str, LedPort] = {}
    for each in range(1, number + 1):
        meta = {"namespace": "evil", "name": f"r{each}"}
        port = Port(f"s{each}", f"100.0.9.{each}", 80, (Branch("", None, ()),))
        one = LedPort(f"s{each}.evil:80", port, (Routed({"metadata": meta}, (Rule({}, (), ()),)),), "evil")
        found[one.place] = one
    return found


def test_other_namespaces_decide_nothing_about_how_services_are_told_and_are_in_no_table_with_them():
    for own in (1, CROWD + 1):
        mapped, led = decided(own, **BY_PATH), elsewhere(CROWD + 1)
        packer = Packer("shop")
        snapshot = packer.pack(mapped, led.values())
        alone = {name for name in snapshot[LISTENER] if name.endswith(".evil:80")}
        assert len(alone) == len(led)
        assert snapshot[LISTENER].keys() - alone == Packer("shop").pack(mapped)[LISTENER].keys()
        for kind in (LISTENER, ROUTES):
            assert not any(b"evil" in snapshot[kind][name].packed.value for name in snapshot[kind].keys() - alone)
        behind = {**mapped.split_by, **{each.place: each.led_by for each in led.values()}}
        found = owners(packer.crowds, {**mapped.ports, **led}, behind)
        assert found == ({"0.0.0.0:80": "x"} if own > CROWD else {})


def test_who_asks_for_all_is_told_no_cluster_that_waits_to_be_asked_for():
    found = Configuration(Packer("shop").pack(decided(CROWD + 1, **BY_PATH)), {})
    clusters, on_demand = found.versions[CLUSTER], found.on_demand
    subscription = Subscription()
    subscription.ask([], [], {})
    assert subscription.difference(clusters, on_demand).changed == ["web-1.shop:80/v1"]
    subscription.sent(clusters, subscription.difference(clusters, on_demand))
    subscription.ask(["100.0.0.2:80", "100.9.9.9:80"], [], {})
    assert subscription.difference(clusters, on_demand) == (["100.0.0.2:80"], ["100.9.9.9:80"])
    assert subscription.asks_for("100.0.0.2:80")
    assert not subscription.asks_for("100.0.0.3:80")
    again = Subscription()  # at another pilot
    again.ask(["*", "100.0.0.2:80"], [], {"100.0.0.2:80": clusters["100.0.0.2:80"]})
    assert again.difference(clusters, on_demand) == (["web-1.shop:80/v1"], [])


def test_the_header_that_picks_a_route_is_set_over_the_callers_and_taken_away():
    found = decided(CROWD + 1)
    routes = of(ROUTES, found)["*.shop:80"].body
    assert routes["vhost_header"] == crowds._HEADER
    assert routes["request_headers_to_remove"] == [crowds._HEADER, crowds._LATE]
    manager = of(LISTENER, found)["*.shop:80"].body["filter_chains"][0]["filters"][0]["typed_config"]
    removed, mutation = manager["early_header_mutation_extensions"][0]["typed_config"]["mutations"]
    assert removed == {"remove": crowds._LATE}
    assert mutation["append"]["append_action"] == "OVERWRITE_IF_EXISTS_OR_ADD"

"""The section ``services`` by both backends, with real packets: nftables here and on a lab node, IPVS on a lab node."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from minik8s_modules.api.objects import JsonObject
from tests.integration.services.machines import PODS, Machine, entry, namespace, on_lab
from tests.lab.errors import LabNodeFailed

BOTH = {"pod2", "pod3"}
ASKED, MANY = 600, 300
AFFINITY_S, AFFINITY_ENDS_S = 3, 60
KP_01 = ("net.bridge.bridge-nf-call-iptables", "net.ipv4.ip_forward", "net.ipv4.vs.conntrack")
LOCALNET = "net.ipv4.conf.mk8s-br0.route_localnet"


# by night, nftables of a lab's kernel as well: what is written is the same
NIGHTLY = pytest.param("nftables on a lab node", marks=pytest.mark.nightly)


@pytest.fixture(scope="module", params=["nftables", NIGHTLY, "ipvs on a lab node"])
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    mode, _, place = str(request.param).partition(" ")
    with ExitStack() as stack:
        here = None if place else stack.enter_context(namespace(mode))
        made = here or on_lab(request.getfixturevalue("lab"), "node1", mode)
        made.call("pods", bridge="mk8s-br0", gateway="10.32.0.1", pods=PODS)
        try:
            yield made
        finally:
            made.pass_(entries={})
            if place:
                made.call("down")


def switched_off(machine: Machine) -> tuple[str, ...]:
    """Set the kernel's switches that a backend sets to 0, which they are once it has run; return their names."""
    machine.declare()
    names = KP_01 if machine.mode == "ipvs" else (LOCALNET,)
    machine.shell(["sysctl", "-w", *(f"{name}=0" for name in names)])
    return names


def state_of(machine: Machine, switches: tuple[str, ...]) -> dict[str, list[str]]:
    """Return what a pass may change on the machine, by the command that prints it."""
    text = ["nft list tables", "ip -4 -oneline addr", "ip -4 route show table all", f"sysctl {' '.join(switches)}"]
    text += ["ipvsadm --save --numeric"] if machine.mode == "ipvs" else []
    return {command: machine.lines(*command.split()) for command in text}


def test_host_other_pod_and_the_pod_itself_reach_a_service(machine: Machine) -> None:
    machine.declare(**{"web:80": entry("100.0.0.2", "pod2", "pod3")})
    for client in ("", *PODS):
        seen = machine.ask("100.0.0.2", 80, count=30, pod=client)
        assert set(seen) == BOTH, client
        assert abs(seen["pod2"] - seen["pod3"]) <= 1
    # another pod is seen with its own address
    assert machine.clients("100.0.0.2", 80, "pod4") == [PODS["pod4"]]


def test_connections_are_spread_evenly(machine: Machine) -> None:
    machine.declare(**{"web:80": entry("100.0.0.2", *PODS)})
    # the kernel gives a port again after some 3,000 connections, and leads it where it led the one before, for minutes
    seen = machine.ask("100.0.0.2", 80, count=ASKED, first_port=10_000)
    assert set(seen) == set(PODS)
    assert max(seen.values()) - min(seen.values()) <= 1, seen


def test_a_client_that_calls_two_services_by_turns_meets_all_endpoints_of_each(machine: Machine) -> None:
    places = ["100.0.0.2", "100.0.0.3"]
    machine.declare(**{f"s{at}:80": entry(place, *PODS) for at, place in enumerate(places)})
    seen = [machine.ask(place, 80) for _ in PODS for place in places]
    for at in range(len(places)):
        assert {name for one in seen[at :: len(places)] for name in one} == set(PODS), seen


def test_hundreds_of_services_all_over_the_pool_each_lead_to_their_own_endpoint(machine: Machine) -> None:
    names, pool = list(PODS), ipaddress.IPv4Network(machine.plane["service_cidr"])
    step = pool.num_addresses // MANY
    places = [(str(pool[1 + number * step]), 80) for number in range(MANY)]
    ends = [names[number % len(names)] for number in range(MANY)]
    loaded = {f"s{at}:80": entry(place[0], ends[at]) for at, place in enumerate(places)}
    machine.declare(**loaded)
    assert machine.each(places) == ends
    for at in (0, MANY // 2, MANY - 1):
        assert machine.ask(*places[at], pod="pod4") == {ends[at]: 1}
    assert not machine.pass_(entries=machine.entries)["changed"]
    # all but the last go
    machine.declare(**{f"s{MANY - 1}:80": loaded[f"s{MANY - 1}:80"]})
    assert machine.each(places[-1:]) == ends[-1:]
    if machine.mode == "ipvs":
        left = [line for line in machine.lines("ipvsadm", "-ln") if line.startswith("TCP")]
        assert left == [f"TCP {places[-1][0]}:80 rr"]
    assert machine.each(places[:-1]) == ["refused"] * (MANY - 1)


def test_what_has_no_endpoints_or_no_such_port_is_refused(machine: Machine) -> None:
    machine.declare(**{"web:80": entry("100.0.0.2", "pod2"), "idle:80": entry("100.0.0.3")})
    for client in ("", "pod4"):
        assert machine.ask("100.0.0.3", 80, pod=client) == {"refused": 1}
        assert machine.ask("100.0.0.2", 81, pod=client) == {"refused": 1}


def left_by(machine: Machine, device: str) -> int:
    """Return how many packets have left the machine by a device."""
    (line,) = [line for line in machine.lines("cat", "/proc/net/dev") if line.startswith(f"{device}:")]
    return int(line.partition(":")[2].split()[9])


@pytest.fixture
def way_out(machine: Machine) -> Iterator[str]:
    """A device that takes what this machine has no better route for, as a default route does."""
    name = "outside"
    machine.shell(["ip", "link", "add", name, "type", "veth", "peer", "name", "beyond"])
    try:
        machine.shell(["ip", "link", "set", "beyond", "addrgenmode", "none", "up"])
        machine.shell(["ip", "link", "set", name, "addrgenmode", "none", "up"])
        machine.shell(["ip", "addr", "add", "192.0.2.1/24", "dev", name])
        machine.shell(["ip", "neigh", "add", "192.0.2.254", "lladdr", "02:00:00:00:00:01", "dev", name])
        machine.shell(["ip", "route", "add", "100.0.0.0/8", "via", "192.0.2.254", "dev", name])
        yield name
    finally:
        machine.shell(["ip", "link", "delete", name])


def test_nothing_sent_to_the_range_of_services_reaches_anything_but_endpoints(machine: Machine, way_out: str) -> None:
    machine.declare()
    for client in ("", "pod4"):
        before = left_by(machine, way_out)
        assert machine.ask("100.99.0.1", 80, protocol="UDP", pod=client) == {"silent": 1}
        assert left_by(machine, way_out) > before, "the way out is one"
    before = left_by(machine, way_out)

    def look(*pods: str, protocols: tuple[str, ...] = ("TCP",)) -> None:
        for client in ("", "pod4"):
            for protocol in protocols:
                seen = machine.ask("100.0.0.9", 80, protocol=protocol, pod=client)
                # a datagram of the machine's own is refused before it is sent (EPERM); ICMP has a limit of its rate
                refused = {"refused"} if protocol == "TCP" else {"refused", "PermissionError", "silent"}
                assert set(seen) <= {*refused, *(pods if protocol == "TCP" else ())}, (client, protocol, seen)
        assert left_by(machine, way_out) == before

    look(protocols=("TCP", "UDP"))
    stages = [[entry("100.0.0.9")], [entry("100.0.0.9", "pod2")], [entry("100.0.0.9", "pod3")], []]
    for services in stages:
        wanted = {"dataplane": machine.plane, **{f"default/s{at}:80": one for at, one in enumerate(services)}}
        ends = {name for name, ip in PODS.items() for one in services if [ip, 8080] in one["endpoints"]}
        for effect in range(2):  # killed before its effects, and between them
            with suppress(AssertionError, LabNodeFailed):
                machine.pass_(entries=wanted, die_at=effect)
            look("pod2", "pod3")
        assert machine.pass_(entries=wanted)["errors"] == {}
        look(*ends)
    look(protocols=("UDP",))


def killed_passes(machine: Machine, before: JsonObject, wanted: JsonObject) -> Iterator[int]:
    """Yield each time a pass from ``before`` to ``wanted`` was killed before one effect more, until one is complete."""
    for effect in range(20):
        for entries in (wanted, before):  # what a killed pass has made it does not know to be its own
            assert machine.pass_(entries=entries)["errors"] == {}
        try:
            machine.pass_(entries=wanted, die_at=effect)
        except (AssertionError, LabNodeFailed):
            yield effect
        else:
            return
    pytest.fail("there is no end of effects")


def test_who_is_led_to_an_address_of_services_is_answered_at_once_wherever_a_pass_has_come_to(machine: Machine) -> None:
    wanted = {"dataplane": machine.plane, "default/web:80": entry("100.0.0.9", "pod2")}
    for before, after in (({}, wanted), (wanted, {})):
        led = 0
        for effect in killed_passes(machine, before, after):
            ways = machine.lines("ip", "-4", "route", "show", "table", "all")
            is_led = any("100.0." in line for line in ways)
            led += is_led
            if not is_led and any(line.startswith("default ") for line in ways):
                continue  # it leaves for the outside, whose answer is its own
            nowhere = () if is_led else ({"ENETUNREACH": 1},)  # who is waited for by ARP in vain is EHOSTUNREACH
            for client in ("", "pod4"):
                seen = machine.ask("100.0.0.9", 80, pod=client)
                assert seen in ({"refused": 1}, {"pod2": 1}, *nowhere), (effect, client)
        assert led, "no pass ended between the way there and its end"


def test_node_ports_and_their_traffic_policy(machine: Machine) -> None:
    local = {"node_port": 30081, "node_endpoints": [[PODS["pod3"], 8080]], "keep_source": True}
    machine.declare(
        **{
            "web:80": entry("100.0.0.2", "pod2", "pod3", node_port=30080),
            "local:80": entry("100.0.0.3", "pod2", "pod3", **local),
        }
    )
    assert set(machine.ask(machine.node_ip, 30080, count=30)) == BOTH
    assert set(machine.ask(machine.node_ip, 30080, count=30, pod="pod4")) == BOTH
    # Local is about clients from outside; IPVS, as Kubernetes' too, cannot tell them apart
    near = {"pod3"} if machine.mode == "ipvs" else BOTH
    for client in ("", "pod4"):
        assert set(machine.ask(machine.node_ip, 30081, count=30, pod=client)) == near
    assert machine.clients(machine.node_ip, 30081, "pod4", count=10) == [PODS["pod4"]]
    assert machine.clients(machine.node_ip, 30080, "pod4") == ["10.32.0.1"]
    assert set(machine.ask("100.0.0.3", 80, count=30)) == BOTH


def test_a_client_from_outside_gets_endpoints_of_the_node_and_keeps_its_address(machine: Machine) -> None:
    local = {"node_port": 30081, "node_endpoints": [[PODS["pod3"], 8080]], "keep_source": True}
    outside = {**machine.plane, "cluster_cidr": "10.32.0.0/30"}  # pod4 is none of these
    entries = {"dataplane": outside, "default/local:80": entry("100.0.0.3", "pod2", "pod3", **local)}
    assert machine.pass_(entries=entries)["errors"] == {}
    assert machine.ask(machine.node_ip, 30081, count=10, pod="pod4") == {"pod3": 10}
    assert machine.clients(machine.node_ip, 30081, "pod4") == [PODS["pod4"]]


def test_clients_stay_with_their_endpoint_until_it_goes(machine: Machine) -> None:
    sticky = entry("100.0.0.2", *PODS, affinity_s=600)
    machine.declare(**{"web:80": sticky})
    first = {client: machine.ask("100.0.0.2", 80, count=10, pod=client) for client in PODS}
    assert all(len(seen) == 1 for seen in first.values())
    chosen = {client: next(iter(seen)) for client, seen in first.items()}
    gone = chosen["pod2"]
    left = [name for name in PODS if name != gone]
    machine.declare(**{"web:80": entry("100.0.0.2", *left, affinity_s=600)})
    for client, former in chosen.items():
        seen = machine.ask("100.0.0.2", 80, count=10, pod=client)
        assert len(seen) == 1
        if former != gone:
            assert set(seen) == {former}
        assert gone not in seen


def test_clients_are_free_again_once_they_have_not_asked_for_as_long_as_affinity_lasts(machine: Machine) -> None:
    def asked(count: int) -> set[str]:
        return set(machine.ask("100.0.0.2", 53, count=count, protocol="UDP", pod="pod4"))

    if machine.mode == "ipvs":
        # its persistence lasts no less long than its connections do, of UDP 300 s unless told
        machine.shell(["ipvsadm", "--set", "0", "0", "1"])
    try:
        machine.declare(**{"dns:53": entry("100.0.0.2", *PODS, protocol="UDP", port=53, affinity_s=AFFINITY_S)})
        # again where a busy machine let more time pass between two requests
        first = next(seen for _ in range(3) if len(seen := asked(10)) == 1)
        end = time.monotonic() + AFFINITY_ENDS_S
        while asked(1) == first:
            assert time.monotonic() < end, f"still {first}"
            time.sleep(AFFINITY_S + 1)
    finally:
        if machine.mode == "ipvs":
            machine.shell(["ipvsadm", "--set", "0", "0", "300"])


def test_clients_in_the_cluster_stay_with_theirs_at_a_node_port_of_policy_local(machine: Machine) -> None:
    own = {"node_port": 30081, "node_endpoints": [[PODS["pod3"], 8080]], "keep_source": True, "affinity_s": 600}
    machine.declare(**{"web:80": entry("100.0.0.2", *PODS, **own)})
    first = {client: machine.ask(machine.node_ip, 30081, count=10, pod=client) for client in ("", *PODS)}
    if machine.mode == "ipvs":  # it cannot tell clients in the cluster apart: they get the node's own endpoints
        assert all(seen == {"pod3": 10} for seen in first.values()), first
        return
    assert all(len(seen) == 1 for seen in first.values()), first
    chosen = {client: next(iter(seen)) for client, seen in first.items()}
    gone = chosen["pod4"]
    left = [name for name in PODS if name != gone]
    machine.declare(**{"web:80": entry("100.0.0.2", *left, **own)})
    for client, former in chosen.items():
        seen = machine.ask(machine.node_ip, 30081, count=10, pod=client)
        assert len(seen) == 1
        assert (set(seen) == {former}) == (former != gone), (client, former, seen)


def test_udp_clients_leave_an_endpoint_that_is_gone(machine: Machine) -> None:
    udp = {"protocol": "UDP", "port": 53}
    machine.declare(**{"dns:53": entry("100.0.0.2", **udp)})
    # begun before there is any endpoint: must not be remembered either
    machine.ask("100.0.0.2", 53, protocol="UDP", local_port=5353)
    machine.declare(**{"dns:53": entry("100.0.0.2", "pod2", "pod3", **udp)})
    (who,) = machine.ask("100.0.0.2", 53, protocol="UDP", local_port=5353)
    other = (BOTH - {who}).pop()
    machine.declare(**{"dns:53": entry("100.0.0.2", other, **udp)})
    assert machine.ask("100.0.0.2", 53, count=3, protocol="UDP", local_port=5353) == {other: 3}


def test_check_tells_what_a_run_does_and_a_second_run_finds_nothing(machine: Machine) -> None:
    switches = switched_off(machine)
    machine.pass_(entries={})
    wanted = {"dataplane": machine.plane, "default/web:80": entry("100.0.0.2", "pod2", "pod3", node_port=30080)}
    before = state_of(machine, switches)
    result = machine.pass_(entries=wanted, check=True)
    assert state_of(machine, switches) == before
    assert not BOTH & set(machine.ask("100.0.0.2", 80))
    done = machine.pass_(entries=wanted)
    assert (result["steps"], result["diff"]) == (done["steps"], done["diff"])
    assert done["changed"]
    assert not machine.pass_(entries=wanted)["changed"]
    assert not machine.pass_(entries=wanted, check=True)["changed"]


def test_a_delta_changes_its_keys_and_mends_what_is_damaged(machine: Machine) -> None:
    done = machine.declare(**{"web:80": entry("100.0.0.2", "pod2"), "two:81": entry("100.0.0.2", "pod2", port=81)})
    assert machine.pass_(mode="delta", base="0" * 64, upsert={}, delete=[])["base_mismatch"]
    more = {"default/more:80": entry("100.0.0.9", "pod3")}
    delta = machine.pass_(mode="delta", base=done["digest"], upsert=more, delete=["default/web:80"])
    assert {(step["action"], step["key"]) for step in delta["steps"]} == {
        ("set", "default/more:80"),
        ("remove", "default/web:80"),
    }
    assert machine.ask("100.0.0.9", 80) == {"pod3": 1}
    assert machine.ask("100.0.0.2", 80) == {"refused": 1}
    assert machine.ask("100.0.0.2", 81) == {"pod2": 1}
    for harm in (["delete", "table", "ip", "minik8s"], ["add table ip minik8s { flags dormant; }"]):
        machine.shell(["nft", *harm])
        if machine.mode == "ipvs" and "delete" in harm:
            machine.shell(["ipvsadm", "-D", "-t", "100.0.0.2:81"])
        again = machine.pass_(mode="delta", base=delta["digest"], upsert=more, delete=[])
        assert any(step["action"] == "mend" for step in again["steps"]), harm
        assert machine.ask("100.0.0.9", 80, pod="pod3") == {"pod3": 1}
        assert machine.ask("100.0.0.2", 81) == {"pod2": 1}


def test_what_is_wrong_is_an_error_of_its_key_only(machine: Machine) -> None:
    wanted = {
        "dataplane": machine.plane,
        "default/good:80": entry("100.0.0.2", "pod2"),
        "default/number:80": entry("100.0.0.3", "pod2", port=0),
        "default/same:80": entry("100.0.0.2", "pod3"),
        "default/text:80": {**entry("100.0.0.4"), "endpoints": [["}; flush ruleset", 80]]},
        "default/unknown:80": entry("100.0.0.5", colour="red"),
    }
    result = machine.pass_(entries=wanted)
    assert set(result["errors"]) == {f"default/{name}:80" for name in ("number", "same", "text", "unknown")}
    assert "default/good:80 has the same address" in result["errors"]["default/same:80"]["message"]
    assert machine.ask("100.0.0.2", 80) == {"pod2": 1}
    without = machine.pass_(entries={"default/good:80": entry("100.0.0.2")})
    assert "no entry 'dataplane'" in without["errors"]["default/good:80"]["message"]


def saved(machine: Machine) -> list[str]:
    """Return all virtual servers with their destinations, as ``ipvsadm --restore`` takes them."""
    return machine.lines("ipvsadm", "--save", "--numeric") if machine.mode == "ipvs" else []


def foreign_servers(machine: Machine) -> list[str]:
    """Make virtual servers that no Service can have: another address, no node port, a mark; return all there are."""
    machine.pass_(entries={})
    for server in (("-t", "192.0.2.77:80"), ("-t", f"{machine.node_ip}:8080"), ("-f", "7")):
        machine.shell(["ipvsadm", "-A", *server, "-s", "wlc"])
        machine.shell(["ipvsadm", "-a", *server, "-r", f"{PODS['pod2']}:8080", "-m", "-w", "3"])
    return saved(machine)


def test_an_empty_set_leaves_nothing_and_others_keep_theirs(machine: Machine) -> None:
    machine.shell(["nft", "add table ip somebody; add chain ip somebody c { type filter hook input priority 7; }"])
    theirs = foreign_servers(machine) if machine.mode == "ipvs" else []
    machine.declare(**{"web:80": entry("100.0.0.2", "pod2", node_port=30080)})
    assert not machine.pass_(entries=machine.entries)["changed"]
    assert set(theirs) <= set(saved(machine))
    assert machine.pass_(entries={})["changed"]
    assert not machine.pass_(entries={})["changed"]
    assert saved(machine) == theirs
    rules = machine.shell(["nft", "list", "ruleset"])
    assert "somebody" in rules
    assert "minik8s" not in rules
    assert "100.0." not in machine.shell(["ip", "route", "show", "table", "all"])
    machine.shell(["nft", "delete", "table", "ip", "somebody"])
    if theirs:
        machine.shell(["ipvsadm", "--clear"])


def test_killed_before_any_effect_the_next_run_finishes_the_work(machine: Machine) -> None:
    wanted = {"dataplane": machine.plane, "default/web:80": entry("100.0.0.2", "pod2", "pod3", node_port=30080)}
    deaths = machine.call("killed", folder=machine.folder, entries=wanted)
    assert deaths > 3
    assert set(machine.ask("100.0.0.2", 80, count=20)) == BOTH


def test_ipvs_lists_as_the_original_does(machine: Machine) -> None:
    if machine.mode != "ipvs":
        return  # the other backend has no such list
    machine.declare(**{"web:800": entry("100.0.0.2", "pod2", "pod3", port=800, node_port=30080)})
    lines = [" ".join(line.split()) for line in machine.shell(["ipvsadm", "-ln"]).splitlines()]
    for place in ("100.0.0.2:800", f"{machine.node_ip}:30080"):
        at = lines.index(f"TCP {place} rr")
        assert [line.rsplit(" ", 2)[0] for line in lines[at + 1 : at + 3]] == [
            f"-> {PODS[name]}:8080 Masq 1" for name in ("pod2", "pod3")
        ]
    assert "100.0.0.2/32" in machine.shell(["ip", "addr", "show", "dev", "minik8s-dummy"])


def test_ipvs_sets_the_switches_of_the_kernel_that_the_original_sets(machine: Machine) -> None:
    if machine.mode != "ipvs":
        return  # the other backend needs none of them
    switches = switched_off(machine)
    machine.declare(**{"web:80": entry("100.0.0.2", "pod2")})
    assert machine.lines("sysctl", *switches) == [f"{name} = 1" for name in switches]  # KP-01

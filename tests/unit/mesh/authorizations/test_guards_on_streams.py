"""AuthorizationPolicies on the wire: what a sidecar is told, and when it is told nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from envoy.config.listener.v3 import listener_pb2
from google.protobuf import json_format

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mutual_tls import MTLS, PERMISSIVE, STRICT
from minik8s_modules.api.pods.sidecars import with_sidecar
from minik8s_modules.mesh import xds
from minik8s_modules.mesh.authorizations.guards import Policies, http_ports_of
from minik8s_modules.mesh.identities.securing import INBOUND, inbound, peers_of
from minik8s_modules.mesh.identity import Sidecar
from minik8s_modules.mesh.resources import LISTENER
from tests.support.authorization import policy
from tests.unit.mesh.test_xds import LONG_S, Envoy, Pilot, run

SIDECAR = Sidecar("shop", "client", "robot", speaks_tls=True, uid="u", labels=(("app", "web"),))
OWN = policy("own", {"from": [{"source": {"principals": ["*"]}}]}, app="web")


def written(declared: JsonObject, version: int) -> JsonObject:
    return {**declared, "metadata": {**declared["metadata"], "resourceVersion": str(version)}}


def enforced(response: Any) -> list[str]:
    """Return the names of the rules that a sidecar is told to enforce."""
    (found,) = (each for each in response.resources if each.name == INBOUND)
    listener = listener_pb2.Listener()
    assert found.resource.Unpack(listener)
    chains = json_format.MessageToDict(listener)["filterChains"]
    rules = (each["typedConfig"].get("rules", {}) for chain in chains for each in chain["filters"])
    return sorted({name for each in rules for name in each.get("policies", {})})


async def begun(pilot: Pilot, channel: grpc.aio.Channel) -> Envoy:
    """Return a sidecar that has come when what is declared was decided on."""
    envoy = Envoy(channel)
    await envoy.ask("something else")
    while not pilot.asked:
        await asyncio.sleep(0.01)
    pilot.declare()
    return envoy


def pod(app: str, uid: str = "u") -> JsonObject:
    meta = {"namespace": "shop", "name": "client", "uid": uid, "labels": {"app": app}}
    return {"metadata": meta, "spec": with_sidecar({"containers": []}, mutual=True)}


def test_a_sidecar_is_told_the_policies_that_select_its_pod_as_it_is_now():
    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        pilot.sidecar, pilot.policies = SIDECAR, Policies([written(OWN, 5), written(policy("db", app="db"), 6)])
        pilot.peers = peers_of({"shop": {MTLS: PERMISSIVE}}, [pod("db", uid="older")])
        envoy = await begun(pilot, channel)
        await envoy.ask(LISTENER)
        assert enforced(await envoy.told()) == ["own/0"], "a Pod that is not known yet has the labels it began with"
        while [guard.names for guard, _refusal in pilot.guarded if guard] != [["own"]]:
            await asyncio.sleep(0.01)
        pilot.peers = peers_of({"shop": {MTLS: PERMISSIVE}}, [pod("other")])
        pilot.declare()
        assert enforced(await envoy.told()) == []

    run(journey)


def test_a_sidecar_is_told_nothing_until_the_policies_of_when_it_came_are_known():
    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        pilot.sidecar = SIDECAR._replace(newest_policy=7)
        envoy = await begun(pilot, channel)
        await envoy.ask(LISTENER)
        reading = asyncio.ensure_future(envoy.told())
        for policies in (Policies(), Policies([written(OWN, 6)])):
            pilot.policies = policies
            pilot.declare()
            done, _waiting = await asyncio.wait({reading}, timeout=0.2)
            assert not done
        pilot.policies = Policies([written(OWN, 6), written(policy("late", app="web"), 7)])
        pilot.declare()
        assert enforced(await reading) == ["own/0"]

    run(journey)


def test_who_waits_for_a_policy_that_is_gone_again_is_asked_about_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(xds, "AGAIN_S", 0.1)

    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        pilot.sidecar = SIDECAR._replace(newest_policy=7)
        envoy = await begun(pilot, channel)
        await envoy.ask(LISTENER)
        assert await asyncio.wait_for(envoy.call.read(), LONG_S) is grpc.aio.EOF

    run(journey)


def test_what_a_sidecar_refuses_is_told_with_what_it_was_told_and_it_goes_on_as_it_did():
    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        pilot.sidecar = SIDECAR
        envoy = await begun(pilot, channel)
        await envoy.ask(LISTENER, INBOUND)
        await envoy.told()
        while not pilot.guarded:
            await asyncio.sleep(0.01)
        pilot.policies = Policies([written(OWN, 5)])
        pilot.declare()
        first = await envoy.call.read()
        pilot.policies = Policies([written(policy("other"), 6)])
        pilot.declare()
        second = await envoy.call.read()
        await envoy.answer(first, "no such matcher")  # late: others are decided, and sent, by now
        await envoy.answer(second)
        while pilot.guarded[-1][1] or pilot.guarded[-1][0] is None or pilot.guarded[-1][0].names != ["other"]:
            await asyncio.sleep(0.01)

    pilot = run(journey)
    found = [(guard.names if guard else [], refusal) for guard, refusal in pilot.guarded]
    assert found[0] == ([], None)
    assert (["own"], "no such matcher") in found
    assert (["other"], None) in found
    assert not pilot.refusals


def test_what_a_sidecar_said_goes_with_the_last_stream_of_its_pod():
    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        pilot.sidecar, pilot.policies = SIDECAR, Policies([written(OWN, 5)])
        first = await begun(pilot, channel)
        await first.ask(LISTENER)
        await first.told()
        successor = Envoy(channel)
        await successor.ask(LISTENER)
        await successor.told()
        for envoy, open_ in ((first, 1), (successor, 0)):
            assert (None, None) not in pilot.guarded
            await envoy.call.done_writing()  # a cancelled call may end only with the next collection of garbage
            while pilot.figures.streams > open_:
                await asyncio.sleep(0.01)
        assert pilot.guarded[-1] == (None, None)

    run(journey)


def test_where_nothing_selects_a_pod_it_is_told_what_it_always_was():
    assert Policies([policy("db", app="db")]).guard("shop", "client", {"app": "web"}) is None
    for mode in (PERMISSIVE, STRICT):
        chains = {each["name"]: each for each in inbound(mode).body["filter_chains"]}
        assert [len(each["filters"]) for each in chains.values()] == [1] * len(chains)


def test_the_ports_of_http_are_those_of_services_whether_pods_are_ready_or_not():
    slices: list[JsonObject] = [
        {
            "ports": [{"name": "http", "port": 8080}, {"name": "db", "port": 5432}, {"port": 1, "appProtocol": "http"}],
            "endpoints": [
                {"targetRef": {"kind": "Pod", "name": "a"}, "conditions": {"ready": False}},
                {"addresses": ["10.0.0.1"]},
            ],
        },
        {"ports": [{"name": "tcp", "port": 9}], "endpoints": [{"targetRef": {"kind": "Pod", "name": "b"}}]},
    ]
    assert http_ports_of(slices) == {"a": {8080, 1}}
    http = {"name": "http", "port": 8080}
    for port in ({**http, "port": own} for own in (15001, 15006, 15008)):
        assert http_ports_of([{**slices[0], "ports": [http, port]}])["a"] == {8080}, "an Envoy would refuse two chains"
    for protocol in ("UDP", "SCTP"):
        assert not http_ports_of([{**slices[0], "ports": [{**http, "protocol": protocol}]}]).get("a")
    needing = policy("a", {"to": [{"operation": {"paths": ["/x"]}}]})
    known = Policies([needing], http_ports_of(slices))
    assert [found.http_ports for each in ("a", "b") if (found := known.guard("shop", each, {}))] == [(1, 8080), ()]
    without = Policies([OWN], http_ports_of(slices)).guard("shop", "a", {"app": "web"})
    assert without is not None
    assert without.http_ports == (), "who asks for nothing of requests has them passed on as they are"

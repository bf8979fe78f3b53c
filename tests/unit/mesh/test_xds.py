"""Sidecars on the wire: real gRPC on loopback, what is declared on one side and Envoy's delta protocol on the other."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2

from minik8s_modules.base.metrics import Registry
from minik8s_modules.mesh import xds
from minik8s_modules.mesh.authorizations.guards import NO_POLICIES, Guard
from minik8s_modules.mesh.catalogue import Catalogue, Configuration
from minik8s_modules.mesh.crowds import CROWD
from minik8s_modules.mesh.figures import Figures
from minik8s_modules.mesh.identities.issuing import Issuer
from minik8s_modules.mesh.identities.securing import NOBODY
from minik8s_modules.mesh.identity import Sidecar
from minik8s_modules.mesh.mapping import Withholding, decide_mapping
from minik8s_modules.mesh.messages import Packer
from minik8s_modules.mesh.resources import CLUSTER, ENDPOINTS, LISTENER, ROUTES, TYPES
from minik8s_modules.mesh.retained import Services
from minik8s_modules.mesh.subscriptions import MOST_BYTES
from minik8s_modules.mesh.xds import Discovery
from tests.unit.mesh.namespaces import IPS, declared

CASE = {
    "services": [{"name": "reviews", "ports": [9080]}],
    "pods": {"reviews": ["a", "b", "c"]},
    "subsets": {"v1": ["a", "b"], "v2": ["c"]},
}
BY_WEIGHT = {"name": "x", "serviceRef": "reviews", "port": 9080, "subsets": [{"name": "v2", "weight": 1}]}
BY_PATH = {"name": "x", "serviceRef": "reviews", "port": 9080, "subsets": [{"name": "v2", "url": "/2"}]}
POLICY = {
    "timeout": "1500ms",
    "retries": {"attempts": 1, "perTryTimeout": "1s", "retryOn": ["5xx"]},
    "fault": {"delay": {"fixed": "1s"}, "abort": {"httpStatus": 503, "percent": 1}},
    "mirror": {"subset": "v1", "percent": 5},
}
NAME = "reviews.shop:9080"
BATCH = Withholding("update", "uid-update", 1)
LONG_S = 60.0
LONG_NAME = "x" * 5000


class Pilot:
    """What is told, and what was refused; ``packer`` is the shop's."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.figures = Figures(self.registry)
        self.refusals: list[tuple[Sidecar, set[str], str]] = []
        self.asked: list[str] = []
        self.settled: list[frozenset[Withholding]] = []
        self.catalogue = Catalogue(self.asked.append)
        self.packer = Packer("shop")
        self.peers = NOBODY
        self.policies = NO_POLICIES
        self.guarded: list[tuple[Guard | None, str | None]] = []
        self.issuer: Issuer | None = None
        self.sidecar = Sidecar("shop", "client")

    def declare(self, *virtual: dict[str, Any], withheld: Sequence[str] = ()) -> None:
        """Put what a namespace comes to into the catalogue."""
        updates = [{"serviceRef": "reviews", "port": 9080, "withheld": withheld}] if withheld else []
        self.decide({**CASE, "virtual": list(virtual), "updates": updates})

    def decide(self, case: dict[str, Any]) -> None:
        """Put what becomes of a case into the catalogue."""
        found = declared(case)
        mapped = decide_mapping(found)
        packed, services = self.packer.pack(mapped, (), self.peers), Services([found])
        configuration = Configuration(packed, mapped.split_by, mapped.withholdings, services, self.peers, self.policies)
        self.catalogue.put("shop", configuration)

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[grpc.aio.Channel]:
        """Serve, and yield a way to it."""

        def identify(header: str) -> Sidecar | None:
            return self.sidecar if header == "Bearer of-a-pod" else None

        server = grpc.aio.server()
        self.discovery = Discovery(
            self.catalogue,
            identify,
            self.figures,
            lambda *refusal: self.refusals.append(refusal),
            lambda _sidecar, withholdings: self.settled.append(withholdings),
            self.issuer,
            lambda _sidecar, guard, refusal: self.guarded.append((guard, refusal)),
        )
        ads_pb2_grpc.add_AggregatedDiscoveryServiceServicer_to_server(self.discovery, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield channel
        finally:
            await server.stop(0)


class Envoy:
    """The other side of a stream: it asks, reads, and answers what it reads."""

    def __init__(self, channel: grpc.aio.Channel, token: str = "of-a-pod") -> None:
        stub = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel)
        self.call = stub.DeltaAggregatedResources(metadata=(("authorization", f"Bearer {token}"),))

    async def ask(self, kind: str, *names: str, **more: Any) -> None:
        """Ask for names of a type, or for all."""
        request = discovery_pb2.DeltaDiscoveryRequest(type_url=kind, resource_names_subscribe=names, **more)
        await self.call.write(request)

    async def told(self, *, refused: str = "") -> Any:
        """Return the next response, which is taken, or refused with these words."""
        response = await asyncio.wait_for(self.call.read(), LONG_S)
        await self.answer(response, refused)
        return response

    async def answer(self, response: Any, refused: str = "") -> None:
        """Take a response, or refuse it with these words."""
        answer = discovery_pb2.DeltaDiscoveryRequest(type_url=response.type_url, response_nonce=response.nonce)
        if refused:
            answer.error_detail.message = refused
        await self.call.write(answer)


def names(response: Any) -> tuple[str, list[str], list[str]]:
    return response.type_url, [each.name for each in response.resources], list(response.removed_resources)


def run(journey: Callable[[Pilot, grpc.aio.Channel], Awaitable[None]]) -> Pilot:
    pilot = Pilot()

    async def whole() -> None:
        async with pilot.channel() as channel:
            await journey(pilot, channel)

    asyncio.run(whole())
    return pilot


async def ready(pilot: Pilot, envoy: Envoy, *virtual: dict[str, Any]) -> None:
    """Go on until the sidecar has all four types."""
    await envoy.ask(CLUSTER)
    while not pilot.asked:
        await asyncio.sleep(0.01)
    pilot.declare(*virtual)
    assert names(await envoy.told())[0] == CLUSTER
    for kind in (ENDPOINTS, LISTENER, ROUTES):
        await envoy.ask(kind, *([] if kind == LISTENER else [NAME]))
        assert names(await envoy.told())[0] == kind


def test_a_namespace_is_decided_on_when_its_first_sidecar_asks_and_a_weight_is_one_message():
    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        envoy = Envoy(channel)
        await ready(pilot, envoy)
        assert pilot.asked == ["shop"]
        pilot.declare(BY_WEIGHT)
        response = await envoy.told()
        assert names(response) == (ENDPOINTS, [NAME], [])

    run(journey)


def test_what_is_new_comes_before_what_leads_to_it_and_what_is_gone_goes_last():
    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        envoy = Envoy(channel)
        await ready(pilot, envoy)
        pilot.declare(BY_PATH)
        order = [names(await envoy.told()) for _ in range(5)]
        assert [kind for kind, _changed, _removed in order] == [CLUSTER, LISTENER, ROUTES, ENDPOINTS, CLUSTER]
        assert order[0] == (CLUSTER, [f"{NAME}/v2"], [])
        assert order[-1] == (CLUSTER, [], [NAME])

    run(journey)


def test_no_cluster_is_taken_away_while_what_may_lead_there_is_refused():
    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        envoy = Envoy(channel)
        await ready(pilot, envoy)
        pilot.declare(BY_PATH)
        order = [names(await envoy.told(refused="no" if number == 2 else "")) for number in range(3)]
        assert [kind for kind, _changed, _removed in order] == [CLUSTER, LISTENER, ROUTES]
        while not pilot.refusals:
            await asyncio.sleep(0.01)
        pilot.declare({**BY_PATH, "subsets": [{"name": "v2", "url": "/3"}]})
        order = [names(await envoy.told()) for _ in range(3)]
        assert order == [(ROUTES, [NAME], []), (ENDPOINTS, [], [NAME]), (CLUSTER, [], [NAME])]

    run(journey)


async def told_of(envoy: Envoy, kind: str) -> Any:
    """Return the next response of a type."""
    while True:
        response = await envoy.told()
        if response.type_url == kind:
            return response


def addresses(response: Any) -> dict[str, list[str]]:
    """Return the addresses that clusters have by a response."""
    found = {}
    for each in response.resources:
        assignment = endpoint_pb2.ClusterLoadAssignment()
        each.resource.Unpack(assignment)
        of = [one.endpoint.address for group in assignment.endpoints for one in group.lb_endpoints]
        found[each.name] = sorted(one.socket_address.address for one in of)
    return found


def test_what_a_sidecar_keeps_by_what_it_refuses_leads_to_pods_that_are_there():
    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        envoy = Envoy(channel)
        await ready(pilot, envoy)
        pilot.declare(BY_PATH)
        for number in range(3):
            await envoy.told(refused="no" if number == 2 else "")
        while not pilot.refusals:
            await asyncio.sleep(0.01)
        case = {**CASE, "virtual": [BY_PATH]}
        # fewer, none of those but another, and none at all
        for pods, has in ((["b", "c"], ["b", "c"]), (["a"], ["a"]), ([], [])):
            pilot.decide({**case, "pods": {"reviews": pods}})
            assert addresses(await told_of(envoy, ENDPOINTS)) == {NAME: [IPS[each] for each in has]}
        pilot.declare()
        assert addresses(await told_of(envoy, ENDPOINTS)) == {NAME: [IPS[each] for each in "abc"]}

    run(journey)


def test_of_clusters_that_are_kept_by_what_is_refused_only_so_many_stay(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(xds, "_MOST_KEPT", 2)
    ports = [9080 + each for each in range(5)]
    services = [{"name": "reviews", "ports": ports}]
    clusters = [f"reviews.shop:{each}" for each in ports]

    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        envoy = Envoy(channel)
        for kind, asked in ((CLUSTER, []), (ENDPOINTS, clusters), (LISTENER, []), (ROUTES, clusters)):
            await envoy.ask(kind, *asked)
            while not pilot.asked:
                await asyncio.sleep(0.01)
            if kind == CLUSTER:
                pilot.decide({**CASE, "services": services})
            await envoy.told()
        pilot.decide({**CASE, "services": services, "virtual": [BY_PATH]})
        for number in range(3):
            await envoy.told(refused="no" if number == 2 else "")
        while not pilot.refusals:
            await asyncio.sleep(0.01)
        pilot.decide({**CASE, "services": [{"name": "reviews", "ports": ports[:1]}], "virtual": [BY_PATH]})
        gone: list[str] = []
        while len(gone) < len(ports) - 2:
            response = await envoy.told()
            gone += response.removed_resources if response.type_url == CLUSTER else []
        assert len(gone) == len(ports) - 2

    run(journey)


def test_who_comes_back_loses_no_cluster_before_it_has_said_what_leads_there():
    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        envoy = Envoy(channel)
        await envoy.ask(CLUSTER, initial_resource_versions={NAME: "of-before"})
        while not pilot.asked:
            await asyncio.sleep(0.01)
        pilot.declare(BY_PATH)
        assert names(await envoy.told()) == (CLUSTER, [f"{NAME}/v2"], [])
        await envoy.ask(LISTENER)
        assert names(await envoy.told()) == (LISTENER, [NAME], [])
        await envoy.ask(ROUTES, NAME)
        assert names(await envoy.told()) == (ROUTES, [NAME], [])
        assert names(await envoy.told()) == (CLUSTER, [], [NAME])

    run(journey)


def test_a_refusal_names_the_virtual_service_that_caused_it_and_is_not_repeated():
    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        envoy = Envoy(channel)
        await ready(pilot, envoy)
        pilot.declare(BY_WEIGHT)
        await envoy.told(refused="no such weight")
        while not pilot.refusals:
            await asyncio.sleep(0.01)
        pilot.declare(BY_WEIGHT)
        pilot.declare(BY_PATH)  # the next it hears of
        assert names(await envoy.told())[0] == CLUSTER

    pilot = run(journey)
    assert pilot.refusals == [(Sidecar("shop", "client"), {"x"}, "no such weight")]
    text = pilot.registry.text()
    assert 'minik8s_pilot_answers_total{answer="nack",type="ClusterLoadAssignment"} 1.0' in text
    (pushed,) = re.findall(r'minik8s_pilot_pushes_total{type="ClusterLoadAssignment"} (\S+)', text)
    assert float(pushed) >= 2  # the first ones, and those that were refused
    acknowledged = re.findall(r'minik8s_pilot_answers_total{answer="ack",type="\w+"} (\S+)', text)
    (measured,) = re.findall(r"minik8s_pilot_convergence_seconds_count (\S+)", text)
    assert float(measured) == sum(map(float, acknowledged))


@pytest.mark.parametrize("number", [0, 4])
def test_what_came_beside_something_that_is_refused_is_sent_again_without_it(number: int):
    """Envoy keeps nothing of a response of which it refuses a part."""
    ports = [9080 + each for each in range(7)]
    case = {**CASE, "services": [{"name": "reviews", "ports": ports}], "virtual": []}
    case["virtual"] = [{**BY_WEIGHT, "name": f"of-{each}", "port": each} for each in ports]
    bad = f"reviews.shop:{ports[number]}"
    taken: set[str] = set()

    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        envoy = Envoy(channel)
        await envoy.ask(CLUSTER)
        while not pilot.asked:
            await asyncio.sleep(0.01)
        mapped = decide_mapping(declared(case))
        pilot.catalogue.put("shop", Configuration(pilot.packer.pack(mapped), mapped.split_by, mapped.withholdings))
        while len(taken) < len(ports) - 1 or not pilot.refusals:
            response = await asyncio.wait_for(envoy.call.read(), LONG_S)
            answer = discovery_pb2.DeltaDiscoveryRequest(type_url=response.type_url, response_nonce=response.nonce)
            told = {each.name for each in response.resources}
            if bad in told:
                answer.error_detail.message = "no"
            else:
                taken.update(told)
            await envoy.call.write(answer)
            while bad in told and len(told) == 1 and not pilot.refusals:
                await asyncio.sleep(0.01)
        await envoy.ask(LISTENER, "nothing")  # what was refused alone does not come again
        assert names(await envoy.told())[0] == LISTENER

    pilot = run(journey)
    assert taken == {f"reviews.shop:{each}" for each in ports} - {bad}
    assert pilot.refusals == [(Sidecar("shop", "client"), {f"of-{ports[number]}"}, "no")]


def test_a_sidecar_that_has_taken_that_pods_are_withheld_is_told_of():
    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        envoy = Envoy(channel)
        await ready(pilot, envoy)
        pilot.declare(withheld=["a"])
        await envoy.told(refused="no")
        await envoy.ask(LISTENER, "nothing")  # whatever else it says, it has not taken it
        await envoy.told()
        assert not any(pilot.settled)
        pilot.declare(withheld=["a", "b"])
        await envoy.told()
        while not any(pilot.settled):
            await asyncio.sleep(0.01)
        assert pilot.settled[-1] == {BATCH}

    run(journey)


def test_a_sidecar_from_another_pilot_has_taken_nothing_before_it_has_asked_for_its_endpoints():
    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        envoy = Envoy(channel)
        await envoy.ask(CLUSTER)
        while not pilot.asked:
            await asyncio.sleep(0.01)
        pilot.declare(withheld=["a"])
        await envoy.told()
        await envoy.ask(LISTENER)
        await envoy.told()
        assert pilot.settled == []
        await envoy.ask(ENDPOINTS, NAME)
        await envoy.told()
        while not pilot.settled:
            await asyncio.sleep(0.01)
        assert pilot.settled[-1] == {BATCH}

    run(journey)


def test_of_many_services_a_sidecar_has_settled_with_those_that_it_has_asked_for():
    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        envoy = Envoy(channel)
        await envoy.ask(CLUSTER)
        while not pilot.asked:
            await asyncio.sleep(0.01)
        services = [{"name": f"web-{number}", "ports": [80]} for number in range(CROWD + 1)]
        many = declared({"services": services, "pods": {"web-0": ["a"]}})
        mapped = decide_mapping(many)
        pilot.catalogue.put("shop", Configuration(pilot.packer.pack(mapped), {}, frozenset({BATCH})))
        while {BATCH} not in pilot.settled:  # it has asked for none
            await asyncio.sleep(0.01)
        for kind in (LISTENER, ROUTES):
            await envoy.ask(kind)
            await envoy.told()
        await envoy.ask(CLUSTER, "100.0.0.1:80", "100.9.9.9:80")
        assert names(await envoy.told()) == (CLUSTER, ["100.0.0.1:80"], [])
        assert names(await envoy.told()) == (CLUSTER, [], ["100.9.9.9:80"])
        pilot.settled.clear()
        await envoy.ask(LISTENER, "nothing")
        await envoy.told()
        assert pilot.settled == [], "it has not the endpoints of that one yet"
        await envoy.ask(ENDPOINTS, "100.0.0.1:80")
        await envoy.told()
        while not pilot.settled:
            await asyncio.sleep(0.01)

    run(journey)


def test_who_comes_back_is_told_only_what_he_does_not_have():
    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        first = Envoy(channel)
        await ready(pilot, first)
        had = {name: each.version for name, each in pilot.catalogue.get("shop").snapshot[CLUSTER].items()}  # type: ignore[union-attr]
        second = Envoy(channel)
        await second.ask(CLUSTER, initial_resource_versions=had)
        await second.ask(LISTENER)
        assert names(await second.told()) == (LISTENER, [NAME], [])

    run(journey)


def test_who_has_no_token_of_a_pod_is_told_nothing():
    async def journey(_pilot: Pilot, channel: grpc.aio.Channel) -> None:
        stranger = Envoy(channel, token="of-nobody")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stranger.call.read()
        assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED

    pilot = run(journey)
    assert "minik8s_pilot_strangers_total 1.0" in pilot.registry.text()
    assert pilot.asked == []


def test_one_pod_has_a_few_streams_at_once_and_what_is_left_is_forgotten():
    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        streams = [Envoy(channel) for _ in range(4)]
        for each in streams:
            await each.ask(CLUSTER)
        while pilot.figures.streams < len(streams):
            await asyncio.sleep(0.01)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await Envoy(channel).call.read()
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        for each in streams:
            each.call.cancel()
        while pilot.figures.streams:
            await asyncio.sleep(0.01)
        assert not pilot.catalogue.has_sidecars("shop")
        assert pilot.catalogue.get("shop") is None

    run(journey)


def test_a_sidecar_that_asks_for_ever_more_names_is_sent_away():
    async def journey(_pilot: Pilot, channel: grpc.aio.Channel) -> None:
        envoy = Envoy(channel)
        for number in range(MOST_BYTES // len(LONG_NAME) // 100 + 1):
            with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):  # it is over by then
                await envoy.ask(ENDPOINTS, *(f"{LONG_NAME}{number}-{each}" for each in range(100)))
        assert await asyncio.wait_for(envoy.call.code(), LONG_S) == grpc.StatusCode.RESOURCE_EXHAUSTED

    run(journey)


def test_answers_that_never_come_are_not_waited_for_without_end():
    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        envoy = Envoy(channel)
        await ready(pilot, envoy)
        for _ in range(xds._MOST_PENDING + 5):
            await envoy.ask(ENDPOINTS, NAME)
            await asyncio.wait_for(envoy.call.read(), LONG_S)
        (stream,) = pilot.discovery._streams
        assert len(stream._pending) == xds._MOST_PENDING

    run(journey)


def test_an_answer_to_what_was_never_sent_is_not_heard_and_a_long_one_is_cut():
    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        envoy = Envoy(channel)
        await ready(pilot, envoy, BY_WEIGHT)
        for nonce in ("never", "1", "1", ""):
            request = discovery_pb2.DeltaDiscoveryRequest(type_url=ROUTES, response_nonce=nonce)
            request.error_detail.message = "no"
            await envoy.call.write(request)
        pilot.declare(BY_PATH)
        await envoy.told(refused="x" * 100_000)
        while not pilot.refusals:
            await asyncio.sleep(0.01)
        ((_, _, message),) = pilot.refusals
        assert message == "x" * 1024

    run(journey)


def test_types_that_nobody_serves_are_not_answered():
    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        envoy = Envoy(channel)
        await envoy.ask("type.googleapis.com/envoy.service.runtime.v3.Runtime")
        await ready(pilot, envoy)

    run(journey)


def test_every_resource_can_be_packed_and_has_the_same_version_twice():
    for virtual in ([], [BY_WEIGHT], [BY_PATH], [{**BY_WEIGHT, **POLICY}]):
        mapped = decide_mapping(declared({**CASE, "virtual": virtual}))
        one, other = (Packer("shop").pack(mapped) for _ in range(2))
        assert set(one) == set(TYPES)
        assert {kind: {name: each.version for name, each in found.items()} for kind, found in one.items()} == {
            kind: {name: each.version for name, each in found.items()} for kind, found in other.items()
        }

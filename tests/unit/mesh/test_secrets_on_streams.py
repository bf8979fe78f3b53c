"""Certificates on a stream: asked for, renewed, one's own; and what changes of clusters and listeners by them."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import grpc
import pytest
from envoy.config.listener.v3 import listener_pb2
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mutual_tls import MTLS, PERMISSIVE, STRICT
from minik8s_modules.api.pods.sidecars import with_sidecar
from minik8s_modules.mesh import xds
from minik8s_modules.mesh.identities.issuing import Issued, Issuer, Unsigned
from minik8s_modules.mesh.identities.securing import (
    IDENTITY,
    INBOUND,
    INBOUND_IPV6,
    NOBODY,
    PLAIN,
    ROOTS,
    SECRET,
    Peers,
    peers_of,
)
from minik8s_modules.mesh.identities.turns import AT_ONCE, EVERY_S, Turns
from minik8s_modules.mesh.identity import Sidecar
from minik8s_modules.mesh.resources import CLUSTER, ENDPOINTS, LISTENER
from tests.unit.mesh.test_xds import BY_WEIGHT, LONG_S, NAME, Envoy, Pilot, names, ready, run, told_of


class Signing:
    """Gives certificates that last for a while, or none."""

    def __init__(self, lasting_s: float = 2) -> None:
        self._lasting_s = lasting_s
        self.pool, self.turns = ThreadPoolExecutor(1), Turns()
        self.asked: list[tuple[str, str, str]] = []
        self.gives = True

    def issue(self, namespace: str, pod: str, account: str) -> Issued:
        """Return the next certificate."""
        self.asked.append((namespace, pod, account))
        if not self.gives:
            raise Unsigned("not now")
        now, number = datetime.now(UTC), len(self.asked)
        return Issued(f"chain {number}", f"key {number}", "roots", now, now + timedelta(seconds=self._lasting_s))


def chains(response: Any) -> set[str]:
    found = set()
    for each in response.resources:
        made = secret_pb2.Secret()
        assert each.resource.Unpack(made)
        found.add(made.tls_certificate.certificate_chain.inline_string or "roots")
    return found


def test_a_certificate_is_renewed_at_half_of_its_life_and_nobody_elses_is_told():
    signing = Signing()

    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        envoy = Envoy(channel)
        await ready(pilot, envoy)
        assert signing.asked == []
        await envoy.ask(SECRET, IDENTITY, ROOTS, "spiffe://cluster.local/ns/shop/sa/other")
        first = await envoy.told()
        assert names(first)[0] == SECRET
        assert chains(first) == {"chain 1", "roots"}
        second = await envoy.told()
        assert chains(second) == {"chain 2"}, "what is trusted has not changed"
        assert set(signing.asked) == {("shop", "client", "robot")}
        text = pilot.registry.text()
        assert "minik8s_pilot_certificates_total 2.0" in text
        assert "minik8s_pilot_certificate_end_seconds" in text

    with_issuer(signing, journey)


def test_a_signer_that_gives_none_is_asked_again_and_nothing_else_waits_for_it():
    signing = Signing()
    signing.gives = False

    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        envoy = Envoy(channel)
        await envoy.ask(SECRET, IDENTITY)
        await ready(pilot, envoy)
        signing.gives = True
        assert chains(await told_of(envoy, SECRET)) == {f"chain {len(signing.asked)}"}

    with_issuer(signing, journey)


def with_issuer(signing: Signing, journey: Any) -> None:
    async def whole(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        # the service was made before it was known who signs
        pilot.discovery._issuer = cast("Issuer", signing)
        pilot.sidecar = Sidecar("shop", "client", "robot", speaks_tls=True)
        await journey(pilot, channel)

    run(whole)


def test_a_cluster_that_changes_has_its_endpoints_told_again():
    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        envoy = Envoy(channel)
        await ready(pilot, envoy)
        pilot.peers = peers_of({"shop": {MTLS: PERMISSIVE}}, [])
        pilot.declare()
        assert [names(await envoy.told()) for _ in range(2)] == [(CLUSTER, [NAME], []), (ENDPOINTS, [NAME], [])]

    run(journey)


def client(mode: str = "", uid: str = "") -> JsonObject:
    """Return the Pod whose sidecar asks, with a label of its own."""
    meta = {"namespace": "shop", "name": "client", "uid": uid, "labels": {MTLS: mode} if mode else {}}
    return {"metadata": meta, "spec": with_sidecar({"containers": []}, mutual=True)}


def is_plain(response: Any) -> bool:
    """Return whether a sidecar is told to take what is no TLS."""
    (found,) = (each for each in response.resources if each.name == INBOUND)
    listener = listener_pb2.Listener()
    assert found.resource.Unpack(listener)
    return PLAIN in {each.name for each in listener.filter_chains}


def test_a_sidecar_takes_tls_by_ipv6_as_soon_as_its_pod_has_such_an_address_and_for_as_long_as_it_runs():
    def own(response: Any) -> set[str]:
        return {each.name for each in response.resources} & {INBOUND, INBOUND_IPV6}

    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        await ready(pilot, Envoy(channel))
        pilot.sidecar = Sidecar("shop", "client", "robot", speaks_tls=True)
        envoy = Envoy(channel)
        await envoy.ask(LISTENER)
        assert own(await envoy.told()) == {INBOUND}
        status = {"podIPs": [{"ip": "10.0.0.9"}, {"ip": "fd00::9"}]}
        pilot.peers = peers_of({"shop": {MTLS: PERMISSIVE}}, [{**client(), "status": status}])
        pilot.declare()
        assert own(await envoy.told()) == {INBOUND_IPV6}
        pilot.peers = peers_of({"shop": {MTLS: STRICT}}, [])
        pilot.declare()
        assert own(await envoy.told()) == {INBOUND, INBOUND_IPV6}, "nothing is taken away, and both are strict"
        pilot.sidecar = Sidecar("shop", "other", "robot", speaks_tls=True, has_ipv6=True)
        other = Envoy(channel)
        await other.ask(LISTENER)
        assert own(await other.told()) == {INBOUND, INBOUND_IPV6}

    run(journey)


def test_a_sidecar_that_takes_tls_is_told_how_strictly_and_others_are_not():
    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        other = Envoy(channel)
        await ready(pilot, other)
        pilot.sidecar = Sidecar("shop", "client", "robot", speaks_tls=True)
        envoy = Envoy(channel)
        await envoy.ask(LISTENER)
        assert is_plain(await envoy.told())
        for mode in (STRICT, PERMISSIVE):
            pilot.peers = peers_of({"shop": {MTLS: mode}}, [client()])
            pilot.declare()
            assert is_plain(await envoy.told()) is (mode == PERMISSIVE)
        await asyncio.sleep(0)
        kind, changed, _removed = names(await other.told())
        assert (kind, changed) == (CLUSTER, [NAME]), "the other sidecar calls by TLS, and has no such listener"

    run(journey)


@pytest.mark.parametrize(
    ("before", "known"),
    [
        (NOBODY, [client(PERMISSIVE, "new")]),  # its Namespace had no label yet
        (peers_of({"shop": {MTLS: PERMISSIVE}}, []), [client(PERMISSIVE, "new")]),
        (peers_of({"shop": {MTLS: PERMISSIVE}}, [client(PERMISSIVE, "old")]), [client(PERMISSIVE, "new")]),
        (peers_of({"shop": {MTLS: PERMISSIVE}}, []), None),  # the label goes
    ],
)
def test_a_pod_that_is_newer_than_what_the_pilot_knows_takes_tls_alone(before: Peers, known: list[JsonObject] | None):
    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        pilot.peers = before
        await ready(pilot, Envoy(channel))
        pilot.sidecar = Sidecar("shop", "client", "robot", speaks_tls=True, uid="new", space_speaks_tls=True)
        envoy = Envoy(channel)
        await envoy.ask(LISTENER)
        assert not is_plain(await envoy.told())
        pilot.peers = NOBODY if known is None else peers_of({"shop": {MTLS: STRICT}}, known)
        pilot.declare()
        assert is_plain(await envoy.told())

    run(journey)


def test_who_waits_for_a_label_that_is_gone_again_is_asked_about_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(xds, "AGAIN_S", 0.1)

    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        other = Envoy(channel)
        await ready(pilot, other)
        pilot.sidecar = Sidecar("shop", "client", "robot", speaks_tls=True, space_speaks_tls=True)
        envoy = Envoy(channel)
        await envoy.ask(LISTENER)
        assert not is_plain(await envoy.told())
        assert await asyncio.wait_for(envoy.call.read(), LONG_S) is grpc.aio.EOF, "it comes back"
        pilot.declare(BY_WEIGHT)
        assert names(await other.told())[0] == ENDPOINTS, "nobody else is sent away"

    run(journey)


def test_who_neither_takes_tls_nor_calls_by_it_costs_the_signer_nothing():
    signing = Signing()

    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        pilot.discovery._issuer = cast("Issuer", signing)
        envoy = Envoy(channel)
        await ready(pilot, envoy)
        await envoy.ask(SECRET, IDENTITY)
        pilot.declare(BY_WEIGHT)
        await envoy.told()
        assert signing.asked == []
        pilot.peers = peers_of({"shop": {MTLS: PERMISSIVE}}, [])
        pilot.declare()
        assert chains(await told_of(envoy, SECRET)) == {"chain 1"}

    run(journey)


def test_streams_of_a_pod_one_after_the_other_do_not_ask_for_ever_more_certificates():
    signing = Signing(lasting_s=3600)

    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        await ready(pilot, Envoy(channel))
        for _ in range(AT_ONCE):
            envoy = Envoy(channel)
            await envoy.ask(SECRET, IDENTITY)
            await told_of(envoy, SECRET)
            envoy.call.cancel()
        for _ in range(3):
            envoy = Envoy(channel)
            await envoy.ask(SECRET, IDENTITY)
            await envoy.ask(CLUSTER)
            assert names(await envoy.told())[0] == CLUSTER
            envoy.call.cancel()
        assert len(signing.asked) == AT_ONCE
        pilot.sidecar = Sidecar("shop", "other", "robot", speaks_tls=True)
        envoy = Envoy(channel)
        await envoy.ask(SECRET, IDENTITY)
        await told_of(envoy, SECRET)
        assert signing.asked[-1][1] == "other", "others do not wait for it"

    with_issuer(signing, journey)


def test_a_pod_has_a_few_turns_at_once_then_one_a_minute_and_is_forgotten():
    now = [1000.0]
    turns = Turns(lambda: now[0])
    for _ in range(AT_ONCE):
        assert turns.take("a") == 0
        assert turns.take("a") == 1.0, "one that is not answered yet is waited for"
        turns.end("a")
    assert turns.take("a") == EVERY_S
    assert turns.take("b") == 0
    now[0] += EVERY_S
    assert turns.take("a") == 0
    turns.end("a")
    assert turns.take("a") == EVERY_S
    now[0] += AT_ONCE * EVERY_S
    for number in range(3000):
        turns.take(str(number))
        now[0] += 1
    assert len(turns._paid_until) < 1100

"""Certificates on a stream: asked for, renewed, one's own; and what changes of clusters and listeners by them."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import grpc
from envoy.config.listener.v3 import listener_pb2
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2

from minik8s_modules.api.pods.mutual_tls import MTLS, PERMISSIVE, STRICT
from minik8s_modules.mesh.identities.issuing import Issued, Issuer, Unsigned
from minik8s_modules.mesh.identities.securing import IDENTITY, INBOUND, PLAIN, ROOTS, SECRET, peers_of
from minik8s_modules.mesh.identity import Sidecar
from minik8s_modules.mesh.resources import CLUSTER, ENDPOINTS, LISTENER
from tests.unit.mesh.test_xds import NAME, Envoy, Pilot, names, ready, run, told_of


class Signing:
    """Gives certificates that last for two seconds, or none."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(1)
        self.asked: list[tuple[str, str, str]] = []
        self.gives = True

    def issue(self, namespace: str, pod: str, account: str) -> Issued:
        """Return the next certificate."""
        self.asked.append((namespace, pod, account))
        if not self.gives:
            raise Unsigned("not now")
        now, number = datetime.now(UTC), len(self.asked)
        return Issued(f"chain {number}", f"key {number}", "roots", now, now + timedelta(seconds=2))


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
        pilot.sidecar = Sidecar("shop", "client", "robot")
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


def test_a_sidecar_that_takes_tls_is_told_how_strictly_and_others_are_not():
    def plain(response: Any) -> bool:
        (found,) = (each for each in response.resources if each.name == INBOUND)
        listener = listener_pb2.Listener()
        assert found.resource.Unpack(listener)
        return PLAIN in {each.name for each in listener.filter_chains}

    async def journey(pilot: Pilot, channel: grpc.aio.Channel) -> None:
        other = Envoy(channel)
        await ready(pilot, other)
        pilot.sidecar = Sidecar("shop", "client", "robot", speaks_tls=True)
        envoy = Envoy(channel)
        await envoy.ask(LISTENER)
        assert plain(await envoy.told())
        for mode in (STRICT, PERMISSIVE):
            pilot.peers = peers_of({"shop": {MTLS: mode}}, [])
            pilot.declare()
            assert plain(await envoy.told()) is (mode == PERMISSIVE)
        await asyncio.sleep(0)
        kind, changed, _removed = names(await other.told())
        assert (kind, changed) == (CLUSTER, [NAME]), "the other sidecar calls by TLS, and has no such listener"

    run(journey)

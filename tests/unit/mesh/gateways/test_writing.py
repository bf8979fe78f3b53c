"""What is written of Gateways: as much as the definitions take, and of each one whatever becomes of another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.cause import invalid
from minik8s_modules.api.errors import Invalid
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import CUSTOM_RESOURCE_DEFINITION, EVENT
from minik8s_modules.api.network.gateway_api import CONTROLLER, GATEWAY_KINDS
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.mesh.catalogue import Catalogue
from minik8s_modules.mesh.gateways.controller import Gateways
from minik8s_modules.mesh.gateways.deciding import GatewayVerdict
from minik8s_modules.mesh.gateways.statuses import gateway_status
from minik8s_modules.mesh.identities.peers import PeerCopies
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from tests.support.gateway_api import definitions
from tests.support.waiting import until
from tests.unit.mesh.gateways.declared import NOW, gateway, obj, route

IPV4, IPV6 = ([f"{prefix}{number}" for number in range(1, 21)] for prefix in ("192.0.2.", "2001:db8::"))


def most_addresses() -> int:
    """Return how many addresses the definition takes."""
    (found,) = (each for each in definitions() if each["spec"]["names"]["kind"] == GATEWAY_KINDS.gateways.kind)
    status = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    return int(status["properties"]["addresses"]["maxItems"])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([*IPV4[:8], *IPV6[:8]], [*IPV4[:8], *IPV6[:8]]),
        ([*IPV4[:9], *IPV6[:9]], [*IPV4[:8], *IPV6[:8]]),
        ([*IPV6, *IPV4], [*IPV6[:8], *IPV4[:8]]),
        ([*IPV4, *IPV6[:2]], [*IPV4[:14], *IPV6[:2]]),
        (IPV4, IPV4[:16]),
    ],
)
def test_a_gateway_tells_as_many_addresses_as_its_definition_takes(given: list[str], told: list[str]):
    status = gateway_status(gateway(), GatewayVerdict(None, tuple(given), None, (), {}), NOW)
    assert [each["value"] for each in status["addresses"]] == told
    assert len(told) <= most_addresses()


class Refusing(FakeApi):
    """An API that refuses the status of one Gateway."""

    def update(self, kind: Kind, obj: Mapping[str, Any], *, subresource: str = "", **more: Any) -> JsonObject:
        """Update an object."""
        if subresource == "status" and objects.name(obj) == "bad":
            raise Invalid(kind, "bad", [invalid("status.addresses", 18, "must have at most 16 items")])
        return super().update(kind, obj, subresource=subresource, **more)


def test_a_status_that_is_refused_keeps_no_other_from_being_written():
    api = Refusing(FakeClock())
    for each in definitions():
        held = [{"type": kind, "status": "True"} for kind in ("NamesAccepted", "Established")]
        made = api.create(CUSTOM_RESOURCE_DEFINITION, each)
        status = {"acceptedNames": each["spec"]["names"], "conditions": held}
        api.update(CUSTOM_RESOURCE_DEFINITION, {**made, "status": status}, subresource="status")
    context = Context(api, EventRecorder(api, "c"), Informers(api))
    parts: list[Any] = [context.recorder, context.informers]
    for part in parts:
        part.start()
    peers = PeerCopies(context)
    gateways = Gateways(context, Catalogue(lambda _namespace: None), peers)
    try:
        until(lambda: len(context.informers.custom.all()) == len(definitions()))
        kinds = {each.kind: each for each in context.informers.custom.all()}
        api.create(kinds["GatewayClass"], obj("GatewayClass", "ours", {"controllerName": CONTROLLER}, ""))
        for name in ("bad", "edge"):
            one = gateway()
            api.create(kinds["Gateway"], {**one, "metadata": {"name": name, "namespace": "shop"}})
        api.create(kinds["HTTPRoute"], route())
        gateways.lead(leads=True)
        for started in (peers, gateways):
            started.start()
        until(lambda: "conditions" in objects.status(api.get(kinds["Gateway"], "edge", "shop")))
        until(lambda: "parents" in objects.status(api.get(kinds["HTTPRoute"], "web", "shop")))
        until(lambda: [each["reason"] for each in api.list(EVENT, "shop").items] == ["StatusRefused"])
        (event,) = api.list(EVENT, "shop").items
        assert event["involvedObject"]["name"] == "bad"
        assert "must have at most 16 items" in event["message"]
    finally:
        for part in (gateways, peers, *parts[::-1]):
            part.stop()
        context.pool.shutdown()

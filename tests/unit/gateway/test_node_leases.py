"""Only living nodes' Leases are renewed, through every outage of the API."""

from __future__ import annotations

import threading

import pytest

from minik8s_modules.api.kinds import LEASE
from minik8s_modules.api.nodes.clocks import CLOCK_AHEAD
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.fake import FakeApi, passing_error
from minik8s_modules.gateway.leases import NAMESPACE, RENEW_S, NodeLeases


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


def renewed(api: FakeApi) -> dict[str, str]:
    return {lease["metadata"]["name"]: lease["spec"]["renewTime"] for lease in api.list(LEASE, NAMESPACE).items}


def test_a_lease_is_made_once_and_then_renewed(api: FakeApi):
    clock = FakeClock()
    leases = NodeLeases(api, lambda: ["n"], clock)
    leases.renew_all()
    clock.advance(RENEW_S)
    leases.renew_all()
    (lease,) = api.list(LEASE, NAMESPACE).items
    assert lease["spec"] == {
        "holderIdentity": "n",
        "leaseDurationSeconds": 40,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:10.000000Z",
    }


def test_a_node_that_is_not_living_is_not_renewed(api: FakeApi):
    living = ["a", "b"]
    clock = FakeClock()
    leases = NodeLeases(api, lambda: living, clock)
    leases.renew_all()
    clock.advance(RENEW_S)
    living.remove("a")
    leases.renew_all()
    times = renewed(api)
    assert times["a"] < times["b"]


@pytest.mark.parametrize("error", [ApiUnreachable("down"), passing_error()])
def test_what_fails_for_one_node_is_done_for_the_next(api: FakeApi, error: Exception):
    leases = NodeLeases(api, lambda: ["a", "b"], FakeClock())
    api.fail(error)
    leases.renew_all()
    assert set(renewed(api)) == {"b"}
    leases.renew_all()
    assert set(renewed(api)) == {"a", "b"}


def test_a_node_that_comes_to_life_does_not_wait_for_the_interval(api: FakeApi):
    living: list[str] = []
    leases = NodeLeases(api, lambda: living)
    leases.start()
    living.append("n")
    leases.renew_soon()
    with api.changed:
        assert api.changed.wait_for(lambda: any(call[0] == "create" for call in api.calls), 60)
    leases.stop()
    assert not any(thread.name == "node-leases" for thread in threading.enumerate())


def test_how_far_a_clock_is_off_stands_on_the_lease_as_long_as_it_is(api: FakeApi):
    off = {"n": -300.4}
    NodeLeases(api, lambda: ["n"], FakeClock(), "https://gw", lambda node: off[node]).renew_all()
    assert marks(api) == {"minik8s.io/stream-endpoint": "https://gw", CLOCK_AHEAD: "-300"}
    off["n"] = 1.0
    leases = NodeLeases(api, lambda: ["n"], FakeClock(), "https://gw", lambda node: off[node])  # a gateway's restart
    for _ in range(2):
        leases.renew_all()
        assert marks(api) == {"minik8s.io/stream-endpoint": "https://gw"}
    off["n"] = 5.0
    leases.renew_all()
    assert marks(api)[CLOCK_AHEAD] == "5"


def marks(api: FakeApi) -> dict[str, str]:
    (lease,) = api.list(LEASE, NAMESPACE).items
    return dict(lease["metadata"].get("annotations") or {})

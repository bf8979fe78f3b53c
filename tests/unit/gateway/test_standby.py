"""When a gateway attends the nodes."""

from __future__ import annotations

import socket
from pathlib import Path

from minik8s_modules.base.clock import FakeClock
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.gateway.inventory import NodeAddress
from minik8s_modules.gateway.main import Gateway
from minik8s_modules.gateway.standby import LINGER_S, Standby
from tests.support.waiting import until


def test_a_lone_gateway_always_attends():
    assert Standby(led_only=False, clock=FakeClock()).attends(0)


def test_one_of_several_attends_while_its_reconciler_is_there_and_a_little_longer():
    clock = FakeClock()
    standby = Standby(led_only=True, clock=clock)
    assert not standby.attends(0)
    assert standby.attends(1)
    clock.advance(100)
    assert standby.attends(1)
    clock.advance(LINGER_S - 0.1)
    assert standby.attends(0)
    clock.advance(0.2)
    assert not standby.attends(0)
    assert standby.attends(1)


def test_nodes_are_taken_up_when_a_reconciler_connects_and_left_when_it_is_gone(tmp_path: Path):
    clock = FakeClock()
    gateway = Gateway(FakeApi(), tmp_path / "s", tmp_path / "d", standby=Standby(led_only=True, clock=clock))
    gateway.start()
    try:
        gateway.use([NodeAddress("n", "warm_local", str(tmp_path / "no-docker.sock"), str(tmp_path))])
        assert gateway.metrics() == {}
        with socket.socket(socket.AF_UNIX) as reconciler:
            reconciler.connect(str(tmp_path / "s"))
            until(lambda: set(gateway.metrics()) == {"n"})
            clock.advance(100)
            gateway.attend()
            assert set(gateway.metrics()) == {"n"}
        clock.advance(LINGER_S + 1)

        def left() -> bool:
            gateway.attend()
            clock.advance(LINGER_S + 1)
            return gateway.metrics() == {}

        until(left)
    finally:
        gateway.stop()

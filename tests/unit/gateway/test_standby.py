"""When a gateway attends the nodes."""

from __future__ import annotations

from minik8s_modules.base.clock import FakeClock
from minik8s_modules.gateway.standby import LINGER_S, Standby


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

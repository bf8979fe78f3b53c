"""Whoever disagrees again and again is answered ever later; a person, or a changed declaration, at once."""

from __future__ import annotations

from minik8s_modules.api.objects import Key
from minik8s_modules.controllers.network.reverting import AT_ONCE, LATER, QUIET_S, Reverting

EDGE = Key("shop", "edge")


def reverted(pace: Reverting, begin_s: float, end_s: float, generation: int = 1) -> list[float]:
    """Return when an object is reverted whose opponent answers within 10 ms."""
    now_s, found = begin_s, []
    while now_s < end_s:
        if wait_s := pace.wait_s(EDGE, ("uid", generation), now_s):
            now_s += wait_s
        else:
            pace.reverted(EDGE, ("uid", generation), now_s)
            found.append(now_s)
            now_s += 0.01
    return found


def test_a_few_are_at_once_and_the_others_ever_later_until_there_is_one_a_minute():
    times = reverted(Reverting(), 0, 3600)
    assert times[AT_ONCE - 1] < 1
    gaps = [after - before for before, after in zip(times[AT_ONCE - 1 :], times[AT_ONCE:], strict=False)]
    assert [round(each) for each in gaps[:7]] == [1, 2, 4, 8, 16, 32, 60]
    assert len(times) < AT_ONCE + 70
    assert max(gaps) <= LATER.maximum_s + 0.01


def test_after_some_quiet_and_with_a_changed_declaration_it_begins_anew():
    pace = Reverting()
    last = reverted(pace, 0, 300)[-1]
    assert pace.wait_s(EDGE, ("uid", 1), last + 1) > 0
    assert pace.wait_s(Key("shop", "other"), ("uid", 1), last + 1) == 0
    assert len(reverted(pace, last + 1, last + 1.9, generation=2)) == AT_ONCE
    assert len(reverted(pace, last + 2 + QUIET_S, last + 2.9 + QUIET_S, generation=2)) == AT_ONCE
    pace.forget(EDGE)
    assert pace.wait_s(EDGE, ("uid", 2), last + 3 + QUIET_S) == 0

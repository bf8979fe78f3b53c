"""Waiters are released by the revision that they wait for, and by no earlier one."""

from minik8s_modules.store.waiters import Waiters


def test_each_is_released_by_its_own_revision() -> None:
    waiters = Waiters()
    later, sooner, same = waiters.join(9), waiters.join(5), waiters.join(5)

    waiters.reached(4)
    assert not sooner.wait(0)
    waiters.reached(6)
    assert sooner.wait(0)
    assert same.wait(0)
    assert not later.wait(0)
    waiters.reached(9)
    assert later.wait(0)


def test_one_that_left_is_released_by_nothing_and_keeps_nobody_waiting() -> None:
    waiters = Waiters()
    gone, stays = waiters.join(5), waiters.join(6)

    waiters.leave(gone)
    waiters.leave(gone)
    waiters.reached(6)

    assert not gone.wait(0)
    assert stays.wait(0)


def test_leaving_after_the_release_is_nothing() -> None:
    waiters = Waiters()
    late, other = waiters.join(5), waiters.join(7)
    waiters.reached(5)

    waiters.leave(late)

    assert not other.wait(0)
    waiters.reached(7)
    assert other.wait(0)

"""Turns for threads: shares of one account and of a rank, round and round, and room left for the system."""

from __future__ import annotations

from minik8s_modules.apiserver.intake.limits import STRANGER, SYSTEM, USER, Account
from minik8s_modules.apiserver.intake.turns import OF_ALL, OF_ONE, Turns

JANE, JOE, DAEMON = Account("jane", USER), Account("joe", USER), Account("system:kube-scheduler", SYSTEM)
THREADS = 32


def test_one_user_has_a_share_and_the_next_users_turn_comes_first():
    turns: Turns[str] = Turns(THREADS)
    share = int(OF_ONE[USER] * THREADS)
    for number in range(10):
        turns.put(JANE, f"jane-{number}")
    assert (turns.running, turns.waiting) == (share, 10 - share)
    turns.put(JOE, "joe")
    order = []
    for _ in range(10):
        item = turns.take()
        assert item is not None
        order.append(item)
        turns.done(JOE if item == "joe" else JANE)
    assert order == [f"jane-{number}" for number in range(share)] + ["joe"] + [
        f"jane-{number}" for number in range(share, 9)
    ]


def test_users_take_turns_when_threads_come_free():
    turns: Turns[str] = Turns(1)
    for each in (JANE, JANE, JANE, JOE, JOE):
        turns.put(each, each.name)
    order = []
    for _ in range(5):
        item = turns.take()
        assert item is not None
        order.append(item)
        turns.done(Account(item, USER))
    assert order == ["jane", "jane", "joe", "jane", "joe"]
    assert (turns.running, turns.waiting) == (0, 0)


def test_many_users_and_addresses_leave_threads_to_the_system():
    turns: Turns[str] = Turns(THREADS)
    for number in range(100):
        turns.put(Account(f"user-{number}", USER), "")
        turns.put(Account(f"192.0.2.{number}", STRANGER), "")
    assert turns.running == int(OF_ALL[USER] * THREADS) + int(OF_ALL[STRANGER] * THREADS) < THREADS
    before = turns.running
    turns.put(DAEMON, "daemon")
    assert turns.running == before + 1


def test_takers_go_home():
    turns: Turns[str] = Turns(THREADS)
    turns.end(2)
    assert (turns.take(), turns.take()) == (None, None)

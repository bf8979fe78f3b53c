"""What the next pass says, whatever became of those before: answers that are lost, refusals, restarts."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from minik8s_modules.virtual.providers.slurm.desk import BATCH, Desk, Order

ENTRY = {"name": "default/job", "script": "#!/bin/sh\n"}


class Machine:
    """The module's side: a declared set, its digest, and jobs that are submitted once."""

    def __init__(self) -> None:
        self.declared: dict[str, Any] = {}
        self.jobs: dict[str, str] = {}
        self.submitted: list[str] = []
        self.refuses: set[str] = set()

    def digest(self) -> str:
        """Return what tells two sets apart."""
        return repr(sorted(self.declared.items(), key=lambda each: each[0]))

    def take(self, order: Order) -> dict[str, Any]:
        """Return the result of a pass."""
        if order.base != self.digest():
            return {"base_mismatch": True, "digest": self.digest()}
        self.declared = {uid: one for uid, one in self.declared.items() if uid not in order.delete}
        self.declared.update(copy.deepcopy(order.upsert))
        errors = {}
        for uid in self.declared:
            if uid in self.refuses:
                errors[uid] = {"reason": "SubmitFailed", "message": "no"}
            elif uid not in self.jobs:
                self.jobs[uid] = "PENDING"
                self.submitted.append(uid)
        self.jobs = {uid: state for uid, state in self.jobs.items() if uid in self.declared}
        fields = {
            uid: {"name": "default/job", "state": self.jobs[uid]} if uid in self.jobs else None for uid in self.declared
        }
        return {"digest": self.digest(), "status": fields, "errors": errors}


def passed(desk: Desk, machine: Machine, now_s: float = 0.0) -> set[str]:
    order = desk.order(now_s)
    return desk.answer(order, machine.take(order), now_s)


def settled(desk: Desk, machine: Machine) -> None:
    for _ in range(100):
        passed(desk, machine)
        if not desk.is_busy(0.0):
            return
    raise AssertionError("it never settles")


def test_jobs_are_declared_once_and_taken_back():
    desk, machine = Desk(), Machine()
    desk.want("a", ENTRY, {})
    settled(desk, machine)
    assert (machine.submitted, desk.reported["a"]) == (["a"], {"name": "default/job", "state": "PENDING"})
    assert desk.order(0.0).upsert == {}
    desk.drop("a")
    settled(desk, machine)
    assert machine.jobs == {}


def test_a_restarted_provider_learns_what_there_is_and_submits_nothing_again():
    machine = Machine()
    before = Desk()
    before.want("a", ENTRY, {})
    settled(before, machine)
    desk = Desk()
    settled(desk, machine)
    assert desk.wanted["a"].entry is None
    desk.want("a", ENTRY, {})
    desk.want("b", ENTRY, {})
    settled(desk, machine)
    assert sorted(machine.submitted) == ["a", "b"]


def test_values_travel_until_the_job_is_submitted():
    desk, machine = Desk(), Machine()
    settled(desk, machine)
    desk.want("a", ENTRY, {"environment": {"A": "b"}})
    assert desk.order(0.0).values == {"a": {"environment": {"A": "b"}}}
    settled(desk, machine)
    assert desk.order(0.0).values == {}


def test_a_refused_job_is_taken_back_and_tried_ever_more_rarely():
    desk, machine = Desk(), Machine()
    machine.refuses.add("a")
    desk.want("a", ENTRY, {})
    settled(desk, machine)
    assert desk.errors["a"] == ("SubmitFailed", "no")
    assert machine.declared == {}
    wait_s = desk.next_try_s(0.0)
    assert wait_s is not None
    passed(desk, machine, wait_s)
    assert "a" in machine.declared
    passed(desk, machine, wait_s)
    assert machine.declared == {}
    assert (desk.next_try_s(wait_s) or 0) > wait_s
    machine.refuses.clear()
    passed(desk, machine, 10_000.0)
    assert machine.submitted == ["a"]
    assert desk.errors == {}
    assert desk.next_try_s(10_000.0) is None


def test_many_jobs_travel_a_batch_at_a_time():
    desk, machine = Desk(), Machine()
    for number in range(3 * BATCH):
        desk.want(f"job-{number}", ENTRY, {})
    passed(desk, machine)
    passed(desk, machine)
    assert len(desk.order(0.0).upsert) == BATCH
    settled(desk, machine)
    assert len(machine.submitted) == 3 * BATCH


def test_jobs_that_wait_for_others_take_no_room_from_these():
    desk, machine = Desk(), Machine()
    for number in range(BATCH):
        desk.want(f"later-{number}", {**ENTRY, "after": {"first": "afterok"}}, {})
    settled(desk, machine)
    assert machine.submitted == []
    assert desk.awaited("later-0") == ["first"]
    desk.want("first", ENTRY, {})
    settled(desk, machine)
    assert machine.submitted[0] == "first"
    assert len(machine.submitted) == BATCH + 1
    desk.drop("first")
    assert desk.awaited("later-0") == []


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_whatever_is_lost_each_job_that_is_wanted_is_submitted_once(first: int):  # noqa: C901 - a story of accidents
    for seed in range(first, first + 50):
        chance = random.Random(seed)
        desk, machine, wanted = Desk(), Machine(), set[str]()
        for number in range(30):
            uid = f"job-{chance.randrange(6)}-{seed}"
            if chance.random() < 0.4 and uid not in wanted and uid not in machine.submitted:
                wanted.add(uid)
                desk.want(uid, ENTRY, {})
            elif chance.random() < 0.3 and uid in wanted:
                wanted.discard(uid)
                desk.drop(uid)
            order = desk.order(float(number))
            if chance.random() < 0.2:
                continue  # it never arrived
            result = machine.take(order)
            if chance.random() < 0.2:
                continue  # the answer was lost
            if chance.random() < 0.1:
                desk = Desk()  # killed: the cluster has its Pods told again
                for each in wanted:
                    desk.want(each, ENTRY, {})
                continue
            desk.answer(order, result, float(number))
        for _ in range(5):
            settled(desk, machine)
            for stranger in desk.wanted.keys() - wanted:
                desk.drop(stranger)  # as the controller does with dangling Pods
        assert set(machine.jobs) == wanted, seed
        assert len(machine.submitted) == len(set(machine.submitted)), seed


def test_thousands_of_jobs_are_asked_about_more_rarely_while_nothing_changes():
    desk = Desk()
    assert desk.quiet_s(5) == 5
    for number in range(2000):
        desk.want(str(number), ENTRY, {})
    assert (round(desk.quiet_s(5)), desk.quiet_s(30)) == (10, 30)

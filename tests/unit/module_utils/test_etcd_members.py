"""The steps to the declared members of etcd."""

from __future__ import annotations

import pytest

from minik8s_modules.module_utils.minik8s.install.etcd_members import (
    Member,
    NoSuchMember,
    initial_cluster,
    plan_joining,
    plan_only,
    plan_voting,
)

ONE, TWO, THREE = (f"https://192.0.2.{number}:2380" for number in (1, 2, 3))
A = Member("1", "a", (ONE,))
B = Member("2", "b", (TWO,))


def actions(steps) -> list[tuple[str, str]]:
    return [(step.action, step.id) for step in steps]


def test_members_as_declared_are_left_alone():
    assert plan_only([A, B], "1", ONE, [ONE, TWO, THREE]) == []
    assert plan_joining([A, Member("2", "", (TWO,), learner=True)], TWO) == []
    assert plan_voting([A, B], TWO) == []


def test_the_member_asked_is_moved_before_others_join():
    alone = Member("1", "minik8s", ("https://127.0.0.1:2380",))
    assert actions(plan_only([alone], "1", ONE, [ONE])) == [("update", "1")]


def test_a_member_of_a_machine_that_is_not_declared_goes_but_never_the_one_asked():
    assert actions(plan_only([A, B], "1", ONE, [ONE, THREE])) == [("remove", "2")]
    assert actions(plan_only([A], "1", ONE, [])) == []


def test_a_new_member_is_added_and_one_that_lost_its_data_is_replaced():
    assert actions(plan_joining([A], TWO)) == [("add", "")]
    assert actions(plan_joining([A, B], TWO)) == [("remove", "2"), ("add", "")]


def test_a_learner_is_promoted_and_a_stranger_is_an_error():
    assert actions(plan_voting([A, Member("2", "b", (TWO,), learner=True)], TWO)) == [("promote", "2")]
    with pytest.raises(NoSuchMember, match=THREE):
        plan_voting([A, B], THREE)


def test_a_joining_member_is_told_all_there_are_then():
    members = [A, Member("2", "", (TWO,), learner=True)]
    assert initial_cluster(members, "b", TWO) == f"a={ONE},b={TWO}"


def test_one_that_is_left_alone_takes_its_loopback_when_the_others_have_gone():
    steps = plan_only([A, B, Member("3", "c", (THREE,))], "1", "https://127.0.0.1:2380", [])
    assert actions(steps) == [("remove", "2"), ("remove", "3"), ("update", "1")]

"""What a sidecar is told of one type: the delta protocol without a network."""

from __future__ import annotations

import pytest

from minik8s_modules.mesh.subscriptions import MOST_BYTES, Difference, Subscription, TooMuch


def sent(subscription: Subscription, versions: dict[str, str]) -> Difference:
    difference = subscription.difference(versions)
    subscription.sent(versions, difference)
    return difference


def test_who_names_nothing_gets_all_and_then_what_changes():
    one = Subscription()
    one.ask([], [], {})
    assert sent(one, {"a": "1", "b": "1"}) == Difference(["a", "b"], [])
    assert not sent(one, {"a": "1", "b": "1"})
    assert sent(one, {"a": "2", "c": "1"}) == Difference(["a", "c"], ["b"])
    assert not sent(one, {"a": "2", "c": "1"})


def test_who_names_some_gets_those_and_hears_once_of_what_there_is_not():
    one = Subscription()
    one.ask(["a", "x"], [], {})
    assert sent(one, {"a": "1", "b": "1"}) == Difference(["a"], ["x"])
    assert not sent(one, {"a": "1", "b": "2"})
    assert sent(one, {"a": "1", "x": "1"}) == Difference(["x"], [])
    assert sent(one, {"a": "1"}) == Difference([], ["x"])
    assert not sent(one, {"a": "1"})


def test_a_name_that_is_taken_back_is_told_no_more_and_one_that_is_asked_for_again_is_told_again():
    one = Subscription()
    one.ask(["a", "b"], [], {})
    sent(one, {"a": "1", "b": "1"})
    one.ask([], ["a"], {})
    assert not sent(one, {"a": "2", "b": "1"})
    one.ask(["b"], [], {})
    assert sent(one, {"a": "2", "b": "1"}) == Difference(["b"], [])


def test_who_comes_back_gets_only_what_is_other_than_what_he_has():
    one = Subscription()
    one.ask([], [], {"a": "1", "b": "1", "gone": "1"})
    assert sent(one, {"a": "1", "b": "2"}) == Difference(["b"], ["gone"])
    named = Subscription()
    named.ask(["a", "b"], [], {"a": "1", "b": "1"})
    assert sent(named, {"a": "1", "b": "2"}) == Difference(["b"], [])


def test_all_may_be_asked_for_beside_names_and_taken_back():
    one = Subscription()
    one.ask(["*"], [], {})
    assert sent(one, {"a": "1"}) == Difference(["a"], [])
    one.ask(["b"], ["*"], {})
    assert sent(one, {"a": "2", "b": "1"}).changed == ["b"]


def test_what_is_kept_of_a_sidecars_names_has_an_end():
    one, name = Subscription(), "x" * (1 << 20)
    for number in range((MOST_BYTES >> 20) - 1):
        one.ask([f"{name}{number}"], [], {})
    one.ask([], [f"{name}0"], {})
    one.ask([f"{name}again"], [], {})
    with pytest.raises(TooMuch, match="at most"):
        one.ask([f"{name}more"], [], {})
    with pytest.raises(TooMuch):
        Subscription().ask([], [], {"y" * MOST_BYTES + "y": "1"})

"""The lock of a cluster's membership: who gets it when, and that its file is never half."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from minik8s_modules.module_utils.minik8s.install.membership_lock import (
    Claim,
    Now,
    Place,
    machine_now,
    parse,
    release,
    take,
)

NOW = Now("boot-1", 1000.0, 1_700_000_000.0)
US, THEM = {"id": "us", "user": "a"}, {"id": "them", "user": "b"}


THEIRS = Claim(THEM, "boot-1", 1_699_999_000.0, 900.0, 300.0)


def test_a_free_lock_is_taken_and_a_held_one_is_not():
    assert take(None, US, 300, "", NOW).granted
    refused = take(THEIRS, US, 300, "", NOW)
    assert (refused.granted, refused.claim) == (False, THEIRS)


def test_a_run_renews_its_own_and_is_told_since_when_it_has_it():
    renewed = take(THEIRS._replace(holder=US), US, 600, "", NOW)
    assert renewed.claim == Claim(US, "boot-1", 1_699_999_000.0, 1000.0, 600)


@pytest.mark.parametrize(
    ("found", "over"),
    [(THEIRS._replace(renewed_s=700.0), ""), (THEIRS._replace(boot="boot-0"), ""), (THEIRS, "them")],
    ids=["it ran out", "the machine was booted", "its holder has ended"],
)
def test_a_claim_that_is_over_is_taken_over(found: Claim, over: str):
    taken = take(found, US, 300, over, NOW)
    assert taken.granted
    assert taken.claim == Claim(US, "boot-1", NOW.day_s, NOW.seconds, 300)


def test_the_end_of_another_run_ends_no_claim_but_its_own():
    assert not take(THEIRS, US, 300, "somebody", NOW).granted


def test_a_lock_is_given_back_by_its_holder_alone():
    assert release(THEIRS._replace(holder=US), US).claim is None
    assert release(None, US).granted
    assert release(THEIRS, US) == (False, THEIRS, "somebody else holds it")


def test_what_was_not_written_whole_is_no_claim():
    for text in ("", "{", "[]", '{"holder": {}}', "null"):
        assert parse(text) is None


def test_a_file_that_is_removed_while_others_wait_for_it_is_made_anew(tmp_path: Path):
    place = Place(str(tmp_path / "lock"))
    granted: list[str] = []

    def ask(name: str) -> None:
        with place.alone() as descriptor:
            decision = take(place.look(), {"id": name}, 300, "", machine_now())
            if decision.granted:
                place.write(descriptor, decision.claim)
                granted.append(name)

    with place.alone() as descriptor:
        place.write(descriptor, take(None, US, 300, "", machine_now()).claim)
        threads = [threading.Thread(target=ask, args=(f"run{number}",)) for number in range(8)]
        for thread in threads:
            thread.start()
        place.write(descriptor, None)
    for thread in threads:
        thread.join(30)
    found = place.look()
    assert found is not None
    assert granted == [found.holder["id"]]
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600


def test_a_link_in_its_place_is_not_followed(tmp_path: Path):
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="lock"), Place(str(tmp_path / "lock")).alone():
        pass
    assert not (tmp_path / "elsewhere").exists()

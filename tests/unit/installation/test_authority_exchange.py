"""Exchanging an authority: in phases, continued after a kill anywhere, and at no moment is nobody trusted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from minik8s_modules.module_utils.minik8s.install.authorities import (
    AuthorityFiles,
    AuthorityStep,
    TooEarly,
    certificates_in,
    plan_exchange,
    stage,
)

OLD, NEW = "old\n", "new\n"
SETTLED = AuthorityFiles((OLD,), "", waiting_key=False)
READY = AuthorityFiles((OLD,), NEW, waiting_key=True)
PHASES = ("prepare", "switch", "finish")


def after(found: AuthorityFiles, step: AuthorityStep) -> AuthorityFiles:
    """Return what stands in the files after a step."""
    if step.action == "write":
        return found._replace(trusted=step.trusted)
    return found._replace(waiting_key=False) if step.action == "take" else found._replace(waiting="")


def goes(found: AuthorityFiles, phase: str) -> AuthorityFiles:
    for step in plan_exchange(phase, found):
        found = after(found, step)
    return found


def test_both_are_trusted_then_the_new_one_signs_then_it_is_alone():
    prepared = goes(READY, "prepare")
    assert prepared.trusted == (OLD, NEW)
    switched = goes(prepared, "switch")
    assert (switched.trusted, stage(switched)) == ((NEW, OLD), "switched")
    assert goes(switched, "finish") == AuthorityFiles((NEW,), "", waiting_key=False)


def run(found: AuthorityFiles) -> Iterator[AuthorityStep]:
    """Yield the steps of all phases."""
    for phase in PHASES:
        for step in plan_exchange(phase, found):
            found = after(found, step)
            yield step


@pytest.mark.parametrize("phase", PHASES)
def test_a_phase_that_is_over_changes_nothing(phase: str):
    found = READY
    for each in PHASES[: PHASES.index(phase) + 1]:
        found = goes(found, each)
    assert plan_exchange(phase, found) == []


@pytest.mark.parametrize("done", range(6))
def test_a_run_that_was_killed_after_any_step_is_continued(done: int):
    found = READY
    for step in islice(run(READY), done):
        found = after(found, step)
    # the next run begins at the first phase again; a new authority is made only while none has signed
    for phase in PHASES:
        found = goes(found, phase)
        assert found.trusted
    assert found == AuthorityFiles((NEW,), "", waiting_key=False)


def test_nothing_signs_before_it_is_trusted_and_nothing_old_goes_before_the_new_one_signs():
    with pytest.raises(TooEarly, match="prepare first"):
        plan_exchange("switch", READY)
    with pytest.raises(TooEarly, match="switch first"):
        plan_exchange("finish", goes(READY, "prepare"))


def test_without_a_new_authority_nothing_happens():
    assert [plan_exchange(phase, SETTLED) for phase in ("observe", *PHASES)] == [[], [], [], []]


def test_certificates_are_found_among_other_text():
    block = "-----BEGIN CERTIFICATE-----\nabc=\n-----END CERTIFICATE-----"
    assert certificates_in(f"Subject: x\n{block}\n\n{block}") == (block + "\n",) * 2

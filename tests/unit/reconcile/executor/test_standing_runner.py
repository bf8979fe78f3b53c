"""A runner that stays over elections: each turn's items end with it, and the next turn finds the runner at work."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.reconcile.executor.fake_runner import FakeRunner
from minik8s_modules.reconcile.executor.standing_runner import StandingRunner
from minik8s_modules.reconcile.values.items import OnOutcome, Outcome, SectionRequest, WorkItem


class Machine:
    """What the fakes do on node n0: sections named ``held`` wait for ``go``; ``asked`` is set by the first cancel."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.go, self.busy = threading.Event(), threading.Event()
        self.made: list[FakeRunner] = []
        self.outcomes: list[Outcome] = []
        self.standing = StandingRunner(self._make)

    def _make(self, on_outcome: OnOutcome) -> FakeRunner:
        asked = self.asked

        class Told(FakeRunner):
            def cancel(self, item_id: str) -> None:
                super().cancel(item_id)
                asked.set()

        self.made.append(Told(["n0"], self._realize, on_outcome))
        return self.made[-1]

    def _realize(self, _node: str, section: str, _options: Any, _check: bool) -> dict[str, Any]:  # noqa: FBT001
        if section == "held":
            self.busy.set()
            assert self.go.wait(60)
        return {"changed": False}

    def statuses(self) -> dict[str, str]:
        """Return the status of each item that has ended."""
        return {outcome.id: outcome.status for outcome in self.outcomes}


@pytest.fixture
def machine() -> Iterator[Machine]:
    made = Machine()
    yield made
    made.go.set()
    made.standing.stop()


def item(name: str, section: str = "free") -> WorkItem:
    return WorkItem(name, "n0", check=False, token=(1, 7), sections={section: SectionRequest({})})


def test_the_next_turn_has_the_same_runner_and_may_use_the_ids_of_the_first(machine: Machine) -> None:
    for _ in range(2):
        turn = machine.standing.turn(machine.outcomes.append)
        turn.start()
        turn.submit(item("a"))
        turn.stop()
    assert [outcome.status for outcome in machine.outcomes] == ["ok", "ok"]
    assert len(machine.made) == 1


def test_at_the_end_of_a_turn_what_runs_ends_and_what_waits_is_cancelled(machine: Machine) -> None:
    turn = machine.standing.turn(machine.outcomes.append)
    turn.start()
    turn.submit(item("runs", "held"))
    turn.submit(item("waits"))
    assert machine.busy.wait(60)
    stopper = threading.Thread(target=turn.stop)
    stopper.start()
    assert machine.asked.wait(60)
    machine.go.set()
    stopper.join(60)
    assert machine.statuses() == {"runs": "ok", "waits": "cancelled"}
    with pytest.raises(RuntimeError):
        turn.submit(item("late"))


def test_a_runner_whose_items_do_not_end_is_replaced(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minik8s_modules.reconcile.executor.standing_runner.CANCEL_S", 0.1)
    monkeypatch.setattr(FakeRunner.stop, "__defaults__", (0.1,))  # its thread is held
    turn = machine.standing.turn(machine.outcomes.append)
    turn.start()
    turn.submit(item("runs", "held"))
    assert machine.busy.wait(60)
    turn.stop(0.1)
    assert machine.statuses() == {"runs": "cancelled"}
    assert len(machine.made) == 2
    machine.go.set()
    after = machine.standing.turn(machine.outcomes.append)
    after.start()
    after.submit(item("next"))
    after.stop()
    assert machine.statuses()["next"] == "ok"


def test_a_standby_that_cannot_start_says_so_at_its_election() -> None:
    class Unusable(FakeRunner):
        def start(self) -> None:
            raise ConfigurationError("in use by another runner")

    standing = StandingRunner(lambda on_outcome: Unusable([], lambda *_: {}, on_outcome))
    standing.warm_up()
    with pytest.raises(ConfigurationError, match="in use"):
        standing.turn(lambda _: None).start()
    standing.stop()

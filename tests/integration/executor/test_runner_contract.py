"""The promises of items.Runner: kept by the real runner with each executor, the fake, and an election's turn."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.reconcile.executor.fake_runner import FakeRunner
from minik8s_modules.reconcile.executor.standing_runner import StandingRunner
from minik8s_modules.reconcile.values.items import WorkItem

from .conftest import LOCAL, Lab

NODES = {"n0": LOCAL, "n1": LOCAL}


def play_probe(lab: Lab) -> Any:
    """Do what the test module does."""

    def realize(_node: str, _section: str, options: dict[str, Any], check: bool) -> dict[str, Any]:  # noqa: FBT001
        time.sleep(options.get("sleep_s", 0))
        if options.get("fail"):
            raise RuntimeError(options["fail"])
        changed = False
        for key, entry in options.get("entries", {}).items():
            path = lab.files / key
            changed = changed or not path.exists() or path.read_text() != entry
            if not check:
                path.write_text(entry)
        return {"changed": changed}

    return realize


@pytest.fixture(params=["fake", "python_api", "strategy", "turn"])
def either(request: pytest.FixtureRequest) -> Iterator[Lab]:
    lab = Lab(NODES, executor="strategy") if request.param == "strategy" else Lab(NODES)
    if request.param == "fake":
        lab.runner = FakeRunner(NODES, play_probe(lab), lab._on_outcome)  # type: ignore[assignment]
    standing = StandingRunner(lambda on_outcome: FakeRunner(NODES, play_probe(lab), on_outcome))
    if request.param == "turn":
        lab.runner = standing.turn(lab._on_outcome)  # type: ignore[assignment]
    yield lab
    standing.stop()
    lab.close()


def test_an_item_has_one_outcome_with_its_sections(either: Lab) -> None:
    before = either.submit(first={"entries": {"a": "1"}})
    either.runner.start()
    outcome = either.outcome(before)
    assert (outcome.status, outcome.node, outcome.message) == ("ok", "n0", "")
    assert outcome.sections["first"]["changed"] is True
    assert either.run(first={"entries": {"a": "1"}}).sections["first"]["changed"] is False
    assert all(len(outcomes) == 1 for outcomes in either.outcomes.values())


def test_check_mode_changes_nothing(either: Lab) -> None:
    either.runner.start()
    assert either.run(check=True, first={"entries": {"a": "1"}}).sections["first"]["changed"] is True
    assert not (either.files / "a").exists()


def test_a_failed_module_ends_its_item_and_names_its_section(either: Lab) -> None:
    either.runner.start()
    outcome = either.run(first={}, second={"fail": "no room"}, third={})
    assert (outcome.status, outcome.message) == ("failed", "second: no room")
    assert set(outcome.sections) == {"first"}


def test_an_unknown_node_fails(either: Lab) -> None:
    either.runner.start()
    assert either.run("n9", first={}).message == "node n9 is not in the inventory"


def test_a_nodes_items_go_in_order(either: Lab) -> None:
    items = [either.submit(first={"entries": {"a": str(number)}}) for number in range(5)]
    either.runner.start()
    assert [either.outcome(item).status for item in items] == ["ok"] * 5
    assert [name for name in either.outcomes if name in items] == items
    assert (either.files / "a").read_text() == "4"


def test_a_waiting_item_can_be_cancelled(either: Lab) -> None:
    either.runner.start()
    first, second = either.submit(first={"sleep_s": 0.5}), either.submit(first={"entries": {"a": "1"}})
    either.runner.cancel(second)
    assert [either.outcome(item).status for item in (first, second)] == ["ok", "cancelled"]
    assert not (either.files / "a").exists()


def test_stop_answers_everything_and_takes_no_more(either: Lab) -> None:
    items = [either.submit(first={}) for _ in range(3)]
    either.runner.stop()
    assert [either.outcome(item).status for item in items] == ["cancelled"] * 3
    with pytest.raises(RuntimeError):
        either.submit(first={})


def test_an_id_is_used_once(either: Lab) -> None:
    item = either.submit(first={})
    with pytest.raises(ValueError, match="has no outcome yet"):
        either.runner.submit(WorkItem(item, "n0", check=False, token=(1, 7), sections={}))
    either.runner.start()
    assert either.outcome(item).status == "ok"

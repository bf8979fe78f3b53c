"""The live run through the real ansible-runner, over the warm local connection."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.reconcile.executor import live_run

from .conftest import wait_for

LOCAL = {"ansible_connection": "warm_local"}
EVIL = "{{ lookup('pipe','id') }}"
CANARY = "Y2FuYXJ5LXNlY3JldC12YWx1ZQ"


def everything_below(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.rglob("*") if file.is_file())


def test_each_change_has_an_event_that_names_module_and_item(lab: Any) -> None:
    outcome = lab.run(first={"entries": {"a": "1"}}, second={"entries": {"b": "2"}})
    assert (outcome.status, outcome.message, outcome.node) == ("ok", "", "n0")
    assert outcome.sections["first"]["steps"] == [{"action": "write", "key": "a", "detail": ""}]
    assert [(event["event_data"]["task"], event["event_data"]["task_action"]) for event in lab.events] == [
        ("first", "minik8s_probe"),
        ("second", "minik8s_probe"),
    ]
    assert {event["event_data"]["res"]["minik8s_item"] for event in lab.events} == {outcome.id}
    assert "invocation" not in lab.events[0]["event_data"]["res"]


def test_only_the_named_sections_run_and_in_play_order(lab: Any) -> None:
    lab.run(third={}, first={})
    assert [event["event_data"]["task"] for event in lab.events] == ["first", "third"]


def test_check_mode_is_the_items_own(lab: Any) -> None:
    outcome = lab.outcome(lab.submit(check=True, first={"entries": {"a": "1"}}))
    assert outcome.sections["first"]["changed"] is True
    assert outcome.sections["first"]["diff"]["after"] == "{'a': '1'}"
    assert not (lab.files / "a").exists()
    lab.run(first={"entries": {"a": "1"}})
    assert (lab.files / "a").read_text() == "1"


def test_what_a_user_wrote_stays_literal(lab: Any) -> None:
    outcome = lab.run(first={"entries": {"a": EVIL, "b": "{% raw %}"}})
    assert (lab.files / "a").read_text() == EVIL
    assert outcome.sections["first"]["status"] == {"a": EVIL, "b": "{% raw %}"}


def test_the_token_and_the_hosts_options_reach_the_module(lab: Any) -> None:
    outcome = lab.run(first={"sleep_s": 0.01})
    assert outcome.status == "ok"
    assert lab.event(outcome.id, "first")["token"] == [1, 7]
    assert (lab.files / "pid-n0").exists()  # `node` came from the playbook


def test_a_secret_blob_is_in_no_event_artifact_or_argv(lab: Any) -> None:
    item = lab.submit(first={"blob": CANARY, "sleep_s": 1.0})
    lab.running_module()
    argv = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, check=True).stdout
    on_disk = everything_below(lab.private) + everything_below(lab.warm)
    lab.outcome(item)
    failed = lab.run(first={"blob": CANARY, "fail": "for a reason"})
    assert failed.message == "first: for a reason"
    assert CANARY.encode() not in argv
    assert CANARY.encode() not in on_disk + everything_below(lab.private)
    assert CANARY not in str(lab.events)


def test_nothing_is_left_in_artifacts(lab: Any) -> None:
    for _ in range(3):
        lab.run(first={"entries": {"a": "1"}})
    left = [path.name for path in (lab.private / "artifacts").rglob("*") if path.is_file()]
    assert left == ["command"]  # argv and environment of the play, while it runs
    assert not list((lab.private / "env").glob("*vars"))
    assert (lab.private.stat().st_mode & 0o777, lab.private.stat().st_uid) == (0o700, os.geteuid())
    lab.runner.stop()
    assert sorted(path.name for path in lab.private.iterdir()) == ["lock"]


def test_items_of_a_host_wait_in_order_and_others_go_on(new_lab: Callable[..., Any]) -> None:
    lab = new_lab({"n0": LOCAL, "n1": LOCAL})
    lab.run(first={})
    slow = lab.submit(first={"sleep_s": 4.0, "entries": {"a": "1"}})
    after = [lab.submit(first={"entries": {"a": str(number)}}) for number in (2, 3)]
    lab.run("n1", first={})
    assert slow not in lab.outcomes
    assert [lab.outcome(item).sections["first"]["changed"] for item in (slow, *after)] == [True] * 3
    assert list(lab.outcomes)[-3:] == [slow, *after]
    assert (lab.files / "a").read_text() == "3"


def test_a_node_that_is_not_in_the_inventory_fails_with_a_message(lab: Any) -> None:
    outcome = lab.run("n9", first={})
    assert (outcome.status, outcome.message) == ("failed", "node n9 is not in the inventory")


def test_hosts_come_and_go_with_the_inventory(lab: Any) -> None:
    lab.run(first={})
    lab.set_hosts({"n0": LOCAL, "n1": LOCAL})
    assert lab.run("n1", first={}).status == "ok"
    lab.set_hosts({"n1": LOCAL})
    assert lab.run("n0", first={}).message == "node n0 is not in the inventory"
    lab.inventory.write_text("all: {hosts: [not yaml for an inventory\n")
    assert lab.run("n1", first={}).status == "ok"


def test_a_bad_line_is_answered_and_the_run_goes_on(lab: Any) -> None:
    lab.run(first={})
    run = lab.runner._current
    before = lab.play.pid
    for line in ({"id": "x"}, {"op": "dance", "id": "y"}, {"id": "z", "host": "n0", "sections": {"first": []}}):
        run.send(json.dumps(line).encode() + b"\n")
    run._outgoing.put(b"{{{ nonsense\n[1, 2]\n\xff\xfe\n\n")
    assert lab.run(first={}).status == "ok"
    assert lab.play.pid == before


def test_a_result_over_the_limit_fails_its_item_only(lab: Any) -> None:
    outcome = lab.outcome(lab.submit(first={"big_bytes": 17 << 20}), 90)  # a slow machine takes long to parse it
    assert outcome.status == "failed"
    assert "the limit is" in outcome.message
    assert lab.run(first={"big_bytes": 1 << 20}).status == "ok"


def test_recycling_leaves_no_gap_and_loses_no_item(new_lab: Callable[..., Any]) -> None:
    lab = new_lab({"n0": LOCAL, "n1": LOCAL}, recycle_items=10)
    begin = time.monotonic()
    lab.run(first={})
    start_s = time.monotonic() - begin
    first_play = lab.play.pid
    slow = lab.submit("n1", first={"sleep_s": 2.5, "entries": {"x": "slow"}})
    waits = lab.submit("n1", first={"entries": {"x": "after"}})
    times: list[float] = []
    while lab.play.pid == first_play or len(times) < 60:
        begin = time.monotonic()
        assert lab.run(first={}).status == "ok"
        times.append(time.monotonic() - begin)
        time.sleep(0.02)
    assert max(times) < max(start_s, 1.5), "an item waited for a run to start"
    assert [lab.outcome(item).status for item in (slow, waits)] == ["ok", "ok"]
    assert (lab.files / "x").read_text() == "after"
    assert all(len(outcomes) == 1 for outcomes in lab.outcomes.values())


def test_with_the_run_stopped_nothing_changes_on_the_node(new_lab: Callable[..., Any]) -> None:
    lab = new_lab(start=False)
    item = lab.submit(first={"entries": {"a": "1"}})
    time.sleep(0.5)
    assert list(lab.files.iterdir()) == []
    lab.runner.start()
    assert lab.outcome(item).status == "ok"
    lab.runner.stop()
    with pytest.raises(RuntimeError, match="stopped"):
        lab.submit(first={"entries": {"b": "1"}})
    assert [path.name for path in lab.files.iterdir()] == ["a"]


def test_two_runners_cannot_share_a_directory(lab: Any, new_lab: Callable[..., Any]) -> None:
    other = new_lab(start=False)
    other.runner._layout = lab.runner._layout
    with pytest.raises(ConfigurationError, match="in use by another runner"):
        other.runner.start()


def test_an_inventory_that_does_not_exist_is_named(new_lab: Callable[..., Any]) -> None:
    lab = new_lab(start=False)
    lab.inventory.unlink()
    with pytest.raises(ConfigurationError, match=r"hosts\.yml does not exist"):
        lab.runner.start()


def test_a_burst_of_large_items_and_results_does_not_block(new_lab: Callable[..., Any]) -> None:
    lab = new_lab({f"n{number}": LOCAL for number in range(8)})
    lab.run(first={})
    options = {"base": {"text": "x" * 400_000}, "big_bytes": 300_000}
    begin = time.monotonic()
    items = [lab.submit(f"n{number % 8}", first=options) for number in range(40)]
    assert time.monotonic() - begin < 30.0  # a blocked pipe would take until the items' deadline
    assert {lab.outcome(item, 60).status for item in items} == {"ok"}


def test_a_failing_callback_costs_no_item(new_lab: Callable[..., Any]) -> None:
    def fail(_event: object) -> None:
        raise RuntimeError("a defect above")

    lab = new_lab(on_event=fail)
    item = lab.submit(first={})
    time.sleep(1.5)
    assert lab.run(first={}).status
    assert lab.outcome(item).status == "ok"


def test_a_deaf_run_is_replaced(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minik8s_modules.reconcile.executor.runner.RESULT_LATENESS_S", 0.5)
    lab.run(first={})
    run, play = lab.runner._current, lab.play
    ended = threading.Thread()
    ended.start()
    ended.join()
    monkeypatch.setattr(run, "thread", ended)  # as if ansible-runner's thread had died
    monkeypatch.setattr(lab.runner, "_on_result", lambda *_: None)
    assert lab.run(first={}).message == "the runner event of section first was lost"
    monkeypatch.undo()
    wait_for(lambda: not play.is_running(), "the end of the deaf run")
    assert lab.run(first={}).status == "ok"


def test_options_that_are_not_json_are_refused_at_once(lab: Any) -> None:
    with pytest.raises(ValueError, match="the options are not JSON"):
        lab.submit(first={"entries": {1, 2}})
    assert lab.run(first={}).status == "ok"


def test_a_start_is_given_up_only_when_it_does_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(live_run, "IDLE_START_S", 10.0)
    clock = itertools.count(0.0, 4.0)
    efforts = [5, 6, 9, 9]
    run = live_run.LiveRun(1, tmp_path / "nobody.sock", 0.0)
    with pytest.raises(live_run.RunFailed, match="has done nothing for 10 s"):
        run.connect(lambda _s: None, lambda: next(clock), lambda: efforts.pop(0))
    assert efforts == []
    run.close()


def test_the_effort_of_children_grows_with_what_they_compute() -> None:
    before = live_run.effort_of_children()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        wait_for(lambda: live_run.effort_of_children() > before + 5, "processor time of a child")
        child.kill()

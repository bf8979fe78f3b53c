"""Every process of the executor killed at work: each item has exactly one outcome, and no process stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from .conftest import PLAYBOOK, PROJECT, wait_for

LOCAL = {"ansible_connection": "warm_local"}


def worker_of(lab: Any) -> psutil.Process:
    found: psutil.Process = wait_for(lab.play.children, "a worker")[0]
    return found


def gone(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # between the two
        return True


def test_a_killed_worker_fails_its_item_and_its_module_dies(lab: Any) -> None:
    item = lab.submit(first={"sleep_s": 2.5, "entries": {"a": "1"}}, second={})
    module = lab.running_module()
    worker_of(lab).kill()
    outcome = lab.outcome(item)
    assert outcome.status == "failed"
    assert "first: the worker died (exit code -9)" in outcome.message
    wait_for(lambda: gone(module), "the module's end")
    assert not (lab.files / "a").exists()
    assert lab.run(first={}).status == "ok"


def test_a_killed_interpreter_costs_a_retry(lab: Any) -> None:
    lab.run(first={})
    item = lab.submit(first={"sleep_s": 0.5, "entries": {"a": "1"}})
    module = lab.running_module()
    template = module.parent()
    os.kill(lab.interpreter(), signal.SIGKILL)
    template.kill()
    module.kill()
    assert lab.outcome(item).status == "ok"
    assert (lab.files / "a").read_text() == "1"


def test_a_module_that_kills_itself_fails_its_item_only(lab: Any) -> None:
    outcome = lab.run(first={"die": True})
    assert outcome.status == "failed"
    assert lab.run(first={}).status == "ok"


def test_a_module_over_its_timeout_is_ended_on_the_node(lab: Any) -> None:
    item = lab.submit(third={"sleep_s": 300})  # the section that has a short timeout
    module = lab.running_module()
    outcome = lab.outcome(item)
    assert outcome.status == "failed"
    assert "timed out" in outcome.message.lower() or "timeout" in outcome.message.lower()
    wait_for(lambda: gone(module), "the module's end")
    assert lab.run(first={}).status == "ok"


def test_a_cancelled_item_ends_on_the_node_and_a_waiting_one_never_starts(lab: Any) -> None:
    running = lab.submit(first={"sleep_s": 2.5, "entries": {"a": "1"}})
    waiting = lab.submit(first={"entries": {"b": "1"}})
    module = lab.running_module()
    for item in (waiting, running, "item-unknown"):
        lab.runner.cancel(item)
    assert [lab.outcome(item).status for item in (running, waiting)] == ["cancelled"] * 2
    wait_for(lambda: gone(module), "the module's end")
    assert lab.run(first={}).status == "ok"
    assert not {"a", "b"} & {path.name for path in lab.files.iterdir()}


def test_a_killed_play_is_started_again_and_its_items_repeated(lab: Any) -> None:
    running = lab.submit(first={"sleep_s": 0.7, "entries": {"a": "1"}})
    waiting = lab.submit(first={"entries": {"b": "1"}})
    module = lab.running_module()
    worker = worker_of(lab)
    lab.play.kill()
    assert [lab.outcome(item).status for item in (running, waiting)] == ["ok", "ok"]
    assert gone(module)
    assert gone(worker)
    assert all(len(outcomes) == 1 for outcomes in lab.outcomes.values())


def test_an_item_whose_run_dies_twice_fails(lab: Any) -> None:
    item = lab.submit(first={"sleep_s": 2.5})
    for _ in range(2):
        lab.running_module()
        (lab.files / "pid-n0").unlink()
        lab.play.kill()
        time.sleep(0.1)
    outcome = lab.outcome(item)
    assert (outcome.status, outcome.message) == ("failed", "tried 2 times: the play ended")
    assert lab.run(first={}).status == "ok"


def test_a_play_that_cannot_start_fails_its_items_and_is_tried_again(new_lab: Callable[..., Any]) -> None:
    lab = new_lab(playbook="tests/none.yml")
    outcome = lab.run(first={})
    assert outcome.status == "failed"
    assert "tried 2 times: the play ended before it was ready" in outcome.message
    assert "none.yml could not be found" in outcome.message
    lab.runner._layout = lab.runner._layout._replace(playbook=PLAYBOOK)
    assert lab.outcome(lab.submit(first={})).status == "ok"


def test_without_nodes_the_runner_rests_until_there_is_one(new_lab: Callable[..., Any]) -> None:
    lab = new_lab(start=False)
    lab.inventory.write_text("all: {hosts: {}}\n")
    lab.runner.start()
    wait_for(lambda: not lab.runner._runs, "the end of a run without hosts")
    generation = lab.runner._generation
    time.sleep(1.0)
    assert lab.runner._generation == generation
    assert "no hosts matched" in lab.run(first={}).message
    lab.set_hosts({"n0": LOCAL})
    assert lab.run(first={}).status == "ok"


def test_stop_ends_a_slow_item_within_its_bound(lab: Any) -> None:
    item = lab.submit(first={"sleep_s": 60.0})
    module = lab.running_module()
    begin = time.monotonic()
    lab.runner.stop(0.5)
    assert time.monotonic() - begin < 30
    assert lab.outcome(item).status == "cancelled"
    wait_for(lambda: gone(module), "the module's end")


def test_two_hosts_at_once_start_one_interpreter(new_lab: Callable[..., Any]) -> None:
    lab = new_lab({f"n{number}": LOCAL for number in range(4)})
    items = [lab.submit(f"n{number}", first={}) for number in range(4)]
    assert {lab.outcome(item).status for item in items} == {"ok"}
    servers = [
        process
        for process in psutil.process_iter()
        if process.ppid() == 1 and str(lab.warm) in " ".join(str(each.laddr) for each in unix_sockets(process))
    ]
    assert len(servers) == 1


def unix_sockets(process: psutil.Process) -> list[Any]:
    try:
        return list(process.net_connections("unix"))
    except psutil.Error:
        return []


def test_an_idle_interpreter_exits_and_leaves_nothing(new_lab: Callable[..., Any]) -> None:
    lab = new_lab(environment={"MINIK8S_WARM_IDLE_S": "0.5", "MINIK8S_WARM_KEEP_CODE": "0"})
    item = lab.submit(first={"sleep_s": 1.5})
    assert lab.outcome(item).status == "ok"  # it stays while a module runs
    pid = lab.interpreter()
    wait_for(lambda: not psutil.pid_exists(pid), "the interpreter's end", 60)
    wait_for(lambda: not lab.warm.exists(), "the end of its directory", 60)
    assert lab.run(first={}).status == "ok"


CONTROLLER = """
import sys, threading
sys.path.insert(0, {project!r})
from pathlib import Path
from minik8s_modules.reconcile.values.items import SectionRequest, WorkItem
from minik8s_modules.reconcile.executor.runner import AnsibleRunner
home = Path({home!r})
runner = AnsibleRunner(inventory=home / "hosts.yml", private_data_dir=home / "p", project_dir=Path({project!r}),
    on_outcome=print, playbook="tests/integration/executor/sections.yml", environment={environment!r},
    executor={executor!r})
runner.start()
options = {{"directory": str(home / "files"), "sleep_s": 2.5, "entries": {{"a": "1"}}}}
runner.submit(WorkItem("i", "n0", False, (1, 1), {{"first": SectionRequest(options)}}))
threading.Event().wait()
"""


@pytest.mark.parametrize("moment", ["at work", "while the play starts"])
def test_kill_9_of_the_reconciler_leaves_no_process(new_lab: Callable[..., Any], moment: str) -> None:
    lab = new_lab(start=False)
    script = CONTROLLER.format(
        project=str(PROJECT), home=str(lab.home), executor=lab.executor, environment=lab.environment
    )
    controller = subprocess.Popen([sys.executable, "-c", script])
    try:
        module = [lab.running_module()] if moment == "at work" else []
        wait_for(lambda: psutil.Process(controller.pid).children(), "the play's process")
        family = psutil.Process(controller.pid).children(recursive=True) + module
        assert family
        controller.send_signal(signal.SIGKILL)
        controller.wait()
        wait_for(lambda: all(gone(process) for process in family), "the end of play, workers and module")
        assert not (lab.files / "a").exists()
    finally:
        controller.kill()


def test_cancel_from_many_threads_and_kill_gives_one_outcome_each(new_lab: Callable[..., Any]) -> None:
    lab = new_lab({f"n{number}": LOCAL for number in range(4)})
    lab.run(first={})
    items = [lab.submit(f"n{number % 4}", first={"sleep_s": 0.05}) for number in range(40)]
    threads = [threading.Thread(target=lab.runner.cancel, args=(item,)) for item in items[::3]]
    for thread in threads:
        thread.start()
    lab.play.kill()
    for thread in threads:
        thread.join()
    assert {lab.outcome(item).status for item in items} <= {"ok", "cancelled"}
    time.sleep(0.2)
    assert all(len(outcomes) == 1 for outcomes in lab.outcomes.values())

"""Simulated Pods live by their stages; what is wrong with a stage is refused by its place."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject, name
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.virtual.contract import NODE, NoResources, new_pod
from minik8s_modules.virtual.provider import InitConfig
from minik8s_modules.virtual.providers.simulated import Simulated, Timeline
from minik8s_modules.virtual.providers.stages import DEFAULT, Stage, next_stage, parse_stages, status_in
from tests.support.waiting import until

NOW = "2026-01-01T00:00:00Z"


def _half() -> float:
    return 0.5


def test_what_comes_next_by_default() -> None:
    lasting, job = new_pod("a"), new_pod("b", restartPolicy="Never")
    created = next_stage(lasting, "created", DEFAULT, _half)
    assert created is not None
    assert (created.stage.next, created.after_s) == ("running", 0.0)
    assert next_stage(lasting, "running", DEFAULT, _half) is None
    ending = next_stage(job, "running", DEFAULT, _half)
    assert ending is not None
    assert (ending.stage.next, ending.after_s) == ("succeeded", 1.0)


def test_weights_choose_and_jitter_is_added() -> None:
    stages = (Stage("created", "running", 1.0, 4.0, weight=3.0), Stage("created", "failed", weight=1.0))
    chosen = Counter(
        due.stage.next
        for step in range(4)
        if (due := next_stage(new_pod("a"), "created", stages, lambda: step / 4))  # noqa: B023
    )
    assert chosen == {"running": 3, "failed": 1}
    due = next_stage(new_pod("a"), "created", stages, _half)
    assert due is not None
    assert due.after_s == 3.0


def test_labels_choose_stages() -> None:
    stages = (Stage("created", "failed", selector={"app": "bad"}),)
    bad = new_pod("a")
    bad["metadata"]["labels"] = {"app": "bad"}
    assert next_stage(bad, "created", stages, _half) is not None
    assert next_stage(new_pod("a"), "created", stages, _half) is None


def test_a_status_follows_the_state() -> None:
    running = status_in(new_pod("a"), "running", NOW, "192.0.2.7")
    assert (running["phase"], running["containerStatuses"][0]["state"]) == ("Running", {"running": {"startedAt": NOW}})
    failed = status_in({**new_pod("a"), "status": running}, "failed", NOW, "192.0.2.7", exit_code=137)
    assert (failed["phase"], failed["hostIP"]) == ("Failed", "192.0.2.7")
    assert failed["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"when": "made", "next": "running"}, "when must be one of created, running, deleted"),
        ({"when": "created", "next": "gone"}, "after created next is one of failed, running"),
        ({"when": "created", "next": "running", "delay": -1}, "delay must be a number from 0"),
        ({"when": "created", "next": "running", "after": 1}, "after is not known"),
        ("created", "must be a mapping"),
    ],
)
def test_a_wrong_stage_is_refused(row: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"f: stages\[0\].*{why}"):
        parse_stages([row], "f")


def _simulated(**config: Any) -> tuple[Simulated, list[JsonObject]]:
    collected: list[JsonObject] = []
    made = Simulated(InitConfig(NODE, NoResources(), config), Timeline())
    made.notify_pods(collected.append)
    return made, collected


def test_a_pod_lives_through_its_stages() -> None:
    stages = [{"when": "running", "next": "failed", "delay": 0.01, "always": True, "exit_code": 3}]
    provider, result = _simulated(stages=stages, pod_cidr="10.202.0.0/16")
    provider.create_pod(new_pod("one"))
    until(lambda: len(result) == 2)
    assert [objects.status(each)["phase"] for each in result] == ["Running", "Failed"]
    assert result[0]["status"]["podIP"].startswith("10.202.")
    assert result[1]["status"]["podIP"] == result[0]["status"]["podIP"]
    provider.close()


def test_a_pod_deleted_while_a_stage_is_due_does_not_come_to_it() -> None:
    provider, result = _simulated(stages=[{"when": "created", "next": "running", "delay": 3600}])
    pod = new_pod("one")
    provider.create_pod(pod)
    provider.delete_pod(pod)
    until(lambda: provider.get_pods() == [])
    until(lambda: len(result) == 1)
    assert result[0]["status"]["phase"] == "Succeeded"
    provider.close()


def test_a_pod_that_ran_before_a_restart_runs_on() -> None:
    provider, result = _simulated()
    pod = {**new_pod("one"), "status": status_in(new_pod("one"), "running", NOW, "")}
    provider.create_pod(pod)
    assert provider.get_pod_status("default", "one")["phase"] == "Running"
    assert result == []
    provider.close()


def test_many_nodes_share_one_thread() -> None:
    timeline = Timeline()
    collected: list[str] = []
    nodes = [Simulated(InitConfig(f"n{index}", NoResources()), timeline) for index in range(50)]
    for index, node in enumerate(nodes):
        node.notify_pods(lambda pod: collected.append(name(pod)))
        for number in range(20):
            node.create_pod(new_pod(f"p-{index}-{number}"))
    until(lambda: len(collected) == 1000)
    assert len(set(collected)) == 1000
    for node in nodes:
        node.close()
    until(lambda: timeline._thread is None)


def test_a_wrong_setting_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="cpus is not a setting of the provider simulated"):
        Simulated(InitConfig(NODE, NoResources(), {"cpus": "3"}), Timeline())

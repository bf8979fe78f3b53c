"""CronJobs: every file of tests/cases/decide_cron_job is one decision, and each is cut off after every step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import CRON_JOB, JOB
from minik8s_modules.api.schema.structural import unknown_fields
from minik8s_modules.controllers.batch.cronjobs import SCHEDULED, decide_cron_job
from minik8s_modules.controllers.core.steps import Create, WriteStatus, controller_reference
from minik8s_modules.controllers.simulation.deciders import cron_job_steps
from minik8s_modules.controllers.simulation.simulated_cluster import World
from tests.support.workloads import NOW, SPACE, ago, cut_off, words, workload

CASES = sorted((Path(__file__).parents[3] / "cases" / "decide_cron_job").glob("*.yml"))
EACH = pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
KEY = objects.Key(SPACE, "web")


def made_job(fields: dict[str, Any], cron: dict[str, Any]) -> dict[str, Any]:
    """``name``, ``end`` (Complete or Failed, a minute ago), ``began`` (seconds ago)."""
    job = workload(JOB, {}, fields["name"])
    job["metadata"]["ownerReferences"] = [controller_reference(CRON_JOB, cron)]
    job["status"] = {"startTime": ago(fields.get("began", 500))}
    if "end" in fields:
        job["status"] |= {"conditions": [{"type": fields["end"], "status": "True"}], "completionTime": ago(60)}
    return job


def read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    case = yaml.safe_load(path.read_text(encoding="utf-8"))
    limits = {"successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1, "concurrencyPolicy": "Allow"}
    cron = workload(CRON_JOB, {**limits, **case["cron"]})
    cron["spec"]["jobTemplate"] = {"metadata": {"labels": {"a": "b"}}, "spec": {"template": cron["spec"]["template"]}}
    return case, [cron, *(made_job(each, cron) for each in case.get("jobs", []))]


@EACH
def test_decide_cron_job(path: Path):
    case, everything = read(path)
    world = World(everything, NOW)
    steps = cron_job_steps(world, world.get(CRON_JOB, KEY) or {})
    assert [words(step) for step in steps] == case["steps"]
    for step in steps:
        if isinstance(step, WriteStatus):
            assert step.status.items() >= case.get("status", {}).items()
            assert unknown_fields(CRON_JOB, {"status": step.status}) == []
            if "active" in case:
                assert [each["name"] for each in step.status.get("active", [])] == case["active"]
        if isinstance(step, Create):
            assert objects.labels(step.obj) == {"a": "b"}
            assert objects.annotations(step.obj)[SCHEDULED] == case.get(
                "made", objects.annotations(step.obj)[SCHEDULED]
            )


@EACH
def test_cut_off_after_any_step_it_comes_to_the_same(path: Path):
    ends = cut_off(lambda: read(path)[1], CRON_JOB, KEY, quiet_steps)
    assert len({str(summary(world)) for world in ends}) == 1


def quiet_steps(world: World, cron: dict[str, Any]) -> Any:
    """Without Events, which may be told again as long as their cause is there."""
    return [step for step in cron_job_steps(world, cron) if not words(step).startswith("tell")]


def summary(world: World) -> Any:
    return sorted(objects.name(job) for job in world.all(JOB)), sorted(
        objects.status(world.get(CRON_JOB, KEY) or {}).items()
    )


def test_there_are_cases():
    assert len(CASES) >= 20


def test_a_deadline_of_64_bits_hides_nothing():
    fields = {"schedule": "0 * * * *", "startingDeadlineSeconds": 2**63 - 1}
    cron = workload(CRON_JOB, {**fields, "status": {"lastScheduleTime": "2026-01-01T11:00:00Z"}})
    assert words(decide_cron_job(cron, [], NOW)[0]) == "create web-29454480"

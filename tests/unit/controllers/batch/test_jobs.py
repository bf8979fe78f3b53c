"""Jobs: every file of tests/cases/decide_job is one decision, and each is cut off after every step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import JOB, POD
from minik8s_modules.api.pods.scripts import INDEX
from minik8s_modules.api.schema.structural import unknown_fields
from minik8s_modules.controllers.batch import job_indexes, job_tracking
from minik8s_modules.controllers.batch.jobs import decide_job, end_of
from minik8s_modules.controllers.core.steps import Create, Patch, Step, WriteStatus
from minik8s_modules.controllers.simulation.deciders import job_steps
from minik8s_modules.controllers.simulation.simulated_cluster import World
from tests.support.workloads import NOW, SPACE, ago, cut_off, pod, words, workload

CASES = sorted((Path(__file__).parents[3] / "cases" / "decide_job").glob("*.yml"))
EACH = pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
KEY = objects.Key(SPACE, "web")


def made_job(fields: dict[str, Any]) -> dict[str, Any]:
    """A workload whose status may say ``startTime: now`` or seconds ago; ``at`` of conditions; ``restart``."""
    fields = {"parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed", **fields}
    restart = fields.pop("restart", "Never")
    job = workload(JOB, {key: value for key, value in fields.items() if value is not None})
    job["spec"]["template"]["spec"]["restartPolicy"] = restart
    status = job["status"]
    if "startTime" in status:
        status["startTime"] = ago(0 if status["startTime"] == "now" else status["startTime"])
    for each in status.get("conditions", []):
        each["lastTransitionTime"] = ago(each.pop("at", 50))
    return job


def made_pod(fields: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    """As ``pod``; ``ended`` (seconds ago), ``exit``, ``index``, ``failures``, ``conditions``, ``counted``."""
    made = pod(fields, JOB, job)
    meta, status = made["metadata"], made["status"]
    if not fields.get("counted"):
        meta["finalizers"] = [job_tracking.FINALIZER]
    notes = {INDEX: fields.get("index"), job_indexes.FAILURES: fields.get("failures")}
    meta.setdefault("annotations", {}).update({key: str(value) for key, value in notes.items() if value is not None})
    if "ended" in fields or "exit" in fields:
        ended = {"exitCode": fields.get("exit", 1), "finishedAt": ago(fields.get("ended", 20))}
        status["containerStatuses"] = [{"name": "app", "restartCount": 0, "state": {"terminated": ended}}]
    status.setdefault("conditions", []).extend(
        {"type": each, "status": "True"} for each in fields.get("conditions", [])
    )
    return made


def read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    case = yaml.safe_load(path.read_text(encoding="utf-8"))
    job = made_job(case["job"])
    return case, [job, *(made_pod(each, job) for each in case.get("pods", []))]


def shown(step: Step) -> str:
    if isinstance(step, Patch):
        tracks = job_tracking.FINALIZER in (step.body["metadata"]["finalizers"] or [])
        return f"{'track' if tracks else 'count'} {objects.name(step.obj)}"
    return words(step)


@EACH
def test_decide_job(path: Path):
    case, everything = read(path)
    world = World(everything, NOW)
    steps = job_steps(world, world.get(JOB, KEY) or {})
    assert [shown(step) for step in steps] == case["steps"]
    for step in steps:
        if isinstance(step, WriteStatus):
            assert step.status.items() >= case.get("status", {}).items()
            assert unknown_fields(JOB, {"status": step.status}) == []
            known = {each["type"]: each for each in step.status["conditions"]} if "conditions" in step.status else {}
            for kind, reason in case.get("conditions", {}).items():
                assert known.get(kind, {}).get("reason") == reason
            if "message" in case:
                assert case["message"] in {each["message"] for each in known.values()}
        if isinstance(step, Create):
            assert job_tracking.FINALIZER in step.obj["metadata"]["finalizers"]
            assert objects.annotations(step.obj).items() >= case.get("made", {}).items()


@EACH
def test_cut_off_after_any_step_it_comes_to_the_same(path: Path):
    ends = cut_off(lambda: read(path)[1], JOB, KEY, job_steps)
    assert len({str(summary(world)) for world in ends}) == 1
    for fact, wanted in read(path)[0].get("ends", {}).items():
        assert summary(ends[0])[fact] == wanted


def summary(world: World) -> dict[str, Any]:
    job = world.get(JOB, KEY) or {}
    status, over = objects.status(job), end_of(job)
    return {
        "gone": not job,
        "succeeded": status.get("succeeded", 0),
        "failed": status.get("failed", 0) + held(world),
        "done": status.get("completedIndexes"),
        "lost": status.get("failedIndexes"),
        "over": over["type"] if over else None,
        "pods": len(world.all(POD)),
        "noted": status.get("uncountedTerminatedPods", {}),
    }


def held(world: World) -> int:
    """Failures whose count waits for its replacement to be noted."""
    return sum(job_tracking.is_tracked(each) and objects.status(each).get("phase") == "Failed"
               for each in world.all(POD))  # fmt: skip


def test_there_are_cases():
    assert len(CASES) >= 40


def test_an_indexed_pod_knows_its_index():
    job = made_job({"completions": 12, "parallelism": 12, "completionMode": "Indexed"})
    container = job["spec"]["template"]["spec"]["containers"][0]
    own = {"name": "own", "image": "i", "env": [{"name": "JOB_COMPLETION_INDEX", "value": "x"}]}
    job["spec"]["template"]["spec"]["initContainers"] = [own]
    made = [step.obj for step in decide_job(job, [], NOW) if isinstance(step, Create)]
    assert len(made) == 12
    last = made[11]
    assert (last["spec"]["hostname"], last["metadata"]["generateName"]) == ("web-11", "web-11-")
    assert objects.labels(last)[INDEX] == objects.annotations(last)[INDEX] == "11"
    result = last["spec"]["containers"][0]["env"]
    path = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    assert result == [{"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": path}}}]
    assert last["spec"]["initContainers"] == [own]
    assert "env" not in container, "the template is nobody's to change"


@pytest.mark.parametrize(
    ("indexes", "text"), [(set(), ""), ({3}, "3"), ({1, 2}, "1,2"), ({0, 1, 2, 9, 10, 12}, "0-2,9,10,12")]
)
def test_sets_of_indexes_as_text(indexes: set[int], text: str):
    assert job_indexes.format_indexes(indexes) == text
    assert job_indexes.parse_indexes(text, 100) == indexes
    assert job_indexes.parse_indexes(text, 2) == {each for each in indexes if each < 2}


def test_no_more_than_500_pods_are_made_at_once():
    job = made_job({"completions": 10_000, "parallelism": 10_000})
    assert len([step for step in decide_job(job, [], NOW) if isinstance(step, Create)]) == 500


def test_what_is_no_index_is_passed_over():
    assert job_indexes.parse_indexes("a,1,-,2-x,99999999999,5-4,7-9999999", 9) == {1, 7, 8}


def test_a_deadline_of_64_bits_is_never_over():
    job = made_job({"completions": 1, "activeDeadlineSeconds": 2**63 - 1, "status": {"startTime": 100}})
    assert words(decide_job(job, [], NOW)[-1]) == "again in 1e+09"

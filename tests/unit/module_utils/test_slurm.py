"""What the section slurm_jobs decides, what it makes of Slurm's words, and what it gives to sbatch."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.module_utils.minik8s.core.faults import KeyFault
from minik8s_modules.module_utils.minik8s.core.schema import with_defaults
from minik8s_modules.module_utils.minik8s.core.section import Request, Scope, context_for
from minik8s_modules.module_utils.minik8s.slurm import depending, folders, jobs, queue
from minik8s_modules.module_utils.minik8s.slurm.queue import Job

UID = "4ab1c2d3-0000-4000-8000-000000000001"
NOTED = {"id": 7, "owner": "gpu", "ended": {"state": "FAILED"}}
ENTRY = {"name": "default/job", "partition": "batch", "script": "#!/bin/sh\n"}
CASES = sorted((Path(__file__).parents[2] / "cases" / "plan_slurm_jobs").glob("*.yml"))


def section() -> jobs.SlurmJobs:
    return jobs.SlurmJobs(queue.Slurm())


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_plan(path: Path) -> None:
    case = yaml.safe_load(path.read_text())
    declared = {UID: {**ENTRY, **case.get("entry", {})}} if case.get("declared", True) else {}
    queued = tuple(Job(*each) for each in case.get("jobs", []))
    found = jobs.ObservedJob(queued, case.get("folder", False), case.get("id"), case.get("ended"))
    blob = base64.b64encode(json.dumps({UID: case["values"]} if "values" in case else {}).encode()).decode()
    plan = section().plan(context_for(Request("gpu", state_dir="/state"), blob=blob), declared, {UID: found}, Scope())
    assert [step.action for step in plan.steps] == case["steps"]
    assert [one for step in plan.steps if step.action == "cancel" for one in step.data] == case.get("cancels", [])
    assert [[due.after_s, due.reason] for due in plan.due] == case.get("due", [])
    assert [fault.reason for fault in plan.errors.values()] == ([case["error"]] if "error" in case else [])
    assert "secret" not in str([step[:3] for step in plan.steps]) + str(plan.before) + str(plan.after)


def test_lines_of_others_are_nobodys_job() -> None:
    text = "\n".join((
        f"PENDING|N/A|N/A|17||2026-11-28T08:05:40|Resources|minik8s-{UID}|minik8s:gpu:{UID}:default/job",
        f"RUNNING|N/A|2026-11-28T08:05:41|18|n1|2026-11-28T08:05:40|None|minik8s-{UID}|minik8s:other:{UID}:default/job",
        f"RUNNING|N/A|N/A|19|n1|2026-11-28T08:05:40|None|stranger|minik8s:gpu:{UID}:default/job",
        "RUNNING|N/A|N/A|20|n1|2026-11-28T08:05:40|None|a|b|minik8s:gpu:x:y",
        "PENDING|N/A|N/A|21_4||2026-11-28T08:05:40|None|array|(null)",
        "slurm_load_jobs error: Unable to contact slurm controller",
    ))  # fmt: skip
    found = queue.parse_queue(text, "gpu")
    assert found == {UID: [Job(17, "PENDING", "", "2026-11-28T08:05:40Z", "", "", "Resources")]}


def test_of_completed_jobs_the_last_run_of_the_own_user_counts() -> None:
    line = (
        "JobId={} UserId={} GroupId=student(1000) Name=minik8s-{} JobState={} Partition=batch TimeLimit=60"
        " StartTime=2026-11-28T08:05:43 EndTime=2026-11-28T08:05:43 NodeList=n1 NodeCnt=1 ProcCnt=1 WorkDir=/tmp"
        " ReservationName= Tres=cpu=1 Account= QOS= WcKey= Cluster=lab SubmitTime=2026-11-28T08:05:40"
        " EligibleTime=2026-11-28T08:05:40 DerivedExitCode=0:0 ExitCode={}"
    )
    text = "\n".join((
        line.format(5, "student(1000)", UID, "NODE_FAIL", "0:0"),
        line.format(5, "student(1000)", UID, "COMPLETED", "0:0"),
        line.format(6, "mallory(1001)", UID, "FAILED", "1:0"),
        line.format(7, "mallory(1001)", f"x UserId=student(1000) GroupId=a Name=minik8s-{UID}", "FAILED", "1:0"),
    ))  # fmt: skip
    found = queue.parse_completed(text, 1000)
    assert found == {UID: {"id": 5, "uid": UID, "user": "1000", "state": "COMPLETED", "node": "n1", "code": "0:0"}}


def test_a_partition_has_what_its_usable_nodes_have() -> None:
    text = "\n".join((
        "idle|8|64000|up|1-00:00:00|dgx|gpu:a100:4(S:0-1),shard:8",
        "mixed|8+|64000+|up|1-00:00:00|dgx|gpu:2",
        "down*|8|64000|up|1-00:00:00|dgx|gpu:2",
        "idle*|8|64000|up|1-00:00:00|dgx|(null)",
        "idle|8|64000|up|infinite|other|(null)",
    ))  # fmt: skip
    assert queue.parse_partition(text, "dgx") == {
        "name": "dgx", "nodes": 4, "usable": 2, "cpus": 16, "memory_mb": 128000, "gpus": 6, "up": True,
        "time_limit": "1-00:00:00", "states": {"idle": 1, "mixed": 1, "down*": 1, "idle*": 1},
    }  # fmt: skip
    assert queue.parse_partition("", "none")["nodes"] == 0


def test_options_carry_the_uid_and_no_value() -> None:
    entry = with_defaults({**ENTRY, "tasks": 2, "memory_mb": 10, "minutes": 3, "gpus": 1, "values": "x"}, jobs.SCHEMA)
    collected = queue.options(UID, entry, "gpu", depending.option(entry["after"], {}))
    assert {f"--job-name=minik8s-{UID}", f"--comment=minik8s:gpu:{UID}:default/job", "--mem=10M"} <= {*collected}
    assert {"--dependency=singleton", "--no-requeue", "--time=3", "--gres=gpu:1", "--ntasks=2"} <= {*collected}
    assert collected[-1] == "job"


DONE, FAILED = {"state": "COMPLETED", "code": "0:0"}, {"state": "FAILED", "code": "1:0"}


@pytest.mark.parametrize(
    ("kind", "known", "said"),
    [
        ("afterok", depending.Known(live=7), "singleton,afterok:7"),
        ("after", depending.Known(live=7), "singleton,after:7"),
        ("afterok", depending.Known(ended=DONE), "singleton"),
        ("afterany", depending.Known(ended=FAILED), "singleton"),
        ("afternotok", depending.Known(ended=FAILED), "singleton"),
        ("afternotok", depending.Known(ended=DONE), "DependencyNeverSatisfied"),
        ("afterok", depending.Known(ended=FAILED), "DependencyNeverSatisfied"),
        ("afterok", depending.Known(ended={"state": "COMPLETED", "code": "3:0"}), "DependencyNeverSatisfied"),
        ("afterok", depending.Known(ended={"state": "FAILED"}), "DependencyNeverSatisfied"),
        ("afterok", depending.Known(), "AwaitsDependency"),
    ],
)
def test_a_dependency_is_on_a_job_that_slurm_knows_or_decided_here(
    kind: str, known: depending.Known, said: str
) -> None:
    try:
        found = depending.option({"other": kind}, {"other": known})
    except KeyFault as fault:
        found = fault.reason
    assert found.removeprefix("--dependency=") == said


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"script": "echo"}, "must begin with #!"),
        ({"partition": "batch --uid=0"}, "partition"),
        ({"partition": "--uid=0"}, "partition"),
        ({"name": "a\n#SBATCH --uid=0"}, "name"),
        ({"tasks": 0}, "at least 1"),
        ({"gpus": -1}, "at least 0"),
        ({"sources": {"../program": "x"}}, "cannot be a file name"),
        ({"sources": {"a": 1}}, "must be text"),
        ({"after": {"other": "afterok:1 --uid=0"}}, "must be one of"),
        ({"after": {UID: "afterok"}}, "must be one of"),
        ({"surprise": 1}, "unknown fields"),
    ],
)
def test_an_entry_that_cannot_be_meant_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(KeyFault, match=says):
        section().check_entry(UID, {**ENTRY, **change})
    section().check_entry(UID, ENTRY)


def test_a_shell_reads_values_back_as_they_are() -> None:
    values = {"A": "it's $HOME `id` \\ \" \n # end", "B": ""}
    script = f'set -a\n{folders.exports(values)}printf "%s|%s" "$A" "$B"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == f"{values['A']}|"


@pytest.mark.parametrize("blob", ["?", "e30", base64.b64encode(b"[1]").decode(), base64.b64encode(b"\xff").decode()])
def test_a_blob_that_is_none_is_refused(blob: str) -> None:
    with pytest.raises(KeyFault, match="blob is not base64"):
        jobs.values_of(blob)


@pytest.mark.parametrize(
    "values",
    [1, {"environment": {"A": "a\0b"}}, {"environment": {"A": "a\udcff"}}, {"files": {"a": "?"}}, {"files": {"a": 1}}],
)
def test_values_that_cannot_be_used_are_a_fault_of_their_own_job(values: Any) -> None:
    blob = base64.b64encode(json.dumps({UID: values, "other": {"environment": {"A": "x"}}}).encode()).decode()
    found = jobs.values_of(blob)
    fault = jobs.fault_in(found[UID])
    assert fault is not None
    assert fault.reason == "InvalidEntry"
    assert jobs.fault_in(found["other"]) is None


@pytest.mark.parametrize(
    ("content", "known"),
    [
        (json.dumps(NOTED), NOTED),
        ('{"id": "7; id", "owner": ["gpu"], "ended": "COMPLETED", "more": 1}', {}),
        ('{"id": true, "ended": {"code": "0:0"}}', {}),
        ('{"ended": {"state": "COMPLETED", "message": "\\ud800"}}', {}),
        ('{"ended": {"state": "COMPLETED", "id": 9223372036854775808}}', {}),
        ('{"ended": {"state": "COMPLETED", "tail": {"a": "b"}}}', {}),
        ("[1]", None),
        ("[" * 60_000, None),
        (json.dumps({"owner": "x" * folders.RECORD_BYTES}), None),
    ],
    ids=["ours", "other-types", "no-state", "no-text", "too-long", "nested-end", "a-list", "nested", "too-large"],
)  # fmt: skip
def test_a_record_says_what_a_record_may_say(tmp_path: Path, content: str, known: dict[str, Any] | None) -> None:
    folder = Path(folders.job_dir(str(tmp_path), UID))
    folder.mkdir(parents=True)
    (folder / "record.json").write_text(content)
    assert folders.record(str(tmp_path), UID) == known


@pytest.mark.parametrize("trick", ["link", "pipe", "folder"])
def test_a_record_is_a_file_of_its_own(tmp_path: Path, trick: str) -> None:
    """The program may put anything in its place: it is followed nowhere, and waited for by nobody."""
    folder, other = Path(folders.job_dir(str(tmp_path), UID)), tmp_path / "other"
    folder.mkdir(parents=True)
    other.write_text('{"id": 7}')
    made = {"link": lambda at: at.symlink_to(other), "pipe": os.mkfifo, "folder": Path.mkdir}
    made[trick](folder / "record.json")
    assert folders.record(str(tmp_path), UID) is None

"""The section slurm_jobs on a real Slurm: jobs come, end and go, once each, whatever is killed meanwhile."""

from __future__ import annotations

import pytest

from tests.integration.slurm.conftest import Jobs, Killed, entry, new_uid
from tests.support.waiting import until

LONG = "#!/bin/sh\nsleep 600\n"


def test_a_job_is_submitted_followed_and_removed(jobs: Jobs):
    uid = new_uid()
    outcome = entry("#!/bin/sh\ncat data/in.txt\npwd\necho said >&2\necho done > $MINIK8S_TERMINATION_LOG\nexit 3\n")
    outcome["sources"] = {"data/in.txt": "given\n"}
    result = jobs.run({uid: outcome})
    assert [step["action"] for step in result["steps"]] == ["submit"]
    assert result["status"][uid]["state"] == "PENDING"
    found = jobs.ended({uid: outcome}, uid)
    assert (found["state"], found["code"], found["message"]) == ("FAILED", "3:0", "done\n")
    assert jobs.read(uid) == found["tail"] == f"given\n{jobs.folder}/jobs/{uid}/work\nsaid\n"
    again = jobs.run({uid: outcome})
    assert (again["changed"], again["status"][uid]) == (False, found)
    assert jobs.run({})["steps"] == [{"action": "remove", "key": uid, "detail": "its folder"}]
    assert not jobs.run({})["changed"]


def test_what_is_not_declared_any_more_is_cancelled_and_others_jobs_are_left_alone(jobs: Jobs, slurm):
    uid, foreign = new_uid(), slurm.submit("sleep 600")
    marked = slurm.submit("sleep 600", "--job-name=minik8s-x", "--comment=minik8s:somebody-else:x:a/b")
    jobs.run({uid: entry(LONG)})
    preview = jobs.run({}, check=True)
    assert [step["action"] for step in preview["steps"]] == ["cancel"]
    assert jobs.state({uid: entry(LONG)}, uid)["state"] in {"PENDING", "RUNNING"}
    jobs.run({})
    until(lambda: not jobs.run({})["changed"])
    states = dict(line.split() for line in slurm.run(["squeue", "-h", "-t", "all", "-o", "%i %T"]).splitlines())
    assert states[foreign] in {"PENDING", "RUNNING"}
    assert states[marked] in {"PENDING", "RUNNING"}
    assert [states[one] for one in jobs.ids()] == ["CANCELLED"]


def test_values_are_in_closed_files_alone(jobs: Jobs, slurm):
    uid, value = new_uid(), "it's $HOME\n`secret`"
    values = {uid: {"environment": {"WORD": value}, "files": {"keys/one": "c2VjcmV0"}}}
    outcome = entry(
        '#!/bin/sh\nprintf %s "$WORD"; cat keys/one; stat -c %a keys/one ../environment .. | xargs\n', values="1"
    )
    missing = jobs.run({uid: outcome})
    assert missing["errors"][uid]["reason"] == "ValuesMissing"
    result = jobs.run({uid: outcome}, values=values)
    assert "secret" not in str(result)
    assert jobs.ended({uid: outcome}, uid)["tail"] == f"{value}secret600 600 700\n"
    assert "secret" not in slurm.run(["scontrol", "-o", "show", "job"])


@pytest.mark.parametrize("kill_at", [1, 2, 3, 4])
def test_a_pass_that_is_killed_submits_nothing_twice(jobs: Jobs, kill_at: int):
    uid = new_uid()
    result = entry("#!/bin/sh\necho ran >> $HOME/ran-$SLURM_JOB_NAME\n")
    with pytest.raises(Killed):  # before: the folder, sbatch, its id noted, the document
        jobs.run({uid: result}, kill_at=kill_at)
    assert jobs.ended({uid: result}, uid)["state"] == "COMPLETED"
    assert len(jobs.ids()) == 1
    assert jobs.slurm.run(["cat", f"/home/student/ran-minik8s-{uid}"]) == "ran\n"


def test_a_lost_answer_is_found_again_and_a_second_job_never_runs(jobs: Jobs, slurm):
    uid = new_uid()
    outcome = entry("#!/bin/sh\nsleep 600\n")
    jobs.run({uid: outcome})
    until(lambda: jobs.state({uid: outcome}, uid)["state"] == "RUNNING")
    first = jobs.ids()
    slurm.submit(
        "true", f"--job-name=minik8s-{uid}", f"--comment=minik8s:{jobs.owner}:{uid}:default/job", "-dsingleton"
    )
    result = jobs.run({uid: outcome})
    assert [step["detail"].split(", ")[1] for step in result["steps"]] == ["submitted twice"]
    until(lambda: not jobs.run({uid: outcome})["changed"])
    assert jobs.state({uid: outcome}, uid)["id"] == int(first[0])
    assert jobs.state({uid: outcome}, uid)["state"] == "RUNNING"


def test_slurm_says_why_a_job_waits_or_is_refused(jobs: Jobs):
    waits, refused, nowhere = new_uid(), new_uid(), new_uid()
    fields = {
        waits: entry(LONG, tasks=2, gpus=2, requeue=True),
        refused: entry(gpus=5),
        nowhere: entry(partition="none"),
    }
    fields |= {new_uid(): entry(LONG, gpus=2) for _ in range(2)}
    result = jobs.run(fields)
    assert result["errors"][refused]["reason"] == "SubmitFailed"
    assert "invalid partition" in result["errors"][nowhere]["message"]
    good = {uid: each for uid, each in fields.items() if uid not in {refused, nowhere}}
    until(lambda: [each["state"] for each in jobs.run(good)["status"].values()].count("RUNNING") == 2)
    until(lambda: {each.get("reason") for each in jobs.run(good)["status"].values()} & {"Resources", "Priority"})


def test_an_unreachable_controller_is_not_taken_for_missing_jobs(jobs: Jobs, slurm):
    uid = new_uid()
    outcome = entry(LONG)
    jobs.run({uid: outcome})
    until(lambda: jobs.state({uid: outcome}, uid)["state"] == "RUNNING")
    before = jobs.ids()
    slurm.controller_down()
    try:
        result = jobs.run({uid: outcome}, ask_s=3.0)
        assert "the state of jobs is unknown" in result["fault"]
    finally:
        slurm.controller_up()
    assert jobs.state({uid: outcome}, uid)["state"] == "RUNNING"
    assert jobs.ids() == before


def test_a_job_that_nobody_followed_is_told_from_the_file_of_completed_jobs(jobs: Jobs, slurm):
    uid, gone = new_uid(), new_uid()
    fields = {uid: entry("#!/bin/sh\nexit 4\n"), gone: entry(LONG)}
    jobs.run(fields)
    until(lambda: f"Name=minik8s-{uid} JobState=FAILED" in slurm.run(["cat", "/var/log/slurm/jobcomp.txt"]))
    slurm.controller_down(forgetting=True)
    slurm.controller_up()
    status = jobs.run(fields)["status"]
    assert (status[uid]["state"], status[uid]["code"]) == ("FAILED", "4:0")
    assert status[gone]["state"] == "LOST"
    assert not jobs.run(fields)["changed"]

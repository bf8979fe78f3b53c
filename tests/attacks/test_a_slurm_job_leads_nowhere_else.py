"""What a job leaves in its folder, and what a Pod says of itself, leads to no file and no command of others.

The attack: the module reads a job's last words and deletes its folder, and the program may put anything there: links to
files of others, a pipe that never ends, folders that are links. What a Pod is called becomes options of sbatch, its
variables a file that a shell reads, which then runs the site's command for images.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.slurm import folders
from minik8s_modules.virtual.contract import NoResources, new_pod
from minik8s_modules.virtual.errors import InvalidInput
from minik8s_modules.virtual.providers.slurm.entries import asked
from tests.integration.slurm.conftest import Jobs, entry, jobs, new_uid, slurm
from tests.support.servers.slurm import Slurm
from tests.support.servers.slurm_images import CHARLIECLOUD, IMAGE

__all__ = ["jobs", "slurm"]


@pytest.mark.parametrize(
    "trick",
    [
        'ln -s /home/student/secret "$MINIK8S_TERMINATION_LOG"',
        'mkfifo "$MINIK8S_TERMINATION_LOG"',
        'mkdir "$MINIK8S_TERMINATION_LOG"',
        "rm ../output; ln -s /home/student/secret ../output",
    ],
)
def test_last_words_are_the_job_s_own(jobs: Jobs, slurm: Slurm, trick: str) -> None:
    slurm.run(["sh", "-c", "echo of-somebody-else > /home/student/secret; chmod 644 /home/student/secret"])
    uid = new_uid()
    result = entry(f"#!/bin/sh\n{trick}\nexit 1\n")
    jobs.run({uid: result})
    found = jobs.ended({uid: result}, uid)
    assert found["state"] == "FAILED"
    assert "of-somebody-else" not in str(found)


def test_a_deleted_folder_takes_nothing_of_others_along(jobs: Jobs, slurm: Slurm) -> None:
    slurm.run(["sh", "-c", "mkdir -p /home/student/data && echo kept > /home/student/data/file"])
    slurm.run(["chown", "-R", "student", "/home/student/data"])
    uid = new_uid()
    result = entry("#!/bin/sh\nln -s /home/student/data link; cd ..; mv work aside; ln -s /home/student/data work\n")
    jobs.run({uid: result})
    jobs.ended({uid: result}, uid)
    jobs.run({})
    assert slurm.run(["cat", "/home/student/data/file"]) == "kept\n"
    assert uid not in slurm.run(["ls", f"{jobs.folder}/jobs"])


def test_a_program_that_says_it_ended_well_is_not_believed_before_slurm(jobs: Jobs) -> None:
    uid = new_uid()
    result = entry("#!/bin/sh\necho 0 > ../ended\nkill -9 $PPID\nsleep 5\n")
    jobs.run({uid: result})
    assert jobs.ended({uid: result}, uid)["state"] != "COMPLETED"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"name": "a/b\n#SBATCH --uid=0"}, "InvalidEntry"),
        ({"name": "a/b --uid=0"}, "InvalidEntry"),
        ({"partition": "batch --wrap=id"}, "InvalidEntry"),
        ({"sources": {"../../../.ssh/authorized_keys": "key"}}, "InvalidName"),
        ({"sources": {"/home/student/.profile": "id"}}, "InvalidName"),
    ],
)
def test_what_is_no_name_becomes_no_option_and_no_file(jobs: Jobs, change: dict[str, Any], reason: str) -> None:
    uid = new_uid()
    result = jobs.run({uid: entry(**change)})
    assert result["errors"][uid]["reason"] == reason
    assert jobs.ids() == []


def in_image(image: str, script: str) -> dict[str, Any]:
    """Return a Pod's job in an image, as the provider submits it."""
    container = {"name": "a", "image": image, "command": ["sh", "-c", script]}
    pod = new_pod("job", restartPolicy="Never", containers=[container])
    return {**asked(pod, "batch", NoResources(), CHARLIECLOUD).entry, "memory_mb": 10}


def test_a_program_in_an_image_sees_of_its_folder_only_what_is_its_own(jobs: Jobs, slurm: Slurm) -> None:
    """The job's script and environment beside its folder run outside of the container where Slurm requeues the job."""
    slurm.run(["sh", "-c", "echo of-the-user > /home/student/private; chown student /home/student/private"])
    uid = new_uid()
    attack = "ls -A ..; echo id > ../program; echo id > ../environment; cat /home/student/private; true"
    result = in_image(IMAGE, attack)
    jobs.run({uid: result})
    found = jobs.ended({uid: result}, uid)
    assert found["state"] == "COMPLETED", found
    assert found["tail"].splitlines()[0] == "work"
    assert "of-the-user" not in found["tail"]
    assert "ch-run" in jobs.read(uid, "program")
    assert jobs.read(uid, "environment") == ""


RUNTIME = """#!/bin/bash -p
env -0 > "$(dirname "$0")/outside"
shift  # the image
exec "$@"
"""
VARIABLES = {
    "PATH": "bin:/usr/bin:/bin", "LD_PRELOAD": "./src/x.so", "CDPATH": "{other}", "BASH_ENV": "./x", "IFS": "/",
    "PWD": "/", "APPTAINER_BIND": "/home", "SINGULARITY_BIND": "/home", "SLURM_CONF": "./x", "UID": "0",
    "MINIK8S_TERMINATION_LOG": "/etc/x", "CH_BIND": "/home", "WORD": "it's \"two\"\n $HOME lines `id`",
}  # fmt: skip


def ran_outside(folder: Path, variables: dict[str, str]) -> tuple[dict[str, str], str]:
    """Run a Pod's job in an image here, and return what variables the site's command had, and the job's output."""
    runtime = folder / "site" / "runtime"
    runtime.parent.mkdir(parents=True)
    runtime.write_text(RUNTIME)
    runtime.chmod(0o755)
    env = [{"name": name, "value": value} for name, value in variables.items()]
    container = {"name": "a", "image": "tools/x", "command": ["/usr/bin/env", "-0"], "env": env}
    pod = new_pod("job", restartPolicy="Never", containers=[container])
    entry, values = asked(pod, "batch", NoResources(), [str(runtime), "{image}"])
    job = folders.prepare(str(folder), "uid", {"sources": {}, **entry}, values, "a job")
    outer = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "1"}
    done = subprocess.run([f"{job}/job"], env=outer, capture_output=True, text=True, check=True, timeout=60)
    return of_env((runtime.parent / "outside").read_text()), done.stdout


def of_env(text: str) -> dict[str, str]:
    return dict(one.split("=", 1) for one in text.split("\0") if one)


def test_a_pods_variables_decide_nothing_outside_of_its_image(tmp_path: Path) -> None:
    """The shell and the site's command run there as the submitting user, with what the user may read and write."""
    (tmp_path / "others" / "work").mkdir(parents=True)
    variables = {name: value.format(other=tmp_path / "others") for name, value in VARIABLES.items()}
    bare, _ = ran_outside(tmp_path / "bare", {})
    outside, printed = ran_outside(tmp_path / "job", variables)
    place = {"PWD", "OLDPWD", "MINIK8S_TERMINATION_LOG", "_"}
    known = {name: value for name, value in outside.items() if not name.startswith("MINIK8S_ENV_")}
    assert known.keys() == bare.keys()
    assert all(known[name] == bare[name] for name in bare.keys() - place)
    assert known["PWD"] == f"{tmp_path}/job/jobs/uid/work"
    inside = of_env(printed)
    assert {name: inside[name] for name in variables.keys() - {"PWD", "UID"}} == {
        name: value for name, value in variables.items() if name not in {"PWD", "UID"}
    }
    assert not any(name.startswith("MINIK8S_ENV_") for name in inside)


@pytest.mark.parametrize("image", ["tools/../..", "tools/../../home/student", "tools/./busybox", "../etc", "/etc"])
def test_an_image_is_no_other_folder_of_the_compute_node(image: str) -> None:
    with pytest.raises(InvalidInput, match="image"):
        in_image(image, "true")


def test_an_annotation_writes_no_file_elsewhere() -> None:
    pod = new_pod(
        "job", restartPolicy="Never", containers=[{"name": "a", "image": "minik8s/host", "command": ["true"]}]
    )
    pod["metadata"]["annotations"] = {"slurm.minik8s.io/sources": '{"x": {"y": "z"}}'}
    with pytest.raises(InvalidInput):
        asked(pod, "batch", NoResources())


@pytest.mark.parametrize("message", ["9" * 5000, "-1", "1e3", "256", "\N{SUPERSCRIPT TWO}", ""])
def test_what_is_no_exit_code_breaks_no_pass(message: str, tmp_path: Path) -> None:
    folder = Path(folders.job_dir(str(tmp_path), "uid"))
    folder.mkdir(parents=True)
    (folder / "ended").write_text(message)
    assert folders.exit_code(str(tmp_path), "uid") is None


def test_an_exit_code_is_read_from_no_file_of_others(tmp_path: Path) -> None:
    folder = Path(folders.job_dir(str(tmp_path), "uid"))
    folder.mkdir(parents=True)
    (tmp_path / "pin").write_text("42")
    (folder / "ended").symlink_to(tmp_path / "pin")
    assert folders.exit_code(str(tmp_path), "uid") is None
    (folder / "ended").unlink()
    (folder / "ended").write_text("255\n")
    assert folders.exit_code(str(tmp_path), "uid") == 255

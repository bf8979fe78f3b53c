"""Jobs of the original: a Pod on the partition's node, its words as their result, and never a second run."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api.kinds import LEGACY_JOB, POD
from minik8s_modules.api.pods.slurm import GPU
from minik8s_modules.controllers.batch.original_jobs import decide_original_job, pod_of, script_of
from minik8s_modules.controllers.core.steps import Create, WriteStatus


def job(**status: Any) -> dict[str, Any]:
    spec = {
        "partition": "dgx2", "threadNum": 2, "taskPerNode": 1, "cpu_per_task": 6, "gpu-num": 1, "file": "result",
        "codePath": "/root/add.cu", "source": "int main",
    }  # fmt: skip
    metadata = {"name": "gpujob", "namespace": "default", "uid": "j"}
    return {"apiVersion": "v1", "kind": "Job", "metadata": metadata, "spec": spec, "status": status}


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "gpujob-x", "namespace": "default", "uid": "p"}, "status": status}


def test_it_gets_a_pod_with_what_it_asks_for():
    create, write = decide_original_job(job(), [])
    assert isinstance(create, Create)
    assert isinstance(write, WriteStatus)
    assert (create.kind, write.kind, write.status) == (POD, LEGACY_JOB, {"phase": "Pending"})
    container = create.obj["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"cpu": "12", GPU: "1"}
    assert create.obj["spec"]["nodeSelector"] == {"slurm.minik8s.io/partition": "dgx2"}
    assert create.obj["metadata"]["annotations"] == {
        "slurm.minik8s.io/sources": '{"add.cu":"int main"}',
        "slurm.minik8s.io/tasks": "2",
        "slurm.minik8s.io/tasks-per-node": "1",
    }


@pytest.mark.parametrize(
    ("found", "fields"),
    [
        ({}, {"phase": "Pending"}),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "message": "no such node"}]},
            {"phase": "Pending", "message": "no such node"},
        ),
        (
            {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"message": "job 17 is PENDING"}}}]},
            {"phase": "Pending", "message": "job 17 is PENDING"},
        ),
        ({"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}, {"phase": "Running"}),
        (
            {"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": {"message": "42\n"}}}]},
            {"phase": "Succeeded", "result": "42\n"},
        ),
        (
            {"phase": "Failed", "message": "job 17: FAILED",
             "containerStatuses": [{"state": {"terminated": {"message": "error"}}}]},
            {"phase": "Failed", "result": "error", "message": "job 17: FAILED"},
        ),
    ],
)  # fmt: skip
def test_its_status_is_its_pods(found: dict[str, Any], fields: dict[str, str]):
    (step,) = decide_original_job(job(phase="None yet"), [pod(**found)])
    assert isinstance(step, WriteStatus)
    assert step.status == fields
    assert decide_original_job(job(**fields), [pod(**found)]) == []


def test_one_that_has_ended_never_runs_again():
    assert decide_original_job(job(phase="Succeeded", result="42"), []) == []
    assert decide_original_job(job(phase="Failed"), []) == []


def run(folder: Path, name: str, source: str, text: str, **env: str) -> subprocess.CompletedProcess[str]:
    (folder / source).write_text(text)
    given = {"PATH": "/usr/bin:/bin", "MINIK8S_TERMINATION_LOG": str(folder / "log"), "HOSTNAME": "n1", **env}
    script = script_of(name, source, "result")
    return subprocess.run(["bash", "-c", script], cwd=folder, env=given, capture_output=True, text=True, check=False)


def test_its_script_keeps_what_the_program_prints(tmp_path: Path):
    done = run(tmp_path, "job", "a'b $x.sh", "echo out; echo err >&2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "out\n", "err\n")
    assert (tmp_path / "result.out").read_text() == (tmp_path / "log").read_text() == "out\n"
    assert (tmp_path / "result.err").read_text() == "err\n"


def test_a_program_that_fails_leaves_its_errors(tmp_path: Path):
    done = run(tmp_path, "job", "a.sh", "echo out; echo bad >&2; exit 3")
    assert (done.returncode, (tmp_path / "log").read_text()) == (3, "bad\n")


def test_cuda_is_compiled_by_nvcc_and_its_absence_is_said(tmp_path: Path):
    done = run(tmp_path, "gpujob", "add.cu", "int main() {}")
    assert done.returncode == 127
    assert "no nvcc on n1" in (tmp_path / "log").read_text()
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text('#!/bin/sh\nprintf "#!/bin/sh\\necho compiled $1\\n" > "$3"; chmod +x "$3"\n')
    nvcc.chmod(0o755)
    done = run(tmp_path, "gpujob", "add.cu", "int main() {}", PATH=f"{nvcc.parent}:/usr/bin:/bin")
    assert (done.returncode, done.stdout) == (0, "compiled ./add.cu\n")


def test_the_pod_needs_no_defaults_to_be_owned():
    reference = pod_of(job())["metadata"]["ownerReferences"][0]
    assert (reference["apiVersion"], reference["kind"], reference["uid"], reference["controller"]) == (
        "v1",
        "Job",
        "j",
        True,
    )

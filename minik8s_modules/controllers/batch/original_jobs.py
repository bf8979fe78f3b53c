"""Jobs of the original (``kind: Job`` of ``v1``): a program for a Slurm partition becomes a Pod of its virtual node.

    no Pod yet ─▶ one is made ─▶ its phase, and what it waits for, are the Job's ─▶ it has ended: so has the Job

The program is compiled and run by the job itself, ``.cu`` with nvcc. What it prints goes to the files ``<file>.out``
and ``<file>.err`` of the job's folder and to the Pod's log; its end is the Job's result. A Job that has ended is never
run again, whatever becomes of its Pod. The original's own Slurm script was never published (JOB-04); this is ours.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

import orjson

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import LEGACY_JOB, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.slurm import GPU, IMAGE, PARTITION, SOURCES, TASKS, TASKS_PER_NODE
from minik8s_modules.controllers.core.pods import has_ended, phase
from minik8s_modules.controllers.core.steps import POD_CREATED, Create, Step, WriteStatus, controller_reference
from minik8s_modules.controllers.core.workload import WorkloadController
from minik8s_modules.runtime.controller import Context

PROVIDER_TAINT = "virtual-kubelet.io/provider"
ENDED = frozenset({"Succeeded", "Failed"})
_COMPILERS = {".cu": "nvcc", ".c": "cc", ".cc": "c++", ".cpp": "c++", ".cxx": "c++"}
_INTERPRETERS = {".sh": "sh", ".py": "python3"}
_CUDA = """\
command -v nvcc >/dev/null || {{ [ -r /etc/profile ] && . /etc/profile; module load cuda; }} >/dev/null 2>&1
if ! command -v nvcc >/dev/null; then
  echo "no nvcc on $HOSTNAME: CUDA is not installed there, and there is no module cuda" > {file}.err
  tail -c 4096 {file}.err | tee "$MINIK8S_TERMINATION_LOG" >&2
  exit 127
fi
"""
_RUN = """\
{{ {steps}; }} > {file}.out 2> {file}.err
code=$?
cat {file}.out
cat {file}.err >&2
if [ $code = 0 ]; then tail -c 4096 {file}.out; else tail -c 4096 {file}.err; fi > "$MINIK8S_TERMINATION_LOG"
exit $code
"""


def decide_original_job(job: JsonObject, pods: Sequence[JsonObject]) -> list[Step]:
    """Return the next steps of a Job of the original that controls ``pods``."""
    before = objects.status(job)
    if before.get("phase") in ENDED or objects.is_deleting(job):
        return []
    pod = min(pods, key=lambda each: (not has_ended(each), objects.is_deleting(each), objects.name(each)), default=None)
    steps: list[Step] = [] if pod is not None else [Create(POD, pod_of(job), POD_CREATED)]
    status = {"phase": "Pending"} if pod is None else status_of(pod)
    return [*steps, WriteStatus(LEGACY_JOB, job, status)] if status != before else steps


def status_of(pod: JsonObject) -> JsonObject:
    """Return the status of a Job whose Pod this is."""
    state = (objects.dig(pod, "status", "containerStatuses", 0, "state") or {}) if objects.status(pod) else {}
    status: JsonObject = {"phase": phase(pod)}
    if has_ended(pod):
        terminated = state.get("terminated") or {}
        words = str(terminated.get("message") or "")
        why = str(objects.status(pod).get("message") or "")
        return {**status, **({"result": words} if words else {}), **_because(why)}
    waiting = state.get("waiting") or {}
    scheduled = objects.condition(pod, "PodScheduled") or {}
    unplaced = scheduled.get("message", "") if scheduled.get("status") == "False" else ""
    return {**status, **_because(str(waiting.get("message") or unplaced or ""))}


def _because(message: str) -> JsonObject:
    return {"message": message} if message else {}


def pod_of(job: JsonObject) -> JsonObject:
    """Return the Pod that runs a Job's program."""
    spec, name = objects.spec(job), objects.name(job)
    source = PurePosixPath(str(spec.get("codePath"))).name
    tasks = int(spec.get("threadNum") or 1)
    needs = {"cpu": str(tasks * int(spec.get("cpu_per_task") or 1))}
    if spec.get("gpu-num"):
        needs[GPU] = str(spec["gpu-num"])
    annotations = {SOURCES: orjson.dumps({source: spec.get("source", "")}).decode(), TASKS: str(tasks)}
    if spec.get("taskPerNode"):
        annotations[TASKS_PER_NODE] = str(spec["taskPerNode"])
    container = {
        "name": "job",
        "image": IMAGE,
        "command": ["bash", "-c", script_of(name, source, str(spec.get("file")))],
        "resources": {"requests": needs, "limits": needs},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    return {
        "apiVersion": POD.api_version,
        "kind": POD.kind,
        "metadata": {
            "generateName": f"{name}-",
            "namespace": objects.namespace(job),
            "labels": {"slurm.minik8s.io/job-name": name},
            "annotations": annotations,
            "ownerReferences": [controller_reference(LEGACY_JOB, job)],
        },
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": {PARTITION: str(spec.get("partition"))},
            "tolerations": [{"key": PROVIDER_TAINT, "operator": "Exists"}],
            "automountServiceAccountToken": False,
            "containers": [container],
        },
    }


def script_of(name: str, source: str, file: str) -> str:
    """Return the commands that compile a source and run it, as the original's report describes them."""
    suffix, quoted = PurePosixPath(source).suffix, shlex.quote(f"./{source}")
    outputs = shlex.quote(f"./{file}")
    if interpreter := _INTERPRETERS.get(suffix):
        steps = f"{interpreter} {quoted}"
    else:
        program = shlex.quote(f"./{name}")
        steps = f"{_COMPILERS.get(suffix, 'cc')} {quoted} -o {program} && {program}"
    before = _CUDA.format(file=outputs) if suffix == ".cu" else ""
    return before + _RUN.format(steps=steps, file=outputs)


class OriginalJobController(WorkloadController):
    """Runs Jobs of the original."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, LEGACY_JOB, (POD,), workers=1)

    def decide(self, obj: JsonObject) -> Sequence[Step]:
        """Return the next steps of one job."""
        return decide_original_job(obj, self.controlled(POD, obj))

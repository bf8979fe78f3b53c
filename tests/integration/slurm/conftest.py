"""A real Slurm for a module's tests, and one pass of the section ``slurm_jobs`` in it, which may be killed anywhere."""

from __future__ import annotations

import base64
import json
import subprocess
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from minik8s_modules.virtual.providers.reaching import chunks
from minik8s_modules.virtual.providers.slurm.login import LoginFault
from tests.support.servers.slurm import STUDENT, Slurm, running
from tests.support.waiting import until

# runs in there, as the user: the shared code as nodes have it, without Ansible around it
PASS = """
import json, os, signal, sys
sys.path.insert(0, "/repository/minik8s_modules/module_utils")
sys.dont_write_bytecode = True
from minik8s.core.faults import NodeFault
from minik8s.core.section import Request, context_for, run_pass
from minik8s.slurm.jobs import SlurmJobs, digest_of
from minik8s.slurm import queue
from minik8s.slurm.queue import Slurm
from minik8s.slurm.results import collect
asked = json.load(sys.stdin)
queue.ASK_S = asked["ask_s"]
left = [asked["kill_at"]]
def checkpoint(effect):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
request = Request(**asked["request"])
context = context_for(request, checkpoint=checkpoint, threads=4)
try:
    slurm = Slurm(completed="/var/log/slurm/jobcomp.txt")
    result = run_pass(SlurmJobs(slurm), request, context, check=asked["check"])
    if asked["partition"]:
        result["partition"] = slurm.partition(asked["partition"])
    if asked["results"]:
        result["result_files"] = collect(request.state_dir, asked["results"])
    print(json.dumps({**result, "seen": digest_of(result["status"]), "state_dir": request.state_dir}))
except NodeFault as fault:
    print(json.dumps({"fault": str(fault)}))
"""


class Killed(Exception):
    """The pass was killed where it was told to be."""


class Jobs:
    """Passes of one owner."""

    def __init__(self, slurm: Slurm, owner: str) -> None:
        self.slurm, self.owner = slurm, owner
        self.folder = f"/home/{STUDENT}/.minik8s/slurm/{owner}"

    def run(
        self,
        entries: dict[str, Any] | None = None,
        *,
        values: dict[str, Any] | None = None,
        kill_at: int = 0,
        check: bool = False,
        partition: str = "",
        results: dict[str, Any] | None = None,
        ask_s: float = 60.0,
        **more: Any,
    ) -> dict[str, Any]:
        """Run one pass and return its result.

        Raises:
            Killed: it was killed before its effect number ``kill_at``.
        """
        request: dict[str, Any] = {"node": self.owner, "state_dir": self.folder, "entries": entries, **more}
        if values is not None:
            request["blob"] = base64.b64encode(json.dumps(values).encode()).decode()
        more_asked = {"partition": partition, "results": results or {}, "ask_s": ask_s}
        asked = json.dumps({"request": request, "kill_at": kill_at, "check": check, **more_asked})
        argv = self.slurm.inside(["python3", "-c", PASS], STUDENT)
        done = subprocess.run(argv, input=asked, capture_output=True, text=True, check=False, timeout=120)
        if kill_at and done.returncode in {-9, 137}:
            raise Killed
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def state(self, entries: dict[str, Any], uid: str) -> dict[str, Any]:
        """Return what a pass tells of one job."""
        result = self.run(entries)
        assert not result["errors"], result["errors"]
        found: dict[str, Any] = result["status"][uid]
        return found

    def ended(self, entries: dict[str, Any], uid: str) -> dict[str, Any]:
        """Wait until a job has ended and return what is told of it."""
        found: dict[str, Any] = {}

        def has_ended() -> bool:
            found.clear()
            found.update(self.state(entries, uid))
            return "code" in found

        until(has_ended)
        return found

    def ids(self) -> list[str]:
        """Return the ids of all jobs of this owner that Slurm knows."""
        lines = self.slurm.run(["squeue", "-h", "-t", "all", "-o", "%i %k"]).splitlines()
        return [line.split()[0] for line in lines if f"minik8s:{self.owner}:" in line]

    def read(self, uid: str, name: str = "output") -> str:
        """Return a file of a job's folder."""
        return self.slurm.run(["cat", f"{self.folder}/jobs/{uid}/{name}"])


class InPlace:
    """A ``Login`` without Ansible and ssh, which take seconds to start."""

    def __init__(self, slurm: Slurm, owner: str) -> None:
        self.jobs = Jobs(slurm, owner)
        self.passes = 0

    def call(self, options: dict[str, Any]) -> dict[str, Any]:
        """Run one pass."""
        self.passes += 1
        ours = {"commands", "completed", "seen", "partition"}
        request = {name: value for name, value in options.items() if name not in ours}
        result = self.jobs.run(partition=options.get("partition") or "", **request)
        if "fault" in result:
            raise LoginFault(result["fault"])
        return result

    def read(self, path: str, lines: int, follow: Callable[[], bool] | None) -> Iterator[bytes]:
        """Yield the end of a file, and what comes."""
        more = ["-F"] if follow is not None else []
        argv = self.jobs.slurm.inside(
            ["timeout", "60", "tail", "-n", "+1" if lines < 0 else str(lines), *more, path], STUDENT
        )
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            yield from chunks(process, follow)
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:  # whoever ran in there may hold it open
                process.stdout.close()

    def close(self) -> None:
        """There is nothing to let go of."""


def entry(script: str = "#!/bin/sh\necho hello\n", **more: Any) -> dict[str, Any]:
    """Return an entry of a small job."""
    return {"name": "default/job", "partition": "batch", "script": script, "memory_mb": 10, **more}


def new_uid() -> str:
    """Return a key."""
    return str(uuid.uuid4())


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A Slurm of this module."""
    with running(tmp_path_factory.mktemp("slurm") / "machine") as found:
        yield found


@pytest.fixture
def jobs(slurm: Slurm) -> Iterator[Jobs]:
    """An owner of jobs that are cancelled at the end."""
    found = Jobs(slurm, f"node-{uuid.uuid4().hex[:8]}")
    yield found
    slurm.run(["bash", "-c", "scancel --user student; true"])

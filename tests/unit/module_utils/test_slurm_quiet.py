"""A pass of many jobs in which nothing has changed ends with Slurm's answer; one in which anything has does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core.paths import document_path
from minik8s_modules.module_utils.minik8s.core.section import Request, context_for, run_pass
from minik8s_modules.module_utils.minik8s.slurm import folders, quiet
from minik8s_modules.module_utils.minik8s.slurm.queue import Slurm

UIDS = [f"4ab1c2d3-0000-4000-8000-{number:012}" for number in range(3)]
Run = Callable[..., dict[str, Any]]


class Queue:
    """A squeue that prints a file."""

    def __init__(self, folder: Path) -> None:
        self.commands, self._file, self._asked = folder / "bin", folder / "queue", folder / "asked"
        self.commands.mkdir()
        program = self.commands / "squeue"
        program.write_text(f"#!/bin/sh\necho >>{self._asked}\nexec cat {self._file}\n")
        program.chmod(0o755)
        self.holds("PENDING", "RUNNING", "PENDING")

    def holds(self, *states: str, estimate: str = "N/A", started: str = "N/A", stray: str = "") -> None:
        """Have a job of each uid, in these states, and one that waits of the ``stray`` uid."""
        found = [*zip(UIDS, states, strict=False), *([(stray, "PENDING")] if stray else [])]
        lines = (
            f"{state}|N/A|{estimate if state == 'PENDING' else started}|{number}||2026-11-28T08:00:00|Resources"
            f"|minik8s-{uid}|minik8s:gpu:{uid}:default/job\n"
            for number, (uid, state) in enumerate(found, start=1)
        )
        self._file.write_text("".join(lines))

    def turned_round(self, others: str) -> None:
        """Have it print the same jobs from the last to the first, with lines of others."""
        self._file.write_text("".join([others, *reversed(self._file.read_text().splitlines(keepends=True))]))

    def asked(self) -> int:
        """Return how often it was asked until now."""
        return len(self._asked.read_text().splitlines())


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    return Queue(tmp_path)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def run(queue: Queue, state: Path) -> Run:
    """Return a function that passes with three jobs, which are in the queue and on record."""
    entry = {"name": "default/job", "partition": "batch", "script": "#!/bin/sh\n"}
    for number, uid in enumerate(UIDS, start=1):
        folders.note(str(state), uid, owner="gpu", id=number)
    slurm = Slurm(str(queue.commands))
    declaring = Request("gpu", state_dir=str(state), entries=dict.fromkeys(UIDS, entry))
    digest = quiet.run(slurm, declaring, context_for(declaring))["digest"]

    def once(seen: str = "", **options: Any) -> dict[str, Any]:
        changes = {name: options.pop(name) for name in ("upsert", "delete", "base") if name in options}
        changes.setdefault("base", digest)
        request = Request("gpu", mode="delta", state_dir=str(state), **changes)
        options.setdefault("whole", False)
        return quiet.run(slurm, request, context_for(request), seen=seen, **options)

    return once


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what grows with each pass that looks at jobs' folders, too."""
    made: list[str] = []

    def counted(*args: Any, **options: Any) -> dict[str, Any]:
        made.append("look")
        return run_pass(*args, **options)

    monkeypatch.setattr(quiet, "run_pass", counted)
    return made


def test_what_is_the_same_is_answered_at_once(run: Run, queue: Queue, looks: list[str]) -> None:
    first = run()
    assert len(first["status"]) == len(UIDS)
    looks.clear()
    queue.holds("PENDING", "RUNNING", "PENDING", estimate="2026-11-28T23:00:00")  # a guess of Slurm's, and no news
    again = run(first["seen"])
    assert not looks
    assert again.keys() == first.keys()
    assert (again["unchanged"], again["status"], again["digest"]) == (True, {}, first["digest"])


def test_a_job_that_changes_is_told_and_the_next_pass_is_quiet_again(run: Run, queue: Queue, looks: list[str]) -> None:
    first = run()
    queue.holds("RUNNING", "RUNNING", "PENDING")
    changed = run(first["seen"])
    assert (changed["unchanged"], changed["status"][UIDS[0]]["state"]) == (False, "RUNNING")
    looks.clear()
    assert run(changed["seen"])["unchanged"]
    assert not looks
    assert not run(first["seen"])["unchanged"]  # who has not seen it is told


@pytest.mark.parametrize(
    "options", [{}, {"whole": True}, {"check": True}, {"delete": UIDS[:1]}, {"base": "another"}], ids=str
)
def test_whoever_asks_for_more_has_it_looked_at(run: Run, looks: list[str], options: dict[str, Any]) -> None:
    seen = run()["seen"] if options else ""
    looks.clear()
    run(seen, **options)
    assert looks


def test_a_declared_set_that_somebody_wrote_is_looked_at(run: Run, state: Path, looks: list[str]) -> None:
    seen = run()["seen"]
    looks.clear()
    document = Path(document_path(str(state), "slurm_jobs"))
    document.write_text(document.read_text() + "\n")
    run(seen)
    assert looks


def test_a_job_that_nobody_knows_is_looked_for_each_time(run: Run, queue: Queue, looks: list[str]) -> None:
    queue.holds("PENDING", "RUNNING")
    lost = run()
    assert lost["status"][UIDS[2]]["state"] == "LOST"
    looks.clear()
    assert run(lost["seen"])["unchanged"]
    assert looks  # Slurm's file of completed jobs may tell of it later


def test_slurm_is_not_asked_twice_where_the_answer_alone_does_not_decide(run: Run, queue: Queue) -> None:
    seen = run()["seen"]
    before = queue.asked()
    run("another")
    assert queue.asked() == before + 1
    run(seen)  # the pass before has noted the same
    assert queue.asked() == before + 2


@pytest.mark.parametrize("noted", ["", "[]", "{}", '{"answer": 1}', "\0"])
def test_a_note_that_is_none_is_written_anew(run: Run, state: Path, looks: list[str], noted: str) -> None:
    seen = run()["seen"]
    (state / "quiet.json").write_text(noted)
    looks.clear()
    assert run(seen)["unchanged"]
    assert run(seen)["unchanged"]
    assert looks == ["look"]


def test_a_job_that_was_requeued_between_two_passes_is_told(run: Run, queue: Queue) -> None:
    first = run()
    queue.holds("PENDING", "RUNNING", "PENDING", started="2026-11-28T09:00:00")
    again = run(first["seen"])
    assert (again["unchanged"], again["status"][UIDS[1]]["started"]) == (False, "2026-11-28T09:00:00Z")


def test_an_answer_that_others_jobs_changed_is_the_same(run: Run, queue: Queue, looks: list[str]) -> None:
    """Nor does the order count: squeue's is that of priorities."""
    first = run()
    looks.clear()
    queue.turned_round("RUNNING|N/A|2026-11-28T09:00:00|77|n1|2026-11-28T08:00:00|None|a|b|minik8s-x|theirs\n")
    assert run(first["seen"])["unchanged"]
    assert not looks


def test_a_job_of_a_killed_pass_that_nobody_declares_is_cancelled(run: Run, queue: Queue) -> None:
    first = run()
    stray = "4ab1c2d3-0000-4000-8000-00000000000f"
    queue.holds("PENDING", "RUNNING", "PENDING", stray=stray)
    assert [step["action"] for step in run(first["seen"])["steps"]] == ["cancel"]

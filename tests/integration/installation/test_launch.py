"""``launch``: what an earlier, killed supervisor left running is stopped before the program starts again."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

LAUNCH = Path(__file__).resolve().parents[3] / "roles" / "service_manager" / "files" / "launch"
PROGRAM = ["/bin/sh", "-c", 'env >"$OUT"; id -un >>"$OUT"; exec sleep 1000']


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()


def launch(
    started: list[subprocess.Popen[bytes]],
    tmp_path: Path,
    user: str = "root",
    program: list[str] = PROGRAM,
    options: tuple[str, ...] = (),
) -> subprocess.Popen[bytes]:
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents[:2]:
        parent.chmod(parent.stat().st_mode | 0o055)  # it may be /tmp, which stays everybody's
    environment = {**os.environ, "MINIK8S_RUN_DIR": str(tmp_path), "LEAK": "from-supervisor"}
    argv = [str(LAUNCH), "test-daemon", user, "2", "group", *options, f"OUT={tmp_path}/out", *program]
    process = subprocess.Popen(argv, env=environment, process_group=0)
    started.append(process)
    return process


def wait_for(path: Path, words: str) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if path.exists() and words in path.read_text():
            return path.read_text()
        time.sleep(0.02)
    raise AssertionError(f"{path} never held {words!r}")


def is_running(pid: int) -> bool:
    """Return whether the process is there and no zombie (process 1 of a container may reap late)."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_nothing_runs_twice(started: list[subprocess.Popen[bytes]], tmp_path: Path) -> None:
    first = launch(started, tmp_path)
    wait_for(tmp_path / "out", "root")
    (tmp_path / "out").unlink()
    second = launch(started, tmp_path)
    wait_for(tmp_path / "out", "root")
    assert first.wait(timeout=60) == -signal.SIGTERM
    assert second.poll() is None


def test_what_does_not_end_is_killed(started: list[subprocess.Popen[bytes]], tmp_path: Path) -> None:
    deaf = ["/bin/sh", "-c", 'trap "" TERM; echo deaf >"$OUT"; while :; do sleep 0.1; done']
    first = launch(started, tmp_path, program=deaf)
    wait_for(tmp_path / "out", "deaf")
    launch(started, tmp_path)
    wait_for(tmp_path / "out", "root")
    assert first.wait(timeout=60) == -signal.SIGKILL


def test_children_of_a_killed_program_are_stopped(started: list[subprocess.Popen[bytes]], tmp_path: Path) -> None:
    parent = ["/bin/sh", "-c", 'sleep 1000 & echo "child $!" >"$OUT"; wait']
    first = launch(started, tmp_path, program=parent)
    child = int(wait_for(tmp_path / "out", "child").split()[1])
    first.kill()
    first.wait()
    assert is_running(child)
    launch(started, tmp_path)
    wait_for(tmp_path / "out", "root")
    assert not is_running(child)


def test_another_process_with_the_recorded_id_is_left_alone(
    started: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    bystander = subprocess.Popen(["sleep", "1000"])
    started.append(bystander)
    (tmp_path / "daemons").mkdir()
    (tmp_path / "daemons" / "test-daemon.pid").write_text(f"{bystander.pid} 1 1\n")
    launch(started, tmp_path)
    wait_for(tmp_path / "out", "root")
    assert bystander.poll() is None


def test_the_program_runs_as_its_user_and_sees_a_clean_environment(
    started: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    launch(started, tmp_path, user="nobody")
    text = wait_for(tmp_path / "out", "\nnobody\n")
    assert "LEAK" not in text
    assert "USER=nobody" in text


def test_root_prepares_the_start_of_a_program_without_rights(
    started: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    prepare = shlex.join(["sh", "-c", 'id -un >"$0"', f"{tmp_path}/a file"])
    launch(started, tmp_path, user="nobody", options=(f"--prepare={prepare}",))
    wait_for(tmp_path / "out", "\nnobody\n")
    assert (tmp_path / "a file").read_text() == "root\n"


def test_a_program_whose_preparation_fails_is_not_started(
    started: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    assert launch(started, tmp_path, options=("--prepare=exit 3",)).wait(timeout=60) == 3
    assert not (tmp_path / "out").exists()


def test_a_program_that_ends_at_once_is_started_once_a_second(
    started: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    begin = time.monotonic()
    for _ in range(3):
        assert launch(started, tmp_path, program=["/bin/true"]).wait(timeout=60) == 0
    assert time.monotonic() - begin >= 2

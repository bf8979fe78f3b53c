"""kubectl exec, attach and cp, over WebSocket and over SPDY."""

from __future__ import annotations

import os
import pty
import subprocess
import time
from pathlib import Path

import pytest

from tests.integration.streams.conftest import Streaming

PROTOCOLS = {"websocket": {}, "spdy": {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false"}}
pytestmark = pytest.mark.parametrize("env", PROTOCOLS.values(), ids=PROTOCOLS.keys())


@pytest.fixture(scope="module")
def shell(streaming: Streaming) -> str:
    streaming.pod("shell", "sleep 3600")
    return "shell"


def test_output_errors_and_exit_code(streaming: Streaming, shell: str, env: dict[str, str]) -> None:
    script = "echo out; echo err >&2; exit 7"
    done = streaming.kubectl("exec", shell, "--", "sh", "-c", script, env=env, check=False)
    assert done.stdout == "out\n"
    # kubectl 1.32 may read the message that says that the stream is there before it has made the stream
    written = [line for line in done.stderr.splitlines() if "Unknown stream id 1, discarding message" not in line]
    assert written == ["err", "command terminated with exit code 7"]
    assert done.returncode == 7


def test_stdin_reaches_the_process_and_ends(streaming: Streaming, shell: str, env: dict[str, str]) -> None:
    done = streaming.kubectl("exec", "-i", shell, "--", "wc", "-c", stdin="x" * 100_000, env=env)
    assert done.stdout.strip() == "100000"


def test_a_program_that_is_not_there(streaming: Streaming, shell: str, env: dict[str, str]) -> None:
    done = streaming.kubectl("exec", shell, "--", "/nope", env=env, check=False)
    assert done.returncode != 0
    assert "no such file or directory" in done.stdout + done.stderr


def test_a_container_that_does_not_run(streaming: Streaming, env: dict[str, str]) -> None:
    name = f"dead-{'spdy' if env else 'ws'}"
    pod = streaming.pod(name, "exit 3")
    streaming.until(lambda: not streaming.inspect(pod)["State"]["Running"])
    done = streaming.kubectl("exec", name, "--", "true", env=env, check=False)
    assert done.returncode == 1
    assert 'unable to upgrade connection: container not found ("app")' in done.stderr


def test_a_terminal_and_its_size(streaming: Streaming, shell: str, env: dict[str, str]) -> None:
    ours, theirs = pty.openpty()
    subprocess.run(["stty", "rows", "33", "cols", "99"], stdin=theirs, check=True)
    argv = streaming.server.kubectl_argv("exec", "-it", shell, "--", "sh")
    environment = {**os.environ, "HOME": str(streaming.folder), **env}
    process = subprocess.Popen(
        argv, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    os.close(theirs)
    result = b""
    try:
        time.sleep(1)
        os.write(ours, b"stty size; tty; exit 5\n")
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:
                break
            if not piece:
                break
            result += piece
        assert process.wait(60) == 5
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert b"33 99" in result
    assert b"/dev/pts/" in result


def test_cp_there_and_back(streaming: Streaming, shell: str, env: dict[str, str], tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    (tmp_path / "there").write_bytes(data)
    streaming.kubectl("cp", str(tmp_path / "there"), f"{shell}:/tmp/copy", env=env)
    streaming.kubectl("cp", f"{shell}:/tmp/copy", str(tmp_path / "back"), env=env)
    assert (tmp_path / "back").read_bytes() == data


def test_attach_joins_what_runs(streaming: Streaming, env: dict[str, str]) -> None:
    name = f"talker-{'spdy' if env else 'ws'}"
    streaming.pod(name, "while read line; do echo got $line; [ $line = end ] && exit 0; done", stdin=True)
    process = streaming.popen("attach", "-i", name, env=env)
    assert process.stdin is not None
    assert process.stdout is not None
    time.sleep(1)
    for line in (b"one", b"end"):
        process.stdin.write(line + b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"got " + line + b"\n"
    assert process.wait(60) == 0  # the stream ends with the container
    process.communicate()

"""How a reset without systemd starts Docker for other people's containers: what it takes for a limit, and what not.

The real tasks with other programs in the place of Docker's; tests/integration/lab has the script and a real Docker.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import UnixStreamServer
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
TASK = "Docker goes on for the containers of others"


class Docker(BaseHTTPRequestHandler):
    """Answers a ping, but not the first one."""

    asked = 0

    def do_GET(self) -> None:
        """Answer."""
        Docker.asked += 1
        self.send_response(200 if Docker.asked > 1 else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def address_string(self) -> str:
        """Return no address: a socket file has none."""
        return ""


@pytest.fixture
def docker(tmp_path: Path) -> Iterator[Path]:
    """The socket of a Docker that takes a moment to come."""
    Docker.asked = 0
    path = tmp_path / "docker.sock"
    with UnixStreamServer(str(path), Docker) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield path
        server.shutdown()
        thread.join()


def started(tmp_path: Path, socket: Path, error: str) -> tuple[int, str, bool]:
    """Start Docker where its service fails with ``error``; return code, words, and whether it was helped."""
    tasks = yaml.safe_load((ROOT / "roles/reset/tasks/docker.yml").read_text())
    (task,) = [each for each in tasks if each["name"] == TASK]
    starting: dict[str, Any] = task["block"][0]
    service, helped = starting["block"][0], starting["rescue"][-1]
    del service["ansible.builtin.sysvinit"]
    service["ansible.builtin.command"] = {"argv": ["sh", "-c", f"echo '{error}' >&2; exit 1"]}
    assert helped["ansible.builtin.command"]["argv"][0] == "start-stop-daemon"
    helped["ansible.builtin.command"]["argv"] = ["touch", str(tmp_path / "helped")]
    found = [{"stat": {"exists": number == 3}} for number in range(4)]
    variables = {
        "ansible_python_interpreter": "/usr/bin/python3",
        "minik8s_docker_socket": str(socket),
        "reset_docker": {"results": found},
        "reset_docker_foreign": {"json": [{"Id": "somebody's"}]},
    }
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "vars": variables, "tasks": [task]}
    book = tmp_path / "book.yml"
    book.write_text(yaml.safe_dump([play]))
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), book],
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return done.returncode, " ".join((done.stdout + done.stderr).split()), (tmp_path / "helped").exists()


def test_a_limit_that_may_not_be_raised_is_left_out_and_docker_is_waited_for(tmp_path: Path, docker: Path) -> None:
    error = "/etc/init.d/docker: 87: ulimit: error setting limit (Operation not permitted)"
    code, words, helped = started(tmp_path, docker, error)
    assert (code, helped, Docker.asked) == (0, True, 2), words


def test_what_else_keeps_docker_from_its_start_ends_the_reset_and_is_told(tmp_path: Path, docker: Path) -> None:
    code, words, helped = started(tmp_path, docker, "chgrp: invalid group: docker")
    assert (code, helped, Docker.asked) == (2, False, 0), words
    assert "chgrp: invalid group: docker. Mend that, start Docker (service docker start), and reset again." in words

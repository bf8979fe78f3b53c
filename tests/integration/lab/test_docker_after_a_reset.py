"""After a reset without systemd, Docker goes on for other people's containers, also where no limit may be raised."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml

from tests.lab.lab import Lab

REPOSITORY = Path(__file__).parents[3]
# as root in a container: fewer files than Debian's script asks for, and no right to more
CONFINED = """#!/bin/sh
ulimit -n 20000
export SYSTEMCTL_SKIP_REDIRECT=1
exec setpriv --bounding-set -sys_resource --inh-caps -sys_resource python3 "$@"
"""


def test_docker_starts_where_no_limit_may_be_raised(lab: Lab, tmp_path: Path) -> None:
    lab.up(1, "uml")
    (lab.folder / "share" / "confined").write_text(CONFINED)
    lab.run(
        "node1", ["sh", "-c", "install -m 755 /mnt/host/confined /usr/local/bin/; systemctl stop docker.socket docker"]
    )
    tasks = yaml.safe_load((REPOSITORY / "roles/reset/tasks/docker.yml").read_text())
    # the last one: a Docker of ours was there
    found = [{"stat": {"exists": number == 3}} for number in range(4)]
    play = {
        "hosts": "all",
        "gather_facts": False,
        "vars": {
            "ansible_python_interpreter": "/usr/local/bin/confined",
            "minik8s_docker_socket": "/var/run/docker.sock",
            "reset_docker": {"results": found},
            "reset_docker_foreign": {"json": [{"Id": "somebody's"}]},
        },
        "tasks": [task for task in tasks if task["name"] == "Docker goes on for the containers of others"],
    }
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    program = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [program, "-i", lab.inventory, tmp_path / "play.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "error setting limit" in done.stdout, "this machine refuses nothing, and shows nothing"
    assert "CONTAINER" in lab.run("node1", ["docker", "ps"], timeout_s=120)  # it was waited for
    # what Debian's script started, it ends
    lab.run("node1", ["env", "SYSTEMCTL_SKIP_REDIRECT=1", "/etc/init.d/docker", "stop"])

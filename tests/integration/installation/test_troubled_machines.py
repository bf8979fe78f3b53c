"""A machine that fails or becomes unreachable ends a run: what the other machines were to do after it is left undone.

Ansible counts an unreachable machine twice where ``any_errors_fatal`` is set, and therefore goes on with the next batch
and with the next play (``PlaybookExecutor.run``). A batch of one machine ends the run without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

PLAYBOOKS = Path(__file__).parents[3] / "playbooks"
KEYWORDS = ("any_errors_fatal", "max_fail_percentage", "serial")
LOCAL = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
TROUBLES = {
    "unreachable": {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1},
    "failed": {**LOCAL, "fails": True},
}


def endings() -> dict[str, dict[str, Any]]:
    """Return the plays that one machine ends for all, one of each way to say so, by their names."""
    found: dict[str, dict[str, Any]] = {}
    for file in sorted(PLAYBOOKS.glob("*.yml")):
        for play in yaml.safe_load(file.read_text()):
            how = {name: play[name] for name in KEYWORDS if name in play}
            if how and play["hosts"] != "localhost":
                hosts = "troubled" if play["hosts"] == "joining" else "troubled,here"  # others have all that follow
                found.setdefault(
                    str(how | {"hosts": hosts}), {"name": f"{file.name}: {play['name']}", "hosts": hosts, **how}
                )
    return {play["name"]: play for play in found.values()}


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("name", endings())
def test_a_troubled_machine_ends_the_run(name: str, trouble: str, tmp_path: Path) -> None:
    tasks = [
        {"ansible.builtin.assert": {"that": "fails is not defined"}},
        {"ansible.builtin.ping": {}},
        {"ansible.builtin.debug": {"msg": "went on with the play"}},
    ]
    first = {**endings()[name], "gather_facts": False, "tasks": tasks}
    following = {"hosts": "here", "gather_facts": False, "tasks": [{"ansible.builtin.debug": {"msg": "went on"}}]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([first, following]))
    hosts = {"troubled": TROUBLES[trouble], "here": LOCAL}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "-i", "hosts.yml", "play.yml"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "ANSIBLE_CONFIG"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"{trouble}=1" in done.stdout, done
    assert "went on" not in done.stdout, done.stdout
    assert done.returncode != 0

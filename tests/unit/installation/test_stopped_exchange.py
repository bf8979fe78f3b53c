"""An exchange of the authority that was stopped while one machine had ended it goes on, and no second one begins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PEM = "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n"
OLD, NEW = PEM.format("b2xk"), PEM.format("bmV3")


def machine(folder: Path, trusted: str) -> dict[str, str]:
    """Make the files of a machine of the control plane; return its variables."""
    (folder / "pki").mkdir(parents=True)
    (folder / "pki" / "ca.crt").write_text(trusted)
    (folder / "pki" / "ca.key").write_text("the key of the new one")
    return {"ansible_connection": "local", "minik8s_config_dir": str(folder)}


@pytest.fixture
def stopped(tmp_path: Path) -> dict[str, Path]:
    """One machine trusts the new authority alone already, the other one both still."""
    hosts = {"c1": machine(tmp_path / "c1", NEW), "c2": machine(tmp_path / "c2", NEW + OLD)}
    groups = {"control_plane": {"hosts": hosts}}
    interpreter = {"ansible_python_interpreter": sys.executable}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"vars": interpreter, "children": groups}}))
    return {name: tmp_path / name / "pki" for name in hosts}


def test_what_one_machine_has_ended_the_others_end_too(stopped: dict[str, Path], tmp_path: Path):
    role = {"ansible.builtin.include_role": {"name": "pki", "tasks_from": "exchange"}}
    plays = [
        {"hosts": "control_plane", "gather_facts": False, "vars": {"pki_phase": phase}, "tasks": [role]}
        for phase in ("prepare", "switch", "finish")
    ]
    (tmp_path / "play.json").write_text(json.dumps(plays))
    (tmp_path / "install").mkdir()
    (tmp_path / "install" / "venv").symlink_to(Path(sys.executable).parents[1])
    # what all roles share is not wanted on this machine
    given = {"minik8s_shared": True, "minik8s_service_manager": "systemd", "minik8s_install_dir": f"{tmp_path}/install"}
    argv = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "hosts.json", "-e", json.dumps(given)]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(
        [*argv, "play.json"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for folder in stopped.values():
        assert {path.name: path.read_text() for path in folder.iterdir()} == {
            "ca.crt": NEW,
            "ca.key": "the key of the new one",
        }

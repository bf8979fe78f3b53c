"""The role preflight on this machine: it tells every gap, of the inventory too, and stops all machines at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A play that marks each machine it reached after the preflight."""
    marked = {"ansible.builtin.file": {"path": f"{tmp_path}/{{{{ inventory_hostname }}}}", "state": "touch"}}
    head = {"hosts": "control_plane:nodes", "gather_facts": False}
    plays = [
        {**head, "any_errors_fatal": True, "roles": [{"role": str(ROOT / "roles/preflight")}]},
        {**head, "tasks": [marked]},
    ]
    path = tmp_path / "book.yml"
    path.write_text(yaml.safe_dump(plays))
    return path


def run(book: Path, *nodes: str, etcd: dict[str, None] | None = None, **variables: object) -> tuple[int, str, set[str]]:
    """Install nothing on machines that are all this one; return code, words, and the machines that were touched."""
    local = {"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3", **variables}
    control: dict[str, object] = {"vars": {"preflight_control_plane_ports": []}, "hosts": {"control1": None}}
    groups = {"control_plane": control, "nodes": {"hosts": dict.fromkeys(nodes)}}
    if etcd:
        groups["etcd"] = {"hosts": etcd}
    inventory = book.with_name("hosts.yml")
    inventory.write_text(yaml.safe_dump({"all": {"vars": local, "children": groups}}))
    argv = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(inventory), str(book)]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=120)
    touched = {path.name for path in book.parent.iterdir()} & {"control1", *nodes}
    return done.returncode, " ".join((done.stdout + done.stderr).split()), touched


def test_machines_that_will_do_are_let_through(book: Path) -> None:
    code, words, touched = run(book, "control1")
    assert (code, touched) == (0, {"control1"}), words


def test_a_name_that_no_node_can_have_stops_all_machines(book: Path) -> None:
    code, words, touched = run(book, "control1", "Worker_1")
    assert (code, touched) == (2, set())
    assert "'Worker_1'' is not a valid node name" in words.replace("''W", "'W")


def test_a_value_that_a_later_role_refuses_stops_all_machines(book: Path) -> None:
    code, words, touched = run(book, "control1", control_plane_drift="often", minik8s_cadvisor_port="x")
    assert (code, touched) == (2, set())
    assert "value of control_plane_drift must be one of: normal, fast, got: often" in words
    assert "argument 'minik8s_cadvisor_port' is of type str" in words


def test_an_even_number_of_members_of_etcd_stops_all_machines(book: Path) -> None:
    code, words, touched = run(book, "control1", etcd={"control1": None, "control2": None})
    assert (code, touched) == (2, set())
    assert "etcd would have 2 members (control1, control2), but needs an odd number" in words

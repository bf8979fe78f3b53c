"""What the control plane writes down of its nodes: those of a run are added, those that leave go, all others stay."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
KEY = "c3NoLWVkMjU1MTkgQUFBQSByb290"  # base64 of: ssh-ed25519 AAAA root
HOSTS = {"w9": {"ansible_host": "192.0.2.29", "ansible_port": 2222}, "w5": {"ansible_host": "192.0.2.25"}}
PINNED = [
    "# a comment",
    "[192.0.2.29]:2222 ssh-ed25519 A",
    "192.0.2.25 ssh-ed25519 B",
    "192.0.2.21 ssh-ed25519 OLD",
    "",
]
DEVICES = [{"resource": "devices.kubevirt.io/kvm", "path": "/dev/kvm", "count": 110}]
GIVEN = {
    "all": {
        "vars": {
            "ansible_user": "admin",
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_password": "secret",
            "minik8s_network_driver": "vxlan",
        },
        "children": {
            "control_plane": {"hosts": {"c1": {"ansible_connection": "local"}}},
            "nodes": {
                "hosts": {
                    "w1": {
                        "ansible_host": "192.0.2.21",
                        "node_access_host_key": {"content": KEY},
                        "minik8s_devices": DEVICES,
                    },
                    "w2": {"ansible_host": "192.0.2.22", "minik8s_cadvisor_port": 'odd: "{'},
                }
            },
        },
    }
}
TEMPLATES = ("hosts.yml.j2", "known_hosts.j2", "machines.yml.j2")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what the templates make when w1 joins and w9 leaves."""
    folder = tmp_path_factory.mktemp("known")
    tree = {"all": {"children": {"nodes": {"hosts": HOSTS}}}}
    variables = {
        "minik8s_config_dir": "/etc/minik8s",
        "minik8s_cadvisor_port": 0,
        "control_plane_joining": ["w1"],
        "control_plane_leaving": ["w9"],
        "control_plane_read": {"results": [{"content": "{{ tree | to_json | b64encode }}"}]},
        "control_plane_pinned": PINNED,
        "control_plane_machines": tree,
        "control_plane_options": "{{ ['minik8s_network_driver', 'minik8s_cadvisor_port'] + control_plane_ways }}",
        "tree": tree,
    }
    copy = {"content": f"{{{{ lookup('template', '{ROOT}/templates/' ~ item) }}}}", "dest": f"{folder}/{{{{ item }}}}"}
    task = {"ansible.builtin.copy": {**copy, "mode": "0600"}, "loop": [*TEMPLATES]}
    role = str(ROOT / "roles/control_plane/vars/main.yml")
    play = {"hosts": "c1", "gather_facts": False, "vars": variables, "vars_files": [role], "tasks": [task]}
    (folder / "inventory.yml").write_text(json.dumps(GIVEN), encoding="utf-8")
    (folder / "play.yml").write_text(json.dumps([play]), encoding="utf-8")
    argv = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "inventory.yml", "play.yml"]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: (folder / name).read_text(encoding="utf-8") for name in TEMPLATES}


def test_the_daemons_reach_who_joined_and_who_was_there(written: dict[str, str]):
    hosts = yaml.safe_load(written["hosts.yml.j2"])["all"]["children"]["nodes"]["hosts"]
    assert hosts.keys() == {"w1", "w5"}
    assert hosts["w5"] == HOSTS["w5"]
    assert hosts["w1"]["ansible_connection"] == "warm_ssh"
    assert hosts["w1"]["minik8s_devices"] == DEVICES
    assert hosts["w1"]["minik8s_known_hosts"] == "/etc/minik8s/inventory/known_hosts"


def test_host_keys_are_pinned_by_address(written: dict[str, str]):
    assert written["known_hosts.j2"].splitlines()[1:] == ["192.0.2.21 ssh-ed25519 AAAA", "192.0.2.25 ssh-ed25519 B"]


def test_machines_are_written_down_for_later_runs_without_passwords(written: dict[str, str]):
    groups = yaml.safe_load(written["machines.yml.j2"])["all"]["children"]
    assert groups["control_plane"]["hosts"]["c1"]["ansible_connection"] == "local"
    assert groups["nodes"]["hosts"].keys() == {"w1", "w5"}
    assert groups["nodes"]["hosts"]["w1"] == {
        "ansible_host": "192.0.2.21",
        "ansible_user": "admin",
        "ansible_python_interpreter": "/usr/bin/python3",
        "minik8s_network_driver": "vxlan",
    }
    assert "secret" not in written["machines.yml.j2"]

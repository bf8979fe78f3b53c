"""``minik8s init``: the folder that it writes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from minik8s_modules.base import release
from minik8s_modules.cli import initializing, main
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.initializing import inventory_text, machines_of


def test_a_folder_looks_like_a_checkout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["init", str(tmp_path)]) == 0
    assert release.is_whole(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} >= {"ansible.cfg", "library", "playbooks", "requirements.txt"}
    hosts = yaml.safe_load((tmp_path / "inventory/local/hosts.yml").read_text())["all"]["children"]
    assert hosts["control_plane"]["hosts"]["node1"]["ansible_connection"] == "warm_local"
    assert f"cd {tmp_path}\n" in capsys.readouterr().out


def test_a_second_time_the_inventory_stays_and_links_are_made_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main.main(["init", str(tmp_path)])
    hosts, roles = tmp_path / "inventory/local/hosts.yml", tmp_path / "roles"
    hosts.write_text("all: {}\n")
    roles.unlink()
    roles.symlink_to("/nowhere")
    assert main.main(["init", str(tmp_path)]) == 0
    assert hosts.read_text() == "all: {}\n"
    assert (roles / "preflight").is_dir()
    assert "hosts.yml stays as it is" in capsys.readouterr().out


def test_what_is_not_its_own_is_not_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "roles").mkdir()
    assert main.main(["init", str(tmp_path)]) == 1
    assert "roles is there already" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["roles"]


def test_machines_come_into_groups_and_one_may_be_in_both() -> None:
    control = machines_of("--control-plane", ["control1=admin@192.0.2.10"])
    nodes = machines_of("--node", ["control1=admin@192.0.2.10", "worker1=192.0.2.21"])
    found = yaml.safe_load(inventory_text(control, nodes, {"minik8s_mesh": "true"}))["all"]
    assert found["vars"] == {
        "ansible_python_interpreter": "/usr/bin/python3", "minik8s_network_driver": "vxlan", "minik8s_mesh": "true",
    }  # fmt: skip
    assert found["children"]["control_plane"]["hosts"] == {
        "control1": {"ansible_host": "192.0.2.10", "ansible_user": "admin"}
    }
    assert found["children"]["nodes"]["hosts"] == {"control1": {}, "worker1": {"ansible_host": "192.0.2.21"}}


def test_without_nodes_the_control_plane_has_them_and_a_given_driver_wins() -> None:
    control = machines_of("--control-plane", [f"control{at}=192.0.2.{at}" for at in (1, 2, 3)])
    found = yaml.safe_load(inventory_text(control, [], {"minik8s_network_driver": "cni"}))["all"]
    assert list(found["children"]["nodes"]["hosts"]) == ["control1", "control2", "control3"]
    assert found["vars"]["minik8s_network_driver"] == "cni"


@pytest.mark.parametrize("given", ["worker1", "=192.0.2.1", "worker1=", "Worker_1=192.0.2.1", "a=-oProxyCommand=x"])
def test_what_is_no_machine_is_refused(given: str) -> None:
    with pytest.raises(UsageError):
        machines_of("--node", [given])


def test_machines_that_are_no_cluster_are_refused() -> None:
    with pytest.raises(UsageError, match="names a twice"):
        machines_of("--node", ["a=192.0.2.1", "a=192.0.2.2"])
    with pytest.raises(UsageError, match="needs --control-plane"):
        inventory_text([], machines_of("--node", ["a=192.0.2.1"]), {})
    with pytest.raises(UsageError, match="a is two machines"):
        inventory_text(machines_of("-c", ["a=192.0.2.1"]), machines_of("-n", ["a=192.0.2.2"]), {})


def test_the_command_to_run_is_the_one_beside_this_interpreter(tmp_path: Path) -> None:
    told = initializing.told(tmp_path, "inventory/mine", kept=False, remote=True)
    assert told.splitlines()[-1].endswith("ansible-playbook -i inventory/mine playbooks/site.yml")

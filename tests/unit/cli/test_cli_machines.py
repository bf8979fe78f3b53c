"""``minik8s node``: what it makes of the command line, and what it says when that cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minik8s_modules.api.errors import ServiceUnavailable
from minik8s_modules.api.kinds import NODE, POD_CIDR
from minik8s_modules.cli import machines, main
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.machines import (
    Machine,
    NodeState,
    inventory_for,
    parse_machine,
    settings_of,
    verdict_of_adding,
    verdict_of_removing,
)
from minik8s_modules.client.fake import FakeApi


def test_a_machine_is_named_as_for_ssh():
    assert parse_machine("admin@192.0.2.23", "worker3", 22, "") == Machine("worker3", "192.0.2.23", "admin")
    assert parse_machine("worker4", "", 2222, "") == Machine("worker4", "worker4", "", 2222)


@pytest.mark.parametrize(
    "text", ["", "@host", "user@", "-oProxyCommand=x@host", "user@-host", "a b@host", "{{x}}@host"]
)
def test_what_is_no_machine_is_refused(text: str):
    with pytest.raises(UsageError, match="write USER@HOST"):
        parse_machine(text, "", 22, "")


def test_names_and_ports_and_keys_are_looked_at(tmp_path: Path):
    with pytest.raises(UsageError, match="--name Worker_3"):
        parse_machine("host", "Worker_3", 22, "")
    with pytest.raises(UsageError, match="--port must be"):
        parse_machine("host", "", 70000, "")
    with pytest.raises(UsageError, match="no such file"):
        parse_machine("host", "", 22, str(tmp_path / "missing"))
    key = tmp_path / "key"
    key.touch()
    assert parse_machine("host", "", 22, str(key)).key_file == str(key)


def test_the_inventory_of_a_machine_says_only_what_was_given():
    result = inventory_for(Machine("w3", "192.0.2.23", "admin"), {"minik8s_cadvisor_port": "4194"}, accept=False)
    assert result["all"]["children"]["nodes"]["hosts"] == {
        "w3": {
            "ansible_host": "192.0.2.23",
            "ansible_port": 22,
            "ansible_user": "admin",
            "ansible_python_interpreter": "/usr/bin/python3",
            "minik8s_cadvisor_port": "4194",
        }
    }
    trusting = inventory_for(Machine("w3", "192.0.2.23"), {}, accept=True)
    assert "accept-new" in str(trusting)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """Return the commands that were run, instead of running them; the inventory is ``tmp_path``."""
    (tmp_path / "hosts.yml").write_text("all: {}\n", encoding="utf-8")
    found: list[list[str]] = []

    def run(argv: list[str]) -> int:
        found.append(argv)
        return 0

    monkeypatch.setattr(machines, "_run", run)  # tests/machines/membership runs it for real
    return found


def test_add_runs_the_playbook_for_the_one_machine(ran: list[list[str]], tmp_path: Path):
    assert main.main(["node", "add", "admin@192.0.2.23", "--name", "w3", "-i", str(tmp_path), "--check"]) == 0
    (argv,) = ran
    assert Path(argv[0]).name == "ansible-playbook"
    assert argv[1:3] == ["-i", str(tmp_path)]
    assert argv[5].endswith("playbooks/node_add.yml")
    assert json.loads(argv[7]) == {"node": "w3"}
    assert argv[-1] == "--check"


KEPT = """\
all:
  children:
    control_plane:
      hosts:
        control1: {ansible_connection: local, ansible_user: admin, minik8s_offline: true, minik8s_shard: hall1,
                   minik8s_node_address: 192.0.2.10, coredns_forward: [192.0.2.1], coredns_program: /home/admin/coredns}
        control2: {minik8s_offline: false}
    nodes:
      hosts:
        worker1: {minik8s_cadvisor_port: 4194}
"""


def test_a_new_machine_gets_the_settings_of_the_control_plane_not_what_is_that_machines_own(tmp_path: Path):
    (tmp_path / "hosts.yml").write_text(KEPT, encoding="utf-8")
    assert settings_of(tmp_path) == {
        "minik8s_offline": True,
        "coredns_forward": ["192.0.2.1"],
        "coredns_program": "/home/admin/coredns",
    }


def test_on_the_control_plane_a_new_machine_gets_settings_and_programs_and_what_is_set_wins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "hosts.yml").write_text(KEPT, encoding="utf-8")
    (tmp_path / "coredns").touch()
    monkeypatch.setattr(machines, "MACHINES", tmp_path)
    kept = {"coredns_program": tmp_path / "coredns", "images_pause_program": tmp_path / "missing"}
    monkeypatch.setattr(machines, "PROGRAMS", kept)
    found: list[dict[str, object]] = []

    def run(argv: list[str]) -> int:
        found.append(json.loads(Path(argv[4]).read_text(encoding="utf-8")))
        return 0

    monkeypatch.setattr(machines, "_run", run)
    words = ["node", "add", "root@192.0.2.23", "--name", "w3", "--set", "minik8s_shard=far"]
    assert main.main([*words, "--set", "minik8s_offline=no"]) == 0
    assert main.main([*words, "-i", str(tmp_path)]) == 0
    here, elsewhere = (tree["all"]["children"]["nodes"]["hosts"]["w3"] for tree in found)  # type: ignore[index]
    ways = {"ansible_host", "ansible_port", "ansible_user", "ansible_python_interpreter"}
    assert {name: value for name, value in here.items() if name not in ways} == {
        "minik8s_offline": False,
        "minik8s_shard": "far",
        "coredns_forward": ["192.0.2.1"],
        "coredns_program": str(tmp_path / "coredns"),
    }
    assert elsewhere.keys() == {*ways, "minik8s_shard"}, "an inventory says by itself what its machines have in common"


def test_remove_passes_on_what_was_asked(ran: list[list[str]], tmp_path: Path):
    kubeconfig = ["--kubeconfig", str(tmp_path / "none")]
    assert main.main(["node", "remove", "w3", "--force", "--timeout", "9", "-i", str(tmp_path), *kubeconfig]) == 0
    (argv,) = ran
    assert argv[3].endswith("playbooks/node_remove.yml")
    assert json.loads(argv[5]) == {"node": "w3", "force": True, "drain_timeout": 9}


class Client(FakeApi):
    """Is connected."""

    def close(self) -> None:
        """Close the idle connections, of which there are none."""


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    """A cluster of twelve nodes, w01 to w12, and the range of addresses of one that was given up."""
    made = Client()
    for number in range(1, 13):
        made.create(NODE, {"metadata": {"name": f"w{number:02}"}})
    made.create(POD_CIDR, {"metadata": {"name": "10.244.3.0-24"}, "spec": {"nodeName": "given-up"}})
    monkeypatch.setattr(machines, "connect", lambda _options: made)
    return made


@pytest.mark.usefixtures("api")
def test_a_name_that_nothing_has_is_told_with_those_that_there_are(
    ran: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "hosts.yml").write_text(KEPT, encoding="utf-8")
    assert main.main(["node", "remove", "w3", "-i", str(tmp_path)]) == 1
    names = ", ".join(f"w{number:02}" for number in range(1, 11))
    told = f"there is no node w3: the cluster has {names} and 2 more (kubectl get nodes), and {tmp_path} has no such"
    assert told in capsys.readouterr().err
    assert ran == []
    assert main.main(["node", "remove", "w3", "--force", "-i", str(tmp_path)]) == 0  # the daemons alone may know it
    for name in ("w02", "given-up", "worker1"):  # a Node, what one has left, and a machine of the inventory
        assert main.main(["node", "remove", name, "-i", str(tmp_path)]) == 0
    assert [json.loads(argv[5])["node"] for argv in ran] == ["w3", "w02", "given-up", "worker1"]


def test_where_the_cluster_or_the_inventory_cannot_be_read_the_playbook_asks(
    api: FakeApi, ran: list[list[str]], tmp_path: Path
):
    (tmp_path / "hosts.yml").write_text("$ANSIBLE_VAULT;1.1;AES256\n00\n", encoding="utf-8")
    assert main.main(["node", "remove", "w3", "-i", str(tmp_path)]) == 0
    (tmp_path / "hosts.yml").write_text(KEPT, encoding="utf-8")
    api.fail(ServiceUnavailable("no etcd"))
    assert main.main(["node", "remove", "w3", "-i", str(tmp_path)]) == 0
    assert len(ran) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["node", "remove", "W_3"], "not the name of a node"),
        (["node", "remove", "w3", "--timeout", "0"], "--timeout"),
        (["node", "remove", "w3", "-i", "/nonexistent"], "no such inventory"),
        (["node", "add", "host", "-i", "/nonexistent"], "no such inventory"),
    ],
)
def test_errors_say_what_to_do(words: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    assert main.main(words) == 1
    assert message in capsys.readouterr().err


def test_without_an_inventory_it_says_where_to_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(machines, "MACHINES", tmp_path / "machines")
    with pytest.raises(UsageError, match="on a machine of the control plane as root"):
        machines.inventory_of("")


@pytest.mark.parametrize(
    ("code", "state", "status", "words"),
    [
        (0, "", 0, ""),
        (2, "absent", 1, "w3 was not added; run the same command again"),
        (4, "NotReady", 1, "w3 was not added; run the same command again"),
        (4, "", 1, "w3 was not added"),
        (4, "Ready", 0, "w3 is a node and Ready; run the same command again when the unreachable machine answers"),
        (2, "Ready", 1, "w3 is Ready, but a task failed"),
        (6, "Ready", 1, "w3 is Ready, but a task failed"),
    ],
)
def test_whether_a_machine_was_added_is_what_the_cluster_says(
    code: int, state: NodeState, status: int, words: str
) -> None:
    verdict = verdict_of_adding("w3", code, state)
    assert verdict.status == status
    assert verdict.words.startswith(words)
    assert bool(verdict.words) == bool(words)


@pytest.mark.parametrize(
    ("code", "state", "status", "words"),
    [
        (0, "", 0, ""),
        (4, "Ready", 1, "w3 was not removed; the same command goes on"),
        (4, "", 1, "w3 was not removed"),
        (4, "absent", 0, "w3 is removed; run the same command again when the unreachable machine answers"),
        (2, "absent", 1, "there is no node w3, but a task failed"),
    ],
)
def test_whether_a_node_was_removed_is_what_the_cluster_says(
    code: int, state: NodeState, status: int, words: str
) -> None:
    verdict = verdict_of_removing("w3", code, state)
    assert verdict.status == status
    assert verdict.words.startswith(words)
    assert bool(verdict.words) == bool(words)


def test_the_api_is_asked_after_a_playbook_that_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """What cannot be asked is no success."""
    (tmp_path / "hosts.yml").write_text("all: {}\n", encoding="utf-8")
    monkeypatch.setattr(machines, "_run", lambda _argv: 4)
    asked: list[str] = []

    def state(name: str, options: object) -> str:
        asked.append(name)
        return "Ready"

    kubeconfig = ["--kubeconfig", str(tmp_path / "none")]
    add = ["node", "add", "root@192.0.2.23", "--name", "w3", "-i", str(tmp_path), *kubeconfig]
    assert main.main(add) == 1
    assert "w3 was not added" in capsys.readouterr().err
    monkeypatch.setattr(machines, "_state", state)
    assert main.main(add) == 0
    assert main.main(["node", "remove", "w3", "-i", str(tmp_path), *kubeconfig]) == 1
    assert asked == ["w3", "w3"]

"""The plain path: all sections through ansible-playbook, as a person runs them; and the facts of this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from minik8s_modules.module_utils.minik8s.core.docker import Docker
from minik8s_modules.module_utils.minik8s.install.facts import gather, parse_memory_bytes, parse_os_release
from tests.integration.library.test_containers_docker import as_blob
from tests.support.node import SOCKET, TestNode

REPOSITORY = Path(__file__).parents[3]
CANARY = "canary-c0ffee42"
ORDER = ("network", "secrets", "volumes", "sandboxes", "containers")


def play(tmp_path: Path, tasks: list[dict[str, Any]], *options: str) -> tuple[list[dict[str, Any]], str]:
    """Run tasks by ansible-playbook; return their results and everything it printed, at the highest verbosity."""
    book = tmp_path / "play.yml"
    head = {"hosts": "localhost", "connection": "local", "gather_facts": False}
    book.write_text(json.dumps([{**head, "tasks": tasks}]))
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"),
        "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
        "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
        "ANSIBLE_NOCOLOR": "1",
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    program = str(Path(sys.executable).parent / "ansible-playbook")
    argv = [
        program,
        "-i",
        "localhost,",
        "-e",
        "ansible_python_interpreter=/usr/bin/python3",
        "-vvv",
        *options,
        str(book),
    ]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    results = []
    for part in done.stdout.split("=> ")[1:]:
        try:
            results.append(json.JSONDecoder().raw_decode(part)[0])
        except ValueError:
            continue
    return results, printed


def sections(node: TestNode) -> dict[str, dict[str, Any]]:
    """Return one pod with a secret, a volume and a string Ansible would love to template."""
    pod = node.pod(7)
    uid = pod["pod"]["uid"]
    mount = {"volume": "s", "kind": "secret", "target": "/s"}
    secret_env = [["PASSWORD", "default/db", "p", "a"]]
    env = [["LITERAL", "plain"]]
    app = node.container(pod, mounts=[mount], secret_env=secret_env, env=env)
    volume = {"kind": "secret", "secret": "default/db", "hmac": "a", "items": {"p": {"key": "p", "mode": 256}}}
    return {
        "network": {"entries": node.network()},
        "secrets": {
            "entries": {"default/db": {"hmac": "a", "keys": ["p"]}},
            "blob": as_blob({"default/db": {"p": CANARY}}),
        },
        "volumes": {"entries": {f"{uid}/s": volume}},
        "sandboxes": {"entries": {uid: pod}},
        "containers": {"entries": {f"{uid}/app": app}},
    }


def tasks_of(node: TestNode, options: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one task a section."""
    common = {"node": node.name, "state_dir": node.state_dir, "run_dir": node.run_dir, "docker_socket": SOCKET}
    return [
        {"name": section, f"minik8s_{section}": {**common, **options[section]}}
        for section in ORDER
        if section in options
    ]


def test_a_person_gets_the_same_pod_and_sees_no_secret(node: TestNode, tmp_path: Path) -> None:
    tasks = tasks_of(node, sections(node))
    _, planned = play(tmp_path, tasks, "--check", "--diff")
    assert not Path(node.state_dir).exists()
    assert node.ids() == []
    done, printed = play(tmp_path, tasks, "--diff")
    assert [result["section"] for result in done] == list(ORDER)
    assert [result["changed"] for result in done] == [True] * len(ORDER)
    assert [result["errors"] for result in done] == [{}] * len(ORDER)
    (status,) = done[-1]["status"].values()
    assert node.execute(status["id"], "cat", "/s/p") == CANARY
    again, third = play(tmp_path, tasks, "--diff")
    assert [result["changed"] for result in again] == [False] * len(ORDER)
    for text in (planned, printed, third):
        assert CANARY not in text
    assert "image: minik8s/busybox:1" in printed
    empty: dict[str, dict[str, Any]] = {section: {"entries": {}} for section in ORDER}
    play(tmp_path, [*tasks_of(node, {"containers": empty["containers"]}), *tasks_of(node, empty)])
    assert not any(node.traces().values())


def test_one_call_realizes_several_sections_and_tells_no_secret(node: TestNode, tmp_path: Path) -> None:
    wanted = {task["name"]: task[f"minik8s_{task['name']}"] for task in tasks_of(node, sections(node))}
    blob = wanted["secrets"].pop("blob")
    task = {"name": "all", "minik8s_sections": {"sections": wanted, "blob": blob}}
    (planned,), first = play(tmp_path, [task], "--check", "--diff")
    assert (planned["changed"], node.ids()) == (True, [])
    (done,), second = play(tmp_path, [task])
    assert set(done["sections"]) == set(ORDER)
    assert [one["errors"] for one in done["sections"].values()] == [{}] * len(ORDER)
    (status,) = done["sections"]["containers"]["status"].values()
    assert node.execute(status["id"], "cat", "/s/p") == CANARY
    (again,), third = play(tmp_path, [task])
    assert again["changed"] is False
    for text in (first, second, third):
        assert CANARY not in text
        assert blob not in text
    empty = {name: {**options, "entries": {}} for name, options in wanted.items()}
    for names in (("containers",), ORDER):
        play(tmp_path, [{**task, "minik8s_sections": {"sections": {name: empty[name] for name in names}}}])
    assert not any(node.traces().values())


def test_a_section_that_fails_ends_the_call_and_what_came_before_is_told(node: TestNode, tmp_path: Path) -> None:
    common = {"node": node.name, "state_dir": node.state_dir, "run_dir": node.run_dir, "entries": {}}
    for options, word in (
        ({"docker_socket": "/nonexistent"}, "docker does not answer on /nonexistent"),
        ({"mode": "delta"}, "mode is delta but all of the following are missing: base"),
        ({"other": {}}, "options that cannot be used: other. Supported parameters include"),
        ({"entries": "text"}, "entries"),
    ):
        wanted = {"folders": common, "containers": {**common, **options}, "dns": common}
        task = {"name": "wrong", "minik8s_sections": {"sections": wanted}, "ignore_errors": True}
        (result,), _ = play(tmp_path, [task])
        assert result["msg"].startswith("minik8s_containers: "), result
        assert word in result["msg"]
        assert list(result["sections"]) == ["folders"]
    unusable: tuple[tuple[dict[str, Any], str], ...] = (
        ({"pods": common}, "section pods is none of"),
        ({"folders": []}, "no dictionary"),
    )
    for given, word in unusable:
        (result,), _ = play(tmp_path, [{"name": "w", "minik8s_sections": {"sections": given}, "ignore_errors": True}])
        assert word in result["msg"]


def test_wrong_options_and_a_dead_docker_fail_with_a_reason(node: TestNode, tmp_path: Path) -> None:
    for options, word in (
        ({}, "mode is full but all of the following are missing: entries"),
        ({"mode": "delta"}, "mode is delta but all of the following are missing: base"),
        ({"entries": {}, "docker_socket": "/nonexistent"}, "docker does not answer on /nonexistent"),
    ):
        task = {"name": "wrong", "minik8s_containers": {"node": node.name, "state_dir": node.state_dir, **options}}
        results, _ = play(tmp_path, [{**task, "ignore_errors": True}])
        assert word in results[0]["msg"]


def test_the_facts_tell_the_machine_and_where_the_node_stands(node: TestNode, tmp_path: Path) -> None:
    node.run("volumes", {}, token=[3, 14])
    options = {"state_dir": node.state_dir, "docker_socket": SOCKET}
    results, _ = play(tmp_path, [{"name": "facts", "minik8s_facts": options}])
    facts = results[0]["facts"]
    assert facts["cpus"] == os.cpu_count()
    assert facts["disk_bytes"] == shutil.disk_usage(facts["docker_root"]).total
    assert facts["memory_bytes"] == parse_memory_bytes(Path("/proc/meminfo").read_text())
    assert facts["container_runtime_version"] == "docker://" + facts["docker_version"]
    assert (facts["token"], facts["epoch"]) == ([3, 14], 3)
    assert facts["digests"]["volumes"] == node.run("volumes", {})["digest"]
    assert facts["digests"]["network"] is None
    assert facts["internal_ip"] in {each["ip"] for each in facts["addresses"]}
    assert len(facts["machine_id"]) == 32
    assert facts["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_a_machine_without_an_id_keeps_the_one_it_is_given(tmp_path: Path) -> None:
    docker = Docker("/nonexistent.sock")
    first = gather(str(tmp_path), docker)
    assert gather(str(tmp_path), docker)["machine_id"] == first["machine_id"]
    assert "does not answer" in first["docker_error"]


def test_the_os_name_is_read_without_its_quotes() -> None:
    assert (
        parse_os_release('NAME="X"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n') == "Debian GNU/Linux 12 (bookworm)"
    )
    assert parse_os_release("NAME=Alpine") == "Alpine"
    assert parse_os_release("") == ""

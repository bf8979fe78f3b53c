"""The provider ``ansible`` with Ansible itself, on hosts that are this machine by a local connection."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api.pods.slurm import IMAGE
from minik8s_modules.api.pods.units import CHECK, HOSTS, ROLE
from minik8s_modules.virtual.contract import NoResources, new_pod
from minik8s_modules.virtual.provider import ContainerLogOptions, InitConfig, Provider
from minik8s_modules.virtual.providers.ansible_runs.provider import make
from tests.support.waiting import until

PATIENCE_S = 180.0
TASKS = [
    {
        "name": "The greeting is there",
        "ansible.builtin.copy": {
            "content": "{{ minik8s_pod.env.GREETING }}\n",
            "dest": "{{ root }}/{{ inventory_hostname }}",
            "mode": "0644",
        },
    },
    {
        "name": "The Pod is content",
        "ansible.builtin.assert": {"that": ["minik8s_pod.env.GREETING != 'bad'"]},
    },
]


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[Provider]:
    tasks = tmp_path / "roles" / "greeting" / "tasks" / "main.yml"
    tasks.parent.mkdir(parents=True)
    tasks.write_text(yaml.safe_dump(TASKS))
    host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "root": str(tmp_path)}
    hosts = {name: dict(host) for name in ("one", "two")}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"web": {"hosts": hosts}}))
    said = {"inventory": "hosts.yml", "group": "web", "roles": "roles"}
    config = InitConfig(
        "web", NoResources(), said, config_path=str(tmp_path / "web.yml"), state_dir=str(tmp_path / "state")
    )
    made = make(config)
    yield made
    made.close()


def run(provider: Provider, name: str, greeting: str, **annotations: str) -> tuple[int, str]:
    """Have a Pod run to its end; return its exit code and what it printed."""
    container = {"name": "app", "image": IMAGE, "env": [{"name": "GREETING", "value": greeting}]}
    pod: dict[str, Any] = new_pod(name, restartPolicy="Never", containers=[container])
    pod["metadata"]["annotations"] = {ROLE: "greeting", **annotations}
    provider.create_pod(pod)
    state: dict[str, Any] = until(lambda: _terminated(provider, name), PATIENCE_S)
    told = b"".join(provider.get_container_logs("default", name, "app", ContainerLogOptions())).decode()
    return int(state["exitCode"]), told


def _terminated(provider: Provider, name: str) -> dict[str, Any] | None:
    found: dict[str, Any] = provider.get_pod_status("default", name)["containerStatuses"][0]["state"]
    return found.get("terminated")


def test_a_pod_is_checked_run_and_its_words_are_no_template(provider: Provider, tmp_path: Path) -> None:
    """In check mode the diff is in its log and nothing is changed; then each host has it, word for word."""
    words = "{{ lookup('pipe', 'touch " + str(tmp_path / "attacked") + "') }}"
    code, told = run(provider, "checked", words, **{CHECK: "true", HOSTS: "two"})
    assert (code, f"+{words}" in told) == (0, True), told
    assert not (tmp_path / "two").exists()
    code, told = run(provider, "done", words)
    assert code == 0, told
    assert [(tmp_path / name).read_text() for name in ("one", "two")] == [f"{words}\n"] * 2
    assert not (tmp_path / "attacked").exists()


def test_a_run_that_fails_is_a_failed_pod(provider: Provider) -> None:
    code, told = run(provider, "sad", "bad", **{HOSTS: "one"})
    assert code == 2, told
    assert provider.get_pod_status("default", "sad")["phase"] == "Failed"
    assert "Assertion failed" in told

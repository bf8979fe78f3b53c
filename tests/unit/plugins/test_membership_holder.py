"""What a controller knows of the runs of playbooks on it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

PLUGIN = Path(__file__).parents[3] / "minik8s_modules" / "plugins" / "action" / "minik8s_membership_lock.py"


@pytest.fixture(scope="module")
def plugin() -> ModuleType:
    spec = importlib.util.spec_from_file_location("membership_holder", PLUGIN)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_a_run_has_not_ended_while_its_process_lives(plugin: ModuleType):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        holder = {"controller": plugin.controller(), "pid": process.pid, "started": plugin.started(process.pid)}
        assert not plugin.has_ended(holder)
        # a later process with the same number is another one
        assert plugin.has_ended({**holder, "started": "1"})
        process.kill()
    assert plugin.has_ended(holder)


def test_nothing_is_known_of_runs_on_other_machines(plugin: ModuleType):
    holder = {"controller": "another boot", "pid": 2**22 + 1, "started": "1"}
    assert not plugin.has_ended(holder)


def test_all_tasks_of_a_run_have_one_holder_and_two_runs_have_two(plugin: ModuleType):
    first = plugin.asker()
    assert first == plugin.asker()
    assert first["pid"] == os.getppid()
    code = (
        f"import importlib.util as u; s = u.spec_from_file_location('m', {str(PLUGIN)!r}); m = u.module_from_spec(s); "
        "s.loader.exec_module(m); print(m.asker()['id'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() != first["id"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-i", "inventory/mine/hosts.yml", "playbooks/site.yml", "-e", "@values.yml"], "site.yml"),
        (["own.yml", "-i", "hosts"], "own.yml"),
        (["-i", "hosts"], "ansible-playbook"),
    ],
)
def test_a_run_is_told_by_its_playbook(
    plugin: ModuleType, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/ansible-playbook", *words])
    assert plugin._playbook() == message

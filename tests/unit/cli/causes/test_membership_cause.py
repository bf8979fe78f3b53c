"""``why`` names the playbook that holds the membership lock, or has left it."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.cli.causes.membership import lock_faults
from minik8s_modules.module_utils.minik8s.install.membership_lock import Place, machine_now, take
from minik8s_modules.plugins.action.minik8s_membership_lock import controller, started


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "membership.json"


def held(lock: Path, lasts_s: float = 1800, **holder: Any) -> None:
    """Have the lock be taken as the module takes it, by this process unless ``holder`` says otherwise."""
    pid = os.getpid()
    own = {"host": socket.gethostname(), "controller": controller(), "pid": pid, "started": started(pid)}
    fields = {**own, "id": "5c0f2a91d3e4", "user": "root", "playbook": "site.yml", **holder}
    place = Place(str(lock))
    with place.alone() as descriptor:
        place.write(descriptor, take(None, fields, lasts_s, "", machine_now()).claim)


def test_a_playbook_that_runs_is_named(lock: Path) -> None:
    held(lock)
    (fault,) = lock_faults(lock)
    assert fault.cause.startswith(f"root@{socket.gethostname()} runs site.yml (process {os.getpid()}) since 2")
    assert fault.cause.endswith("if that has ended, -e membership_lock_break=5c0f2a91d3e4 frees the lock")
    assert fault.next == f"ps -fp {os.getpid()}"


def test_one_of_another_machine_is_looked_for_there(lock: Path) -> None:
    held(lock, host="admin1", controller="another boot pid:[1]", pid=4711)
    (fault,) = lock_faults(lock)
    assert "root@admin1 runs site.yml (process 4711)" in fault.cause
    assert fault.next == "ssh admin1 ps -fp 4711"


@pytest.mark.parametrize("reused", [False, True])
def test_one_that_has_ended_has_left_the_lock(lock: Path, *, reused: bool) -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    held(lock, **({"started": "1"} if reused else {"pid": process.pid}))
    (fault,) = lock_faults(lock)
    assert "has ended and left the membership lock" in fault.cause
    assert fault.next == "ansible-playbook playbooks/site.yml -e membership_lock_break=5c0f2a91d3e4"


def test_a_lock_that_nobody_holds_is_not_told(lock: Path) -> None:
    assert lock_faults(lock) == []
    held(lock, lasts_s=0)
    assert lock_faults(lock) == []
    lock.write_text("{}")
    assert lock_faults(lock) == []
    lock.write_text("no JSON")
    assert lock_faults(lock) == []

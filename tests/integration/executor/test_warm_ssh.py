"""Nodes behind a real sshd: modules run in the warm interpreter there, host keys are pinned."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil


def test_a_module_runs_in_the_nodes_warm_interpreter(new_lab: Callable[..., Any], sshd: Any) -> None:
    lab = new_lab({"s0": sshd.host()})
    assert lab.run("s0", first={"entries": {"a": "1"}}).sections["first"]["changed"] is True
    parents = {lab.event(lab.run("s0", third={}).id, "third")["parent"] for _ in range(2)}
    assert len(parents) == 1
    assert (lab.files / "a").read_text() == "1"


def test_a_changed_host_key_is_refused(new_lab: Callable[..., Any], sshd: Any) -> None:
    sshd.trust("client_key.pub")
    lab = new_lab({"s0": sshd.host()})
    outcome = lab.run("s0", first={"entries": {"a": "1"}})
    assert outcome.status == "unreachable"
    assert "host key" in outcome.message.lower()
    assert not (lab.files / "a").exists()


def test_an_unknown_host_key_is_refused(new_lab: Callable[..., Any], sshd: Any) -> None:
    (sshd.home / "known_hosts").write_text("")
    assert new_lab({"s0": sshd.host()}).run("s0", first={}).status == "unreachable"


def test_an_unreachable_host_delays_no_other(new_lab: Callable[..., Any], sshd: Any) -> None:
    with socket.socket() as mute:  # listens, and never speaks
        mute.bind(("127.0.0.1", 0))
        mute.listen(1)
        hosts = {"dead": sshd.host(ansible_port=mute.getsockname()[1], ansible_timeout=10), "s0": sshd.host()}
        lab = new_lab(hosts)
        lab.run("s0", first={})
        dead = lab.submit("dead", first={})
        times = []
        for _ in range(5):
            begin = time.monotonic()
            assert lab.run("s0", first={}).status == "ok"
            times.append(time.monotonic() - begin)
        assert dead not in lab.outcomes
        assert max(times) < 5
        assert lab.outcome(dead).status == "unreachable"
        assert lab.run("s0", first={}).status == "ok"


def test_a_killed_interpreter_and_a_killed_master_cost_no_item(new_lab: Callable[..., Any], sshd: Any) -> None:
    lab = new_lab({"s0": sshd.host()})
    assert lab.run("s0", first={}).status == "ok"
    os.kill(lab.interpreter(), signal.SIGKILL)
    assert lab.run("s0", first={}).status == "ok"
    for child in psutil.Process(sshd.process.pid).children(recursive=True):
        child.kill()
    assert lab.run("s0", first={}).status == "ok"


def test_a_login_user_becomes_root_once_by_sudo(new_lab: Callable[..., Any], sshd: Any) -> None:
    user = f"mk8s-{os.getpid()}"
    subprocess.run(["useradd", "--create-home", "--password", "*", user], check=True)  # no password, not locked
    sudoers = f"/etc/sudoers.d/{user}"
    try:
        with open(sudoers, "w", opener=lambda path, flags: os.open(path, flags, 0o440)) as file:
            file.write(f"{user} ALL=(root) NOPASSWD: /usr/bin/python3 -I -\n")
        for path in (sshd.home, sshd.home / "authorized_keys"):
            path.chmod(0o755)
        # not below the lab's own directory: another user cannot enter that
        hosts = {"s0": sshd.host(ansible_user=user, minik8s_warm_directory="/tmp/mk8s-sudo-{uid}")}
        lab = new_lab(hosts)
        outcome = lab.run("s0", first={"entries": {"a": "1"}})
        assert (outcome.status, outcome.message) == ("ok", "")
        assert lab.event(outcome.id, "first")["uid"] == 0
    finally:
        Path(sudoers).unlink()
        subprocess.run("rm -rf /tmp/mk8s-sudo-*", shell=True, check=True)
        # its session with sshd may be there yet
        subprocess.run(["userdel", "--force", "--remove", user], check=False, stderr=subprocess.DEVNULL)


def test_a_cancelled_items_module_dies_on_the_node(new_lab: Callable[..., Any], sshd: Any) -> None:
    lab = new_lab({"s0": sshd.host()})
    item = lab.submit("s0", first={"sleep_s": 90.0, "entries": {"a": "1"}})
    module = lab.running_module("s0")
    lab.runner.cancel(item)
    assert lab.outcome(item).status == "cancelled"
    psutil.wait_procs([module], timeout=60)
    assert not module.is_running()
    assert not (lab.files / "a").exists()

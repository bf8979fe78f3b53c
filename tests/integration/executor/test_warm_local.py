"""The warm local connection by itself, under plain ansible-playbook."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.plugins.warm import client
from minik8s_modules.plugins.warm.payload import Payload
from minik8s_modules.reconcile.planning.plain import render_document
from tests.support.processes import peer_pid

from .conftest import PROJECT, Lab

EVIL = "{{ lookup('pipe','id') }}"
PLAYBOOK = "tests/integration/executor/sections.yml"


def play(lab: Lab, *options: str, user: str = "") -> subprocess.CompletedProcess[str]:
    """Run the plain path over a document with one entry, as ``user`` where one is given."""
    document = lab.home / "document.yml"
    document.write_text(render_document({"first": {"a": EVIL}}))
    argv = ["-i", str(lab.inventory), PLAYBOOK, "-e", f"@{document}", "-e", f"minik8s_directory={lab.files}", *options]
    if not user:
        return _ansible(lab, PROJECT, argv)
    with _entered_by_anybody(PROJECT) as project:
        return _ansible(lab, project, argv, "setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups")


def _ansible(lab: Lab, project: Path, argv: list[str], *before: str) -> subprocess.CompletedProcess[str]:
    python = project / Path(sys.executable).relative_to(PROJECT)
    environment = {**os.environ, **lab.environment, "ANSIBLE_CONFIG": str(project / "ansible.cfg")}
    environment |= {"ANSIBLE_HOME": str(lab.home / "home"), "ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3"}
    command = [*before, str(python), "-m", "ansible", "playbook", *argv]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


@contextlib.contextmanager
def _entered_by_anybody(project: Path) -> Iterator[Path]:
    """Show ``project`` at a path that other users can enter: a checkout may lie below a folder of root's alone."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    shown = place / "project"
    shown.mkdir()
    subprocess.run(["mount", "--bind", str(project), str(shown)], check=True)
    try:
        yield shown
    finally:
        # rmdir and never a tree removal: what is shown here is the project itself
        subprocess.run(["umount", "--lazy", str(shown)], check=True)
        shown.rmdir()
        place.rmdir()


@pytest.fixture
def user(new_lab: Any) -> Iterator[str]:
    name = f"mk8s-{os.getpid()}"
    subprocess.run(["useradd", "--password", "*", name], check=True)
    sudoers = Path("/etc/sudoers.d", name)
    sudoers.touch(mode=0o440)
    sudoers.write_text(f"{name} ALL=(root) NOPASSWD: /usr/bin/python3 -I -\n")
    yield name
    sudoers.unlink()
    subprocess.run(["userdel", name], check=True)


def test_text_stays_literal_under_plain_ansible_playbook(new_lab: Any) -> None:
    lab = new_lab(start=False)
    checked = play(lab, "--check", "--diff")
    assert checked.returncode == 0, checked.stdout
    assert not (lab.files / "a").exists()
    assert EVIL in checked.stdout
    assert play(lab).returncode == 0
    assert (lab.files / "a").read_text() == EVIL
    assert (lab.files / "a").stat().st_mode & 0o777 == 0o644
    assert lab.interpreter()


def test_another_user_becomes_root_once_by_sudo(new_lab: Any, user: str) -> None:
    lab = new_lab(start=False)
    lab.environment["MINIK8S_WARM_DIRECTORY"] = f"{lab.home}/w-{{uid}}"
    lab.home.chmod(0o777)  # stands for /run and the user's home
    done = play(lab, user=user)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (lab.files / "a").stat().st_uid == 0
    directory = next(lab.home.glob("w-*"))
    sockets = list(directory.glob("*.sock"))
    assert (directory.owner(), directory.stat().st_mode & 0o777) == (user, 0o700)
    assert [(path.owner(), path.stat().st_mode & 0o777) for path in sockets] == [(user, 0o600)]
    assert Path(f"/proc/{peer_pid(sockets[0])}").stat().st_uid == 0


def test_without_the_sudoers_line_nothing_runs_as_the_user(new_lab: Any, user: str) -> None:
    Path("/etc/sudoers.d", user).write_text("")
    lab = new_lab(start=False)
    lab.environment["MINIK8S_WARM_DIRECTORY"] = f"{lab.home}/w-{{uid}}"
    lab.home.chmod(0o777)
    lab.files.chmod(0o777)
    done = play(lab, user=user)
    assert done.returncode != 0
    assert "sudo" in done.stdout
    assert not (lab.files / "a").exists()


def test_a_directory_of_somebody_else_is_refused(new_lab: Any) -> None:
    lab = new_lab(start=False)
    lab.warm.mkdir(mode=0o777)
    lab.warm.chmod(0o777)
    done = play(lab)
    assert "must be a directory of user 0 with mode 0700" in done.stdout + done.stderr
    assert done.returncode == 0  # the plain way did it
    assert not lab.interpreter()


def test_a_socket_of_somebody_else_is_not_trusted(new_lab: Any, user: str) -> None:
    lab = new_lab(start=False)
    path = lab.home / "fake.sock"
    lab.home.chmod(0o777)
    serve = (
        f"import socket,time; s=socket.socket(socket.AF_UNIX); s.bind({str(path)!r}); s.listen(1);"
        "print('up', flush=True); time.sleep(60)"
    )
    argv = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "/usr/bin/python3", "-c", serve]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as impostor:
        assert impostor.stdout
        assert impostor.stdout.readline() == "up\n"
        with pytest.raises(client.NotServing, match="served by user"):
            client.call(str(path), Payload(b"", "m", "legacy", "{}"))
        impostor.kill()


def test_a_stranger_gets_no_call_through(new_lab: Any, user: str) -> None:
    lab = new_lab(start=False)
    assert play(lab).returncode == 0
    lab.home.chmod(0o777)
    lab.warm.chmod(0o777)
    path = next(lab.warm.glob("*.sock"))
    path.chmod(0o777)
    connect = f"import socket; s=socket.socket(socket.AF_UNIX); s.connect({str(path)!r});"
    ask = connect + "s.sendall(b'0'*64); print(s.recv(1))"
    argv = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "/usr/bin/python3", "-c", ask]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.stdout == "b''\n" or "ConnectionReset" in done.stderr or "BrokenPipe" in done.stderr
    lab.warm.chmod(0o700)

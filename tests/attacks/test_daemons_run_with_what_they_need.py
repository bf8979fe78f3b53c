"""Attack: a defect in one daemon runs a stranger's code, which then looks round: root's files, other users, the kernel.

Every daemon is kept from all that its declaration in the roles does not name (``confinement.py``). systemd itself rates
the units here, and the launcher starts real processes under it, as it does where there is no systemd.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from minik8s_modules.module_utils.minik8s.install.confinement import launcher_options
from minik8s_modules.module_utils.minik8s.install.daemons import Daemon, render
from tests.support.repository.declared_daemons import ROLES, declared
from tests.support.waiting import until

LAUNCH = ROLES / "service_manager" / "files" / "launch"
DAEMONS = declared()
EXPOSED = 3.0
"""``systemd-analyze security``: 0 is closed, 10 open; up to 3 is the goal, what has no sandbox has 9.2."""
EXCEPTED = {"minik8s-reconciler", "minik8s-cadvisor", "minik8s-dockerd"}
"""The daemons that are root, or become it, for what they are for; each says why in its declaration."""
NO_CAPABILITIES = "0" * 16
# of a program that has been taken over: each line that it gets to write is a success of the attack
LOOK_ROUND = """
ls /root /home >/dev/null 2>&1 && echo homes
for place in /etc /usr /usr/local /opt /boot; do (: >$place/minik8s-attack) 2>/dev/null && echo wrote $place; done
[ -e /tmp/somebodys ] && echo anothers temporary files
mount -t tmpfs none /mnt 2>/dev/null && echo mounted
chown 0 "$OUT" 2>/dev/null && echo owner
su -c true </dev/null >/dev/null 2>&1 && echo root
grep -q 'NoNewPrivs:.1' /proc/self/status || echo may gain privileges
echo done
exec sleep 1000
"""


def rating(daemon: Daemon, folder: Path) -> float:
    """Return what systemd says of the unit."""
    unit = folder / f"{daemon.name}.service"
    unit.write_text(render("systemd", daemon, "key"))
    argv = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found, done.stdout + done.stderr
    return float(found[1])


class Running:
    """A program that the launcher started under a daemon's confinement."""

    def __init__(self, folder: Path, daemon: Daemon, *program: str) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)
        user = "root" if daemon.user == "root" else "nobody"  # the cluster's users are those of installed machines
        argv = [str(LAUNCH), daemon.name, user, "2", "group", *launcher_options(daemon.confinement)]
        environment = {**os.environ, "MINIK8S_RUN_DIR": str(folder)}
        command = [*argv, f"OUT={folder}/out", *program]
        self.process = subprocess.Popen(command, env=environment, process_group=0)
        until(lambda: self.command().startswith(program[0].encode() + b"\0") or self.process.poll() is not None)

    def command(self) -> bytes:
        """Return the words the process has begun with."""
        return Path(f"/proc/{self.process.pid}/cmdline").read_bytes()

    def status(self, name: str) -> str:
        """Return a line of /proc/PID/status."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return text.partition(f"\n{name}:")[2].partition("\n")[0].strip()

    def stop(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory outside /tmp, which confined programs have one of their own of."""
    made = Path(f"/run/minik8s-attack-{os.getpid()}")
    yield made
    shutil.rmtree(made, ignore_errors=True)


def test_the_roles_declare_the_daemons_of_a_cluster():
    control_plane = {
        "apiserver",
        "scheduler",
        "controllers",
        "certificates",
        "gateway",
        "streams",
        "reconciler",
        "etcd",
    }
    assert {f"minik8s-{name}" for name in control_plane | {"dns", "nginx", "cadvisor", "dockerd"}} <= set(DAEMONS)


@pytest.mark.parametrize("daemon", DAEMONS.values(), ids=DAEMONS)
def test_systemd_finds_little_that_is_open(daemon: Daemon, tmp_path: Path):
    if daemon.name in EXCEPTED:
        assert daemon.confinement.exceptions
    else:
        assert rating(daemon, tmp_path) <= EXPOSED


@pytest.mark.parametrize("daemon", DAEMONS.values(), ids=DAEMONS)
def test_systemd_reads_each_unit_without_a_complaint(daemon: Daemon, tmp_path: Path):
    unit = tmp_path / f"{daemon.name}.service"
    unit.write_text(render("systemd", daemon, "key"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if daemon.name in line] == []


@pytest.mark.parametrize("name", sorted(DAEMONS.keys() - EXCEPTED))
def test_the_launcher_keeps_rights_from_a_daemon(name: str, folder: Path):
    daemon = DAEMONS[name]
    running = Running(folder, daemon, "/bin/sleep", "1000")
    try:
        assert running.status("NoNewPrivs") == "1"
        assert running.status("Uid").split()[0] == ("0" if daemon.user == "root" else "65534")
        if not daemon.confinement.capabilities:
            assert {running.status(f"Cap{which}") for which in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {NO_CAPABILITIES}
        assert running.status("CapEff") == running.status("CapBnd")
        expected = "0022" if "common-umask" in daemon.confinement.exceptions else "0077"
        assert running.status("Umask") == expected
        limits = Path(f"/proc/{running.process.pid}/limits").read_text()
        assert re.search(r"Max core file size +0 +0 ", limits)
    finally:
        running.stop()


def test_what_takes_over_a_daemon_finds_nothing_round_it(folder: Path):
    somebodys = Path("/tmp/somebodys")
    somebodys.write_text("secret")
    running = Running(folder, DAEMONS["minik8s-scheduler"], "/bin/sh", "-c", f"({LOOK_ROUND}) >$OUT")
    try:
        until(lambda: (folder / "out").exists() and "done\n" in (folder / "out").read_text())
        assert (folder / "out").read_text() == "done\n"
    finally:
        running.stop()
        somebodys.unlink()


def test_mounts_of_a_daemon_are_its_own(folder: Path):
    running = Running(folder, DAEMONS["minik8s-scheduler"], "/bin/sleep", "1000")
    try:
        ours, its = (Path(f"/proc/{who}/mounts").read_text() for who in ("self", running.process.pid))
        assert "minik8s-closed" in its
        assert "minik8s-closed" not in ours
        assert "minik8s-tmp" not in ours
    finally:
        running.stop()


def test_a_daemon_keeps_no_mount_of_a_pod_alive(folder: Path):
    values = folder / "secrets"
    values.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "values", str(values)], check=True)
    try:
        running = Running(folder, DAEMONS["minik8s-scheduler"], "/bin/sleep", "1000")
        try:
            assert str(values) in Path("/proc/self/mounts").read_text()
            assert str(values) not in Path(f"/proc/{running.process.pid}/mounts").read_text()
            assert " nsfs " not in Path(f"/proc/{running.process.pid}/mounts").read_text()
        finally:
            running.stop()
    finally:
        subprocess.run(["umount", str(values)], check=True)


def test_nginx_sees_certificates_that_are_mounted_after_its_start(folder: Path):
    running = Running(folder, DAEMONS["minik8s-nginx"], "/bin/sleep", "1000")
    late = folder / "late"
    late.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "late", str(late)], check=True)
    try:
        (late / "tls.crt").write_text("x")
        assert Path(f"/proc/{running.process.pid}/root{late}/tls.crt").read_text() == "x"
    finally:
        subprocess.run(["umount", str(late)], check=True)
        running.stop()


def test_an_exception_has_its_reason_beside_it_in_the_unit():
    for name in EXCEPTED:
        text = render("systemd", DAEMONS[name], "key")
        for exception, reason in DAEMONS[name].confinement.exceptions.items():
            assert f"# {exception}: {reason}\n" in text

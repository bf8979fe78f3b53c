"""Upstream's virtctl, unmodified, with a guest that really boots and has a real SSH server: shell, ports, Service."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from minik8s_modules.api.kinds import SERVICE
from minik8s_modules.api.objects import JsonObject
from tests.integration.virtual_machines.conftest import BOOT_S, Guests
from tests.support.docker.vm_guests import SSH_DISK, disk_image, uml_disk
from tests.support.etcd import free_port
from tests.support.machines_world import Machines

PATIENT = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "ConnectTimeout=60")


@pytest.fixture(scope="module", autouse=True)
def _disk() -> None:
    disk_image(SSH_DISK, uml_disk(sshd=True))


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """Return a private key; its public half is beside it."""
    path = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


def made(machines: Machines, key: Path, name: str) -> JsonObject:
    """Return what ``virtctl create vm`` makes for the guest with an SSH server, of the machine that tests have."""
    public = key.with_suffix(".pub").read_text().strip()
    argv = ("create", "vm", f"--name={name}", "--memory=64Mi", f"--volume-containerdisk=src:{SSH_DISK}")
    vm: JsonObject = yaml.safe_load(machines.virtctl(*argv, "--user=root", f"--ssh-key={public}").stdout)
    spec = vm["spec"]["template"]["spec"]
    spec["domain"]["machine"] = {"type": "uml"}
    vm["spec"]["template"]["metadata"] = {"labels": {"app": name}}
    return vm


def test_a_shell_in_the_guest_by_the_key_that_cloud_init_gave_it(guests: Guests, machines: Machines, key: Path) -> None:
    machines.apply(made(machines, key, "shell"))
    machines.wait("shell", "Running", timeout_s=BOOT_S)

    def ssh(command: str) -> subprocess.CompletedProcess[str]:
        options = [f"--local-ssh-opts={option}" for option in PATIENT]
        words = ("ssh", "root@vm/shell", f"--identity-file={key}", "--local-ssh=true", *options, "--command", command)
        # virtctl starts itself as ssh's way to the guest, and hands on no --kubeconfig
        environment = {**os.environ, "KUBECONFIG": str(machines.server.kubeconfig)}
        return subprocess.run(
            machines.virtctl_argv(*words), env=environment, capture_output=True, text=True, timeout=180, check=False
        )

    guests.cluster.until(lambda: ssh("true").returncode == 0, BOOT_S)
    assert ssh("hostname").stdout.strip() == "shell"
    assert len(ssh("seq 1 100000").stdout.split()) == 100_000

    local = free_port()
    forward = machines.virtctl_argv("port-forward", "vm/shell", f"{local}:80")
    with subprocess.Popen(forward, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            guests.cluster.until(lambda: guests.ask(f"127.0.0.1:{local}") == "shell\n", BOOT_S)
        finally:
            process.terminate()

    machines.virtctl("expose", "vm", "shell", "--name=shell", "--port=8080", "--target-port=80")
    address = machines.admin.get(SERVICE, "shell", "default")["spec"]["clusterIP"]
    guests.cluster.until(lambda: guests.ask(f"{address}:8080") == "shell\n", BOOT_S)

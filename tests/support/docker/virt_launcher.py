"""The image of virtual machines' launchers, for tests: of what the extension's role declares, with the lab's kernel."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from tests.lab.host import Host
from tests.lab.parts import kernels
from tests.lab.places import Places
from tests.support.clients import CACHE, locked

REPOSITORY = Path(__file__).resolve().parents[3]
EXTENSION = REPOSITORY / "extensions" / "virtual-machines"
ROLE = EXTENSION / "roles" / "launcher"
IMAGE = "minik8s/virt-launcher:1"


def kernel() -> Path:
    """Return the kernel of User-Mode Linux that the lab has."""
    return kernels.find(Host(), Places.from_environment()).folder / "linux"


def launcher_image(socket: str, *, qemu: bool = False) -> str:
    """Make Docker have the image, by the role itself; return its name. QEMU is installed where it is asked for."""
    with locked(CACHE / "virt-launcher.flock"), tempfile.TemporaryDirectory() as folder:
        play = Path(folder) / "build.yml"
        play.write_text(yaml.safe_dump([_play(folder, socket, qemu=qemu)]))
        words = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "localhost,", str(play)]
        environment = {**os.environ, "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg")}
        done = subprocess.run(words, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return IMAGE


def _play(folder: str, socket: str, *, qemu: bool) -> dict[str, object]:
    return {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(ROLE / "vars/main.yml")],
        "vars": {
            "minik8s_state_dir": folder,
            "minik8s_cache_dir": folder,
            "minik8s_docker_socket": socket,
            "minik8s_apt_valid_s": 86400,
            "ansible_python_interpreter": sys.executable,
            "launcher_package": str(EXTENSION),
            "launcher_qemu": qemu,
            "launcher_uml": str(kernel()),
        },
        # not the role as such: what it depends on makes the users of a whole installation
        "tasks": [{"name": "Image", "ansible.builtin.include_tasks": str(ROLE / "tasks/present.yml")}],
    }

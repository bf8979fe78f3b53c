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
    """Make Docker have the image, whole; return its name. Needs nft, and QEMU where it is asked for."""
    with locked(CACHE / "virt-launcher.flock"), tempfile.TemporaryDirectory() as folder:
        files = Path(folder) / "virtual-machines"
        files.mkdir()
        for name in ("virt-launcher", "vmctl", "rebooted"):
            (files / name).write_bytes((ROLE / "files" / name).read_bytes())
        argv = ["/usr/bin/python3", "-B", str(ROLE / "files/tree.py"), str(EXTENSION), str(files / "tree")]
        subprocess.run(argv, check=True)
        play = Path(folder) / "build.yml"
        play.write_text(yaml.safe_dump([_play(folder, socket, qemu=qemu)]))
        words = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "localhost,", str(play)]
        environment = {**os.environ, "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg")}
        done = subprocess.run(words, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return IMAGE


def _play(folder: str, socket: str, *, qemu: bool) -> dict[str, object]:
    images = {"docker_socket": socket, "images": ["{{ launcher_image }}"]}
    return {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(ROLE / "vars/main.yml")],
        "vars": {
            "minik8s_state_dir": folder,
            "ansible_python_interpreter": sys.executable,
            "launcher_qemu": qemu,
            "launcher_uml": str(kernel()),
        },
        "tasks": [{"name": "Image", "minik8s_images": images}],
    }

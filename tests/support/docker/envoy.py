"""The images of sidecars, for tests: built from what the role ``envoy`` declares, of an Envoy that it fetches."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from tests.support.clients import CACHE, locked

REPOSITORY = Path(__file__).resolve().parents[3]
ROLE = REPOSITORY / "roles" / "envoy"


def envoy_program() -> Path:
    """Return Envoy's program, which is fetched once."""
    version = yaml.safe_load((ROLE / "defaults/main.yml").read_text())["envoy_version"]
    program = REPOSITORY / ".cache" / f"envoy-{version}"
    with locked(program) as missing:
        if missing:
            fetch = [sys.executable, str(ROLE / "files/fetch.py"), f"--version={version}", f"--into={program}"]
            subprocess.run(fetch, check=True)
    return program


def envoy_images(socket: str) -> None:
    """Make Docker have the images, whole and under all their names; needs iptables, whose programs they hold."""
    program = envoy_program()
    with locked(CACHE / "envoy.flock"), tempfile.TemporaryDirectory() as folder:
        files = Path(folder) / "mesh"
        files.mkdir()
        for name in ("intercept", "bootstrap.yaml"):
            (files / name).write_bytes((ROLE / "files" / name).read_bytes())
        (files / "intercept").chmod(0o755)
        (files / "envoy").symlink_to(program)
        play = Path(folder) / "build.yml"
        play.write_text(yaml.safe_dump([_play(folder, socket)]))
        words = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "localhost,", str(play)]
        environment = {**os.environ, "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg")}
        done = subprocess.run(words, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def _play(folder: str, socket: str) -> dict[str, object]:
    images = {"docker_socket": socket, "images": "{{ envoy_images }}"}
    return {
        "hosts": "localhost",
        "connection": "local",
        "vars_files": [str(REPOSITORY / "roles/minik8s/vars/main.yml"), str(ROLE / "vars/main.yml")],
        "vars": {
            "minik8s_repository": str(REPOSITORY),
            "minik8s_state_dir": folder,
            "minik8s_cache_dir": str(CACHE),
            "ansible_python_interpreter": sys.executable,
        },
        "tasks": [{"name": "Images", "minik8s_images": images}],
    }

"""The ``kubernetes.core`` modules of the ``ansible`` package, as playbooks that assert by themselves."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.e2e.clients.conftest import Running
from tests.support.apiserver import ApiServerProcess
from tests.support.clients import python_clients
from tests.support.clusters.installed import KUBECONFIG

PLAYBOOKS = Path(__file__).parent / "ansible"


def play(name: str, kubeconfig: Path, folder: Path, **variables: str) -> None:
    programs = python_clients()
    (folder / "ansible.cfg").touch()
    environment = {
        **os.environ,
        "K8S_AUTH_KUBECONFIG": str(kubeconfig),
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
        "ANSIBLE_HOME": str(folder),
        "ANSIBLE_LOCALHOST_WARNING": "False",
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    values = {"ansible_python_interpreter": str(programs / "python"), **variables}
    argv = [str(programs / "ansible-playbook"), "-i", "localhost,", "-c", "local", "-e", json.dumps(values)]
    argv.append(str(PLAYBOOKS / f"{name}.yml"))
    done = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_objects(server: ApiServerProcess, namespace: str, tmp_path: Path):
    play("objects", server.kubeconfig, tmp_path, namespace=namespace)


def test_commands_files_and_logs(running: Running, tmp_path: Path):
    play("running", KUBECONFIG, tmp_path, namespace=running.namespace, pod=running.pod)

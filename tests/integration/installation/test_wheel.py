"""The wheel and the collection, installed where no checkout is: Ansible takes their playbooks, and runs their modules.

tests/machines/long/test_release.py installs a cluster from them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.released import built_wheel, environment_without_checkout

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment that has the wheel, and of this checkout nothing."""
    folder = tmp_path_factory.mktemp("wheel")
    return environment_without_checkout(folder / "venv", built_wheel(folder))


def run(environment: Path, *argv: str, cwd: Path, **variables: str) -> str:
    """Run a program of the environment; return what it prints."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON"))}
    clean |= variables
    done = subprocess.run(
        [environment / "bin" / argv[0], *argv[1:]], cwd=cwd, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_playbooks_of_an_installed_wheel_are_whole(environment: Path, tmp_path: Path) -> None:
    run(environment, "minik8s", "init", "cluster", "--control-plane", "control1=192.0.2.10", cwd=tmp_path)
    folder = tmp_path / "cluster"
    assert (folder / "roles").resolve().is_relative_to(environment)
    assert (folder / "minik8s_modules").resolve().is_relative_to(environment)
    books = [str(path.relative_to(folder)) for path in sorted((folder / "playbooks").glob("*.yml"))]
    assert "playbooks/site.yml" in books
    ansible = ("python", "-m", "ansible")
    run(environment, *ansible, "playbook", "--syntax-check", "-i", "inventory/mine", *books, cwd=folder)
    hosts = json.loads(run(environment, *ansible, "inventory", "-i", "inventory/mine", "--list", cwd=folder))
    assert hosts["nodes"]["hosts"] == ["control1"]


def test_the_wheel_has_what_a_checkout_has(environment: Path, tmp_path: Path) -> None:
    """The digest decides whether a machine of the control plane gets its programs anew."""
    run(environment, "minik8s", "init", str(tmp_path), cwd=tmp_path)
    tell = [sys.executable, "-B", str(REPOSITORY / "roles/application/files/bundle.py"), "--repository"]
    told = [subprocess.check_output([*tell, str(folder)], text=True) for folder in (tmp_path, REPOSITORY)]
    assert told[0] == told[1]


@pytest.fixture(scope="module")
def collections(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of collections that has ours."""
    folder = tmp_path_factory.mktemp("collection")
    build = [sys.executable, str(REPOSITORY / "extensions/collection/build.py"), str(folder)]
    archive = subprocess.check_output(build, text=True).strip()
    galaxy = [sys.executable, "-m", "ansible", "galaxy", "collection", "install", archive, "--offline"]
    subprocess.run([*galaxy, "-p", str(folder / "here")], check=True, capture_output=True, cwd=folder)
    return folder / "here"


def test_the_collection_has_all_modules_and_roles_with_their_documentation(
    environment: Path, collections: Path, tmp_path: Path
) -> None:
    there = {"ANSIBLE_COLLECTIONS_PATH": str(collections)}
    doc = ("python", "-m", "ansible", "doc", "--json", "--list", "minik8s.cluster")
    modules = json.loads(run(environment, *doc, "-t", "module", cwd=tmp_path, **there))
    assert modules.keys() == {f"minik8s.cluster.{path.stem}" for path in (REPOSITORY / "library").glob("*.py")}
    roles = json.loads(run(environment, *doc, "-t", "role", cwd=tmp_path, **there))
    assert roles.keys() == {f"minik8s.cluster.{path.name}" for path in (REPOSITORY / "roles").iterdir()}
    about = json.loads(run(environment, *doc[:4], "--json", "minik8s.cluster.minik8s_dns", cwd=tmp_path, **there))
    options = about["minik8s.cluster.minik8s_dns"]["doc"]["options"]
    assert "server" in options["entries"]["suboptions"]  # computed from types, which stand in no collection
    assert options["docker_socket"]["type"] == "path"


def test_the_collections_playbooks_and_modules_run_under_their_full_names(
    environment: Path, collections: Path, tmp_path: Path
) -> None:
    there = {"ANSIBLE_COLLECTIONS_PATH": str(collections), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    run(environment, "minik8s", "init", str(tmp_path / "cluster"), cwd=tmp_path)
    ansible = ("python", "-m", "ansible")
    site = ("playbook", "--syntax-check", "-i", "cluster/inventory/local", "minik8s.cluster.site")
    run(environment, *ansible, *site, cwd=tmp_path, **there)
    (tmp_path / "look.yml").write_text(LOOK)
    found = run(environment, *ansible, "playbook", "-i", "localhost,", "look.yml", cwd=tmp_path, **there)
    assert f'repository {tmp_path}/cache/minik8s/release"' in found
    assert (tmp_path / "cache/minik8s/release/roles/application").is_dir()


LOOK = """
- hosts: localhost
  connection: local
  gather_facts: false
  vars: {ansible_python_interpreter: /usr/bin/python3}
  tasks:
    - minik8s.cluster.minik8s_membership_lock: {state: free, path: "{{ playbook_dir }}/lock.json"}
    - include_role: {name: minik8s.cluster.minik8s, tasks_from: names, public: true}
    - debug: {msg: "repository {{ minik8s_repository }}"}
"""

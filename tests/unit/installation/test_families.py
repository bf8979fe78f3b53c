"""Families of distributions: each is a file, all with the same keys, and roles name nothing that is a family's."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from minik8s_modules.module_utils.minik8s.names import nginx

# what the module asks of every machine
PYTHON = (3, 11)
REPOSITORY = Path(__file__).resolve().parents[3]
ROLES = REPOSITORY / "roles"
FAMILIES = {path.stem: yaml.safe_load(path.read_text()) for path in (ROLES / "minik8s" / "families").glob("*.yml")}
NAMED = re.compile(r"minik8s_family\.(\w+)(?:\.(\w+))?")


def shape(family: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a family, and what kinds of values they have."""
    return {
        key: sorted(value) if isinstance(value, dict) and key != "tools" else type(value).__name__
        for key, value in family.items()
    }


def test_every_family_has_the_same_keys() -> None:
    shapes = {name: shape(family) for name, family in FAMILIES.items()}
    assert {"debian-12", "debian-13", "ubuntu-24", "redhat-10"} == shapes.keys()
    assert [name for name, one in shapes.items() if one != shapes["debian-12"]] == []


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_names_are_of_the_right_kind(name: str) -> None:
    family = FAMILIES[name]
    assert name.endswith(f"-{family['version']}")
    assert family["manager"] in {"apt", "dnf"}
    assert tuple(map(int, family["python"].split("."))) >= PYTHON, "machines of it are refused"
    packages = [one for names in family["packages"].values() for one in names]
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9.+-]+", one) for one in packages)
    programs = [*family["programs"].values(), *family["tools"].values()]
    assert all(path.startswith("/") for path in programs)


def test_what_roles_ask_of_a_family_is_there_and_what_is_there_is_asked_for() -> None:
    asked: set[tuple[str, str]] = set()
    for path in ROLES.rglob("*.yml"):
        asked |= set(NAMED.findall(path.read_text()))
    there = FAMILIES["debian-12"]
    known = {(key, one) for key in ("packages", "services", "programs") for one in there[key]}
    assert known == {pair for pair in asked if pair[0] in {"packages", "services", "programs"}}
    assert {key for key, _one in asked} <= there.keys()


def test_packages_are_installed_in_one_place() -> None:
    """Where a role asked a package manager itself, the name would stand in that role."""
    managers = re.compile(r"ansible\.builtin\.(apt|dnf|package|yum):")
    found = {str(path.relative_to(ROLES)) for path in ROLES.rglob("tasks/*.yml") if managers.search(path.read_text())}
    assert found == {"packages/tasks/present.yml"}


def test_a_role_asks_a_package_manager_only_where_something_is_missing() -> None:
    """It loads all that could be had before it says that nothing is to be done, on each machine again."""
    asking = [
        (str(path.relative_to(ROLES)), str(task.get("when", "")))
        for path in ROLES.rglob("tasks/*.yml")
        for task in yaml.safe_load(path.read_text()) or []
        for verb in ("include_role", "import_role")
        if (task.get(f"ansible.builtin.{verb}") or {}).get("name") == "packages"
    ]
    # found by the program; of a sandbox for trying; delegated, once in a cluster's life
    otherwise = {"container_runtime/tasks/main.yml", "monitoring/tasks/program.yml", "nfs_server/tasks/server.yml"}
    otherwise |= {"nginx/tasks/install.yml", "slurm_sandbox/tasks/main.yml", "pki/tasks/ssh_client.yml"}
    asked = {
        path for path, when in asking if re.search(r"minik8s_present|hostvars\[images_builder\].minik8s_packages", when)
    }
    assert {path for path, _when in asking} == asked | otherwise


# What Ansible finds out about machines, and the family that they have by it.
MACHINES = {
    "debian-12": [("Debian", "Debian", "12")],
    "debian-13": [("Debian", "Debian", "13"), ("Debian", "Debian", "14")],
    "ubuntu-24": [("Ubuntu", "Debian", "24"), ("Ubuntu", "Debian", "26")],
    "redhat-10": [("RedHat", "RedHat", "10"), ("Rocky", "RedHat", "10")],
}
# In a process of its own: ansible's loaders are global and change how imports work.
RENDER = """
import json, pathlib, sys
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.template import Templar
init_plugin_loader()
repository, loader, machines = pathlib.Path(sys.argv[1]), DataLoader(), json.load(sys.stdin)
roles = repository / "roles"
groups = dict.fromkeys(("control_plane", "nodes", "nfs_server"), ["one"])
given = {}
for part in ("defaults", "vars"):
    for path in sorted(roles.glob(f"*/{part}/main.yml")):
        given |= loader.load_from_file(str(path), trusted_as_template=True) or {}
given |= {"minik8s_repository": str(repository), "inventory_hostname": "one", "groups": groups, "hostvars": {}}

def wanted(tasks):
    for task in tasks:
        for part in ("block", "rescue", "always"):
            yield from wanted(task.get(part, []))
        if "packages_wanted" in task.get("vars", {}):
            yield task["vars"]["packages_wanted"]

texts = {}
for path in sorted(roles.glob("*/tasks/*.yml")):
    for number, text in enumerate(wanted(loader.load_from_file(str(path), trusted_as_template=True) or [])):
        texts[f"{path.relative_to(roles)}:{number}"] = text
for distribution, family, version in machines:
    facts = {"distribution": distribution, "os_family": family, "distribution_major_version": version}
    templar = Templar(loader, variables={**given, "ansible_facts": facts})
    found = {"name": templar.template(given["minik8s_family_name"])}
    for place, text in texts.items():
        if "monitoring_program" not in str(text):  # of a loop
            found[place] = templar.template(text)
    print(json.dumps(found))
"""


def test_each_role_has_its_packages_on_each_distribution() -> None:
    machines = [(name, *facts) for name, all_facts in MACHINES.items() for facts in all_facts]
    asked = json.dumps([facts for _name, *facts in machines])
    argv = [sys.executable, "-c", RENDER, str(REPOSITORY)]
    done = subprocess.run(argv, input=asked, capture_output=True, text=True, check=True)
    for (name, *facts), line in zip(machines, done.stdout.splitlines(), strict=True):
        found = json.loads(line)
        assert found.pop("name") == name, facts
        there = {one for names in FAMILIES[name]["packages"].values() for one in names}
        assert len(found) > 10
        for place, packages in found.items():
            assert isinstance(packages, list), (name, place)
            # the sandbox of Slurm asserts that it is on Debian
            assert place.startswith("slurm_sandbox/") or set(packages) <= there, (name, place)


@pytest.mark.parametrize(
    ("there", "user"), [({"root", "www-data", "nginx"}, "www-data"), ({"root", "nginx"}, "nginx"), ({"root"}, "nobody")]
)
def test_nginx_has_the_workers_that_its_package_made(
    monkeypatch: pytest.MonkeyPatch, there: set[str], user: str
) -> None:
    monkeypatch.setattr("pwd.getpwall", lambda: [SimpleNamespace(pw_name=name) for name in there])
    assert f"user {user};\n" in nginx.main_text({"http_port": 80, "https_port": 443})

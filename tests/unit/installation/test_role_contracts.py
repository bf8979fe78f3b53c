"""Every role declares its variables, and declares them as its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[3]
ROLES = sorted(path.name for path in (REPOSITORY / "roles").iterdir())


def load(role: str, place: str) -> Any:
    path = REPOSITORY / "roles" / role / place
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}


@pytest.mark.parametrize("role", ROLES)
def test_every_default_is_described_and_prefixed(role: str) -> None:
    options = load(role, "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    defaults = load(role, "defaults/main.yml")
    assert sorted(options) == sorted(defaults)
    assert [name for name in defaults if not name.startswith(f"{role}_")] == []
    assert [name for name, option in options.items() if not option.get("description") or not option.get("type")] == []


@pytest.mark.parametrize("role", ROLES)
def test_a_described_default_is_the_real_one(role: str) -> None:
    options = load(role, "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    defaults = load(role, "defaults/main.yml")
    stated = {name: option["default"] for name, option in options.items() if "default" in option}
    # A computed default is described in words, or by what it comes out as.
    plain = {name: value for name, value in stated.items() if "{{" not in str(defaults[name])}
    assert plain == {name: defaults[name] for name in plain}


def daemons_of(tasks: Any) -> set[str]:
    """Return the names of the daemons that tasks declare, those of blocks too."""
    if isinstance(tasks, dict):
        declared = tasks.get("minik8s_daemons", {}).get("daemons", [])
        names = (
            {entry["name"] for entry in declared if isinstance(entry, dict)} if isinstance(declared, list) else set()
        )
        return names.union(*map(daemons_of, tasks.values()))
    return set[str]().union(*map(daemons_of, tasks)) if isinstance(tasks, list) else set()


def test_the_reset_removes_every_daemon_that_is_installed() -> None:
    installed = {entry["name"] for entry in load("control_plane", "vars/main.yml")["control_plane_daemons"]}
    for file in sorted((REPOSITORY / "roles").glob("*/tasks/*.yml")):
        installed |= daemons_of(yaml.safe_load(file.read_text(encoding="utf-8")))
    tasks = load("reset", "tasks/main.yml")
    absent = next(task["minik8s_daemons"]["absent"] for task in tasks if "minik8s_daemons" in task)
    assert {"minik8s-etcd", "minik8s-apiserver"} <= installed
    # Docker goes last, by tasks of its own; the control plane's names stand in its variables.
    assert installed - {"minik8s-dockerd", "{{ item.name }}"} == set(absent)


def test_every_daemon_has_a_configuration_and_a_program() -> None:
    variables = load("control_plane", "vars/main.yml")
    names = {entry["name"] for entry in variables["control_plane_daemons"]}
    scripts = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    assert names == {f"minik8s-{name}" for name in variables["control_plane_configurations"]}
    assert [name for name in names if f"\n{name} = " not in scripts] == []

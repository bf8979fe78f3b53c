"""Every role declares its variables, and declares them as its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[3]
ROLES = sorted(path.name for path in (REPOSITORY / "roles").iterdir())
PLACES = {
    path.name: path
    for folder in (REPOSITORY / "roles", *REPOSITORY.glob("extensions/*/roles"))
    for path in sorted(folder.iterdir())
}
"""Where each role is, those of extensions too."""


# They act on a cluster that runs, or where ansible-playbook runs, not on a machine: tests/machines has them.
OF_CLUSTERS = {"bundle", "mesh", "node_add", "node_remove", "upgrade"}
JINJA = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


def load(role: str, place: str) -> Any:
    path = PLACES[role] / place
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}


@pytest.mark.parametrize("role", PLACES)
def test_every_default_is_described_and_prefixed(role: str) -> None:
    options = load(role, "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    defaults = load(role, "defaults/main.yml")
    assert sorted(options) == sorted(defaults)
    assert [name for name in defaults if not name.startswith(f"{role}_")] == []
    assert [name for name, option in options.items() if not option.get("description") or not option.get("type")] == []


@pytest.mark.parametrize("role", PLACES)
def test_a_described_default_is_the_real_one(role: str) -> None:
    options = load(role, "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    defaults = load(role, "defaults/main.yml")
    stated = {name: option["default"] for name, option in options.items() if "default" in option}
    # A computed default is described in words, or by what it comes out as.
    plain = {name: value for name, value in stated.items() if "{{" not in str(defaults[name])}
    assert plain == {name: defaults[name] for name in plain}


@pytest.mark.parametrize("role", PLACES)
def test_nothing_a_task_finds_out_goes_by_the_name_of_an_option(role: str) -> None:
    """What the inventory said of options is written down; a task's result is none of it."""
    options = load(role, "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    texts = [path.read_text(encoding="utf-8") for path in (PLACES[role] / "tasks").glob("*.yml")]
    assert not set(options) & set(re.findall(r"register: (\w+)", "".join(texts)))


def texts(data: Any) -> Iterator[str]:
    """Yield every text in parsed YAML, keys too."""
    if isinstance(data, dict):
        data = [*data, *data.values()]
    if isinstance(data, list):
        for entry in data:
            yield from texts(entry)
    elif isinstance(data, str):
        yield data


def defined(data: Any) -> set[str]:
    """Return the names that tasks give values to: registered, set, of blocks, loops and includes."""
    if isinstance(data, list):
        return set[str]().union(*map(defined, data))
    if not isinstance(data, dict):
        return set()
    own = {data[key] for key in ("register", "loop_var", "index_var") if isinstance(data.get(key), str)}
    given = [data[key] for key in ("vars", "ansible.builtin.set_fact") if isinstance(data.get(key), dict)]
    return own.union(*map(set, given), *map(defined, data.values()))


def variables_of(role: str) -> set[str]:
    """Return all names that a role declares or gives values to."""
    of_tasks = [f"vars/{path.name}" for path in (PLACES[role] / "vars").glob("*.yml")]  # some are included
    declared = {name for place in ("defaults/main.yml", *of_tasks) for name in load(role, place)}
    files = (PLACES[role] / "tasks").glob("*.yml")
    return declared.union(*(defined(yaml.safe_load(file.read_text(encoding="utf-8"))) for file in files))


def test_every_variable_that_a_role_uses_is_declared_by_the_role_it_is_named_after() -> None:
    plays = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in (REPOSITORY / "playbooks").glob("*.yml")]
    known = set[str]().union(*map(variables_of, ROLES), *map(defined, plays))
    known |= {path.stem for path in (REPOSITORY / "library").iterdir()}
    named = re.compile(rf"(?<![\w./-])({'|'.join(ROLES)})_[a-z0-9_]+\b(?![/(=.-])")
    for file in sorted((REPOSITORY / "roles").glob("*/*/*.yml")):
        if file.parent.name in {"tasks", "vars", "defaults"}:
            for text in texts(yaml.safe_load(file.read_text(encoding="utf-8"))):
                used = {found.group() for part in JINJA.findall(text) for found in named.finditer(part)}
                assert used <= known, f"{file}: {text}"


def test_every_role_has_a_scenario_of_molecule() -> None:
    scenarios = {path.parent.name for path in (REPOSITORY / "tests" / "molecule").glob("*/molecule.yml")}
    roles = {*ROLES} - OF_CLUSTERS
    assert {*roles, "default", "lab"} <= scenarios
    for role in roles:
        assert (REPOSITORY / "tests" / "molecule" / role / "verify.yml").exists(), role


def tasks_of(data: Any) -> Iterator[dict[str, Any]]:
    """Yield every task in parsed YAML, those of blocks too."""
    for task in data if isinstance(data, list) else []:
        yield task
        for part in ("block", "rescue", "always"):
            yield from tasks_of(task.get(part))


@pytest.mark.parametrize("role", PLACES)
def test_a_package_manager_is_asked_only_where_something_may_be_missing(role: str) -> None:
    files = {path.name: yaml.safe_load(path.read_text("utf-8")) for path in (PLACES[role] / "tasks").glob("*.yml")}
    for file, tasks in files.items():
        for task in tasks_of(tasks):
            asked = task.get("ansible.builtin.include_role") or task.get("ansible.builtin.import_role") or {}
            if (asked.get("name"), asked.get("tasks_from")) == ("packages", "present") and "when" not in task:
                every = [each for found in files.values() for each in tasks_of(found)]
                callers = [each for each in every if each.get("ansible.builtin.include_tasks") == file]
                assert callers, f"{file}: {task['name']}"
                assert [each["name"] for each in callers if "when" not in each] == [], file


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
    listed = [task["minik8s_daemons"]["absent"] for task in tasks if "minik8s_daemons" in task]
    (absent,) = (names for names in listed if isinstance(names, list))
    assert {"minik8s-etcd", "minik8s-apiserver"} <= installed
    # Docker goes last, by tasks of its own; the control plane's names stand in its variables, and those of further
    # shards are found by their configuration.
    assert installed - {"minik8s-dockerd", "minik8s-{{ control_plane_unit }}"} == set(absent)
    assert any("reset_shards" in names for names in listed if isinstance(names, str))


def test_every_daemon_has_a_configuration_and_a_program() -> None:
    variables = load("control_plane", "vars/main.yml")
    names = {entry["name"] for entry in variables["control_plane_daemons"]}
    scripts = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    assert names == {f"minik8s-{name}" for name in variables["control_plane_configurations"]}
    assert [name for name in names if f"\n{name} = " not in scripts] == []

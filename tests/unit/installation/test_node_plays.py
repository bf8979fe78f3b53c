"""A node is made by the same roles, in the same order, whether it is installed, added or upgraded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

PLAYBOOKS = Path(__file__).parents[3] / "playbooks"
Plays = list[dict[str, Any]]


def plays(name: str) -> Plays:
    found: Plays = yaml.safe_load((PLAYBOOKS / name).read_text(encoding="utf-8"))
    return found


def roles_in(play: dict[str, Any]) -> list[str]:
    """Return the roles of a play in order, listed or imported whole."""
    imported = [task.get("ansible.builtin.import_role", {}) for task in play.get("tasks", [])]
    whole = [role["name"] for role in imported if role and "tasks_from" not in role]
    return [*(role["role"] for role in play.get("roles", [])), *whole]


def roles_of(found: Plays, *hosts: str) -> list[str]:
    """Return the roles of the plays on some hosts, without those that look before they touch."""
    names = [role for play in found if play["hosts"] in hosts for role in roles_in(play)]
    return [name for name in names if name not in {"preflight", "membership_lock"}]


def test_nodes_are_installed_added_and_upgraded_by_the_same_roles():
    installed = roles_of(plays("site.yml"), "nodes", "nodes:!control_plane")
    assert "node_access" in installed
    assert roles_of(plays("node_add.yml"), "joining") == installed
    assert roles_of(plays("upgrade.yml"), "nodes") == installed


def test_the_control_plane_is_installed_and_upgraded_by_the_same_roles():
    assert roles_of(plays("upgrade.yml"), "control_plane") == roles_of(plays("site.yml"), "control_plane")


def test_nothing_is_touched_before_preflight_has_passed():
    for name in ("site.yml", "node_add.yml", "upgrade.yml"):
        found = plays(name)
        first = next(play for play in found if "preflight" in roles_in(play))
        assert first["any_errors_fatal"]
        before = [role for play in found[: found.index(first)] for role in roles_in(play)]
        assert before in ([], ["node_add"])


def test_a_role_goes_without_ansibles_look_at_its_variables_only_behind_preflight():
    for path in PLAYBOOKS.glob("*.yml"):
        seen = list[str]()
        for play in plays(path.name):
            for task in play.get("tasks", []):
                role = task.get("ansible.builtin.import_role") or task.get("ansible.builtin.include_role") or {}
                if role.get("rolespec_validate", True) is False and role["name"] != "preflight":
                    assert "preflight" in seen, (path.name, task["name"])
                seen += [role["name"]] if role else []


def test_an_upgrade_takes_one_machine_at_a_time():  # and stops at the first that fails: test_troubled_machines
    assert [play["serial"] for play in plays("upgrade.yml")[1:-1]] == [1, 1, 1]


CHANGING = ("site", "node_add", "node_remove", "upgrade", "renew", "rotate_ca", "reset", "control_plane_remove")


def is_of_the_lock(task: dict[str, Any], *, release: bool) -> bool:
    """Return whether a task imports the role of the lock, to take or to release it."""
    result = task.get("ansible.builtin.import_role", {})
    return result in (
        [{"name": "membership_lock", "tasks_from": "release"}] if release else [{"name": "membership_lock"}]
    )


def test_whoever_changes_members_has_the_lock_in_each_play_that_does_and_releases_it_last():
    for name in CHANGING:
        found = plays(f"{name}.yml")
        for play in found:
            roles = roles_in(play)
            if roles and roles != ["node_add"]:  # that one only looks who joins
                before = [is_of_the_lock(task, release=False) for task in play.get("pre_tasks", [])]
                assert any(before) or "membership_lock" in roles[:2], (name, play["name"])
        last = found[-1]
        assert is_of_the_lock([*last.get("tasks", []), *last.get("post_tasks", [])][-1], release=True), name

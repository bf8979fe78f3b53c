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


def roles_of(found: Plays, *hosts: str) -> list[str]:
    """Return the roles of the plays on some hosts, without those that look before they touch."""
    names = [role["role"] for play in found if play["hosts"] in hosts for role in play.get("roles", [])]
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
        first = next(play for play in found if any(role["role"] == "preflight" for role in play.get("roles", [])))
        assert first["any_errors_fatal"]
        before = [role["role"] for play in found[: found.index(first)] for role in play.get("roles", [])]
        assert before in ([], ["node_add"])


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
            roles = [role["role"] for role in play.get("roles", [])]
            if roles and roles != ["node_add"]:  # that one only looks who joins
                before = [is_of_the_lock(task, release=False) for task in play.get("pre_tasks", [])]
                assert any(before) or "membership_lock" in roles[:2], (name, play["name"])
        last = found[-1]
        assert is_of_the_lock([*last.get("tasks", []), *last.get("post_tasks", [])][-1], release=True), name

"""Families of distributions: each is a file, all with the same keys, and roles name nothing that is a family's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROLES = Path(__file__).resolve().parents[3] / "roles"
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
    assert {"debian-12", "debian-13", "ubuntu-24", "redhat-9"} == shapes.keys()
    assert [name for name, one in shapes.items() if one != shapes["debian-12"]] == []


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_names_are_of_the_right_kind(name: str) -> None:
    family = FAMILIES[name]
    assert name.endswith(f"-{family['version']}")
    assert family["manager"] in {"apt", "dnf"}
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

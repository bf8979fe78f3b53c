"""The locks hold what pyproject.toml asks for, and name no host."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).resolve().parents[3]


def locked(name: str) -> dict[str, str]:
    lines = (REPOSITORY / name).read_text(encoding="utf-8").splitlines()
    pins = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(pin[0]): pin[1] for pin in pins}


def declared(*, dev: bool) -> list[Requirement]:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = project["dependencies"] + (project["optional-dependencies"]["dev"] if dev else [])
    return [Requirement(text) for text in texts]


@pytest.mark.parametrize(("lock", "dev"), [("requirements.txt", False), ("requirements-dev.txt", True)])
def test_every_dependency_is_locked_in_a_version_that_fits(lock: str, *, dev: bool) -> None:
    pins = locked(lock)
    wrong = [
        need for need in declared(dev=dev) if not need.specifier.contains(pins.get(canonicalize_name(need.name), "0"))
    ]
    assert wrong == [], "run make lock"


def test_both_locks_agree() -> None:
    runtime = locked("requirements.txt")
    assert runtime.items() <= locked("requirements-dev.txt").items()


@pytest.mark.parametrize("lock", ["requirements.txt", "requirements-dev.txt"])
def test_a_lock_names_no_host(lock: str) -> None:
    text = (REPOSITORY / lock).read_text(encoding="utf-8")
    assert "://" not in text
    assert " @ " not in text

"""The locks hold what pyproject.toml asks for, and name no host."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).resolve().parents[3]


PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
"""Those of control planes; 3.11 is the last for which ansible-core 2.19 is."""


def locked(name: str, python: str) -> dict[str, str]:
    lines = (REPOSITORY / name).read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    here = {"python_version": python, "python_full_version": f"{python}.0"}
    ours = [pin for pin in pins if pin.marker is None or pin.marker.evaluate(here)]
    assert len({canonicalize_name(pin.name) for pin in ours}) == len(ours), "two versions of one package"
    return {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in ours}


def declared(*, dev: bool) -> list[Requirement]:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = project["dependencies"] + (project["optional-dependencies"]["dev"] if dev else [])
    return [Requirement(text) for text in texts]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(("lock", "dev"), [("requirements.txt", False), ("requirements-dev.txt", True)])
def test_every_dependency_is_locked_in_a_version_that_fits(lock: str, python: str, *, dev: bool) -> None:
    pins = locked(lock, python)
    wrong = [
        need for need in declared(dev=dev) if not need.specifier.contains(pins.get(canonicalize_name(need.name), "0"))
    ]
    assert wrong == [], "run make lock"


@pytest.mark.parametrize("python", PYTHONS)
def test_both_locks_agree(python: str) -> None:
    assert locked("requirements.txt", python).items() <= locked("requirements-dev.txt", python).items()


def test_only_python_3_11_stays_with_the_ansible_whose_support_has_ended() -> None:
    found = {python: locked("requirements.txt", python)["ansible-core"].rpartition(".")[0] for python in PYTHONS}
    assert found == {"3.11": "2.19", "3.12": "2.21", "3.13": "2.21", "3.14": "2.21"}


@pytest.mark.parametrize("lock", ["requirements.txt", "requirements-dev.txt"])
def test_a_lock_names_no_host(lock: str) -> None:
    text = (REPOSITORY / lock).read_text(encoding="utf-8")
    assert "://" not in text
    assert " @ " not in text

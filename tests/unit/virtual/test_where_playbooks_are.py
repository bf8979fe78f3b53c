"""Providers that run Ansible find its playbooks in a checkout and beside an installed wheel, or say what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from minik8s_modules.base import release
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.virtual.providers.ansible_units import machines
from minik8s_modules.virtual.providers.reaching import project_dir
from minik8s_modules.virtual.providers.slurm import settings

PLAYBOOKS = [settings.PLAYBOOK, machines.PLAY.playbook]


@pytest.fixture
def site_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What pip makes of the wheel: the package, and the release beside it (``setup.py``)."""
    package, carried = tmp_path / "minik8s_modules", tmp_path / release.RELEASE
    carried.mkdir()
    for name in ("ansible.cfg", "library", "playbooks", "roles"):
        (carried / name).symlink_to(release.PACKAGE.parent / name)
    package.symlink_to(release.PACKAGE)
    monkeypatch.setattr(release, "PACKAGE", package)
    monkeypatch.setattr("sys.prefix", str(tmp_path / "venv"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_of_a_checkout_they_are_its_own(playbook: str) -> None:
    assert project_dir(playbook) == Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_of_a_wheel_they_are_those_that_it_carries(site_packages: Path, playbook: str) -> None:
    found = project_dir(playbook)
    assert found == site_packages / "cache/minik8s/release"
    assert (found / playbook).is_file()
    assert (found / "library/minik8s_units.py").is_file()


def test_where_there_are_none_that_is_said(site_packages: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no playbooks/other\.yml beside this program"):
        project_dir("playbooks/other.yml")
    (site_packages / "cache/minik8s/release/roles").unlink()
    (site_packages / "cache/minik8s/release/roles").mkdir()
    with pytest.raises(ConfigurationError, match="roles is there already"):
        project_dir(machines.PLAY.playbook)

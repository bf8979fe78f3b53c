"""Which packages a machine has, by what dpkg, apt and rpm have noted."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

import pytest

from minik8s_modules.module_utils.minik8s.install.packages import (
    EXTENDED,
    STATUS,
    present_by_apt,
    present_by_rpm,
    said,
    text_of,
)


def stanza(name: str, status: str = "install ok installed", architecture: str = "amd64") -> str:
    """Return a package's paragraph of dpkg's file, with a description of several lines."""
    return (
        f"Package: {name}\nStatus: {status}\nArchitecture: {architecture}\nConffiles:\n /etc/{name}.conf 0123\n"
        f"Description: a package\n Status: install ok installed\n Package: {name}-of-text\n"
    )


DPKG = stanza("dpkg")


def present(names: Sequence[str], *stanzas: str, extended: str = "") -> list[str]:
    return present_by_apt(names, "\n".join([*stanzas, DPKG]), extended)


def test_installed_packages_are_present() -> None:
    assert present(["sudo", "curl"], stanza("sudo")) == ["sudo"]


@pytest.mark.parametrize(
    "status",
    ["deinstall ok config-files", "install ok unpacked", "install ok half-configured", "purge ok not-installed"],
)
def test_what_is_not_installed_wholly_is_missing(status: str) -> None:
    assert present(["sudo"], stanza("sudo", status)) == []


def test_a_package_that_is_held_is_present() -> None:
    assert present(["sudo"], stanza("sudo", "hold ok installed")) == ["sudo"]


def test_another_architecture_s_package_is_not_this_machine_s() -> None:
    of_other = stanza("libc6-dev", architecture="i386")
    assert present(["libc6-dev"], of_other) == []
    assert present(["libc6-dev", "wget"], of_other, stanza("libc6-dev"), stanza("wget", architecture="all")) == [
        "libc6-dev",
        "wget",
    ]


def test_what_came_for_another_package_s_sake_is_missing_so_that_apt_is_told_that_it_is_wanted() -> None:
    extended = (
        "Package: sudo\nArchitecture: amd64\nAuto-Installed: 1\n\n"
        "Package: curl\nArchitecture: amd64\nAuto-Installed: 0\n\n"
        "Package: wget\nArchitecture: i386\nAuto-Installed: 1\n"
    )
    names = ["sudo", "curl", "wget"]
    assert present(names, *map(stanza, names), extended=extended) == ["curl", "wget"]


def test_a_name_with_a_version_is_missing_as_is_everything_where_dpkg_has_noted_nothing() -> None:
    assert present(["sudo=1"], stanza("sudo")) == []
    assert present_by_apt(["sudo"], "", "") == []


def test_rpm_s_sentences_are_no_names() -> None:
    def run(argv: Sequence[str]) -> str:
        assert argv[-2:] == ["sudo", "curl"]
        return "sudo\npackage curl is not installed\n"

    assert present_by_rpm(["sudo", "curl"], run) == ["sudo"]
    assert present_by_rpm([], run) == []


def test_a_missing_program_says_nothing() -> None:
    assert said(["/nowhere/rpm", "--query"]) == ""


@pytest.mark.skipif(not STATUS.exists(), reason="this machine has no dpkg")
def test_this_machine_s_dpkg_says_the_same() -> None:
    shown = subprocess.run(
        ["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Package}\n"],
        capture_output=True,
        text=True,
        check=True,
    )
    installed = {line.partition(" ")[2] for line in shown.stdout.splitlines() if line.startswith("installed ")}
    wanted = subprocess.run(["apt-mark", "showmanual"], capture_output=True, text=True, check=True).stdout.split()
    native = {name for name in wanted if ":" not in name} & installed
    names = sorted(installed)
    assert present_by_apt(names, text_of(STATUS), text_of(EXTENDED)) == sorted(native)

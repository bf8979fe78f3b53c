"""Which CoreDNS a machine gets, by the role's own tasks: a program, a release's archive, none that runs, none at all.

The machines are folders of this one. The Go here builds nothing, so machines without a program of their own get
dnsmasq, and the play says so.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[3]
OF_NO_MACHINE = 0xF7  # BPF: no processor starts such a file
REASON = "go: module lookup disabled by GOPROXY=off"
GO = f"""#!/bin/sh
[ "$1" = version ] && echo go version go1.99 && exit
echo built >>"$XDG_CACHE_HOME/builds"; echo "{REASON}" >&2; exit 1
"""
PROGRAM = "#!/bin/sh\necho CoreDNS-1.12.4\n"


class Played(NamedTuple):
    """What a run of the role's tasks left."""

    folder: Path
    output: str

    def program(self, machine: str) -> Path:
        """Return where the machine's program is, if it has one."""
        return self.folder / machine / "bin" / "coredns"

    def said(self, machine: str) -> str:
        """Return what was told or complained of a machine, in one line."""
        found = re.findall(
            rf"^(?:ok|fatal): \[{machine}\](?:: FAILED!)? => (.*?)(?=^\w+: \[|^$)", self.output, re.M | re.S
        )
        return " ".join(found)


def executable(path: Path, content: str | bytes) -> Path:
    """Write a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """All cases in one run, a machine each."""
    folder = tmp_path_factory.mktemp("coredns")
    given = executable(folder / "given", PROGRAM)
    image = bytearray(Path(sys.executable).resolve().read_bytes())
    image[18:20] = OF_NO_MACHINE.to_bytes(2, "little")
    foreign = executable(folder / "foreign", bytes(image))
    executable(folder / "foreign-machine" / "bin" / "coredns", "the former one")
    for name, member in (("release.tgz", "coredns"), ("other.tar.gz", "etcd")):
        with tarfile.open(folder / name, "w:gz") as tar:
            tar.add(given, member)
    machines: dict[str, dict[str, str]] = {
        # the first machine decides nothing for the others: it needs no build
        "given-machine": {"coredns_program": str(given)},
        "released-machine": {"coredns_program": str(folder / "release.tgz")},
        "other-machine": {"coredns_program": str(folder / "other.tar.gz")},
        "foreign-machine": {"coredns_program": str(foreign)},
        "bare-machine": {},
        "strict-machine": {"coredns_server": "coredns"},
        "asking-machine": {"coredns_server": "dnsmasq", "coredns_program": str(given)},
    }
    return Played(folder, run(folder, machines))


def run(folder: Path, machines: dict[str, dict[str, str]]) -> str:
    """Play the role's tasks on the machines; return what was printed."""
    shared = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "minik8s_install_dir": f"{folder}/{{{{ inventory_hostname }}}}",
        "minik8s_shared": True,  # of what all roles share nothing is made here
    }
    task = {"ansible.builtin.include_role": {"name": str(REPOSITORY / "roles/coredns"), "tasks_from": "program.yml"}}
    play = {"hosts": "all", "gather_facts": True, "gather_subset": ["!all", "platform"], "tasks": [task]}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": machines, "vars": shared}}, sort_keys=False))
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    go = executable(folder / "path" / "go", GO)
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"),
        "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
        "ANSIBLE_NOCOLOR": "1",
        "PATH": f"{go.parent}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(folder),
    }
    ansible = Path(sys.executable).parent / "ansible-playbook"
    argv = [str(ansible), "-i", str(folder / "hosts.yml"), str(folder / "play.yml")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment, timeout=300)
    return done.stdout + done.stderr


@pytest.mark.parametrize("machine", ["given-machine", "released-machine"])
def test_a_program_and_a_releases_archive_are_installed(played: Played, machine: str) -> None:
    assert played.program(machine).read_text() == PROGRAM, played.output
    assert played.program(machine).stat().st_mode & 0o777 == 0o755
    assert "fatal" not in played.said(machine)


def test_an_archive_without_coredns_is_told_with_what_it_holds(played: Played) -> None:
    text = f"coredns_program: {played.folder}/other.tar.gz holds no file coredns, as CoreDNS' releases do, but: etcd"
    assert text in played.said("other-machine")
    assert not played.program("other-machine").exists()


def test_a_program_of_another_architecture_is_told_and_the_former_one_stays(played: Played) -> None:
    said = played.said("foreign-machine")
    assert f"foreign-machine ({platform.machine()}) cannot run {played.folder}/foreign as its CoreDNS: " in said
    assert "Exec format error" in played.output
    assert "Set coredns_program for this host to a CoreDNS of its architecture" in said
    assert played.program("foreign-machine").read_text() == "the former one"


def test_where_coredns_cannot_be_built_dnsmasq_stands_in_and_the_reason_is_said(played: Played) -> None:
    said = played.said("bare-machine")
    assert f"DNS is served by dnsmasq: CoreDNS could not be built: {played.folder}/path/go build failed: " in said
    assert REASON in said
    assert not played.program("bare-machine").exists()
    assert (played.folder / "builds").read_text() == "built\n"  # once for all machines


def test_where_only_coredns_will_do_a_failed_build_is_a_failure(played: Played) -> None:
    said = played.said("strict-machine")
    assert "CoreDNS could not be built: " in said
    assert REASON in said
    assert "coredns_program, or allow dnsmasq instead (coredns_server: auto)" in said


def test_dnsmasq_that_is_asked_for_is_taken_before_a_given_program(played: Played) -> None:
    assert "DNS is served by dnsmasq: as requested." in played.said("asking-machine")
    assert not played.program("asking-machine").exists()

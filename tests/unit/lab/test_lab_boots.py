"""Boot plans, addresses and texts: pure functions of the records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from tests.lab import access, boots, groups, network, shaping
from tests.lab.errors import LabError, LabUnsupported, LabUsage
from tests.lab.parts import kernels, modules
from tests.lab.records import LabRecord, NodeRecord

LAB = LabRecord("lab", "192.168.77.0/24")
UML = NodeRecord("node1", 1, "uml", 512, "/image", "/kernel")
NATIVE = NodeRecord("node2", 2, "native", 0, "/image", "")


def kernel(folder: Path, version: str, *, libraries: bool = False) -> kernels.Kernel:
    (folder / "version").write_text(f"{version}\n", encoding="ascii")
    if libraries:
        (folder / "lib").mkdir()
    return kernels.Kernel(folder)


def uml_plan(tmp_path: Path, version: str = "7.2.13-lab", *, libraries: bool = False) -> boots.BootPlan:
    return boots.uml(LAB, UML, Path("/labs/lab"), [], kernel(tmp_path, version, libraries=libraries), 3)


def test_a_uml_node_stays_on_one_processor_in_the_labs_namespace(tmp_path: Path) -> None:
    command = uml_plan(tmp_path).command
    assert command[:5] == ["nsenter", "--net=/run/netns/mk8l-lab", "taskset", "--cpu-list", "3"]
    assert "--kill-child=KILL" in command


def test_a_uml_node_knows_what_it_is_from_its_command_line(tmp_path: Path) -> None:
    command = uml_plan(tmp_path).command
    for word in (
        "mem=512M",
        "ubd0=/labs/lab/nodes/node1/disk.cow,/image/disk.ext4",
        "lab.node=node1",
        "lab.ip=192.168.77.11/24",
        "lab.gateway=192.168.77.254",
        "seccomp=on",
    ):
        assert word in command
    assert len(" ".join(command)) < 4096  # COMMAND_LINE_SIZE of um


@pytest.mark.parametrize(("version", "has"), [("6.12.101", False), ("6.16.0", True), ("7.0", True), ("6.1.0", False)])
def test_only_kernels_since_6_16_know_seccomp(tmp_path: Path, version: str, has: bool) -> None:  # noqa: FBT001  a parameter of the table
    assert ("seccomp=on" in uml_plan(tmp_path, version).command) is has


def test_a_kernel_with_a_c_library_of_its_own_is_started_with_it(tmp_path: Path) -> None:
    command = uml_plan(tmp_path, libraries=True).command
    at = command.index(f"{tmp_path}/linux")
    assert command[at - 1] == f"{tmp_path}/lib"


def test_a_native_node_gets_its_groups_and_a_network_card_of_the_same_address_each_time() -> None:
    plan = boots.native(LAB, NATIVE, Path("/labs/lab"), [Path("/sys/fs/cgroup/x")])
    assert plan.groups == ["/sys/fs/cgroup/x"]
    made = "".join(step.input for step in plan.prepare)
    assert "peer name eth0 address 52:54:c0:a8:4d:0c netns mk8l-lab-node2" in made
    assert "route add default via 192.168.77.254" in made
    assert "lowerdir" not in " ".join(plan.command)


def test_what_was_done_to_the_cable_is_done_again_at_the_next_boot() -> None:
    node = NodeRecord("node2", 2, "native", 0, "/image", "", cut_off=True, rate_kbit=500, discipline="tbf")
    plan = boots.native(LAB, node, Path("/labs/lab"), [])
    assert any(step.input == "link set port2 nomaster up\n" for step in plan.prepare)
    limits = [step.argv for step in plan.prepare if step.argv[0] == "tc"]
    assert [argv[2] for argv in limits] == ["mk8l-lab", "mk8l-lab-node2"]
    assert all("500kbit" in argv for argv in limits)


def test_addresses_of_two_nodes_differ() -> None:
    assert network.mac(LAB, UML) != network.mac(LAB, NATIVE)
    assert network.mac(LAB, UML) != network.mac(LabRecord("b", "192.168.78.0/24"), UML)


def test_the_inventory_names_the_first_node_the_control_plane() -> None:
    text = access.inventory(LAB, [UML, NATIVE], Path("/labs/lab"), Path("/key"))
    assert access.MARKER in text
    groups_found = yaml.safe_load(text)["all"]["children"]
    assert list(groups_found["control_plane"]["hosts"]) == ["node1"]
    assert groups_found["nodes"]["hosts"]["node2"] == {"ansible_host": "192.168.77.12", "minik8s_lab_kind": "native"}


def test_host_keys_are_pinned() -> None:
    assert access.known_hosts(LAB, [UML], {"/image": "ssh-ed25519 AAAA root@x\n"}) == (
        "node1,192.168.77.11 ssh-ed25519 AAAA\n"
    )
    assert "StrictHostKeyChecking yes" in access.ssh_config(LAB, [UML], Path("/labs/lab"), Path("/key"))


def test_cgroup_hierarchies_of_both_versions_are_found() -> None:
    text = (
        "30 24 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n"
        "31 30 0:27 / /sys/fs/cgroup/unified rw shared:5 - cgroup2 cgroup2 rw\n"
        "32 30 0:28 /docker/1 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    )
    assert groups.hierarchies(text) == [Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup/memory")]


def test_only_what_the_kernel_has_built_in_counts_as_a_module() -> None:
    assert modules.builtin("CONFIG_VXLAN=y\n# CONFIG_DUMMY is not set\nCONFIG_IP_VS=m\n") == "kernel/vxlan.ko\n"


@pytest.mark.parametrize("text", ["", "linux", "x7.2"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(LabUsage):
        kernels.release(text)


class Tc:
    """A kernel with some disciplines, or with a defect."""

    def __init__(self, known: set[str], words: str = "Error: Specified qdisc kind is unknown.") -> None:
        self.known, self.words, self.lines = known, words, list[str]()

    def __call__(self, line: Sequence[str]) -> None:
        """Take the line, or say what tc says."""
        text = " ".join(line)
        if not any(f" {name} " in f"{text} " for name in self.known):
            raise LabError(self.words)
        self.lines.append(text)


@pytest.mark.parametrize(("known", "taken"), [({"tbf", "htb"}, "tbf"), ({"htb"}, "htb")])
def test_a_slow_link_takes_what_the_kernel_has(known: set[str], taken: str) -> None:
    tc = Tc(known)
    assert shaping.limit(tc, "eth0", 250, "this kernel") == taken
    assert "rate 250kbit" in tc.lines[-1]


def test_a_kernel_without_any_discipline_is_named() -> None:
    with pytest.raises(LabUnsupported, match="needs one of tbf, htb; this kernel has none"):
        shaping.limit(Tc(set()), "eth0", 250, "this kernel")


def test_another_failure_of_tc_is_not_taken_for_a_missing_discipline() -> None:
    with pytest.raises(LabError, match="no device"):
        shaping.limit(Tc(set(), "no device eth0"), "eth0", 250, "this kernel")

"""How a node of each kind boots: pure functions from records to the plan that its supervisor carries out.

The plan makes the node's cable anew at every boot, so a reboot finds a network card as it left the factory: no qdisc,
no iptables rule, no VXLAN device outlives it. What was done to the cable from outside (pulled, slowed) stays.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.lab import network, shaping
from tests.lab.host import ip_batch
from tests.lab.network import NETNS
from tests.lab.parts.kernels import Kernel
from tests.lab.places import FILES
from tests.lab.records import GATEWAY_NUMBER, LabRecord, Names, NodeRecord, node_folder

# A node's processes all live in one pid namespace that ends with the process above it, which ignores SIGTERM.
ISOLATED = ("unshare", "--pid", "--fork", "--kill-child=KILL", "--mount")

UML_ID = "kernel"
# How the command ends when its node reboots. reboot(2) in a pid namespace ends its first process with SIGHUP
# (kernel/pid_namespace.c), and unshare passes the signal on to itself; a UML kernel: see files/start-uml.
NATIVE_REBOOTED = -signal.SIGHUP
UML_REBOOTED = 64


@dataclass(frozen=True)
class Step:
    """A program that prepares a boot; with ``check`` off it may fail."""

    argv: list[str]
    input: str = ""
    check: bool = True


@dataclass(frozen=True)
class BootPlan:
    """What the supervisor does at every boot: join cgroups, prepare, run the node until it ends."""

    groups: list[str]
    prepare: list[Step]
    command: list[str]
    rebooted: int

    def to_json(self) -> dict[str, Any]:
        """Return the plan as the supervisor reads it."""
        return asdict(self)


def uml(
    lab: LabRecord, node: NodeRecord, folder: Path, groups: Sequence[Path], kernel: Kernel, processor: int
) -> BootPlan:
    """Return the plan of a UML node.

    Args:
        lab: The lab.
        node: The node.
        folder: The lab's folder.
        groups: The node's cgroups, one a hierarchy of the host.
        kernel: What it boots.
        processor: The host's processor it stays on. It has one itself (7.2's tap driver panics with more), and moving
            between the host's makes its system calls 2 to 5 times slower.
    """
    space, port = Names(lab.name).network, Names.port(node.number)
    remake = [
        Step(["rm", "-rf", f"{node_folder(folder, node.name)}/{UML_ID}"]),
        Step([*ip_batch(space)], f"link del {port}\n", check=False),
        Step([*ip_batch(space)], _lines(network.tap_lines(node))),
        *_slow(space, port, node),
    ]
    start = [f"{node.image}/root/bin/busybox", "sh", str(FILES / "start-uml")]
    program = [*start, str(kernel.libraries or "-"), str(kernel.program)]
    enter = ["nsenter", f"--net={NETNS}/{space}", "taskset", "--cpu-list", str(processor)]
    return BootPlan(
        [],
        remake,
        [*enter, *ISOLATED, "--mount-proc", *program, *_kernel_line(lab, node, folder, kernel)],
        UML_REBOOTED,
    )


def _kernel_line(lab: LabRecord, node: NodeRecord, folder: Path, kernel: Kernel) -> list[str]:
    own = node_folder(folder, node.name)
    return [
        f"mem={node.memory_mib}M",
        f"umid={UML_ID}",
        f"uml_dir={own}/",
        f"ubd0={own}/disk.cow,{node.image}/disk.ext4",
        "root=/dev/ubda",
        "rw",
        "rootflags=noinit_itable",
        f"vec0:transport=tap,ifname={Names.port(node.number)},depth=128,mac={network.mac(lab, node)}",
        "con=null",
        "con0=null,fd:1",
        "quiet",
        "panic=-1",
        "net.ifnames=0",
        *(["seccomp=on"] if kernel.has_seccomp else []),
        "init=/usr/local/sbin/lab-init-uml",
        f"lab.node={node.name}",
        f"lab.ip={lab.node_address(node)}/24",
        f"lab.gateway={lab.address(GATEWAY_NUMBER)}",
        f"lab.modules={kernel.modules}",
        f"lab.share={folder}/share",
        "systemd.show_status=0",
    ]


def native(lab: LabRecord, node: NodeRecord, folder: Path, groups: Sequence[Path]) -> BootPlan:
    """Return the plan of a native node; ``groups`` are its cgroups, one a hierarchy of the host."""
    names = Names(lab.name)
    space, own = names.node_network(node.name), node_folder(folder, node.name)
    prepare = [
        # The pair goes with either end; the end in our namespace goes at once, the namespace itself when it is free.
        Step([*ip_batch(names.network)], f"link del {names.port(node.number)}\n", check=False),
        Step(["ip", "netns", "del", space], check=False),
        Step([*ip_batch()], _lines(network.veth_lines(lab, node))),
        Step([*ip_batch(names.network)], network.plug_line(node) + "\n"),
        Step([*ip_batch(space)], _lines(network.inside_lines(lab, node))),
        *_slow(names.network, names.port(node.number), node),
        *_slow(space, "eth0", node),
    ]
    init = ["/bin/sh", f"{node.image}/root/usr/local/sbin/lab-init-native", str(own), f"{node.image}/root", node.name]
    enter = ["nsenter", f"--net={NETNS}/{space}"]
    command = [*enter, *ISOLATED, "--uts", "--ipc", "--cgroup", *init, f"{folder}/share", f"{folder}/modules"]
    return BootPlan([str(group) for group in groups], prepare, command, NATIVE_REBOOTED)


def _slow(space: str, device: str, node: NodeRecord) -> list[Step]:
    """Slow a device of the host's kernel as it was slowed before this boot."""
    if not node.rate_kbit:
        return []
    lines = shaping.disciplines(device, node.rate_kbit)[node.discipline]
    return [Step(["tc", "-netns", space, *line]) for line in lines]


def _lines(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"

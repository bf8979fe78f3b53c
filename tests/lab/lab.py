"""A lab: N nodes on a private network, reached by SSH, and everything that can happen to them.

    with Lab("mine") as lab:
        lab.up(3, kind="native")
        lab.run("node1", ["hostname"])
        lab.cut_off("node2")

Each change is made under the lab's lock, record first; ``down`` needs nothing but the lab's name. Only root can do it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from tests.lab import access, groups, network, records, shaping, wires
from tests.lab.errors import LabNodeFailed, LabUnsupported, LabUsage
from tests.lab.host import Host, drop_lock
from tests.lab.machines import Machine, Remains
from tests.lab.parts import cache, image, kernels, modules
from tests.lab.places import DEFAULT_LAB, Places, check_lab_name
from tests.lab.records import DEFAULT_RELEASE, Kind, LabRecord, Names, NodeRecord, NodeSpec, Release
from tests.lab.remote import Remote

BOOT_TIMEOUT_S = 180.0
BOOT_ID = "/proc/sys/kernel/random/boot_id"
FILL = "/var/lab-fill"
FILL_SCRIPT = """
free=$(df --output=avail --block-size=1M / | tail -n 1)
[ "$free" -le "$1" ] ||
    fallocate --length "$((free - $1))M" "$2" 2>/dev/null || fallocate --length "$((free - $1 - 2))M" "$2"
[ "$1" != 0 ] || dd if=/dev/zero of="$2.rest" bs=4k status=none 2>/dev/null || true
sync
"""


@dataclass(frozen=True)
class NodeStatus:
    """One line of ``lab-status``; ``pid`` is the supervisor's, 0 for a node that is off."""

    name: str
    address: str
    kind: Kind
    state: Literal["off", "booting", "ready", "cut off"]
    pid: int


class Lab:
    """One lab of this host by its name; makes nothing until ``up``."""

    def __init__(self, name: str = DEFAULT_LAB, *, places: Places | None = None, host: Host | None = None) -> None:
        if os.geteuid():
            raise LabUsage("a lab needs root: it makes network namespaces, mounts and cgroups")
        self.name = check_lab_name(name)
        self.places = places or Places.from_environment()
        self.host = host or Host()
        self.folder = self.places.lab(name)
        self._names = Names(name)
        self._remote = Remote(self.folder)

    def __enter__(self) -> Self:
        """Return the lab."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the lab."""
        self.down()

    # --- as a whole

    def up(
        self,
        nodes: int | Sequence[NodeSpec],
        kind: Kind = "uml",
        *,
        subnet: str | None = None,
        kernel: str = "",
        timeout_s: float = BOOT_TIMEOUT_S,
        release: Release = DEFAULT_RELEASE,
    ) -> None:
        """Make the lab have exactly these nodes, all on and answering over SSH; what is there already is kept.

        Args:
            nodes: Their number (node1, node2...), or what each is.
            kind: Of all of them, when ``nodes`` is a number.
            subnet: A free /24; None takes the first from 192.168.77.0 on.
            kernel: Of new UML nodes, see ``kernels.find``.
            timeout_s: To wait for SSH.
            release: Of all of them, when ``nodes`` is a number.

        Raises:
            LabUsage: The lab has other nodes already, or the subnet is taken.
            LabBuildFailed: Image or kernel could not be made.
            LabNodeFailed: A node died or does not answer.
        """
        numbered = range(1, nodes + 1) if isinstance(nodes, int) else ()
        specs = (
            [NodeSpec(f"node{i}", kind, release=release) for i in numbered] if isinstance(nodes, int) else list(nodes)
        )
        built = {one: str(image.get(self.host, self.places, one)) for one in {spec.release for spec in specs}}
        boot = ""
        if any(spec.kind == "uml" for spec in specs):
            boot = str(kernels.find(self.host, self.places, kernel).folder)
        with self._locked():
            record = self._record(subnet)
            new = records.join(records.read_nodes(self.folder), specs, built, boot)
            for node in new:
                self._clear(node.name)
                records.write_node(self.folder, node)
            self._start_all(record, timeout_s)

    def _clear(self, node: str) -> None:
        """Remove what a killed lab-down may have left of an earlier node of this name: its disk above all."""
        remains = Remains(self.host, self.folder, self.name, node)
        remains.settle(remains.cut_power())
        cache.remove(remains.own)

    def _record(self, subnet: str | None) -> LabRecord:
        """Return the lab's record; a new lab gets a free subnet, its own from the moment the record is there."""
        known = records.read_lab(self.folder)
        if known:
            if subnet not in {None, known.subnet}:
                raise LabUsage(f"the lab {self.name} has the subnet {known.subnet}, not {subnet}: lab-down first")
            return known
        lock = self.places.state / "subnets.lock"
        with self.host.locked(lock):
            taken = [*(lab.subnet for lab in records.read_labs(self.places.state)), *wires.routes(self.host)]
            record = LabRecord(self.name, records.choose_subnet(subnet, taken))
            records.write_lab(self.folder, record)
            drop_lock(lock)
        return record

    def _start_all(self, record: LabRecord, timeout_s: float) -> None:
        machines = self.machines()
        for name in ("share", "masters", "modules"):
            (self.folder / name).mkdir(exist_ok=True)
        (self.folder / "masters").chmod(0o700)  # warm_ssh refuses another's
        modules.write(self.folder / "modules")
        self._write_access(record, [machine.node for machine in machines])
        wires.up(self.host, self.places.state, record)
        running = [machine for machine in machines if machine.running()]
        for machine in machines:
            machine.start()
        for machine in machines:
            if not machine.node.cut_off:
                machine.wait_ready(timeout_s)
        for machine in running if len(running) < len(machines) else []:
            self.run(machine.name, ["cp", "/mnt/host/hosts", "/etc/hosts"])

    def _write_access(self, record: LabRecord, nodes: Sequence[NodeRecord]) -> None:
        key = image.key(self.host, self.places)
        keys = {node.image: (Path(node.image) / "host_key.pub").read_text(encoding="ascii") for node in nodes}
        records.write(self.folder / "share" / "hosts", access.hosts(record, nodes), mode=0o644)
        records.write(self.folder / "known_hosts", access.known_hosts(record, nodes, keys), mode=0o644)
        records.write(self.folder / "ssh_config", access.ssh_config(record, nodes, self.folder, key))
        records.write(self.folder / "instances.json", access.instances(record, nodes, key))
        text = access.inventory(record, nodes, self.folder, key)
        for path in self._inventories():
            path.parent.mkdir(parents=True, exist_ok=True)
            records.write(path, text, mode=0o644)

    def _inventories(self) -> list[Path]:
        """Return where the inventory stands: in the lab's folder and, of the default lab, in the project."""
        project = self.places.inventory(self.name)
        if project and project.exists() and access.MARKER not in project.read_text(encoding="utf-8"):
            raise LabUsage(f"{project} is not from lab-up, and would be overwritten: move it away")
        return [self.inventory, *([project] if project else [])]

    @property
    def inventory(self) -> Path:
        """The lab's Ansible inventory."""
        return self.folder / "inventory" / "hosts.yml"

    @property
    def ssh_config(self) -> Path:
        """For ``ssh -F``."""
        return self.folder / "ssh_config"

    def down(self) -> None:
        """Remove the lab: processes, namespaces, cgroups, devices, disks, files. No lab is no error."""
        with self._locked() as lock:
            remains = [Remains(self.host, self.folder, self.name, name) for name in self._node_names()]
            ending = {one.name: one.cut_power() for one in remains}
            for one in remains:
                one.settle(ending[one.name])
            self._remote.hang_up_all(self.host)
            wires.down(self.host, self.places.state, self._names)
            project = self.places.inventory(self.name)
            if project and project.exists() and access.MARKER in project.read_text(encoding="utf-8"):
                project.unlink()
            if self.folder.exists():
                shutil.rmtree(self.folder)
            wires.tidy(self.host, self.places.state)
            drop_lock(lock)
        cache.tidy(self.host, self.places.cache)

    def _node_names(self) -> list[str]:
        """Return the names of all nodes there is anything of, records or not."""
        folders = [path.name for path in (self.folder / "nodes").glob("*") if path.is_dir()]
        return sorted({*folders, *wires.node_names(self._names), *groups.names(self._names.group(""))})

    def status(self) -> list[NodeStatus]:
        """Return the state of every node."""
        return [self._status(machine) for machine in self.machines()]

    @staticmethod
    def _status(machine: Machine) -> NodeStatus:
        top, node = machine.running(), machine.node
        if top is None:
            return NodeStatus(node.name, machine.address, node.kind, "off", 0)
        if node.cut_off:
            return NodeStatus(node.name, machine.address, node.kind, "cut off", top.pid)
        return NodeStatus(node.name, machine.address, node.kind, "ready" if machine.answers() else "booting", top.pid)

    # --- one node

    def machines(self) -> list[Machine]:
        """Return the lab's nodes."""
        record = records.read_lab(self.folder)
        if record is None:
            return []
        return [
            Machine(self.host, self.folder, self.name, node.name, self.places, record, node)
            for node in records.read_nodes(self.folder)
        ]

    def machine(self, name: str) -> Machine:
        """Return the node of this name, or raise LabUsage naming those there are."""
        known = {machine.name: machine for machine in self.machines()}
        if name not in known:
            there = f"there are {', '.join(known)}" if known else "no node is up (make lab-up)"
            raise LabUsage(f"the lab {self.name} has no node {name!r}; {there}")
        return known[name]

    def ssh(self, node: str) -> list[str]:
        """Return the command line that logs in to a node; append a command for its shell."""
        return self._remote.login(self.machine(node).name)

    def run(self, node: str, argv: Sequence[str], *, text: str = "", timeout_s: float = 60) -> str:
        """Run a command on a node as root and return what it printed on both streams.

        Raises:
            LabNodeFailed: It ended with another status than 0, or not in time.
        """
        return self._remote.run(self.machine(node).name, argv, text, timeout_s)

    def start(self, node: str, *, timeout_s: float = BOOT_TIMEOUT_S) -> None:
        """Switch a node on and wait for its SSH; its disk is as the power cut left it."""
        with self._locked():
            machine = self.machine(node)
            machine.start()
            if not machine.node.cut_off:
                machine.wait_ready(timeout_s)
                self._slow_near_end(machine)

    def power_cut(self, node: str) -> None:
        """End a node at once, without any goodbye."""
        with self._locked():
            machine = self.machine(node)
            machine.settle(machine.cut_power())
        self._remote.hang_up(self.host, node)

    def empty_disk(self, node: str, *, timeout_s: float = BOOT_TIMEOUT_S) -> None:
        """Replace a node by a machine of its name, address and host key that has an empty disk; wait for its SSH."""
        self.power_cut(node)
        self._remote.hang_up_all(self.host)  # a master of Ansible's would wait for the old machine
        with self._locked():
            kept = self.machine(node).node
            self._clear(node)
            records.write_node(self.folder, kept)
        self.start(node, timeout_s=timeout_s)

    def reboot(self, node: str, *, timeout_s: float = BOOT_TIMEOUT_S) -> None:
        """Let a node shut down in order and boot again; wait for its SSH."""
        machine = self.machine(node)
        before = self.run(node, ["cat", BOOT_ID])
        with contextlib.suppress(LabNodeFailed):  # the connection may end before the answer
            self.run(node, ["systemctl", "reboot"])
        deadline = time.monotonic() + timeout_s
        while True:
            self._remote.hang_up(self.host, node)
            machine.wait_ready(max(0.0, deadline - time.monotonic()))
            with contextlib.suppress(LabNodeFailed):
                if self.run(node, ["cat", BOOT_ID], timeout_s=5) != before:
                    break
            time.sleep(0.1)
        self._slow_near_end(machine)

    def cut_off(self, node: str) -> None:
        """Pull a node's cable: all packets are lost, its network card stays up. Lasts over its boots."""
        self._rewire(node, cut_off=True)

    def rejoin(self, node: str) -> None:
        """Put a node's cable in again."""
        self._rewire(node, cut_off=False)

    def _rewire(self, node: str, *, cut_off: bool) -> None:
        with self._locked():
            machine = self._change(node, cut_off=cut_off)
            if machine.running():
                self.host.ip([network.plug_line(machine.node)], namespace=self._names.network)

    def slow_link(self, node: str, rate_kbit: int) -> None:
        """Limit a node's cable to ``rate_kbit`` (1000 bits a second) each way. Lasts over its boots.

        Raises:
            LabUnsupported: The host's kernel, or a UML node's, has neither tbf nor htb.
        """
        if rate_kbit < 1:
            raise LabUsage(f"a link of {rate_kbit} kbit/s is none: use cut_off")
        with self._locked():
            machine = self._on(node)
            port = Names.port(machine.node.number)
            found = shaping.limit(self._tc(self._names.network), port, rate_kbit, "the host's kernel")
            self._slow_near_end(self._change(node, rate_kbit=rate_kbit, discipline=found))

    def _slow_near_end(self, machine: Machine) -> None:
        if machine.node.rate_kbit:
            tc, device, whose = self._near_end(machine)
            shaping.limit(tc, device, machine.node.rate_kbit, whose)

    def _near_end(self, machine: Machine) -> tuple[shaping.Tc, str, str]:
        name = machine.name
        if machine.node.kind == "native":
            return self._tc(self._names.node_network(name)), "eth0", "the host's kernel"
        return lambda line: self.run(name, ["tc", *line]), "vec0", f"{name}'s kernel"

    def fast_link(self, node: str) -> None:
        """End ``slow_link``."""
        with self._locked():
            machine = self._on(node)
            if not machine.node.rate_kbit:
                return
            self._tc(self._names.network)(shaping.clear(Names.port(machine.node.number)))
            tc, device, _whose = self._near_end(machine)
            tc(shaping.clear(device))
            self._change(node, rate_kbit=0, discipline="")

    def _tc(self, space: str) -> shaping.Tc:
        return lambda line: self.host.run(["tc", "-netns", space, *line])

    def _on(self, node: str) -> Machine:
        machine = self.machine(node)
        if not machine.running():
            raise LabUsage(f"{node} is off: start it first")
        return machine

    def _change(self, node: str, **changes: bool | int | str) -> Machine:
        """Write a node's changed record, and the plan of its next boot after it."""
        machine = self.machine(node)
        changed = replace(machine, node=replace(machine.node, **changes))  # type: ignore[arg-type]  # as the callers name them
        records.write_node(self.folder, changed.node)
        if changed.running():
            changed.write_plan()
        return changed

    def clock_skew(self, node: str, seconds: float) -> None:
        """Set a UML node's clock ``seconds`` ahead of what it shows (behind, where negative); a boot ends it.

        Raises:
            LabUnsupported: A native node has the host's clock.
        """
        if self.machine(node).node.kind == "native":
            raise LabUnsupported(f"{node} is native and has the host's clock: take a UML node for a clock of its own")
        script = "import sys, time; time.clock_settime(time.CLOCK_REALTIME, time.time() + float(sys.argv[1]))"
        self.run(node, ["python3", "-c", script, str(seconds)])

    def fill_disk(self, node: str, leave_mib: int = 0) -> None:
        """Fill a node's disk up to ``leave_mib``; the space is reserved, not written, so the host keeps its own.

        Raises:
            LabUnsupported: A native node on a host without loop devices shares the host's disk.
        """
        machine = self.machine(node)
        if machine.node.kind == "native" and not (machine.own / "disk.ext4").exists():
            raise LabUnsupported(f"{node} shares the host's disk, as the host has no loop devices: take a UML node")
        self.run(node, ["sh", "-euc", FILL_SCRIPT, "fill", str(leave_mib), FILL], timeout_s=300)

    def free_disk(self, node: str) -> None:
        """End ``fill_disk``."""
        self.run(node, ["rm", "-f", FILL, f"{FILL}.rest"])

    # --- helpers

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Path]:
        path = self.places.state / f"{self.name}.lock"
        with self.host.locked(path):
            yield path

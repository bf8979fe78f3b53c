"""What a lab is, in files below its folder; each is written, whole or not at all, before what it describes is made.

``lab.json`` says the subnet, ``nodes/<node>/node.json`` what a node is. Names on the host follow from those of lab and
nodes (``Names``), so whatever a killed command had made is found again without another list.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeVar

from tests.lab.errors import LabError, LabUsage

Kind = Literal["uml", "native"]
KINDS: tuple[Kind, ...] = ("uml", "native")
Release = Literal["bookworm", "trixie"]
RELEASES: tuple[Release, ...] = ("bookworm", "trixie")
DEFAULT_RELEASE: Release = "bookworm"
MAX_NODES = 40
# Node i has host number 10 + i; the host is 1, the gateway to nowhere 254.
FIRST_HOST = 10
HOST_NUMBER, GATEWAY_NUMBER = 1, 254
NODE_NAME = re.compile(r"[a-z]([a-z0-9-]{0,13}[a-z0-9])?")
DEFAULT_MEMORY_MIB = 1024
MIN_MEMORY_MIB = 128


class RecordUnreadable(LabError):
    """A state file is not what this program writes."""


@dataclass(frozen=True)
class NodeSpec:
    """What a user asks of a node; ``memory_mib`` is for UML only (a native node has the host's memory).

    ``release`` is Debian's: bookworm is 12, trixie is 13.
    """

    name: str
    kind: Kind = "uml"
    memory_mib: int | None = None
    release: Release = DEFAULT_RELEASE

    def __post_init__(self) -> None:
        """Refuse what cannot be booted."""
        if not NODE_NAME.fullmatch(self.name):
            raise LabUsage(
                f"{self.name!r} cannot name a node: 1 to 15 lower-case letters, digits and dashes, a letter first"
            )
        if self.kind not in KINDS:
            raise LabUsage(f"node {self.name}: kind {self.kind!r} is none of {', '.join(KINDS)}")
        if self.release not in RELEASES:
            raise LabUsage(f"node {self.name}: release {self.release!r} is none of {', '.join(RELEASES)}")
        if self.kind == "native" and self.memory_mib is not None:
            raise LabUsage(f"node {self.name}: memory cannot be set for a native node, which has the host's")
        if self.memory_mib is not None and self.memory_mib < MIN_MEMORY_MIB:
            raise LabUsage(
                f"node {self.name}: {self.memory_mib} MiB are too few to boot, take {MIN_MEMORY_MIB} or more"
            )


@dataclass(frozen=True)
class NodeRecord:
    """A node as it is; three fields say what was done to its cable, which lasts over boots.

    ``rate_kbit`` 0 is a fast link; ``discipline`` is what the host's kernel limits the rate with.
    """

    name: str
    number: int
    kind: Kind
    memory_mib: int
    image: str
    kernel: str
    cut_off: bool = False
    rate_kbit: int = 0
    discipline: str = ""
    release: Release = DEFAULT_RELEASE


@dataclass(frozen=True)
class LabRecord:
    """A lab as it is; its subnet is a /24."""

    name: str
    subnet: str

    def address(self, host_number: int) -> str:
        """Return the address with this last number."""
        return str(ipaddress.ip_network(self.subnet)[host_number])

    def node_address(self, node: NodeRecord) -> str:
        """Return the node's address."""
        return self.address(FIRST_HOST + node.number)


Record = TypeVar("Record", NodeRecord, LabRecord)


@dataclass(frozen=True)
class Names:
    """What a lab's things are called on the host."""

    lab: str

    @property
    def network(self) -> str:
        """The network namespace with the bridge, and the host's end of the cable into it."""
        return f"mk8l-{self.lab}"

    def node_network(self, node: str) -> str:
        """Return the network namespace of a native node; UML nodes have theirs in their kernel."""
        return f"mk8l-{self.lab}-{node}"

    def group(self, node: str) -> str:
        """Return a node's cgroup, the same name in every hierarchy."""
        return f"mk8l-{self.lab}-{node}"

    @staticmethod
    def port(number: int) -> str:
        """Return the node's port on the bridge: a tap or the end of a veth pair."""
        return f"port{number}"


def write(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file whole or not at all."""
    partial = path.with_name(path.name + ".part")
    partial.unlink(missing_ok=True)
    partial.touch(mode=mode)
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def node_folder(folder: Path, name: str) -> Path:
    """Return the folder of a node of the lab with this folder."""
    return folder / "nodes" / name


def write_node(folder: Path, node: NodeRecord) -> None:
    """Write a node's record into its lab's folder."""
    own = node_folder(folder, node.name)
    own.mkdir(parents=True, exist_ok=True)
    write(own / "node.json", json.dumps(asdict(node), indent=1))


def read_nodes(folder: Path) -> list[NodeRecord]:
    """Return the nodes of the lab with this folder, in the order of their numbers."""
    return sorted((_read(path, NodeRecord) for path in folder.glob("nodes/*/node.json")), key=lambda node: node.number)


def write_lab(folder: Path, lab: LabRecord) -> None:
    """Write a lab's record."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write(folder / "lab.json", json.dumps(asdict(lab), indent=1))


def read_lab(folder: Path) -> LabRecord | None:
    """Return the lab with this folder, or None where there is none."""
    try:
        return _read(folder / "lab.json", LabRecord)
    except FileNotFoundError:
        return None


def read_labs(state: Path) -> list[LabRecord]:
    """Return all labs of this host."""
    return [lab for path in sorted(state.glob("*/lab.json")) if (lab := read_lab(path.parent))]


def _read(path: Path, record: type[Record]) -> Record:
    try:
        return record(**json.loads(path.read_text(encoding="utf-8")))
    except (TypeError, ValueError) as error:
        raise RecordUnreadable(f"{path} is not a record of this version: {error} (lab-down removes the lab)") from error


def choose_subnet(wanted: str | None, taken: Iterable[str]) -> str:
    """Return the /24 that was asked for, or the first of 192.168.77.0 to 192.168.126.0 that overlaps nothing.

    Args:
        wanted: A network of an IPv4 /24, or None.
        taken: Networks of other labs and routes of this host; one that is no network ("default") counts for nothing.

    Raises:
        LabUsage: It is no /24, or is taken.
    """
    others = [ipaddress.ip_network(text) for text in taken if re.fullmatch(r"[0-9.]+(/[0-9]+)?", text)]
    if wanted is None:
        for number in range(77, 127):
            network = ipaddress.ip_network(f"192.168.{number}.0/24")
            if not any(network.overlaps(other) for other in others):
                return str(network)
        raise LabUsage("no /24 between 192.168.77.0 and 192.168.126.0 is free: name one with --subnet")
    return _check_subnet(wanted, others)


def _check_subnet(wanted: str, others: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> str:
    try:
        network = ipaddress.IPv4Network(wanted)
    except ValueError as error:
        raise LabUsage(f"{wanted!r} is no network: {error}") from error
    if network.prefixlen != 24:
        raise LabUsage(f"{wanted} is no /24; a lab numbers its nodes in the last byte")
    overlapping = [str(other) for other in others if network.overlaps(other)]
    if overlapping:
        raise LabUsage(f"{wanted} is taken on this host by {overlapping[0]}: name another with --subnet")
    return str(network)


def join(
    existing: Sequence[NodeRecord], specs: Sequence[NodeSpec], images: Mapping[Release, str], kernel: str
) -> list[NodeRecord]:
    """Return the records of the nodes to be made so that the lab has exactly ``specs``; existing ones are kept.

    Args:
        existing: The lab's nodes.
        specs: What is asked for.
        images: The folder of the image of each release that is asked for.
        kernel: The folder of the UML kernel.

    Raises:
        LabUsage: The lab has other nodes, a node of another kind, memory or release, or would have too many.
    """
    wanted = {spec.name: spec for spec in specs}
    if len(wanted) != len(specs) or not specs:
        raise LabUsage(f"a lab needs nodes of different names, not {[spec.name for spec in specs]}")
    for node in existing:
        _check_same(node, wanted.pop(node.name, None))
    first = max((node.number for node in existing), default=0) + 1
    if first + len(wanted) - 1 > MAX_NODES:
        raise LabUsage(f"a lab has at most {MAX_NODES} nodes, not {first + len(wanted) - 1}")
    return [_new(spec, first + at, images[spec.release], kernel) for at, spec in enumerate(wanted.values())]


def _new(spec: NodeSpec, number: int, image: str, kernel: str) -> NodeRecord:
    booted = kernel if spec.kind == "uml" else ""
    return NodeRecord(spec.name, number, spec.kind, _memory(spec), image, booted, release=spec.release)


def _check_same(node: NodeRecord, spec: NodeSpec | None) -> None:
    if spec is None:
        raise LabUsage(f"the lab already has the node {node.name}, which was not asked for: lab-down first")
    if (node.kind, node.memory_mib) != (spec.kind, _memory(spec)):
        raise LabUsage(
            f"the lab's node {node.name} is {node.kind} with {node.memory_mib} MiB, not {spec.kind} with"
            f" {_memory(spec)} MiB: lab-down first"
        )
    if node.release != spec.release:
        raise LabUsage(f"the lab's node {node.name} has Debian {node.release}, not {spec.release}: lab-down first")


def _memory(spec: NodeSpec) -> int:
    return 0 if spec.kind == "native" else spec.memory_mib or DEFAULT_MEMORY_MIB

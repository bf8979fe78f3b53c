"""What containers and nodes use: samples in rings, rates from two samples. Pure.

A container has a ring of 60 samples (ten minutes at one each 10 s); it ends with its container. A rate needs two
samples of one run of the container: a counter that went back starts over. Source: metrics-server ``pkg/storage``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from minik8s_modules.api.objects import JsonObject

RING = 60
PRESSURES = ("cpu", "memory", "io")
"""Files of /proc/pressure, which a kernel may lack (CONFIG_PSI)."""
_NS = 1_000_000_000


class Usage(NamedTuple):
    """One reading: Unix seconds, CPU nanoseconds consumed so far, working set in bytes."""

    at_s: float
    cpu_ns: int
    memory_bytes: int


class Marks(NamedTuple):
    """Whose a container is."""

    pod_uid: str
    pod: str
    namespace: str
    container: str
    """Its name in the pod, "" for the sandbox."""


class Disk(NamedTuple):
    """The file system that holds containers, images and volumes."""

    capacity_bytes: int
    available_bytes: int
    inodes: int
    inodes_free: int


class Machine(NamedTuple):
    """One reading of a node."""

    usage: Usage
    memory_bytes: int
    memory_available_bytes: int
    processes: int
    most_processes: int
    disk: Disk | None
    pressure: Mapping[str, JsonObject] = MappingProxyType({})
    """By resource what ``pressure_of`` returns; {} where the kernel tells none."""


class PodPressure(NamedTuple):
    """Unix seconds, and by resource what ``pressure_of`` returns."""

    at_s: float
    resources: Mapping[str, JsonObject]


class Reading(NamedTuple):
    """Everything read of a node at one time; ``source`` is cadvisor or docker."""

    machine: Machine | None
    containers: Mapping[str, Usage]
    marks: Mapping[str, Marks]
    source: str
    pressure: Mapping[str, PodPressure] = MappingProxyType({})
    """By the UID of a pod; {} where no cgroup tells any."""


class Ring:
    """The last 60 samples of one container or machine."""

    def __init__(self) -> None:
        self._samples: deque[Usage] = deque(maxlen=RING)

    def add(self, sample: Usage) -> None:
        """Take a sample; one that is not newer than the last is left out, a counter that went back starts over."""
        if self._samples:
            last = self._samples[-1]
            if sample.at_s <= last.at_s:
                return
            if sample.cpu_ns < last.cpu_ns:
                self._samples.clear()
        self._samples.append(sample)

    def samples(self) -> list[Usage]:
        """Return the samples, oldest first."""
        return list(self._samples)

    def shown(self) -> JsonObject | None:
        """Return the usage over the last two samples, None while there are not two."""
        if len(self._samples) < 2:  # noqa: PLR2004 - a rate needs two
            return None
        before, last = self._samples[-2], self._samples[-1]
        window_s = last.at_s - before.at_s
        return {
            "timestamp_s": last.at_s,
            "window_s": window_s,
            "cpu_nanocores": round((last.cpu_ns - before.cpu_ns) / window_s),
            "cpu_nanoseconds": last.cpu_ns,
            "memory_bytes": last.memory_bytes,
        }


class NodeMetrics:
    """The rings of one node; one writer, readers get finished values."""

    def __init__(self) -> None:
        self._machine = Ring()
        self._rings: dict[str, Ring] = {}
        self._reading: Reading | None = None

    def add(self, reading: Reading) -> None:
        """Take over a reading; rings of containers that it lacks end."""
        if reading.machine is not None:
            self._machine.add(reading.machine.usage)
        rings = {one: self._rings.get(one) or Ring() for one in reading.containers}
        for one, sample in reading.containers.items():
            rings[one].add(sample)
        self._rings, self._reading = rings, reading

    def shown(self, *, history: bool = False) -> JsonObject:
        """Return what API servers are told: the node's usage and each container's, with all samples if asked."""
        reading = self._reading
        if reading is None:
            return {"source": "", "machine": None, "containers": []}
        rows = []
        for one, ring in self._rings.items():
            marks, usage = reading.marks.get(one), ring.shown()
            if marks is not None and (usage is not None or history):
                rows.append({"id": one, **marks._asdict(), "usage": usage, **_history(ring, history=history)})
        shown = {"source": reading.source, "machine": self._shown_machine(reading.machine), "containers": rows}
        told = {uid: {"timestamp_s": one.at_s, **one.resources} for uid, one in reading.pressure.items()}
        return shown | ({"pressure": told} if told else {})

    def _shown_machine(self, machine: Machine | None) -> JsonObject | None:
        usage = self._machine.shown()
        if usage is None or machine is None:
            return usage
        disk = {"disk": machine.disk._asdict()} if machine.disk is not None else {}
        return {**usage, **disk, **({"pressure": dict(machine.pressure)} if machine.pressure else {})}

    def signals_message(self, node: str) -> JsonObject | None:
        """Return the message the reconciler gets: signals of the machine, working sets of containers."""
        reading = self._reading
        if reading is None:
            return None
        machine = reading.machine
        return {
            "op": "stats",
            "node": node,
            "source": reading.source,
            "machine": _signals(machine) if machine is not None else None,
            "containers": {one: usage.memory_bytes for one, usage in reading.containers.items()},
        }


def _history(ring: Ring, *, history: bool) -> JsonObject:
    return {"samples": [list(each) for each in ring.samples()]} if history else {}


def _signals(machine: Machine) -> JsonObject:
    return {
        "at_s": machine.usage.at_s,
        "memory_bytes": machine.memory_bytes,
        "memory_available_bytes": machine.memory_available_bytes,
        "processes": machine.processes,
        "most_processes": machine.most_processes,
        "disk": machine.disk._asdict() if machine.disk is not None else None,
    }


def machine_of(proc: Mapping[str, bytes], disk: Disk | None, at_s: float) -> Machine:
    """Return the reading in ``proc``: the bytes of /proc's stat, meminfo, loadavg and sys/kernel/pid_max.

    ``pressure/RESOURCE`` is taken where it is there.

    Raises:
        ValueError: one of them is not what the kernel writes.
    """
    try:
        ticks = [int(each) for each in proc["stat"].split(b"\n", 1)[0].split()[1:9]]
        rows = map(_named, proc["meminfo"].splitlines())
        sizes = {name: int(rest.split()[0]) * 1024 for name, rest in rows if rest}
        # user nice system idle iowait irq softirq steal, 100 ticks a second; guests are in user already
        busy = sum(ticks) - ticks[3] - ticks[4]
        total, available = sizes[b"MemTotal"], sizes[b"MemAvailable"]
        processes = int(proc["loadavg"].split()[3].split(b"/")[1])
        usage = Usage(at_s, busy * (_NS // 100), total - available)
        most = int(proc["sys/kernel/pid_max"])
        pressure = {name: pressure_of(text) for name in PRESSURES if (text := proc.get(f"pressure/{name}"))}
        return Machine(usage, total, available, processes, most, disk, pressure)
    except (IndexError, KeyError, ValueError) as error:
        raise ValueError(f"/proc of the node cannot be read: {error!r}") from error


def pressure_of(text: bytes) -> JsonObject:
    """Return a file of /proc/pressure: ``some`` and ``full`` with ``total_us`` and averages in percent.

    *some* counts the time in which a task waited for the resource, *full* that in which all that could run did.
    """
    found: JsonObject = {}
    for line in text.decode().splitlines():
        which, *fields = line.split()
        numbers: dict[str, Any] = dict(each.split("=", 1) for each in fields)
        averages = {name: float(numbers[name]) for name in ("avg10", "avg60", "avg300")}
        found[which] = {"total_us": int(numbers["total"]), **averages}
    return found


def _named(line: bytes) -> tuple[bytes, bytes]:
    name, _, rest = line.partition(b":")
    return name, rest.strip()

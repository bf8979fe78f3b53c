"""What a virtual machine costs over a Pod: ``python -m tests.benchmarks.nodes.guests``, five minutes.

A cluster of its own with the extension, on this machine. Plain Pods and machines are started in turn. A machine's clock
runs from the create request of the VirtualMachine to the start of its process of QEMU, as the kernel knows it, and with
User-Mode Linux to the line by which the guest says that it is up, as Docker noted it. QEMU's guest is a boot sector
that stands still, so a guest's own work is no part of it.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import psutil

# the extension is no part of the environment: it is installed apart
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "extensions" / "virtual-machines"))
from minik8s_modules.api.kinds import POD
from minik8s_virtual_machines.api.kinds import VM
from tests.benchmarks.figures import Figure
from tests.benchmarks.nodes.remote_start import start_ms
from tests.integration.reconcile.conftest import running
from tests.integration.virtual_machines.conftest import BOOT_S, ClusterWithMachines, Guests
from tests.support.docker.virt_launcher import launcher_image
from tests.support.docker.vm_guests import UML_DISK, disk_image, sector_disk, uml_disk
from tests.support.machines_world import Machines
from tests.support.node import SOCKET
from tests.support.terminal import Terminal

ROUNDS, KEYS = 5, 40
BAR_QEMU_MS, BAR_UML_MS, BAR_KEY_MS, BAR_IDLE, BAR_BESIDE_MB = 1000.0, 1500.0, 30.0, 0.1, 30.0
SECTOR_DISK = "minik8s/test-sector-bench:1"
SETTLE_S, IDLE_S = 75.0, 60.0
"""After its start a guest is asked how it is, seldom and more seldom; then a window of idleness."""


class Bench:
    """A cluster with the extension, in which machines come and go."""

    def __init__(self, guests: Guests, machines: Machines) -> None:
        self.guests, self.machines, self.admin = guests, machines, machines.admin

    def start(self, name: str, kind: str) -> float:
        """Create a machine and wait until it runs; return when it was asked for, in Unix seconds."""
        began = time.time()
        if kind == "uml":
            self.guests.machine(name)
        else:
            self.guests.machine(name, image=SECTOR_DISK, grace_s=0, machine={"type": "q35"}, memory={"guest": "64Mi"})
        self.machines.wait(name, "Running", timeout_s=BOOT_S)
        return began

    def stop(self, name: str) -> None:
        """Delete a machine, and wait until nothing of it is left."""
        self.admin.delete(VM, name, "default")
        self.guests.cluster.until(lambda: not self.admin.list(POD, "default").items, BOOT_S)
        self.guests.cluster.until(lambda: not self.guests.cluster.node.ids(), BOOT_S)
        time.sleep(1)

    def process(self, name: str) -> psutil.Process:
        """Return the process of a machine."""
        return psutil.Process(self.guests.kernel(self.guests.pod_of(name)))

    def started_at(self, name: str) -> float:
        """Return when the process of a machine began; psutil's own answer is a second off, as /proc/stat's btime is."""
        fields = Path(f"/proc/{self.process(name).pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        since_boot = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return since_boot + time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)

    def up_at(self, name: str) -> float:
        """Return when the guest said that it is up."""
        container = self.guests.container(self.guests.pod_of(name))
        argv = ["docker", "logs", "--timestamps", container]

        def line() -> str:
            done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=True)
            return next((each for each in (done.stdout + done.stderr).splitlines() if " is up" in each), "")

        found = re.sub(r"(\.\d{6})\d*Z", r"\1+00:00", self.guests.cluster.until(line, BOOT_S).split()[0])
        return datetime.fromisoformat(found).timestamp()


def starts(bench: Bench) -> Iterator[Figure]:
    """Yield what the start of a machine takes over that of a Pod."""
    node, pods, qemu, uml = bench.guests.cluster.node.name, [], [], []
    for turn in range(ROUNDS + 1):
        pods.append(start_ms(bench.admin, node))
        began = bench.start(f"pc{turn}", "q35")
        qemu.append((bench.started_at(f"pc{turn}") - began) * 1e3)
        bench.stop(f"pc{turn}")
        began = bench.start(f"light{turn}", "uml")
        uml.append((bench.up_at(f"light{turn}") - began) * 1e3)
        bench.stop(f"light{turn}")
    floor = statistics.median(pods[1:])
    text = f"n={ROUNDS} in turns; Pod {floor:.0f} ms; load {os.getloadavg()[0]:.1f}"
    yield Figure("created → QEMU runs, over a Pod, p50", statistics.median(qemu[1:]) - floor, "ms", BAR_QEMU_MS, text)
    yield Figure("created → User-Mode Linux is up, over a Pod, p50", statistics.median(uml[1:]) - floor, "ms",
                 BAR_UML_MS, text)  # fmt: skip


def console(bench: Bench, name: str) -> Iterator[Figure]:
    """Yield how long a typed character takes to the guest and back, by ``virtctl console``."""
    spent = []
    with Terminal(bench.machines.virtctl_argv("console", name)) as terminal:
        terminal.expect(b"Successfully connected")
        terminal.type(b"\n")
        terminal.expect(b"# ")
        for number in range(KEYS + 1):
            token = f"k{number:03d}".encode()
            began = time.perf_counter()
            terminal.type(token)
            terminal.expect(token)
            spent.append((time.perf_counter() - began) * 1e3)
            time.sleep(0.05)
    text = f"n={KEYS}, worst {max(spent[1:]):.0f} ms; load {os.getloadavg()[0]:.1f}"
    yield Figure("console: there and back, p50", statistics.median(spent[1:]), "ms", BAR_KEY_MS, text)


def beside(bench: Bench, name: str) -> Iterator[Figure]:
    """Yield the memory of a pod's processes beside its machine's own."""
    machine = bench.process(name)
    launcher = psutil.Process(bench.guests.launcher(bench.guests.pod_of(name)))
    # of the container: the launcher, and whatever it has started beside the machine
    others = [each for each in (launcher, *launcher.children(recursive=True)) if each != machine]
    found = sum(_pss_mb(each.pid) for each in others)
    text = f"PSS of {len(others)} processes; QEMU's RSS {machine.memory_info().rss / 1e6:.0f} MB"
    yield Figure("launcher beside QEMU", found, "MB", BAR_BESIDE_MB, text)


def _pss_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1e3


def idle(bench: Bench) -> Iterator[Figure]:
    """Yield the CPU of the extension's daemon while its machines run and nothing changes."""
    process = bench.machines.daemon.process
    assert process is not None
    time.sleep(SETTLE_S)
    daemon = psutil.Process(process.pid)
    before, began = daemon.cpu_times(), time.monotonic()
    time.sleep(IDLE_S)
    after = daemon.cpu_times()
    spent = after.user + after.system - before.user - before.system
    share = 100 * spent / (time.monotonic() - began)
    text = f"two machines, window {IDLE_S:.0f} s; load {os.getloadavg()[0]:.1f}"
    yield Figure("idle daemon: CPU", share, "% of a core", BAR_IDLE, text)


def measure() -> Iterator[Figure]:
    """Yield all figures."""
    launcher_image(SOCKET, qemu=True)
    disk_image(UML_DISK, uml_disk())
    with tempfile.NamedTemporaryFile() as file:
        file.write(sector_disk("stands still"))
        file.flush()
        disk_image(SECTOR_DISK, Path(file.name))
    with running(ClusterWithMachines) as cluster:
        machines = Machines(cluster.folder, cluster.server, cluster.admin, [])
        try:
            machines.install()
            bench = Bench(Guests(cluster), machines)
            yield from starts(bench)
            bench.start("light", "uml")
            yield from console(bench, "light")
            bench.start("pc", "q35")
            yield from beside(bench, "pc")
            yield from idle(bench)
        finally:
            machines.daemon.stop()
            cluster.clear()


if __name__ == "__main__":
    for figure in measure():
        print(figure.line(), flush=True)

"""Samples, rings and rates; cAdvisor's, Docker's and the kernel's words for them."""

from __future__ import annotations

import pytest

from minik8s_modules.gateway import metrics_sources, pod_pressure
from minik8s_modules.gateway.errors import FileRefused, NodeUnreachable
from minik8s_modules.gateway.metrics import Disk, Marks, NodeMetrics, PodPressure, Reading, Ring, Usage, machine_of
from minik8s_modules.gateway.metrics_sources import Source, cadvisor_usage, docker_usage
from minik8s_modules.gateway.pod_pressure import PodPressures

ID = "2ece966a7e478645488cedbe07bfc5e6165628cdcdcbcd0f49adf9464b61267b"
PROC = {
    "stat": b"cpu  100 5 20 1000 50 1 2 3 7 0\ncpu0 1 1 1 1\n",
    "meminfo": b"MemTotal:       1000 kB\nMemFree:   100 kB\nMemAvailable:    600 kB\nHugePages_Total:       0\n",
    "loadavg": b"0.10 0.20 0.30 2/345 6789\n",
    "sys/kernel/pid_max": b"32768\n",
}
PRESSURE = b"some avg10=38.47 avg60=46.78 avg300=43.98 total=25558529\nfull avg10=0.00 avg60=0.50 avg300=0.00 total=7\n"


def test_a_ring_keeps_sixty_samples():
    ring = Ring()
    for at_s in range(100):
        ring.add(Usage(at_s, at_s * 1000, at_s))
    assert [each.at_s for each in ring.samples()] == list(range(40, 100))


def test_a_rate_is_that_of_the_last_two_samples():
    ring = Ring()
    ring.add(Usage(10.0, 1_000_000_000, 5))
    assert ring.shown() is None
    ring.add(Usage(20.0, 3_500_000_000, 7))
    assert ring.shown() == {
        "timestamp_s": 20.0, "window_s": 10.0, "cpu_nanocores": 250_000_000, "cpu_nanoseconds": 3_500_000_000,
        "memory_bytes": 7,
    }  # fmt: skip


def test_a_counter_that_went_back_begins_anew_and_an_older_sample_is_left_out():
    ring = Ring()
    ring.add(Usage(10.0, 500, 1))
    ring.add(Usage(9.0, 900, 1))
    ring.add(Usage(20.0, 100, 1))
    assert ring.samples() == [Usage(20.0, 100, 1)]


def test_the_ring_of_a_container_ends_with_it():
    metrics = NodeMetrics()
    marks = {ID: Marks("uid", "web", "default", "app")}
    metrics.add(Reading(None, {ID: Usage(10.0, 0, 1)}, marks, "docker"))
    metrics.add(Reading(None, {ID: Usage(20.0, 10, 2)}, marks, "docker"))
    assert [each["container"] for each in metrics.shown()["containers"]] == ["app"]
    assert len(metrics.shown(history=True)["containers"][0]["samples"]) == 2
    metrics.add(Reading(None, {}, {}, "docker"))
    assert metrics.shown() == {"source": "docker", "machine": None, "containers": []}


def test_the_machine_is_read_from_proc():
    machine = machine_of(PROC, Disk(100, 40, 10, 5), 7.0)
    # all but idle and iowait, at 100 ticks a second
    assert machine.usage == Usage(7.0, 131 * 10_000_000, 400 * 1024)
    assert (machine.processes, machine.most_processes) == (345, 32768)


@pytest.mark.parametrize("name", PROC)
def test_proc_that_is_not_the_kernels_is_an_error(name):
    with pytest.raises(ValueError, match="cannot be read"):
        machine_of({**PROC, name: b"what\n"}, None, 7.0)


def test_the_pressure_of_resources_is_read_where_the_kernel_tells_it():
    machine = machine_of({**PROC, "pressure/io": PRESSURE}, None, 7.0)
    assert machine.pressure["io"]["some"] == {"total_us": 25558529, "avg10": 38.47, "avg60": 46.78, "avg300": 43.98}
    metrics = NodeMetrics()
    for at_s in (7.0, 8.0):
        metrics.add(Reading(machine._replace(usage=Usage(at_s, 1, 1)), {}, {}, "docker"))
    assert metrics.shown()["machine"]["pressure"]["io"]["full"]["total_us"] == 7
    assert machine_of(PROC, None, 7.0).pressure == {}
    with pytest.raises(ValueError, match="cannot be read"):
        machine_of({**PROC, "pressure/io": b"some avg10=1\n"}, None, 7.0)


class Files:
    """A node without /proc/pressure."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fault: Exception | None = FileRefused("cannot read it: No such file or directory")

    def read(self, path: str) -> bytes:
        """Return what the test has."""
        self.asked.append(path)
        if "pressure" in path:
            if self.fault is not None:
                raise self.fault
            return PRESSURE
        return PROC[path.removeprefix("/proc/")]

    def disk(self, _path: str) -> Disk:
        """Return any."""
        return Disk(100, 40, 10, 5)


def test_a_kernel_without_pressure_is_asked_for_it_once(monkeypatch):
    files = Files()
    source = Source("n", "/nowhere", "", files)
    monkeypatch.setattr(source, "_root", "/")
    for _ in range(metrics_sources.PRESSURE_PAUSE):
        machine = source._machine()
        assert machine is not None
        assert machine.processes == 345
    assert [one for one in files.asked if "pressure" in one] == ["/proc/pressure/cpu"]
    files.fault = None  # what refused it then may have been passing
    machine = source._machine()
    assert machine is not None
    assert set(machine.pressure) == {"cpu", "memory", "io"}


def test_a_broken_channel_is_not_taken_for_a_kernel_without_pressure(monkeypatch):
    files = Files()
    source = Source("n", "/nowhere", "", files)
    monkeypatch.setattr(source, "_root", "/")
    files.fault = NodeUnreachable("sftp: the channel was closed")
    assert source._machine() is None
    files.fault = None
    machine = source._machine()
    assert machine is not None
    assert set(machine.pressure) == {"cpu", "memory", "io"}


def test_cadvisor_names_containers_by_the_end_of_their_cgroup():
    sample = {"timestamp": "2026-11-20T07:22:59.5Z", "cpu": {"usage": {"total": 7}}, "memory": {"working_set": 9}}
    answer = {
        f"/docker/{ID}": [sample],
        f"/kubepods/burstable/pod1/{'a' * 64}": [sample],
        f"/system.slice/docker-{'b' * 64}.scope": [sample],
        "/docker": [sample],
        f"/docker/{'c' * 64}": [],
        f"/docker/{'d' * 64}": [{"timestamp": "no time"}],
    }
    found = cadvisor_usage(answer)
    assert set(found) == {ID, "a" * 64, "b" * 64}
    assert (found[ID].cpu_ns, found[ID].memory_bytes) == (7, 9)


@pytest.mark.parametrize("name", ["total_inactive_file", "inactive_file"])
def test_dockers_working_set_leaves_out_what_the_kernel_may_drop(name):
    answer = {
        "read": "2026-11-20T07:22:59Z",
        "cpu_stats": {"cpu_usage": {"total_usage": 5}},
        "memory_stats": {"usage": 1000, "stats": {name: 300}},
    }
    found = docker_usage(answer)
    assert found is not None
    assert (found.cpu_ns, found.memory_bytes) == (5, 700)


def test_a_container_that_has_ended_has_no_usage():
    assert docker_usage({"read": "0001-01-01T00:00:00Z", "memory_stats": {}, "cpu_stats": {}}) is None


SLICE = "/sys/fs/cgroup/minik8s.slice/minik8s-1b16b1df.slice/minik8s-1b16b1df-podu_1.slice"


class Cgroups:
    """Files of a node's cgroups; what is not there is refused."""

    def __init__(self, *folders: str) -> None:
        self.files = {f"{folder}/{name}.pressure": PRESSURE for folder in folders for name in ("cpu", "memory", "io")}
        self.asked: list[str] = []

    def read(self, path: str) -> bytes:
        """Return what the file holds."""
        self.asked.append(path)
        if path not in self.files:
            raise FileRefused(f"cannot read {path}")
        return self.files[path]


@pytest.mark.parametrize("root", ["/sys/fs/cgroup/minik8s/1b16b1df/pod", "/sys/fs/cgroup/unified/minik8s/1b16b1df/pod"])
def test_the_pressure_of_pods_is_read_where_their_cgroups_are(root: str):
    node = Cgroups(f"{root}u-1", f"{root}u-2")
    pressures = PodPressures("n", node.read)
    found = pressures.of({"u-1", "u-2", "u-3"}, 7.0)
    assert {uid: one.at_s for uid, one in found.items()} == {"u-1": 7.0, "u-2": 7.0}
    assert found["u-1"].resources["io"]["some"]["total_us"] == 25558529
    node.asked.clear()
    assert pressures.of({"u-1"}, 17.0).keys() == {"u-1"}  # what was told last
    assert node.asked == []
    pressures.of({"u-1"}, 27.0)
    assert pressures.of({"u-1"}, 37.0)["u-1"].at_s == 37.0
    assert len(node.asked) == 3


def test_the_pressure_of_pods_is_read_from_slices():
    assert PodPressures("n", Cgroups(SLICE).read).of({"u-1"}, 7.0)["u-1"].resources.keys() == {"cpu", "memory", "io"}


def test_a_node_whose_pods_tell_no_pressure_is_left_alone_for_some_time():
    node = Cgroups()
    pressures = PodPressures("n", node.read)
    for _ in range(pod_pressure.EVERY * pod_pressure.PAUSE):
        assert pressures.of({"u-1"}, 7.0) == {}
    assert len(node.asked) == 3  # one file at each place
    node.files = Cgroups(SLICE).files
    assert pressures.of({"u-1"}, 8.0).keys() == {"u-1"}
    del node.files[f"{SLICE}/io.pressure"]  # the pod goes while it is read
    told = [pressures.of({"u-1"}, 9.0) for _ in range(pod_pressure.EVERY)]
    assert told[-1] == {}


def test_what_pods_told_is_shown_by_their_uids():
    told = {"u-1": PodPressure(7.0, {"cpu": {"some": {"total_us": 5}}})}
    metrics = NodeMetrics()
    metrics.add(Reading(None, {}, {}, "docker", told))
    assert metrics.shown()["pressure"] == {"u-1": {"timestamp_s": 7.0, "cpu": {"some": {"total_us": 5}}}}
    metrics.add(Reading(None, {}, {}, "docker"))
    assert "pressure" not in metrics.shown()

"""Parts of a pod that this machine cannot show: cgroup version 2, Docker's systemd driver, odd resolvers."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, cast

import pytest

from minik8s_modules.module_utils.minik8s.core.docker import DockerError
from minik8s_modules.module_utils.minik8s.core.section import Request, Scope, context_for
from minik8s_modules.module_utils.minik8s.pods import (
    cgroups,
    host_ports,
    huge_pages,
    pod_cgroup,
    pod_files,
    sandbox_parts,
)

UID = "4ab1c2d3-0000-4000-8000-000000000001"
LIMITS = {"cpu_shares": 1024, "cpu_quota_us": 50_000, "memory_bytes": 64 << 20, "pids": 100}


@pytest.fixture
def version_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hierarchy of version 2 with one pod; the files of its cgroup are there."""
    parent = pod_cgroup.parent_of("n1", UID)
    (tmp_path / parent[1:] / "container").mkdir(parents=True)
    for name, text in (("cpu.weight", "100"), ("cpu.max", "max 100000"), ("memory.max", "max"), ("pids.max", "max")):
        (tmp_path / parent[1:] / name).write_text(text)
    for module in (cgroups, pod_cgroup):
        monkeypatch.setattr(module, "ROOT", str(tmp_path))
    monkeypatch.setattr(pod_cgroup, "membership", lambda _pid: {"": parent + "/container"})
    return tmp_path / parent[1:]


def test_limits_of_a_pod_in_version_2(version_2: Path) -> None:
    assert pod_cgroup.found("n1", UID, 1, LIMITS) != LIMITS
    pod_cgroup.write("n1", UID, 1, LIMITS)
    assert (version_2 / "cpu.weight").read_text() == "39"
    assert (version_2 / "cpu.max").read_text() == "50000 100000"
    assert (version_2 / "memory.max").read_text() == str(64 << 20)
    assert (version_2 / "pids.max").read_text() == "100"
    assert pod_cgroup.found("n1", UID, 1, LIMITS) == LIMITS
    free = {"cpu_shares": 2, "cpu_quota_us": 0, "memory_bytes": 0, "pids": 0}
    pod_cgroup.write("n1", UID, 1, free)
    written = [(version_2 / f"{name}.max").read_text() for name in ("cpu", "memory", "pids")]
    assert written == ["max 100000", "max", "max"]
    assert pod_cgroup.found("n1", UID, 1, free) == free


def test_what_an_older_document_does_not_say_of_a_pod_stays(version_2: Path) -> None:
    (version_2 / "pids.max").write_text("100")
    older = {name: value for name, value in LIMITS.items() if name != "pids"}
    pod_cgroup.write("n1", UID, 1, older)
    assert (version_2 / "pids.max").read_text() == "100"
    assert pod_cgroup.found("n1", UID, 1, older) == older


def test_a_pod_uses_no_swap_in_version_2(version_2: Path) -> None:
    pod_cgroup.write("n1", UID, 1, LIMITS)
    assert not (version_2 / "memory.swap.max").exists()  # a kernel without swap
    (version_2 / "memory.swap.max").write_text("max\n")
    assert pod_cgroup.found("n1", UID, 1, LIMITS) == {**LIMITS, "swap_bytes": "max"}
    pod_cgroup.write("n1", UID, 1, LIMITS)
    assert (version_2 / "memory.swap.max").read_text() == "0"
    assert pod_cgroup.found("n1", UID, 1, LIMITS) == LIMITS


HUGE = {"hugetlb.2MB.max": "max", "hugetlb.2MB.rsvd.max": "max", "hugetlb.1GB.max": "max", "hugetlb.2MB.current": "0"}


def test_a_pod_has_the_huge_pages_it_requests_and_none_of_other_sizes(version_2: Path) -> None:
    for name, text in HUGE.items():
        (version_2 / name).write_text(text + "\n")
    wants = {**LIMITS, "huge_pages": {str(2 << 20): 8 << 20}}
    for path, text in pod_cgroup._files({"": "/" + str(version_2.relative_to(cgroups.ROOT))}, LIMITS):
        if Path(path).exists():
            Path(path).write_text(text)
    assert pod_cgroup.found("n1", UID, 1, wants) == {**wants, "huge_pages": {str(1 << 30): -1, str(2 << 20): -1}}
    pod_cgroup.write("n1", UID, 1, wants)
    written = {name: (version_2 / name).read_text() for name in HUGE}
    eight = str(8 << 20)
    assert written == {
        "hugetlb.2MB.max": eight, "hugetlb.2MB.rsvd.max": eight, "hugetlb.1GB.max": "0", "hugetlb.2MB.current": "0\n"
    }  # fmt: skip
    assert pod_cgroup.found("n1", UID, 1, wants) == wants
    for name in ("hugetlb.2MB.max", "hugetlb.2MB.rsvd.max"):  # either alone is seen
        (version_2 / name).write_text("0\n")
        assert pod_cgroup.found("n1", UID, 1, wants) == {**wants, "huge_pages": {str(1 << 30): 0, str(2 << 20): 0}}
        (version_2 / name).write_text(eight)
    # a pod that asks for none, as all of older documents, has none
    assert pod_cgroup.found("n1", UID, 1, LIMITS) == {**LIMITS, "huge_pages": {str(1 << 30): 0, str(2 << 20): 8 << 20}}
    pod_cgroup.write("n1", UID, 1, LIMITS)
    assert {(version_2 / name).read_text().strip() for name in HUGE} == {"0"}
    assert pod_cgroup.found("n1", UID, 1, LIMITS) == LIMITS


def test_huge_pages_are_limited_where_their_controller_is(tmp_path: Path) -> None:
    first = {"cpu": "/d", "hugetlb": "/h/pod", "": "/u/pod"}
    assert huge_pages.directory("/r", first) == "/r/hugetlb/h/pod"
    assert huge_pages.directory("/r", {"cpu": "/d", "": "/u/pod"}) == "/r/unified/u/pod"
    assert huge_pages.directory("/r", {"": "/u/pod"}) == "/r/u/pod"
    assert huge_pages.directory("/r", {"cpu": "/d"}) == ""
    (tmp_path / "hugetlb.64KB.limit_in_bytes").write_text("9223372036854710272\n")
    assert huge_pages.different(str(tmp_path), {}) == {"65536": 9223372036854710272}
    huge_pages.write(str(tmp_path), {"65536": 131072})
    assert huge_pages.different(str(tmp_path), {"65536": 131072}) is None


@pytest.mark.parametrize(("name", "used"), [("max", "current"), ("limit_in_bytes", "usage_in_bytes")])
def test_a_pod_that_uses_huge_pages_it_did_not_request_gets_no_more_of_them(
    tmp_path: Path, name: str, used: str
) -> None:
    """The kernel refuses a limit below the usage: an upgraded node does not try at each look, in vain."""
    limits = [tmp_path / f"hugetlb.{size}.{name}" for size in ("2MB", "2MB.rsvd", "1GB")]
    for limit in limits:
        limit.write_text("9223372036854710272\n")
    for size, text in (("2MB", 8 << 20), ("2MB.rsvd", 4 << 20), ("1GB", 0)):
        (tmp_path / f"hugetlb.{size}.{used}").write_text(f"{text}\n")
    assert huge_pages.different(str(tmp_path), {}) is not None
    huge_pages.write(str(tmp_path), {})
    assert [int(limit.read_text()) for limit in limits] == [8 << 20, 4 << 20, 0]
    assert huge_pages.different(str(tmp_path), {}) is None
    (tmp_path / f"hugetlb.2MB.{used}").write_text("0\n")
    assert huge_pages.different(str(tmp_path), {}) == {str(2 << 20): 8 << 20, str(1 << 30): 0}
    huge_pages.write(str(tmp_path), {})
    assert [int(limit.read_text()) for limit in limits] == [0, 4 << 20, 0]


def test_the_controller_of_huge_pages_is_turned_on_above_a_pod(tmp_path: Path) -> None:
    for path in ("unified", "unified/minik8s", "unified/minik8s/n", "unified/minik8s/n/pod"):
        (tmp_path / path).mkdir()
        (tmp_path / path / "cgroup.controllers").write_text("cpu hugetlb\n")
        (tmp_path / path / "cgroup.subtree_control").write_text("")
    pod = tmp_path / "unified/minik8s/n/pod"
    huge_pages.write(str(pod), {})
    assert (pod / "cgroup.subtree_control").read_text() == "", "its containers have no limits of their own"
    for above in (pod.parent, pod.parent.parent, tmp_path / "unified"):
        assert (above / "cgroup.subtree_control").read_text() == "+hugetlb"
    (tmp_path / "unified" / "cgroup.controllers").write_text("cpu\n")
    for above in (pod.parent, pod.parent.parent, tmp_path / "unified"):
        (above / "cgroup.subtree_control").write_text("")
    huge_pages.write(str(pod), {})
    assert (pod.parent / "cgroup.subtree_control").read_text() == ""


def test_a_cgroup_of_somebody_else_is_not_a_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_cgroup, "membership", lambda _pid: {"": "/docker/0123"})
    assert pod_cgroup.found("n1", UID, 1, LIMITS) is None
    monkeypatch.setattr(
        pod_cgroup, "membership", lambda _pid: {"": f"/minik8s.slice/{pod_cgroup.slice_of('n', UID)}/d"}
    )
    assert pod_cgroup.paths_of("n", UID, 1) == {"": f"/minik8s.slice/{pod_cgroup.slice_of('n', UID)}"}


def test_a_pod_that_has_the_number_of_anothers_process_keeps_its_limits(version_2: Path) -> None:
    other = UID.replace("4ab1", "5bc2")
    assert pod_cgroup.paths_of("n1", UID, 1)
    for node, uid in (("n1", other), ("n2", UID)):
        assert pod_cgroup.found(node, uid, 1, LIMITS) is None
        pod_cgroup.write(node, uid, 1, LIMITS)
    assert (version_2 / "memory.max").read_text() == "max"


def test_a_cgroup_in_use_is_left_over_but_not_empty(version_2: Path) -> None:
    assert pod_cgroup.left_over("n1", []) == [UID]
    assert pod_cgroup.left_over("n1", [UID]) == []
    assert pod_cgroup.left_over("other", []) == []
    (version_2 / "container" / "cgroup.procs").write_text("1\n")
    assert not pod_cgroup.is_idle("n1", UID)
    (version_2 / "container" / "cgroup.procs").write_text("")
    assert pod_cgroup.is_idle("n1", UID)
    assert not pod_cgroup.is_idle("n1", "*"), "no uid of ours stands for all pods"


@pytest.fixture
def slice_of_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hierarchy of version 2 with a pod's slice as systemd makes it, a container's scope below it."""
    name = pod_cgroup.slice_of("n1", UID)
    own = tmp_path / "minik8s.slice" / name.replace(f"-pod{UID.replace('-', '_')}", "") / name
    (own / "docker-1.scope").mkdir(parents=True)
    (own / "docker-1.scope" / "cgroup.procs").write_text("1\n")
    for module in (cgroups, pod_cgroup):
        monkeypatch.setattr(module, "ROOT", str(tmp_path))
    monkeypatch.setattr(pod_cgroup, "CONTROL", str(tmp_path / "system.control"))
    monkeypatch.setattr(pod_cgroup, "membership", lambda _pid: {"": f"/{own.relative_to(tmp_path)}/docker-1.scope"})
    return own


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A systemctl that writes down what it is asked, and removes a slice's directory when it stops it."""
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n'
        f"[ ! -e {tmp_path}/busy ] || exit 1\n"
        f'[ "$1" != stop ] || find {tmp_path} -depth -type d -name "$2" -exec rm -r {{}} \\;\n'
        f'[ "$2" != revert ] || rm -rf "{tmp_path}/system.control/$3.d"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return tmp_path / "asked"


def test_limits_of_a_slice_are_properties_that_a_reload_keeps(slice_of_a_pod: Path, asked: Path) -> None:
    pod_cgroup.write("n1", UID, 1, LIMITS)
    assert asked.read_text().split() == [
        "set-property", "--runtime", slice_of_a_pod.name,
        "CPUQuota=50.00%", f"MemoryMax={64 << 20}", "CPUWeight=39", "MemorySwapMax=0", "TasksMax=100",
    ]  # fmt: skip


def test_no_limits_of_a_slice_take_back_earlier_ones() -> None:
    free = {"cpu_shares": 2, "cpu_quota_us": 0, "memory_bytes": 0, "pids": 0}
    assert pod_cgroup.properties(free, version_2=True) == [
        "CPUQuota=", "MemoryMax=infinity", "CPUWeight=1", "MemorySwapMax=0", "TasksMax=infinity",
    ]  # fmt: skip
    assert pod_cgroup.properties(free, version_2=False)[1:3] == ["MemoryLimit=infinity", "CPUShares=2"]


def test_a_refusal_of_systemd_is_an_error_with_its_words(
    slice_of_a_pod: Path, asked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (asked.parent / "bin" / "systemctl").write_text("#!/bin/sh\necho Access denied >&2\nexit 4\n")
    with pytest.raises(OSError, match=f"set-property --runtime {slice_of_a_pod.name}.*Access denied"):
        pod_cgroup.write("n1", UID, 1, LIMITS)


def test_an_empty_slice_goes_with_its_pod_and_those_above_it_stay(slice_of_a_pod: Path, asked: Path) -> None:
    assert pod_cgroup.left_over("n1", []) == [UID]
    assert pod_cgroup.left_over("n1", [UID]) == []
    pod_cgroup.remove("n1", UID)
    assert slice_of_a_pod.is_dir()  # a container is in it
    assert not asked.exists()
    # what Docker ran there has ended, and systemd has not removed its scope yet
    (slice_of_a_pod / "docker-1.scope" / "cgroup.procs").write_text("")
    assert pod_cgroup.is_idle("n1", UID)
    pod_cgroup.remove("n1", UID)
    name = slice_of_a_pod.name
    assert asked.read_text().splitlines() == [f"stop {name}", f"--no-reload revert {name}"]
    assert not slice_of_a_pod.exists()
    assert slice_of_a_pod.parent.is_dir()  # a pod that is just being made may need it


def test_a_slice_that_a_busy_systemd_keeps_is_found_by_the_next_look_at_its_pod(
    slice_of_a_pod: Path, asked: Path, tmp_path: Path
) -> None:
    def left() -> tuple[str, ...]:
        scope = Scope(frozenset({UID}))
        return sandbox_parts.observe(context, {}, {}, [], scope).cgroups_left

    context = context_for(Request("n1", state_dir=str(tmp_path / "state")))
    assert left() == ()  # something runs in it
    (slice_of_a_pod / "docker-1.scope" / "cgroup.procs").write_text("")
    properties = tmp_path / "system.control" / f"{slice_of_a_pod.name}.d"
    properties.mkdir(parents=True)
    busy = tmp_path / "busy"
    busy.touch()
    with pytest.raises(OSError, match="still there"):
        sandbox_parts.removed(context, UID)
    assert left() == (UID,)
    busy.unlink()
    shutil.rmtree(slice_of_a_pod)
    assert left() == (UID,), "its properties are left"
    assert pod_cgroup.left_over("n1", []) == [UID]
    sandbox_parts.removed(context, UID)
    assert (left(), properties.exists()) == ((), False)


def test_the_slices_above_are_told_unless_they_hold_others(slice_of_a_pod: Path, tmp_path: Path) -> None:
    above = slice_of_a_pod.parent
    assert pod_cgroup.slices_above("n1") == [above.name, "minik8s.slice"]
    assert pod_cgroup.slices_above("n2") == []
    (tmp_path / "minik8s.slice" / "minik8s-0badcafe.slice").mkdir()
    assert pod_cgroup.slices_above("n1") == [above.name]


class SystemdDocker:
    """A Docker whose cgroup driver is systemd's."""

    def __init__(self) -> None:
        self.parents: list[str] = []

    def create(self, _name: str, body: dict[str, Any]) -> str:
        """Take slices only, in Docker's words."""
        parent = body["HostConfig"]["CgroupParent"]
        self.parents.append(parent)
        if not parent.endswith(".slice"):
            raise DockerError(400, 'cgroup-parent for systemd cgroup should be a valid slice named as "xxx.slice"')
        return "id"


def test_dockers_systemd_driver_gets_a_slice() -> None:
    docker = SystemdDocker()
    context = context_for(Request("n1"), docker=cast(Any, docker))
    body = {"HostConfig": {"CgroupParent": pod_cgroup.parent_of("n1", UID)}}
    assert sandbox_parts.create(context, "name", body, UID) == "id"
    assert docker.parents[1] == f"minik8s-{docker.parents[0].split('/')[2]}-pod{UID.replace('-', '_')}.slice"


def test_a_resolver_behind_systemds_stub_is_the_one_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stub").write_text("# stub\nnameserver 127.0.0.53\noptions edns0\nsearch lan\n")
    (tmp_path / "real").write_text("nameserver 192.0.2.1\nnameserver fe80::1%eth0\ndomain old\nsearch lan home\n")
    monkeypatch.setattr(pod_files, "NODE_RESOLVER", str(tmp_path / "stub"))
    monkeypatch.setattr(pod_files, "SYSTEMD_RESOLVER", str(tmp_path / "missing"))
    assert pod_files.node_resolver(None) == pod_files.Resolver(["127.0.0.53"], ["lan"], ["edns0"])
    monkeypatch.setattr(pod_files, "SYSTEMD_RESOLVER", str(tmp_path / "real"))
    assert pod_files.node_resolver(None).nameservers == ["192.0.2.1", "fe80::1%eth0"]
    assert pod_files.node_resolver(None).searches == ["lan", "home"]


def test_a_pod_takes_over_what_its_node_asked_before_it_asked_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ours").write_text("nameserver 169.254.20.10\nsearch lan nodes.cluster.local svc.cluster.local\n")
    monkeypatch.setattr(pod_files, "NODE_RESOLVER", str(tmp_path / "ours"))
    kept = "nameserver 192.0.2.1\nsearch lan\n"
    assert pod_files.node_resolver(kept) == pod_files.Resolver(["192.0.2.1"], ["lan"], [])


def test_a_later_option_wins_and_three_servers_are_kept() -> None:
    node = pod_files.Resolver(["192.0.2.1", "192.0.2.2"], ["lan"], ["ndots:1", "rotate"])
    own = {"nameservers": ["192.0.2.2", "192.0.2.3", "192.0.2.4"], "searches": ["a.b"], "options": ["ndots:5"]}
    assert pod_files.resolver_text({**own, "node": True}, node) == (
        "search lan a.b\nnameserver 192.0.2.1\nnameserver 192.0.2.2\nnameserver 192.0.2.3\noptions ndots:5 rotate\n"
    )
    assert pod_files.resolver_text(own, node).startswith("search a.b\nnameserver 192.0.2.2\n")


@pytest.mark.parametrize(
    "change",
    [
        {"host_ports": [{"ip": "", "protocol": "ICMP", "host_port": 1, "port": 1}]},
        {"host_ports": [{"ip": "", "protocol": "TCP", "host_port": 70000, "port": 1}]},
        {"host_ports": [{"ip": "1.2.3", "protocol": "TCP", "host_port": 1, "port": 1}]},
        {"host_ports": [{"ip": "", "protocol": "TCP", "host_port": 1}]},
        {"host_aliases": [["192.0.2.1", "a b"]]},
        {"host_aliases": [["192.0.2.1", "a\nb"]]},
        {"sysctls": [["one"]]},
        {"cgroup": {"cpu_shares": 2}},
    ],
)
def test_parts_that_mean_nothing_are_refused(change: dict[str, Any]) -> None:
    entry = {"sysctls": [], "host_aliases": [], "cgroup": None, "host_ports": [], **change}
    with pytest.raises(Exception, match="key"):
        sandbox_parts.check("key", entry)


def test_rows_are_read_as_nft_prints_them() -> None:
    text = """table ip minik8s_ports_0 {
\tmap tcp_any {
\t\ttype inet_service : ipv4_addr . inet_service
\t\telements = { 80 comment "a" : 10.0.0.1 . 8080,
\t\t\t     443 comment "b" : 10.0.0.2 . 8443 }
\t}

\tmap udp_one {
\t\telements = { 192.0.2.1 . 53 comment "a" : 10.0.0.1 . 53 }
\t}
}
"""
    text += text.replace("table ip ", "table ip6 ").replace("10.0.0.", "fd00::").replace("192.0.2.1 . 53", "54")
    rows = host_ports.parse_rows(text)
    assert rows["a"] == {
        host_ports.Row("tcp", "", 80, "10.0.0.1", 8080),
        host_ports.Row("udp", "192.0.2.1", 53, "10.0.0.1", 53),
        host_ports.Row("tcp", "", 80, "fd00::1", 8080),
        host_ports.Row("udp", "", 54, "fd00::1", 53),
    }
    assert {str(row) for row in rows["b"]} == {"*:443/tcp to 10.0.0.2:8443", "[::]:443/tcp to [fd00::2]:8443"}


def test_a_port_leads_to_both_addresses_unless_it_names_one() -> None:
    port = {"protocol": "TCP", "host_port": 80, "port": 8080}
    entry = {"host_network": False, "ip": "10.0.0.1", "ipv6": {"ip": "fd00::1"}}
    for address, families in (("", "46"), ("0.0.0.0", "4"), ("192.0.2.1", "4")):
        rows = host_ports.declared({**entry, "host_ports": [{**port, "ip": address}]})
        assert {"6" if ":" in row.ip else "4" for row in rows} == set(families)
    (row,) = host_ports.declared({**entry, "ipv6": None, "host_ports": [{**port, "ip": ""}]})
    assert row == host_ports.Row("tcp", "", 80, "10.0.0.1", 8080)

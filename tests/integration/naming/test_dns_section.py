"""The section dns with a real CoreDNS: records, changes without a restart, kills in the middle, the node's resolver."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core.section import Request, context_for, run_pass
from minik8s_modules.module_utils.minik8s.names.dns import Dns
from minik8s_modules.module_utils.minik8s.names.dns_guard import NOWHERE, Place, guard, observe
from tests.support.etcd import free_port
from tests.support.node import PATIENT
from tests.support.servers import coredns
from tests.support.servers.coredns import ask
from tests.support.waiting import until

WEB = {
    "records": [
        ["web.default.svc", "A", "100.0.0.7"],
        ["_http._tcp.web.default.svc", "SRV", 80, "web.default.svc"],
        ["db-0.web.default.svc", "AAAA", "fd00::7"],
    ],
    "pointers": [["100.0.0.7", "web.default.svc"], ["fd00::7", "db-0.web.default.svc"]],
    "names": [["100.0.0.7", "web"]],
}
EXTERNAL = {"records": [["out.default.svc", "CNAME", "example.com"]]}


class Machine:
    """A node's directories with a DNS section, on an address of 127.0.0.0/8."""

    def __init__(self, root: Path) -> None:
        number = uuid.uuid4().int
        self.server = (f"127.{number % 200 + 20}.{(number >> 8) % 250}.{(number >> 16) % 250 + 2}", free_port())
        self.node, self.root, self.resolver = f"n{number % 10**9}", root, root / "resolv.conf"
        self.resolver.write_text("nameserver 127.0.0.9\n")
        self.section = Dns(str(self.resolver))

    def entries(self, more: dict[str, Any] | None = None, *, host_resolver: bool = False) -> dict[str, Any]:
        """Return a section."""
        listen, port = self.server
        config = {"listen": listen, "port": port, "domain": "cluster.local", "forward": ["127.0.0.9"]}
        return {"server": {**config, "host_resolver": host_resolver}, **(more or {})}

    def run(self, entries: dict[str, Any], *, check: bool = False, **context: Any) -> dict[str, Any]:
        """Run a pass over the whole section."""
        request = Request(self.node, entries=entries, state_dir=str(self.root / "s"), run_dir=str(self.root / "r"))
        return run_pass(self.section, request, context_for(request, **{**PATIENT, **context}), check=check)

    def ask(self, name: str, kind: str = "A") -> tuple[str, list[str]]:
        """Ask the server."""
        return ask(self.server, name, kind)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def served(machine: Machine) -> Iterator[Machine]:
    machine.run(machine.entries({"service/default/web": WEB, "service/default/out": EXTERNAL}))
    with coredns.running(machine.root / "s/dns/Corefile", machine.root / "log"):
        until(lambda: machine.ask("web.default.svc.cluster.local")[0] == "NOERROR")
        yield machine


def test_names_services_addresses_and_pods_are_answered(served: Machine):
    assert served.ask("web.default.svc.cluster.local") == ("NOERROR", ["100.0.0.7"])
    assert served.ask("web") == ("NOERROR", ["100.0.0.7"])
    assert served.ask("db-0.web.default.svc.cluster.local", "AAAA") == ("NOERROR", ["fd00::7"])
    assert served.ask("db-0.web.default.svc.cluster.local") == ("NOERROR", [])
    srv = served.ask("_http._tcp.web.default.svc.cluster.local", "SRV")
    assert srv == ("NOERROR", ["80 web.default.svc.cluster.local"])
    assert served.ask("7.0.0.100.in-addr.arpa", "PTR") == ("NOERROR", ["web.default.svc.cluster.local"])
    second = f"7.{'0.' * 27}0.0.d.f.ip6.arpa"
    assert served.ask(second, "PTR") == ("NOERROR", ["db-0.web.default.svc.cluster.local"])
    assert served.ask("out.default.svc.cluster.local", "CNAME") == ("NOERROR", ["example.com"])
    assert served.ask("10-244-0-9.default.pod.cluster.local") == ("NOERROR", ["10.244.0.9"])
    assert served.ask("nobody.default.svc.cluster.local")[0] == "NXDOMAIN"


@pytest.mark.parametrize("kind", ["AAAA", "MX", "TXT"])
@pytest.mark.parametrize(
    "name",
    [
        "web.default.svc.cluster.local",
        "default.svc.cluster.local",
        "web",
        "10-244-0-9.default.pod.cluster.local",
        "default.pod.cluster.local",
        "pod.cluster.local",
        "7.0.0.100.in-addr.arpa",
    ],
)
def test_a_name_that_is_there_has_no_data_of_other_types_and_is_not_denied(served: Machine, name: str, kind: str):
    assert served.ask(name, kind) == ("NOERROR", [])


@pytest.mark.parametrize("kind", ["A", "AAAA"])
@pytest.mark.parametrize("name", ["nobody.default.svc", "10-244-0.default.pod", "999-0-0-1.default.pod"])
def test_a_name_that_is_not_there_is_denied_for_every_type(served: Machine, name: str, kind: str):
    assert served.ask(f"{name}.cluster.local", kind) == ("NXDOMAIN", [])


def test_a_new_service_resolves_without_a_restart_and_a_deleted_one_no_more(served: Machine):
    late = {"records": [["late.default.svc", "A", "100.0.0.9"]], "names": [["100.0.0.9", "late"]]}
    result = served.run(served.entries({"service/default/late": late}))
    assert result["changed"]
    assert not result["errors"]
    until(lambda: served.ask("late.default.svc.cluster.local") == ("NOERROR", ["100.0.0.9"]))
    until(lambda: served.ask("late") == ("NOERROR", ["100.0.0.9"]))
    until(lambda: served.ask("web.default.svc.cluster.local")[0] == "NXDOMAIN")
    assert not served.run(served.entries({"service/default/late": late}))["changed"]


def test_a_file_changed_by_hand_is_put_right_and_shown_by_a_check(served: Machine):
    entries = served.entries({"service/default/web": WEB, "service/default/out": EXTERNAL})
    zone = served.root / "s/dns/cluster.zone"
    zone.write_text(zone.read_text().replace("100.0.0.7", "192.0.2.66"))
    shown = served.run(entries, check=True)
    assert "192.0.2.66" in shown["diff"]["before"]
    assert "192.0.2.66" not in shown["diff"]["after"]
    assert served.run(entries)["steps"] == shown["steps"]
    assert not served.run(entries)["changed"]


def test_rules_that_nobody_declared_are_shown_by_a_check_and_go(machine: Machine):
    entries = machine.entries()
    machine.run(entries)
    left = Place("169.254.77.9", 53)
    guard(machine.node, left)  # of a server at another address than loopback's
    try:
        shown = machine.run(entries, check=True)
        assert [step["action"] for step in shown["steps"]] == ["guard-address"]
        assert f"guarded: {left}" in shown["diff"]["before"]
        assert "guarded: none" in shown["diff"]["after"]
        assert machine.run(entries)["steps"] == shown["steps"]
        assert observe(machine.node) == NOWHERE
    finally:
        guard(machine.node, NOWHERE)


def test_killed_before_any_effect_the_next_pass_finishes(machine: Machine):
    entries = machine.entries({"service/default/web": WEB}, host_resolver=True)
    effects: list[str] = []
    Machine.run(machine, entries, checkpoint=effects.append)
    wanted = _tree(machine.root / "s/dns")
    machine.run({})
    for number in range(len(effects)):

        def stop(_effect: str, left: list[int] = [number]) -> None:  # noqa: B006 - counts its own calls
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            machine.run(entries, checkpoint=stop, threads=1)
        result = machine.run(entries)
        assert _tree(machine.root / "s/dns").keys() == wanted.keys()
        assert not {key: why for key, why in result["errors"].items() if why["reason"] != "ServerNotRunning"}
        assert not machine.run(entries)["changed"]
        machine.run({})


def _tree(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("linked", [False, True])
def test_the_nodes_resolver_changes_when_asked_for_and_comes_back(machine: Machine, *, linked: bool):
    if linked:
        (machine.root / "real").write_text("nameserver 127.0.0.9\n")
        machine.resolver.unlink()
        machine.resolver.symlink_to("real")
    machine.run(machine.entries())
    assert "127.0.0.9" in machine.resolver.read_text()
    machine.run(machine.entries(host_resolver=True))
    assert f"nameserver {machine.server[0]}\n" in machine.resolver.read_text()
    assert not machine.run(machine.entries(host_resolver=True))["changed"]
    machine.run({})
    assert machine.resolver.read_text() == "nameserver 127.0.0.9\n"
    assert machine.resolver.is_symlink() == linked
    assert not [name for name in _tree(machine.root / "s") if name.startswith(("dns", "resolv"))]


def test_what_a_node_searched_before_comes_first_and_short_names_of_services_after_it(machine: Machine):
    machine.resolver.write_text("search corp.example lan\nnameserver 127.0.0.9\noptions timeout:1 edns0\n")
    machine.run(machine.entries(host_resolver=True))
    assert machine.resolver.read_text().splitlines()[1:] == [
        f"nameserver {machine.server[0]}",
        "search corp.example lan nodes.cluster.local svc.cluster.local cluster.local",
        "options timeout:1 edns0",
    ]
    assert not machine.run(machine.entries(host_resolver=True))["changed"]


def test_without_a_server_the_section_says_so(machine: Machine):
    machine.run(machine.entries())
    error = machine.run(machine.entries())["errors"]["server"]
    assert error["reason"] == "ServerNotRunning"
    assert f"{machine.server[0]}:{machine.server[1]}" in error["message"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"names": [["100.0.0.7", "a\nb"]]}, "not a DNS name"),
        ({"names": [["100.0.0.7", "a } b"]]}, "not a DNS name"),
        ({"records": [["web", "A", "100.0.0.7\n"]]}, "not an IPv4 address"),
        ({"records": [["web\0", "A", "100.0.0.7"]]}, "not a DNS name"),
        ({"records": [["web", "TXT", '"x"']]}, "A|CNAME|SRV"),
        ({"pointers": [["1.2.3.4", "$INCLUDE"]]}, "not a DNS name"),
    ],
)
def test_what_is_no_name_stays_out_of_every_file(machine: Machine, entry: dict[str, Any], message: str):
    result = machine.run(machine.entries({"service/default/bad": entry, "service/default/web": WEB}))
    assert message in result["errors"]["service/default/bad"]["message"]
    assert "100.0.0.7 web" in (machine.root / "s/dns/hosts/names").read_text()

"""The section ingress with a real nginx: reloads drop nothing, refusals keep what is good, kills in the middle."""

from __future__ import annotations

import http.server
import os
import shutil
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import psutil
import pytest

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.core.section import Request, context_for, run_pass
from minik8s_modules.module_utils.minik8s.names import ingress
from minik8s_modules.module_utils.minik8s.names import nginx as server
from minik8s_modules.module_utils.minik8s.names.ingress import Ingress
from tests.integration.naming.conftest import free_node_port, health, nginx, request
from tests.support.etcd import free_port
from tests.support.node import PATIENT
from tests.support.waiting import until


class Machine:
    """A node's directories with an ingress section."""

    def __init__(self, root: Path) -> None:
        self.root, self.http, self.https = root, free_port(), free_port()
        self.folder = root / "s/nginx"

    def host(self, text: str, *, listen: int = 0) -> JsonObject:
        """Return the entry of a host ``a.test`` that answers a text."""
        block = f'server {{ listen {listen or self.http}; server_name {text}.test; return 200 "{text}"; }}\n'
        return {"config": block, "secrets": {}}

    def entries(self, **hosts: JsonObject) -> JsonObject:
        """Return a section with hosts ``<name>.test``."""
        named = {f"{name}.test": entry for name, entry in hosts.items()}
        return {"_server": {"http_port": self.http, "https_port": self.https}, **named}

    def run(self, entries: JsonObject, *, check: bool = False, program: str = "", **context: Any) -> JsonObject:
        """Run a pass over the whole section."""
        section = Ingress(program or server.PROGRAM)
        asked = Request("n", entries=entries, state_dir=str(self.root / "s"), run_dir=str(self.root / "r"))
        return run_pass(section, asked, context_for(asked, **{**PATIENT, **context}), check=check)

    def get(self, host: str, path: str = "/") -> tuple[int, str]:
        """Ask nginx."""
        return request(self.http, host, path)

    def workers(self) -> set[int]:
        """Return the process ids of nginx's workers: each reload starts others."""
        return {each.pid for each in psutil.Process(server.master(str(self.folder))).children()}

    def tree(self) -> dict[str, str]:
        """Return the server's files."""
        return server.read_tree(str(self.folder))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def served(machine: Machine) -> Iterator[Machine]:
    machine.run(machine.entries(a=machine.host("a")))
    with nginx(machine.folder, machine.root / "log"):
        until(lambda: machine.get("a.test") == (200, "a"))
        machine.run(machine.entries(a=machine.host("a")))
        yield machine


def test_hosts_come_and_go_by_reloads(served: Machine):
    both = served.entries(a=served.host("a"), b=served.host("b"))
    shown = served.run(both, check=True)
    assert served.get("b.test")[0] == 404
    assert served.run(both)["steps"] == shown["steps"]
    until(lambda: served.get("b.test") == (200, "b"))
    assert not served.run(both)["changed"]
    served.run(served.entries(b=served.host("b")))
    until(lambda: served.get("a.test")[0] == 404)


def test_a_host_that_nginx_refuses_keeps_its_last_good_file_and_the_others_change(served: Machine):
    bad = {"config": "server { no such thing; }\n", "secrets": {}}
    result = served.run(served.entries(a=bad, b=served.host("b"), c=bad))
    assert {key: why["reason"] for key, why in result["errors"].items()} == dict.fromkeys(
        ("a.test", "c.test"), "RefusedByNginx"
    )
    assert "unknown directive" in result["errors"]["a.test"]["message"]
    until(lambda: served.get("b.test") == (200, "b"))
    assert served.get("a.test") == (200, "a")
    assert "hosts/c.test.conf" not in served.tree()


def test_an_nginx_that_is_broken_changes_nothing(served: Machine):
    before = served.tree()
    result = served.run(served.entries(b=served.host("b")), program="/bin/false")
    assert result["errors"]["_server"]["reason"] == "RefusedByNginx"
    assert served.tree() == before
    assert served.get("a.test") == (200, "a")
    missing = served.run(served.entries(b=served.host("b")), program="/no/nginx")
    assert "not installed" in missing["errors"]["b.test"]["message"]


def test_reloads_under_load_drop_no_request(served: Machine):
    seen, over = Counter[tuple[int, str]](), threading.Event()

    def client() -> None:
        while not over.is_set():
            seen[served.get("a.test")] += 1

    thread = threading.Thread(target=client)
    thread.start()
    try:
        for number in range(6):
            more = {f"h{number}": served.host(f"h{number}")}
            served.run(served.entries(a=served.host("a"), **more))
            until(partial(_is_there, served, f"h{number}.test"))
    finally:
        over.set()
        thread.join()
    assert set(seen) == {(200, "a")}, seen


def _is_there(served: Machine, host: str) -> bool:
    return served.get(host)[0] == HTTPStatus.OK


def test_killed_before_any_effect_the_next_pass_finishes(served: Machine):
    effects: list[str] = []
    first, second = served.entries(a=served.host("a")), served.entries(b=served.host("b"), c=served.host("c"))
    served.run(second, checkpoint=effects.append)
    wanted = served.tree()
    for number in range(len(effects)):
        served.run(first)
        left = [number]

        def stop(_effect: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            served.run(second, checkpoint=stop, threads=1)
        served.run(second)
        assert served.tree() == wanted
        assert not served.run(second)["changed"]
        until(lambda: served.get("c.test") == (200, "c") and served.get("a.test")[0] == 404)


def test_what_somebody_took_from_the_servers_directory_comes_back_so_that_it_can_start(served: Machine):
    entries = served.entries(a=served.host("a"))
    (served.folder / "secrets").unlink()
    # in one step: an nginx that is starting makes directories below it
    shutil.rmtree((served.folder / "tmp").rename(served.folder / "taken"))
    shown = served.run(entries, check=True)
    assert shown["steps"] == [{"action": "prepare", "key": "_server", "detail": "directories"}]
    assert "incomplete" in shown["diff"]["before"]
    assert served.run(entries)["steps"] == shown["steps"]
    assert not served.run(entries)["changed"]
    pid = server.master(str(served.folder))
    os.kill(pid, signal.SIGTERM)
    until(lambda: server.master(str(served.folder)) not in {0, pid} and served.get("a.test") == (200, "a"))


def test_a_port_that_somebody_else_has_is_told(machine: Machine):
    with http.server.ThreadingHTTPServer(("0.0.0.0", machine.http), http.server.SimpleHTTPRequestHandler):
        machine.run(machine.entries(a=machine.host("a")))
        result = machine.run(machine.entries(a=machine.host("a")))
        assert result["errors"]["_server"]["reason"] == "ServerNotRunning"


def test_load_balancers_are_told_whether_the_node_has_endpoints(served: Machine):
    key, port = "_health/default/web", free_node_port()
    hosts = served.entries(a=served.host("a"))

    def answered(count: int) -> JsonObject:
        return {
            "service": {"namespace": "default", "name": "web"}, "localEndpoints": count, "serviceProxyHealthy": True,
        }  # fmt: skip

    assert health(port)[0] == 0
    entries = hosts
    for count, code in ((0, 503), (2, 200)):
        entries = {**hosts, key: {"port": port, "endpoints": count}}
        assert served.run(entries, check=True)["steps"] == served.run(entries)["steps"] != []
        assert not served.run(entries)["changed"]
        until(partial(_is_answered, port, (code, str(count), answered(count))))
    file = served.folder / "hosts/_health.default.web.conf"
    file.write_text(file.read_text().replace("200", "503"))
    shown = served.run(entries, check=True)
    assert [step["key"] for step in shown["steps"]] == [key, "_server"]
    former = served.workers()
    assert served.run(entries)["steps"] == shown["steps"]
    until(lambda: served.workers() and not served.workers() & former)  # it has read the file
    file.unlink()  # while nginx listens at its port
    assert served.run(entries)["errors"] == {}
    assert not served.run(entries)["changed"]
    served.run(hosts)
    until(lambda: health(port)[0] == 0)
    assert served.get("a.test") == (200, "a")


def test_load_balancers_ask_by_ipv6_too_where_the_service_has_it(served: Machine):
    key, port = "_health/default/web", free_node_port()
    entries = {**served.entries(a=served.host("a")), key: {"port": port, "endpoints": 1}}
    both = {**entries, key: {**entries[key], "ipv6": True}}
    assert served.run(entries)["errors"] == {}
    until(lambda: health(port)[0] == HTTPStatus.OK)
    assert health(port, address="::1")[0] == 0
    assert served.run(both, check=True)["steps"] == served.run(both)["steps"] != []
    assert not served.run(both)["changed"]
    until(lambda: health(port, address="::1")[:2] == (HTTPStatus.OK, "1"))
    served.run(entries)
    until(lambda: health(port, address="::1")[0] == 0)
    assert health(port)[0] == HTTPStatus.OK
    with socket.socket(socket.AF_INET6) as other:  # which leaves IPv4 free
        other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("::", taken := free_node_port()))
        other.listen()
        moved = {**both, key: {**both[key], "port": taken}}
        assert "is in use" in served.run(moved)["errors"][key]["message"]


def _two_families(machine: Machine) -> JsonObject:
    """Return a section of one host that is served over both, as the reconciler writes it."""
    block = f"    listen {machine.http};\n    listen [::]:{machine.http};\n    server_name a.test;\n"
    entry = {"config": f'server {{\n{block}    return 200 "a: listen [::]:1;";\n}}\n', "secrets": {}}
    entries = machine.entries(a=entry)
    return {**entries, "_server": {**entries["_server"], "ipv6": True}}


def test_hosts_are_served_over_both_families(served: Machine):
    both, said = _two_families(served), (200, "a: listen [::]:1;")
    shown = served.run(both, check=True)
    assert request(served.http, "a.test", address="::1")[0] == 0
    assert served.run(both)["steps"] == shown["steps"] != []
    until(lambda: request(served.http, "a.test", address="::1") == said)
    assert request(served.http, "b.test", address="::1")[0] == HTTPStatus.NOT_FOUND
    until(lambda: served.get("a.test") == said)
    assert not served.run(both)["changed"]
    path = served.folder / "nginx.conf"
    path.write_text(path.read_text().replace(f"listen [::]:{served.http};", ""))
    assert served.run(both)["changed"]
    served.run(served.entries(a=served.host("a")))
    until(lambda: request(served.http, "a.test", address="::1")[0] == 0)
    until(lambda: served.get("a.test") == (200, "a"))


def test_hosts_are_served_over_ipv4_alone_while_another_program_has_the_port_of_ipv6(served: Machine):
    both, said = _two_families(served), (200, "a: listen [::]:1;")
    with socket.socket(socket.AF_INET6) as other:
        other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("::", served.http))
        other.listen()
        result = served.run(both)
        assert f"port {served.http} is in use at IPv6 addresses" in result["errors"]["_server"]["message"]
        until(lambda: served.get("a.test") == said)  # nginx takes over what comes
        assert served.run(both)["changed"] is False
    assert served.run(both)["errors"] == {}
    until(lambda: request(served.http, "a.test", address="::1") == said)


def test_ports_of_an_nginx_that_nobody_knows_are_not_taken_for_anothers(served: Machine):
    both, said = _two_families(served), (200, "a: listen [::]:1;")
    served.run(both)
    until(lambda: request(served.http, "a.test", address="::1") == said)
    assert not served.run(both)["changed"]
    known = served.folder / "nginx.pid"
    hidden = known.rename(served.folder / "hidden")  # as while a killed master's workers still listen
    files = served.tree()
    result = served.run(both)
    assert (result["steps"], result["errors"]["_server"]["reason"]) == ([], "ServerNotRunning")
    assert served.tree() == files
    hidden.rename(known)
    assert served.run(both)["errors"] == {}


def test_an_nginx_that_does_not_run_is_told_before_a_port_of_ipv6_in_use(machine: Machine):
    both = _two_families(machine)
    machine.run(both)
    with socket.socket(socket.AF_INET6) as other:
        other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("::", machine.http))
        other.listen()
        assert machine.run(both)["errors"]["_server"]["reason"] == "ServerNotRunning"
        assert not any("    listen [::]:" in text for text in machine.tree().values()), "it would not start"


def test_hosts_are_served_on_a_kernel_without_ipv6(served: Machine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ingress, "_HAS_IPV6", str(served.root / "nothing"))  # of which there is one for each machine
    assert served.run(_two_families(served))["errors"] == {}
    until(lambda: served.get("a.test") == (200, "a: listen [::]:1;"))
    assert not any("    listen [::]:" in text for text in served.tree().values())


def _is_answered(port: int, wanted: tuple[int, str, JsonObject]) -> bool:
    return health(port) == wanted


def test_a_port_for_health_checks_that_somebody_has_keeps_nothing_else_back(served: Machine):
    key, port = "_health/default/web", free_node_port()
    entries = {**served.entries(b=served.host("b")), key: {"port": port, "endpoints": 1}}
    with http.server.ThreadingHTTPServer(("0.0.0.0", port), http.server.SimpleHTTPRequestHandler):
        result = served.run(entries)
        assert f"port {port} is in use" in result["errors"][key]["message"]
        until(lambda: served.get("b.test") == (200, "b"))
    assert served.run(entries)["errors"] == {}
    until(lambda: health(port)[0] == HTTPStatus.OK)


@pytest.mark.parametrize("key", ["a b.test", "../../etc/passwd", "A.test", "a.test\n", "*"])
def test_what_is_no_host_is_refused(machine: Machine, key: str):
    result = machine.run({**machine.entries(), key: machine.host("a")})
    assert result["errors"][key]["reason"] == "InvalidEntry"
    assert set(machine.tree()) == {"nginx.conf", "hosts/_.conf"}

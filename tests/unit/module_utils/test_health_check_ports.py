"""Whether a node's nginx can answer health checks at a port: somebody else may have it at addresses of one family."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from minik8s_modules.module_utils.minik8s.install.ranges import has_ipv6
from minik8s_modules.module_utils.minik8s.names import nginx
from minik8s_modules.module_utils.minik8s.names.ingress import _taken_ports
from minik8s_modules.module_utils.minik8s.names.ingress_entries import file_of, text_of

pytestmark = pytest.mark.skipif(not has_ipv6(), reason="the kernel of this machine has no IPv6")
KEY = "_health/shop/web"
OTHER = """
import socket, sys
held = socket.socket(socket.AF_INET6)
held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
held.bind(("::", int(sys.argv[1])))
held.listen()
print(flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def other(port: int) -> Iterator[int]:
    """Yield the number of another process that listens at a port of IPv6 alone."""
    argv = [sys.executable, "-I", "-c", OTHER, str(port)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        if process.stdout is None or process.stdin is None:
            raise AssertionError("both were asked for")
        process.stdout.readline()
        yield process.pid
        process.stdin.close()


def test_a_port_that_somebody_else_has_of_one_family_is_taken() -> None:
    """A reload could not bind it, which nginx tells its log alone, and it would take over nothing any more."""
    with socket.socket() as ours:  # nginx answers at its IPv4 addresses already
        ours.bind(("", 0))
        ours.listen()
        port, pid = ours.getsockname()[1], os.getpid()
        first = {KEY: {"port": port, "endpoints": 1}}
        both = {KEY: {**first[KEY], "ipv6": True}}
        assert not _taken_ports(both, pid, {}), "nobody has it of IPv6"
        with other(port) as stranger:
            assert not _taken_ports(first, pid, {})
            assert _taken_ports(both, pid, {}) == {KEY: f"port {port} is in use on this node"}
            assert [nginx.listens(pid, port, ipv6=ipv6) for ipv6 in (False, True)] == [True, False]
            assert [nginx.listens(stranger, port, ipv6=ipv6) for ipv6 in (False, True)] == [False, True]
        assert not _taken_ports(both, pid, {})


def test_a_port_of_a_check_is_not_taken_by_another_while_nobody_knows_which_process_nginx_is() -> None:
    with socket.socket() as somebodys:
        somebodys.bind(("", 0))
        somebodys.listen()
        port = somebodys.getsockname()[1]
        first = {KEY: {"port": port, "endpoints": 1}}
        refused = {KEY: f"port {port} is in use on this node"}
        assert _taken_ports(first, 0, {}) == refused
        files = {file_of(KEY): text_of(KEY, {"port": port, "endpoints": 0})}
        assert _taken_ports(first, 0, files) == {}, "nginx was told of it, and may have it"
        assert _taken_ports({KEY: {**first[KEY], "ipv6": True}}, 0, files) == {}, "IPv6's is free"
        with other(port):
            assert _taken_ports({KEY: {**first[KEY], "ipv6": True}}, 0, files) == refused
        # with a port of somebody else's nginx would not start, and no host of the node would be served
        elsewhere = {file_of(KEY): text_of(KEY, {"port": 1, "endpoints": 1})}
        assert _taken_ports(first, 0, elsewhere) == refused

"""A Pod's network with a real Envoy that enforces AuthorizationPolicies, an application, and callers of it.

The application says what it was asked; callers have certificates of the mesh, or none.
"""

from __future__ import annotations

import itertools
import os
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mutual_tls import PERMISSIVE, identity
from minik8s_modules.mesh.authorizations.guards import Guard, Policies
from tests.support.mutual_tls import bootstrap, running
from tests.support.pki import Authority, Certificate
from tests.support.waiting import until

HTTP, TCP, GREETING, GRPC = 8080, 8081, 8082, 8083
"""Ports of the application: one that answers HTTP, one that echoes, one that speaks first, and one of gRPC."""
APPLICATION = """
import http.server, socketserver, sys, threading
class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        known = self.headers.get("x-forwarded-client-cert") or "-"
        body = f"{self.command} {self.path} {known}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_POST = do_PUT = do_DELETE = do_GET
    def log_message(self, *_words):
        pass
class Echoes(socketserver.BaseRequestHandler):
    def handle(self):
        while said := self.request.recv(100):
            self.request.sendall(said)
class Greets(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(b"hello")
class Many(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    import socket
    address_family = socket.AF_INET6
for port, handler in zip(map(int, sys.argv[1:]), (Answers, Echoes, Greets)):
    threading.Thread(target=Many(("::", port), handler).serve_forever).start()
"""
RULES = """
table ip mesh { chain in { type nat hook prerouting priority -100; ip protocol tcp redirect to :15008; }; }
table ip6 mesh { chain in { type nat hook prerouting priority -100; meta l4proto tcp redirect to :15008; }; }
"""
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
CLOSED = "closed"


class Callers:
    """Who calls an address of a Pod, with certificates of the mesh or without."""

    def __init__(self, mesh: Authority, address: str) -> None:
        self.mesh, self.address = mesh, address
        self._issued: dict[tuple[str, str], Certificate] = {}

    def says(self, caller: str, said: str, port: int = HTTP, address: str = "", *, one: bool = False) -> str:
        """Return what is answered to a caller, NAMESPACE/ACCOUNT or "" for one without a certificate.

        Of HTTP that is all until the end, or ``one`` answer.
        """
        try:
            with self.connected(caller, port, address) as talking:
                talking.sendall(said.encode("latin-1"))
                answer = b""
                while piece := talking.recv(4096):
                    answer += piece
                    if port != HTTP or (one and is_whole(answer)):  # the others do not end by themselves
                        break
                return answer.decode("latin-1") or CLOSED
        except OSError:
            return CLOSED

    @contextmanager
    def connected(self, caller: str, port: int, address: str = "") -> Iterator[socket.socket]:
        """Yield a connection."""
        with socket.create_connection((address or self.address, port), 20) as plain:
            if not caller:
                yield plain
                return
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            own = self._certificate(*caller.split("/"))
            context.load_cert_chain(own.cert, own.key)
            context.set_alpn_protocols(["minik8s-mesh"])
            with context.wrap_socket(plain, do_handshake_on_connect=False) as talking:
                talking.do_handshake()
                yield talking

    def asks(self, caller: str, path: str = "/", method: str = "GET", host: str = "web", **more: Any) -> str:
        """Return the code and the body of an answer to a request; ``headers`` are more lines of it."""
        headers = more.pop("headers", "")
        said = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{headers}Connection: close\r\n\r\n"
        answer = self.says(caller, said, **more, one=True)
        return answer if answer == CLOSED else f"{answer.split(' ')[1]} {answer.rpartition(chr(13) + chr(10))[2]}"

    def code(self, caller: str, path: str = "/", method: str = "GET", **more: Any) -> str:
        """Return the code alone."""
        return self.asks(caller, path, method, **more).split(" ")[0]

    def _certificate(self, namespace: str, account: str) -> Certificate:
        known = self._issued.get((namespace, account))
        if known is None:
            known = self.mesh.issue(f"{namespace}-{account}", "sidecar", uris=(identity(namespace, account),))
            self._issued[namespace, account] = known
        return known


class Pod(Callers):
    """The network: ``address`` and ``ipv6`` are the Pod's."""

    numbers = itertools.count()

    def __init__(self, folder: Path) -> None:
        number = next(self.numbers) % 60
        self._space, self._device = f"mk8t-guard-{WORKER}-{number}", f"mg{WORKER}h{number}"
        super().__init__(Authority(folder, "mesh"), f"198.19.{64 + WORKER}.{4 * number + 2}")
        self.ipv6 = f"fd98:{WORKER:x}:{number:x}::2"
        self.inside = ["ip", "netns", "exec", self._space]
        subprocess.run(
            ["ip", "netns", "del", self._space], capture_output=True, check=False
        )  # of a run that was killed
        _run("ip", "netns", "add", self._space)
        _run("ip", "link", "add", self._device, "type", "veth", "peer", "name", "eth0", "netns", self._space)
        for of, device, end in ([], self._device, 1), (self.inside, "eth0", 2):
            own = f"{self.address.rpartition('.')[0]}.{4 * number + end}/30"
            _run(*of, "ip", "addr", "add", own, "dev", device)
            _run(*of, "ip", "addr", "add", f"{self.ipv6[:-1]}{end}/64", "dev", device, "nodad")
            _run(*of, "ip", "link", "set", device, "up")
        _run(*self.inside, "ip", "link", "set", "lo", "up")
        _run(*self.inside, "nft", "-f", "-", stdin=RULES)
        self._application = application(self.inside)

    def stop(self) -> None:
        """End all."""
        self._application.kill()
        self._application.wait()
        _run("ip", "netns", "del", self._space)

    @contextmanager
    def enforcing(self, *policies: JsonObject, mode: str = PERMISSIVE) -> Iterator[None]:
        """Run its sidecar, which has policies of the namespace ``shop``, and knows which ports are of HTTP."""
        known = Policies(policies, {"web": frozenset({HTTP, GRPC})})
        guard: Guard | None = known.guard("shop", "web", {"app": "web"})
        with running(self.inside, bootstrap(mode, self.mesh, guard)):
            yield

    def statistics(self) -> str:
        """Return what Prometheus would read."""
        words = ["curl", "-s", "http://127.0.0.1:15000/stats/prometheus?usedonly"]
        return _run(*self.inside, *words)


def is_whole(answer: bytes) -> bool:
    """Return whether an answer of HTTP is there with its body."""
    head, _, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"(?im)^content-length: *([0-9]+)", head)
    return length is not None and len(body) == int(length[1])


def application(inside: list[str]) -> subprocess.Popen[bytes]:
    """Return the application where ``inside`` leads, as it listens."""
    ports = [str(each) for each in (HTTP, TCP, GREETING)]
    begun = subprocess.Popen([*inside, sys.executable, "-c", APPLICATION, *ports])
    until(lambda: all(f":{each} " in _run(*inside, "ss", "-Hltn") for each in ports))
    return begun


def _run(*words: str, stdin: str = "") -> str:
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


@contextmanager
def guarded(folder: Path) -> Iterator[Pod]:
    """Yield the Pod's network."""
    made = Pod(folder)
    try:
        yield made
    finally:
        made.stop()

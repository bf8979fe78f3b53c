"""pods/proxy and services/proxy: kubectl and plain HTTP through the API server to servers in a pod's network."""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api.kinds import ENDPOINT_SLICE, POD, SERVICE
from minik8s_modules.api.objects import JsonObject
from tests.integration.streams.conftest import Streaming
from tests.support.pki import Authority

# 8080 tells what it was asked, or does what the path says; 8443 the same in TLS. It prints when it stands
SERVER = r"""
import gzip, http.server, json, ssl, sys, threading
PAGE = (b'<!-- <a href="/no"> --><a class=x href="/there?a=1&amp;b">t</a><script src="/s.js">'
        b'"<a href=/no>"</script><a href="up">')
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): pass
    def answer(self):
        size = int(self.headers.get("Content-Length") or 0)
        path = self.path.partition("?")[0]
        if path == "/unread":
            self.tell(b"enough", 413); self.rfile.read(size)
            return
        body = self.rfile.read(size)
        if path == "/redirect":
            return self.tell(b"", 302, Location="/there?x=1")
        if path == "/here":
            return self.tell(b"", 302, Location=f"http://{self.headers['Host']}/there")
        if path == "/away":
            return self.tell(b"", 302, Location="https://example.org/there")
        if path == "/page":
            return self.tell(PAGE, 200, **{"Content-Type": "text/html; charset=utf-8"})
        if path == "/packed":
            return self.tell(gzip.compress(PAGE), 200, **{"Content-Type": "text/html", "Content-Encoding": "gzip"})
        if path == "/big":
            self.send_response(200); self.send_header("Content-Length", str(64 << 20)); self.end_headers()
            for _ in range(64): self.wfile.write(b"x" * (1 << 20))
            return
        if path == "/old":
            self.protocol_version = "HTTP/1.0"
            self.send_response(200); self.end_headers()
            self.wfile.write(b"until the end"); self.close_connection = True
            return
        if path == "/cut":
            self.send_response(200); self.send_header("Content-Length", "100"); self.end_headers()
            self.wfile.write(b"half"); self.close_connection = True
            return
        if path == "/echo":
            self.send_response(101)
            self.send_header("Upgrade", "echo"); self.send_header("Connection", "Upgrade"); self.end_headers()
            while line := self.rfile.readline():
                self.wfile.write(line.upper())
            self.close_connection = True
            return
        if path == "/drip":
            self.send_response(200); self.send_header("Transfer-Encoding", "chunked"); self.end_headers()
            self.wfile.write(b"5\r\nfirst\r\n"); self.wfile.flush()
            GATE.wait()
            self.wfile.write(b"4\r\nlast\r\n0\r\n\r\n")
            return
        if path == "/go":
            GATE.set()
        told = {"method": self.command, "path": self.path, "body": body.decode("latin-1")}
        told["headers"] = dict(self.headers)
        own = {"Access-Control-Allow-Origin": "*", "Set-Cookie": "a=b", "Content-Type": "application/json"}
        self.tell(json.dumps(told).encode(), 200, **own)
    def tell(self, body, code, **headers):
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(body))}.items(): self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD": self.wfile.write(body)
    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = answer
GATE = threading.Event()
class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
plain, tls = Server(("0.0.0.0", 8080), Handler), Server(("0.0.0.0", 8443), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
tls.socket = context.wrap_socket(tls.socket, server_side=True)
threading.Thread(target=plain.serve_forever, daemon=True).start()
print("ready", flush=True)
tls.serve_forever()
"""
PODS = "/api/v1/namespaces/default/pods"
SERVICES = "/api/v1/namespaces/default/services"
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


@pytest.fixture(scope="module")
def pod(streaming: Streaming, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JsonObject]:
    """A pod with the servers above, its Service ``site``, and the EndpointSlice between them."""
    made = streaming.pod("web", "sleep 3600")
    _publish(streaming, made)
    own = Authority(tmp_path_factory.mktemp("tls"), "pod").issue("web", "web")
    with _serving(streaming, made, own.cert, own.key):
        yield made


def _publish(streaming: Streaming, made: JsonObject) -> None:
    address = streaming.address(made)
    streaming.admin.patch(
        POD, "web", "default", {"status": {"podIP": address, "podIPs": [{"ip": address}]}}, subresource="status"
    )
    ports = [{"name": "plain", "port": 80, "targetPort": 8080}, {"name": "tls", "port": 443, "targetPort": 8443}]
    streaming.admin.create(SERVICE, {"metadata": {"name": "site", "namespace": "default"}, "spec": {"ports": ports}})
    target = {"kind": "Pod", "namespace": "default", "name": "web", "uid": made["metadata"]["uid"]}
    streaming.admin.create(
        ENDPOINT_SLICE,
        {
            "metadata": {
                "name": "site-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "site"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [address], "conditions": {"ready": True}, "targetRef": target}],
            "ports": [{"name": "plain", "port": 8080}, {"name": "tls", "port": 8443}],
        },
    )  # fmt: skip


class _serving:  # noqa: N801 - a context manager
    def __init__(self, streaming: Streaming, made: JsonObject, cert: Path, key: Path) -> None:
        pid = str(streaming.inspect(made)["State"]["Pid"])
        self._argv = ["nsenter", "-t", pid, "-n", sys.executable, "-c", SERVER, str(cert), str(key)]

    def __enter__(self) -> None:
        self._process = subprocess.Popen(self._argv, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def connected(streaming: Streaming) -> http.client.HTTPSConnection:
    server = streaming.server
    context = ssl.create_default_context(cafile=str(server.authority.ca))
    context.load_cert_chain(server.admin.cert, server.admin.key)
    return http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=60)


def ask(streaming: Streaming, method: str, path: str, body: bytes | None = None, **headers: Any) -> Any:
    """Return the answer's code, headers and body."""
    with closing(connected(streaming)) as connection:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("to", [f"{PODS}/web:8080", f"{SERVICES}/site:plain", f"{SERVICES}/site:80"])
def test_every_method_reaches_the_pod(streaming: Streaming, pod: JsonObject, method: str, to: str) -> None:
    body = None if method in {"GET", "OPTIONS"} else b"what is sent"
    code, headers, answer = ask(streaming, method, f"{to}/proxy/a//b%2Fc%20d?x=1&watch=true", body)
    assert code == 200, answer
    asked = json.loads(answer)
    assert (asked["method"], asked["path"]) == (method, "/a//b%2Fc%20d?x=1&watch=true")
    assert asked["body"] == (body or b"").decode()
    assert asked["headers"]["X-Forwarded-Uri"] == f"{to}/proxy/a//b%2Fc%20d"
    assert asked["headers"]["X-Forwarded-For"] == "127.0.0.1"
    assert asked["headers"]["Host"] == f"127.0.0.1:{streaming.server.port}"
    assert headers["Set-Cookie"] == "a=b"
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize("to", [f"{PODS}/https:web:8443", f"{SERVICES}/https:site:tls", f"{SERVICES}/https:site:443"])
def test_tls_to_the_pod(streaming: Streaming, pod: JsonObject, to: str) -> None:
    code, _, answer = ask(streaming, "PUT", f"{to}/proxy/x", b"y" * 300_000)
    assert (code, len(json.loads(answer)["body"])) == (200, 300_000)


def test_head(streaming: Streaming, pod: JsonObject) -> None:
    code, headers, body = ask(streaming, "HEAD", f"{PODS}/web:8080/proxy/page")
    assert (code, body, headers["Content-Type"]) == (200, b"", "text/html; charset=utf-8")


def test_an_empty_path_is_led_to_the_slash(streaming: Streaming, pod: JsonObject) -> None:
    code, headers, _ = ask(streaming, "GET", f"{SERVICES}/site:80/proxy?a=b")
    assert (code, headers["Location"]) == (301, f"{SERVICES}/site:80/proxy/?a=b")
    assert json.loads(ask(streaming, "POST", f"{SERVICES}/site:80/proxy", b"")[2])["path"] == "/"


def test_redirects_and_links_lead_through_the_proxy(streaming: Streaming, pod: JsonObject) -> None:
    base = f"{SERVICES}/site:80/proxy"
    fields = {each: ask(streaming, "GET", f"{base}/{each}")[1]["Location"] for each in ("redirect", "here", "away")}
    assert fields == {
        "redirect": f"{base}/there?x=1",
        "here": f"http://127.0.0.1:{streaming.server.port}{base}/there",
        "away": "https://example.org/there",
    }
    changed = (
        f'<!-- <a href="/no"> --><a class=x href="{base}/there?a=1&amp;b">t</a><script src="{base}/s.js">'
        '"<a href=/no>"</script><a href="up">'
    )
    for page in ("page", "packed"):
        _, headers, body = ask(streaming, "GET", f"{base}/{page}")
        assert body.decode() == changed
        assert "Content-Encoding" not in headers


def test_what_tells_the_server_who_asks_is_not_for_pods(streaming: Streaming, pod: JsonObject) -> None:
    sent: dict[str, Any] = {
        "Authorization": "Bearer of-somebody", "X_Remote_User": "root", "X_Remote_Group": "system:masters",
        "X_Remote_Extra_A": "b", "Proxy_Authorization": "x", "Impersonate_User": "jane",
        "Impersonate_Group": "system:masters", "X_Private": "dropped", "Connection": "close, X-Private",
        "Cookie": "c=d",
    }  # fmt: skip
    code, _, answer = ask(streaming, "GET", f"{PODS}/web:8080/proxy/x", **sent)
    assert code == 200, answer
    heard = json.loads(answer)["headers"]
    assert {name for name in heard if name.replace("-", "_") in sent} == {"Connection", "Cookie"}
    assert heard["Connection"] == "close"


def test_answers_without_a_length_and_those_that_break_off(streaming: Streaming, pod: JsonObject) -> None:
    assert ask(streaming, "GET", f"{PODS}/web:8080/proxy/old")[2] == b"until the end"
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        ask(streaming, "GET", f"{PODS}/web:8080/proxy/cut")


def test_a_pod_that_answers_before_it_reads_is_heard(streaming: Streaming, pod: JsonObject) -> None:
    code, _, answer = ask(streaming, "POST", f"{PODS}/web:8080/proxy/unread", b"x" * 2_900_000)
    assert (code, answer) == (413, b"enough")


def test_what_a_pod_says_comes_as_it_says_it(streaming: Streaming, pod: JsonObject) -> None:
    with closing(connected(streaming)) as connection:
        connection.request("GET", f"{PODS}/web:8080/proxy/drip")
        answer = connection.getresponse()
        assert answer.read(5) == b"first"
        assert ask(streaming, "GET", f"{PODS}/web:8080/proxy/go")[0] == 200
        assert answer.read() == b"last"


def test_slow_readers_hold_neither_threads_nor_megabytes(streaming: Streaming, pod: JsonObject) -> None:
    """More readers than the server has threads ask for 64 MB and do not read; everything else goes on."""
    readers = [connected(streaming) for _ in range(80)]
    try:
        for each in readers:
            each.request("GET", f"{PODS}/web:8080/proxy/big")
        assert streaming.kubectl("get", "--raw", "/version").returncode == 0
        assert json.loads(ask(streaming, "GET", f"{PODS}/web:8080/proxy/x")[2])["path"] == "/x"
        assert len(readers[0].getresponse().read()) == 64 << 20
    finally:
        for each in readers:
            each.close()


def test_an_upgrade_and_what_it_needs(streaming: Streaming, pod: JsonObject) -> None:
    with closing(connected(streaming)) as connection:
        connection.putrequest("GET", f"{PODS}/web:8080/proxy/echo")
        for name, value in (("Connection", "Upgrade"), ("Upgrade", "echo")):
            connection.putheader(name, value)
        connection.endheaders(b"early\n")
        assert connection.sock is not None
        stream = connection.sock.makefile("rwb")
        head = [line.strip().lower() for line in iter(stream.readline, b"\r\n")]
        assert head[0].startswith(b"http/1.1 101")
        assert b"upgrade: echo" in head
        assert stream.readline() == b"EARLY\n"
        for number in range(100):
            stream.write(b"line %d\n" % number)
            stream.flush()
            assert stream.readline() == b"LINE %d\n" % number


def test_where_nothing_answers(streaming: Streaming, pod: JsonObject) -> None:
    code, _, answer = ask(streaming, "GET", f"{PODS}/web:8081/proxy/x")
    assert (code, json.loads(answer)["message"]) == (503, "error trying to reach service: connection refused")
    code, _, answer = ask(streaming, "GET", f"{PODS}/https:web:8080/proxy/x")
    assert (code, "TLS" in json.loads(answer)["message"]) == (503, True)
    for name in ("site", "site:81", "https:site:nothing"):
        code, _, answer = ask(streaming, "GET", f"{SERVICES}/{name}/proxy/x")
        assert code == 503, answer
    assert ask(streaming, "GET", f"{SERVICES}/none:80/proxy/x")[0] == 404
    assert ask(streaming, "GET", f"{PODS}/web:a:b:c/proxy/x")[0] == 400
    assert ask(streaming, "GET", f"{PODS}%2Fweb:8080/proxy/x")[0] in {400, 404}


def test_kubectl(streaming: Streaming, pod: JsonObject) -> None:
    done = json.loads(streaming.kubectl("get", "--raw", f"{SERVICES}/site:plain/proxy/some/path?q=1").stdout)
    assert done["path"] == "/some/path?q=1"
    process = streaming.popen("proxy", "--port=0")
    try:
        assert process.stdout is not None
        address = process.stdout.readline().decode().strip().rpartition(" ")[2]
        with closing(http.client.HTTPConnection(address, timeout=60)) as connection:
            connection.request("POST", f"{SERVICES}/site:plain/proxy/here", b"body")
            answer = connection.getresponse()
            answer.read()
            led = f"http://127.0.0.1:{streaming.server.port}{SERVICES}/site:plain/proxy/there"  # kubectl sets Host
            assert (answer.status, answer.getheader("Location")) == (302, led)
    finally:
        process.terminate()
        process.communicate(timeout=60)

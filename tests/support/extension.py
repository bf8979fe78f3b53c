"""An extension API server in a process of its own: real TLS, and it believes the front proxy's certificate alone.

with Extension(tmp_path, api.front_proxy.ca) as extension:
    extension.port, extension.ca_bundle, extension.asked()

It serves ``flunders`` of ``wardle.example.com/v1alpha1``: get and list (as a Table where that is asked for), a watch
that tells one event and stays open, create, an upgrade that echoes, and misbehaviour by the object's name.
"""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from tests.support.etcd import free_port
from tests.support.pki import Authority, Certificate
from tests.support.webhook import machine_address

ROOT = Path(__file__).resolve().parents[2]
NAME = "api.wardle.svc"
GROUP, VERSION = "wardle.example.com", "v1alpha1"
PATH = f"/apis/{GROUP}/{VERSION}"


class Extension:
    """See the top of this file; ``mode`` spoils what it lists: ``hang``, ``garbage``, ``lie``, ``huge``, ``odd``.

    Its certificate is for ``name``; ``prefix`` is a command that runs it elsewhere, as in the network of a pod.
    """

    def __init__(
        self, folder: Path, front_proxy: Path, mode: str = "", *, name: str = NAME, prefix: Sequence[str] = ()
    ) -> None:
        self.folder = folder / "extension"
        self.authority = Authority(self.folder, "extension-ca")
        certificate = self.authority.issue("extension", "extension", names=(name,))
        self.ca_bundle = base64.b64encode(self.authority.ca.read_bytes()).decode()
        self.port = free_port()
        self._log = self.folder / "asked.jsonl"
        self._argv = [
            *prefix, sys.executable, "-m", "tests.support.extension", str(self.port), str(certificate.cert),
            str(certificate.key), str(front_proxy), str(self._log), mode,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Extension:
        """Serve."""
        self._log.touch()
        self._process = subprocess.Popen(self._argv, cwd=ROOT, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"serving\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop serving."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def asked(self, path: str = "") -> list[dict[str, Any]]:
        """Return the requests so far whose path is ``path``: method, path, query, and headers as (name, value)."""
        lines = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [line for line in lines if not path or line["path"] == path]

    def objects(self) -> list[tuple[str, dict[str, Any]]]:
        """Return what leads to it, as (path of the collection, object): namespace, Service and EndpointSlice."""
        meta = {"name": "api", "namespace": "wardle"}
        slice_ = {
            "metadata": {**meta, "labels": {"kubernetes.io/service-name": "api"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [machine_address()], "conditions": {"ready": True}}],
            "ports": [{"port": self.port}],
        }
        return [
            ("/api/v1/namespaces", {"metadata": {"name": "wardle"}}),
            ("/api/v1/namespaces/wardle/services", {"metadata": meta, "spec": {"ports": [{"port": 443}]}}),
            ("/apis/discovery.k8s.io/v1/namespaces/wardle/endpointslices", slice_),
        ]

    def api_service(self, **spec: Any) -> dict[str, Any]:
        """Return its APIService."""
        declared = {
            "group": GROUP,
            "version": VERSION,
            "groupPriorityMinimum": 2000,
            "versionPriority": 10,
            "caBundle": self.ca_bundle,
            "service": {"namespace": "wardle", "name": "api"},
            **spec,
        }
        return {"metadata": {"name": f"{declared['version']}.{declared['group']}"}, "spec": declared}


def front_proxy(folder: Path) -> tuple[Authority, Certificate]:
    """Return an authority for front proxies, and the certificate of one."""
    authority = Authority(folder / "front-proxy", "front-proxy-ca")
    return authority, authority.issue("front-proxy-client", "front-proxy-client", names=None)


# --- the process -------------------------------------------------------------------------------------


def _flunder(name: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Flunder", "metadata": meta, "spec": {"reference": name}}


def _resources(mode: str) -> dict[str, Any]:
    verbs = ["create", "get", "list", "watch"]
    flunders = {"name": "flunders", "singularName": "flunder", "namespaced": True, "kind": "Flunder", "verbs": verbs}
    resources = [
        {**flunders, "shortNames": ["fl", "po"]},
        {**flunders, "name": "flunders/echo", "singularName": "", "verbs": ["get"]},
    ]
    if mode == "odd":
        deep: Any = "get"
        for _ in range(300):
            deep = [deep]
        odd: list[dict[str, Any]] = [
            {"verbs": [deep]},
            {"verbs": [1]},
            {"kind": 7},
            {"shortNames": "fl"},
            {"group": 5},
            {"version": deep},
        ]
        resources = [{**flunders, "name": f"odd{number}", **each} for number, each in enumerate(odd)]
    group = "apps" if mode == "lie" else GROUP
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{VERSION}", "resources": resources}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    log: Path
    mode: str
    lock = threading.Lock()

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(120)

    def log_message(self, *_args: Any) -> None:
        pass

    def send(self, code: int, body: Any, **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def note(self) -> None:
        parts = urlsplit(self.path)
        peer = self.connection.getpeercert() or {}
        fields = {
            "method": self.command,
            "path": parts.path,
            "query": parts.query,
            "headers": [[name.lower(), value] for name, value in self.headers.items()],
            "peer": [value for pairs in peer.get("subject", ()) for _, value in pairs],
        }
        with self.lock, self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(fields) + "\n")

    def do_POST(self) -> None:
        self.note()
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send(201, json.loads(body))

    def do_GET(self) -> None:
        self.note()
        parts = urlsplit(self.path)
        if parts.path == PATH:
            return self.listed()
        if parts.path in _SCHEMAS:
            return self.send(200, _SCHEMAS[parts.path])
        if "watch=true" in parts.query or "watch=1" in parts.query:
            return self.watched()
        if parts.path.endswith("/flunders"):
            listed = {"kind": "FlunderList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}}
            return self.send(200, {**listed, "items": [_flunder("one"), _flunder("two")]})
        return self.one(parts.path.split("/flunders/")[-1])

    def listed(self) -> None:
        if self.mode == "hang":
            time.sleep(600)
        if self.mode == "garbage":
            return self.raw(b"\x00\xff this is no HTTP\r\n\r\n" * 10)
        if self.mode == "huge":
            self.send_response(200)
            self.send_header("Content-Length", str(1 << 30))
            self.end_headers()
            while True:
                self.wfile.write(b" " * 65536)
        return self.send(200, _resources(self.mode))

    def watched(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        event = json.dumps({"type": "ADDED", "object": _flunder("one")}).encode() + b"\n"
        self.wfile.write(b"%X\r\n%s\r\n" % (len(event), event))
        self.connection.recv(1)  # until the reader goes
        self.close_connection = True

    def one(self, name: str) -> None:
        wrong = {
            "hang": lambda: time.sleep(600),
            "garbage": lambda: self.raw(b"HTTP/9.9 no\r\nthis is: no\x00 HTTP\r\n\r\n"),
            "redirect": lambda: self.send(302, b"", Location="https://elsewhere.example.com/"),
            "login": lambda: self.send(
                401, {"kind": "Status", "code": 401}, WWW_Authenticate="Basic", Set_Cookie="a=b"
            ),
            "twice": lambda: self.raw(_ANSWER + _ANSWER),
            "one/echo": self.echo,
        }
        wrong.get(name, lambda: self.send(200, _flunder(name)))()

    def raw(self, data: bytes) -> None:
        self.wfile.write(data)
        self.close_connection = True

    def echo(self) -> None:
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\nhello ")
        while data := self.connection.recv(4096):
            self.connection.sendall(data)
        self.close_connection = True


_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
_SCHEMAS = {
    "/openapi/v3": {"paths": {PATH[1:]: {"serverRelativeURL": f"/openapi/v3{PATH}?hash=AB12"}}},
    "/openapi/v2": {
        "swagger": "2.0",
        "paths": {
            f"{PATH}/flunders": {"get": {"responses": {"200": {"schema": {"$ref": "#/definitions/wardle.Flunder"}}}}},
            "/apis/apps/v1/deployments": {"get": {"description": "mine"}},
        },
        "definitions": {
            "wardle.Flunder": {
                "type": "object",
                "properties": {"metadata": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}},
                "x-kubernetes-group-version-kind": [
                    {"group": GROUP, "version": VERSION, "kind": "Flunder"},
                    {"group": "apps", "version": "v1", "kind": "Deployment"},
                ],
            },
            "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": {"type": "string"},
            "io.k8s.api.apps.v1.Deployment": {"type": "string"},
        },
    },
    f"/openapi/v3{PATH}": {"openapi": "3.0.0", "info": {"title": "wardle", "version": "1"}, "paths": {}},
}


def _main() -> None:
    port, cert, key, authority, log, mode = sys.argv[1:]
    _Handler.log, _Handler.mode = Path(log), mode
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    context.load_verify_locations(authority)
    context.verify_mode = ssl.CERT_REQUIRED
    server = ThreadingHTTPServer(("0.0.0.0", int(port)), _Handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    sys.stdout.write("serving\n")
    sys.stdout.flush()
    server.serve_forever(0.05)


if __name__ == "__main__":
    _main()

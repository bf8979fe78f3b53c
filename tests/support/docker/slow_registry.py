"""A registry on loopback that lets a pull wait: dockerd takes 127.0.0.0/8 for insecure, so no certificate is needed.

It holds one image of one layer (busybox) under every name; its manifest comes when ``release`` is called. A client that
begins with TLS is hung up on, as dockerd tries https first.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
BUSYBOX = Path("/bin/busybox")


def digest(data: bytes) -> str:
    """Return the content's address."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def image() -> dict[str, bytes]:
    """Return what the registry serves: blobs by digest, the manifest under ``manifest``."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for name in ("bin/busybox", "bin/sleep"):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = BUSYBOX.stat().st_size, 0o755
            archive.addfile(entry, io.BytesIO(BUSYBOX.read_bytes()))
    layer = gzip.compress(plain.getvalue(), 1, mtime=0)
    rootfs = {"type": "layers", "diff_ids": [digest(plain.getvalue())]}
    body = {"architecture": "amd64", "os": "linux", "config": {"Cmd": ["/bin/sleep", "36000"]}, "rootfs": rootfs}
    config = json.dumps(body).encode()
    described = [{"mediaType": LAYER, "size": len(layer), "digest": digest(layer)}]
    about = {"mediaType": CONFIG, "size": len(config), "digest": digest(config)}
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": about, "layers": described}
    return {digest(layer): layer, digest(config): config, "manifest": json.dumps(manifest).encode()}


class Registry(ThreadingHTTPServer):
    """Serves until the block of ``slow_registry`` ends."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.served = image()
        self.asked = threading.Event()
        self.released = threading.Event()

    def name(self, repository: str) -> str:
        """Return the image's reference."""
        return f"127.0.0.1:{self.server_address[1]}/{repository}:1"

    def release(self) -> None:
        """Let the waiting pulls go on."""
        self.released.set()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that hang up."""


class _Handler(BaseHTTPRequestHandler):
    server: Registry
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        found = re.match(r"/v2/(?:.+/(manifests|blobs)/(.+))?$", self.path)
        if found is None:
            self._answer(404, b"", "text/plain")
        elif found[1] == "manifests":
            self.server.asked.set()
            self.server.released.wait()
            gone = not self.server.served
            self._answer(404 if gone else 200, b"{}" if gone else self.server.served["manifest"], MANIFEST)
        elif found[1] == "blobs" and found[2] in self.server.served:
            self._answer(200, self.server.served[found[2]], "application/octet-stream")
        else:
            self._answer(200 if found[1] is None else 404, b"{}", "application/json")

    do_HEAD = do_GET  # noqa: N815 - http.server's name

    def _answer(self, code: int, body: bytes, media: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        self.send_header("Docker-Content-Digest", digest(body))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Say nothing."""


@contextmanager
def slow_registry() -> Iterator[Registry]:
    """Yield a registry whose pulls wait for ``release``."""
    registry = Registry()
    thread = threading.Thread(target=registry.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield registry
    finally:
        registry.served = {}  # a pull that still waits gets nothing, so it leaves nothing
        registry.release()
        registry.shutdown()
        thread.join()
        registry.server_close()

"""A stand-in for a reconciler that is asked for plans."""

from __future__ import annotations

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support.pki import Certificate


class Reconciler:
    """An HTTPS server that demands a client certificate, remembers what it is asked and gives one answer."""

    def __init__(self, serving: Certificate, client_ca: Path, answer: Any) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                subject = dict(part[0] for part in self.connection.getpeercert()["subject"])
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                asked.append((self.path, subject["commonName"], body))
                data = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_arguments: Any) -> None:
                """Stay silent."""

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(serving.cert, serving.key)
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

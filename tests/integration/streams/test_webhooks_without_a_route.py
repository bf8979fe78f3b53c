"""A webhook in a pod whose address the API server has no route to is asked through the gateway of the pod's node."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import CONFIG_MAP, ENDPOINT_SLICE, POD, SERVICE, VALIDATING_WEBHOOK_CONFIGURATION
from minik8s_modules.api.objects import JsonObject
from tests.integration.streams.conftest import Streaming
from tests.support.pki import Authority

NOWHERE = "192.0.2.77"  # RFC 5737: routed nowhere
# refuses what is called "bad"; runs in the pod's network, where no other process of the machine is reached
SERVER = """
import http.server, json, ssl, sys
class Hook(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked = review["request"]
        answer = {"uid": asked["uid"], "allowed": asked["name"] != "bad", "status": {"message": "told in the pod"}}
        body = json.dumps({**review, "request": None, "response": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = http.server.ThreadingHTTPServer(("0.0.0.0", 8443), Hook)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True)
print("ready", flush=True)
server.serve_forever()
"""


@pytest.fixture
def hook(streaming: Streaming, tmp_path: Path) -> Iterator[None]:
    """The webhook, its Service, and its configuration."""
    authority = Authority(tmp_path / "tls", "hooks")
    own = authority.issue("hook", "hook", names=("hook.default.svc",))
    made = streaming.pod("hook", "sleep 3600")
    pid = str(streaming.inspect(made)["State"]["Pid"])
    argv = ["nsenter", "-t", pid, "-n", sys.executable, "-c", SERVER, str(own.cert), str(own.key)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            publish(streaming, made, base64.b64encode(authority.ca.read_bytes()).decode())
            yield
        finally:
            streaming.admin.delete(VALIDATING_WEBHOOK_CONFIGURATION, "hook")
            process.kill()


def publish(streaming: Streaming, made: JsonObject, authority: str) -> None:
    """Have the pod's address be one that leads nowhere, and the Service's endpoint with it."""
    admin, meta = streaming.admin, {"name": "hook", "namespace": "default"}
    status = {"podIP": NOWHERE, "podIPs": [{"ip": NOWHERE}]}
    admin.patch(POD, "hook", "default", {"status": status}, subresource="status")
    admin.create(SERVICE, {"metadata": meta, "spec": {"ports": [{"port": 443, "targetPort": 8443}]}})
    target = {"kind": "Pod", "namespace": "default", "name": "hook", "uid": made["metadata"]["uid"]}
    admin.create(
        ENDPOINT_SLICE,
        {
            "metadata": {**meta, "labels": {"kubernetes.io/service-name": "hook"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [NOWHERE], "conditions": {"ready": True}, "targetRef": target}],
            "ports": [{"port": 8443}],
        },
    )
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    admin.create(
        VALIDATING_WEBHOOK_CONFIGURATION,
        {
            "metadata": {"name": "hook"},
            "webhooks": [
                {
                    "name": "hook.example.com",
                    "clientConfig": {"service": meta, "caBundle": authority},
                    "rules": [rule],
                    "timeoutSeconds": 30,
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                }
            ],
        },
    )


@pytest.mark.usefixtures("hook")
def test_it_is_asked_and_its_word_counts(streaming: Streaming) -> None:
    def create(name: str) -> None:
        streaming.admin.create(CONFIG_MAP, {"metadata": {"name": name, "namespace": "default"}})

    create("good")
    with pytest.raises(StatusError) as refused:
        create("bad")
    assert 'admission webhook "hook.example.com" denied the request: told in the pod' in refused.value.message
    for number in range(5):  # the tunnel is kept
        create(f"more-{number}")

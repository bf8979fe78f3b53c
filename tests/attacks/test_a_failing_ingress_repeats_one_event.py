"""What fails the same way each time is one Event, however often it fails.

nginx puts its process id before what it says, so every pass over a refused Ingress was another Event, and a namespace
filled with them. The same holds for whatever programs say with ids, ports and times that are new each time.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from minik8s_modules.api.kinds import EVENT
from minik8s_modules.client.api import ApiClient
from minik8s_modules.module_utils.minik8s.core.docker import DockerError
from minik8s_modules.module_utils.minik8s.core.faults import KeyFault
from minik8s_modules.module_utils.minik8s.names import nginx
from minik8s_modules.reconcile.events.ingress_events import IngressEvents
from minik8s_modules.reconcile.values.items import Outcome
from minik8s_modules.runtime.events import EventRecorder
from tests.integration.apiserver.conftest import Namespace

MAIN = nginx.main_text({"http_port": 18080, "https_port": 18443}, root=False)
REFUSED = {
    "no-certificate": "server { listen 18443 ssl; ssl_certificate s/tls.crt; ssl_certificate_key s/k; }",
    "no-directive": "server { no_such_directive on; }",
    "no-upstream": "server { location / { proxy_pass http://no-such-host.invalid:1; } }",
    "open": "server {",
}


def refused(folder: Path, text: str) -> str:
    return nginx.refusal({nginx.MAIN: MAIN, "hosts/shop.conf": text}, str(folder))


@pytest.mark.parametrize("case", REFUSED)
def test_nginx_refuses_in_the_same_words_each_time_and_says_why(tmp_path: Path, case: str):
    first, second = (refused(tmp_path, REFUSED[case]) for _ in range(2))
    assert first == second
    assert "#" not in first
    cause = {
        "no-certificate": "cannot load certificate",
        "no-directive": 'unknown directive "no_such_directive"',
        "no-upstream": "host not found in upstream",
        "open": "unexpected end of file",
    }[case]
    assert cause in first
    assert first.count(cause) == 1


def test_a_namespace_holds_one_event_of_an_ingress_that_fails_again_and_again(namespace: Namespace, tmp_path: Path):
    server = namespace.server
    client = ApiClient(server.url, server.authority.ca, server.admin.cert, server.admin.key)
    recorder = EventRecorder(client, "minik8s-reconciler")
    ingress = {"kind": "Ingress", "metadata": {"name": "shop", "namespace": namespace.name, "uid": "u"}}
    event_writer = IngressEvents(recorder, lambda _: None, lambda _: [ingress], lambda _: None)
    try:
        for _ in range(3):
            for errors in (*[refused(tmp_path, REFUSED["no-certificate"]) for _ in range(4)], ""):
                fields = {"shop.test": {"message": str(KeyFault("RefusedByNginx", errors))}} if errors else {}
                section = {"errors": fields, "status": {"shop.test": {}}}
                event_writer.on_outcome(Outcome("i", "n1", "ok", {"ingress": section}, ""))
                while recorder.write_one():
                    pass
        found = [(one["reason"], one["count"]) for one in client.list(EVENT, namespace.name).items]
    finally:
        client.close()
    assert sorted(found) == [("FailedToUpdatePaths", 3), ("PathsUpdated", 3)]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            'Conflict. The container name "/web" is already in use by container "{id}".',
            'Conflict. The container name "/web" is already in use by container "<id>".',
        ),
        (
            'error mounting "/v" to rootfs at "/x": open /var/lib/docker/overlay2/{id}/merged/x: no such file',
            'error mounting "/v" to rootfs at "/x": open /var/lib/docker/overlay2/<id>/merged/x: no such file',
        ),
        ("write /proc/{pid}/attr/exec: permission denied", "write /proc/<pid>/attr/exec: permission denied"),
        (
            "dial tcp: lookup r.test: read udp 192.0.2.9:{port}->192.0.2.1:53: i/o timeout",
            "dial tcp: lookup r.test: read udp 192.0.2.9->192.0.2.1:53: i/o timeout",
        ),
        (
            "error pulling image: write /var/lib/docker/tmp/GetImageBlob{pid}: no space left on device",
            "error pulling image: write /var/lib/docker/tmp/GetImageBlob<id>: no space left on device",
        ),
        (
            "x509: certificate has expired: current time 2026-01-01T00:00:{second}Z is after 2025-01-01T00:00:00Z",
            "x509: certificate has expired: current time <now> is after 2025-01-01T00:00:00Z",
        ),
    ],
)
def test_what_programs_say_loses_what_is_new_each_time_and_keeps_the_cause(said: str, message: str):
    for number in (1, 2):
        text = said.format(id=f"{number}a" * 32, pid=1000 + number, port=40000 + number, second=f"0{number}")
        assert str(KeyFault("X", text)) == message
        assert str(KeyFault("X", str(DockerError(500, text)))) == message


@pytest.mark.parametrize(
    "text",
    [
        f"manifest for i@sha256:{'ab' * 32} not found: manifest unknown",
        "container 96cc29ff-b011-4f59-a94a-631cc0d9b07e/app: exit code 137",
        'exec: "/bin/nothing-20240101": no such file or directory',
        "dial tcp 192.0.2.1:5000: connect: connection refused",
        "the resource version 1234567 is older than 2026-01-01T00:00:00Z",
    ],
)
def test_what_tells_one_cause_from_another_stays(text: str):
    assert str(KeyFault("X", text)) == text

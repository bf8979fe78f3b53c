"""cert-manager, installed by Helm from its own chart: a CA of its own issues what nginx serves an Ingress with."""

from __future__ import annotations

import json
import socket
import ssl
import uuid
from base64 import b64decode
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject
from tests.e2e.operators.cert_manager import UNTRUSTED, VALUES, VERSION, authority, chart, kind, probe
from tests.e2e.operators.conftest import built, helm
from tests.support.clusters.installed import IMAGE, Installed
from tests.support.docker.program_image import program_image

PROGRAMS = ("controller", "webhook", "cainjector")
HOST = "shop.test"
SERVE = "mkdir -p /tmp/w; echo sold >/tmp/w/index.html; exec httpd -f -p 8080 -h /tmp/w"


@pytest.fixture(scope="module")
def installed(cluster: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """The cluster with cert-manager."""
    folder = tmp_path_factory.mktemp("helm")
    with ExitStack() as images:
        for name in PROGRAMS:
            image = f"quay.io/jetstack/cert-manager-{name}:{VERSION}"
            program = built(f"cert-manager-{name}")
            images.enter_context(program_image(image, program, f"/app/cmd/{name}/{name}", 1000))
        try:
            helm(folder, "install", "cert-manager", str(chart(folder)), "--create-namespace", *VALUES, "--wait")
            cluster.until(lambda: answers(cluster))
            yield cluster
        finally:
            helm(folder, "uninstall", "cert-manager", *VALUES[:2], "--wait", "--ignore-not-found")
            cluster.drop_namespace("cert-manager")
    assert "cert-manager.io" not in cluster.kubectl("get", "crd", "-o", "name").stdout


def answers(cluster: Installed) -> bool:
    """Whether the webhook is trusted by now, which Helm does not wait for."""
    done = cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=probe(), check=False)
    assert done.returncode == 0 or UNTRUSTED in done.stderr or "failed to call webhook" in done.stderr, done.stderr
    return done.returncode == 0


@pytest.fixture
def namespace(installed: Installed) -> Iterator[str]:
    name = f"shop-{uuid.uuid4().hex[:8]}"
    installed.kubectl("create", "namespace", name)
    yield name
    installed.drop_namespace(name)


def shop() -> list[JsonObject]:
    labels = {"app": "shop"}
    app = {"name": "app", "image": IMAGE, "command": ["sh", "-c", SERVE], "ports": [{"containerPort": 8080}]}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [app], "terminationGracePeriodSeconds": 0}}
    backend = {"service": {"name": "shop", "port": {"number": 80}}}
    rule = {"host": HOST, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}
    ingress = {"ingressClassName": "nginx", "rules": [rule], "tls": [{"hosts": [HOST], "secretName": "shop-tls"}]}
    return [
        kind("apps/v1", "Deployment", "shop", spec={"selector": {"matchLabels": labels}, "template": template}),
        kind("v1", "Service", "shop", spec={"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]}),
        kind(
            "networking.k8s.io/v1", "Ingress", "shop", spec=ingress, annotations={"cert-manager.io/issuer": "shop-ca"}
        ),
    ]


def visit(trusted: str) -> tuple[str, bytes]:
    """Ask the shop by HTTPS, trusting one authority; return its certificate's serial number and its answer."""
    context = ssl.create_default_context(cadata=trusted)
    with (
        socket.create_connection(("127.0.0.1", 443), 10) as raw,
        context.wrap_socket(raw, server_hostname=HOST) as connection,
    ):
        certificate = connection.getpeercert() or {}
        connection.sendall(f"GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    return str(certificate["serialNumber"]), answer


def test_an_ingress_is_served_with_what_a_ca_of_ones_own_issues(installed: Installed, namespace: str):
    def kubectl(*arguments: str, **options: Any) -> str:
        return installed.kubectl("-n", namespace, *arguments, **options).stdout

    def apply(objects: list[JsonObject]) -> None:
        kubectl("apply", "-f", "-", stdin="\n".join(map(json.dumps, objects)))

    def served() -> str:
        """The serial number that nginx serves, "" while none does."""
        try:
            serial, answer = visit(trusted)
        except OSError:
            return ""
        return serial if answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"sold\n") else ""

    apply(authority())
    kubectl("wait", "--for=condition=Ready", "certificate/root", "issuer/shop-ca", "--timeout=60s")
    trusted = b64decode(kubectl("get", "secret", "root", "-o", "jsonpath={.data.tls\\.crt}")).decode()
    apply(shop())
    kubectl("wait", "--for=create", "certificate/shop-tls", "--timeout=60s")
    kubectl("wait", "--for=condition=Ready", "certificate/shop-tls", "--timeout=60s")
    first = installed.until(served)
    columns = [line.split() for line in kubectl("get", "certificates").splitlines()]
    assert columns[0] == ["NAME", "READY", "SECRET", "AGE"]
    assert [line[:3] for line in columns[1:]] == [["root", "True", "root"], ["shop-tls", "True", "shop-tls"]]
    kubectl("delete", "secret", "shop-tls")
    installed.until(lambda: served() not in ("", first))

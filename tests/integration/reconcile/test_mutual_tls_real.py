"""Mutual TLS between sidecars of real Pods: who is let in, modes that change under load, certificates, and thieves."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import DEPLOYMENT, NAMESPACE, POD, SERVICE
from minik8s_modules.api.network.gateway_api import CONTROLLER, GROUP, name_of_parts
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mutual_tls import DISABLED, MTLS, PERMISSIVE, STRICT
from minik8s_modules.api.pods.sidecars import INJECT
from minik8s_modules.module_utils.minik8s.core import labels
from tests.integration.reconcile.conftest import IMAGE, PILOT, Cluster, running
from tests.support import authorization
from tests.support.docker.envoy import envoy_images
from tests.support.gateway_api import definitions
from tests.support.node import SOCKET, command
from tests.support.pki import Authority, Certificate
from tests.support.servers.signer import Signer

SPACE, PORT, WAIT_S = "shop", 9080, 180.0
SERVE = f"mkdir -p /www && cd /www && echo served >index.html && exec httpd -f -p {PORT}"
UNTIL_TOLD = 'while [ ! -e /tmp/enough ]; do wget -q -O - "$1" 2>/dev/null || echo failed; done'
THIEF = """
import socket, ssl, sys
address, port, cert, key, protocol = sys.argv[1:]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
if cert:
    context.load_cert_chain(cert, key)
context.set_alpn_protocols([protocol])
with context.wrap_socket(socket.create_connection((address, int(port)), 10)) as stream:
    stream.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
    print(b"".join(iter(lambda: stream.recv(4096), b"")).decode())
"""


class Shop:
    """A Pod that serves, one that asks, both with sidecars that can; and one without any, in the same Namespace."""

    def __init__(self, cluster: Cluster, signer: Signer, mesh: Authority) -> None:
        self.cluster, self.signer, self.mesh = cluster, signer, mesh
        made = {"metadata": {"name": SPACE, "labels": {INJECT: "enabled", MTLS: PERMISSIVE}}}
        cluster.admin.create(NAMESPACE, made)
        spec = {"selector": {"app": "web"}, "ports": [{"port": PORT}]}
        service = cluster.admin.create(SERVICE, {"metadata": {"name": "web", "namespace": SPACE}, "spec": spec})
        self.url = f"http://{service['spec']['clusterIP']}:{PORT}/"
        self.pod("web", ["sh", "-c", SERVE], {"app": "web"})
        self.pod("client", ["sleep", "1000000"])
        self.pod("stranger", ["sleep", "1000000"], {INJECT: "disabled"})
        for name in ("web", "client", "stranger"):
            cluster.until(partial(self.ready, name), WAIT_S)

    def pod(self, name: str, words: list[str], marks: dict[str, str] | None = None, **more: JsonObject) -> None:
        """Create a Pod."""
        pilot = {"ip": f"{self.cluster.node.range}.1", "hostnames": [PILOT]}
        app = {"name": "app", "image": IMAGE, "command": words, "ports": [{"containerPort": PORT}], **more}
        spec = {"containers": [app], "hostAliases": [pilot], "terminationGracePeriodSeconds": 1}
        meta = {"name": name, "namespace": SPACE, "labels": marks or {}}
        self.cluster.admin.create(POD, {"metadata": meta, "spec": spec})

    def get(self, name: str) -> JsonObject:
        """Return a Pod."""
        return self.cluster.admin.get(POD, name, SPACE)

    def ready(self, name: str) -> bool:
        """Return whether a Pod is ready."""
        return (objects.condition(self.get(name), "Ready") or {}).get("status") == "True"

    def container(self, pod: str, name: str = "app") -> str:
        """Return the id of a container that runs."""
        wanted = {labels.POD_UID: objects.uid(self.get(pod)), labels.CONTAINER: name}
        (found,) = (one["Id"] for one in self.cluster.node.docker.containers(wanted) if one["State"] == "running")
        return str(found)

    def asks(self, name: str, url: str = "") -> bool:
        """Return whether a Pod is served."""
        words = ["docker", "exec", self.container(name), "timeout", "5", "wget", "-q", "-O", "-", url or self.url]
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip() == "served"

    def within(self, pod: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a program of this machine in a Pod's network."""
        process = command("docker", "inspect", "-f", "{{.State.Pid}}", self.container(pod)).strip()
        entered = ["nsenter", "-t", process, "-n", *words]
        return subprocess.run(entered, capture_output=True, text=True, check=False)

    def steals(self, certificate: Certificate | None, protocol: str = "minik8s-mesh") -> str:
        """Return what the Pod that serves answers to TLS of the stranger's with such a certificate, "" for nothing."""
        files = [str(certificate.cert), str(certificate.key)] if certificate is not None else ["", ""]
        address = str(objects.status(self.get("web"))["podIP"])
        return self.within("stranger", sys.executable, "-c", THIEF, address, str(PORT), *files, protocol).stdout

    def mode(self, mode: str) -> None:
        """Have the Namespace in a mode, and wait until it is so for a stranger."""
        self.cluster.kubectl("label", "namespace", SPACE, "--overwrite", f"{MTLS}={mode}")
        self.cluster.until(lambda: self.asks("stranger") is (mode == PERMISSIVE), WAIT_S)

    def administration(self, pod: str, path: str) -> JsonObject:
        """Return what a sidecar's administration answers."""
        words = ("/bin/wget", "-q", "-O", "-", f"http://127.0.0.1:15000{path}")
        found: JsonObject = json.loads(command("docker", "exec", self.container(pod, "envoy"), *words))
        return found

    def serials(self, pod: str) -> set[str]:
        """Return the serial numbers of a sidecar's own certificates."""
        found = self.administration(pod, "/certs")["certificates"]
        return {one["serial_number"] for each in found for one in each.get("cert_chain") or []}


class Load:
    """A Pod asks without a pause, until ``answers`` are asked for."""

    def __init__(self, shop: Shop) -> None:
        self._client = shop.container("client")
        command("docker", "exec", self._client, "rm", "-f", "/tmp/enough")
        words = ["docker", "exec", self._client, "sh", "-c", UNTIL_TOLD, "ask", shop.url]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

    def answers(self) -> Counter[str]:
        """End, and return who answered."""
        command("docker", "exec", self._client, "touch", "/tmp/enough")
        return Counter(self._process.communicate(timeout=60)[0].split())


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    envoy_images(SOCKET)
    folder: Path = tmp_path_factory.mktemp("signer")
    mesh = Authority(folder, "mesh")
    with running() as cluster:
        signer = Signer(cluster.server, folder, mesh).start()
        try:
            cluster.create("first")  # the bridge comes with the first Pod, and the pilot listens at its address
            cluster.until(partial(cluster.ready, "first"), WAIT_S)
            cluster.add_pilot()
            yield Shop(cluster, signer, mesh)
        finally:
            signer.kill()


def test_permissive_lets_everybody_in_and_strict_those_of_the_mesh_alone(shop: Shop):
    address = f"http://{objects.status(shop.get('web'))['podIP']}:{PORT}/"
    shop.cluster.until(lambda: shop.asks("client"), WAIT_S)
    # a new Pod is strict until the pilot has seen it and its Namespace
    shop.cluster.until(lambda: shop.asks("stranger"), WAIT_S)
    assert shop.asks("stranger", address)
    load = Load(shop)
    shop.mode(STRICT)
    assert not shop.asks("stranger", address)
    shop.mode(PERMISSIVE)
    shop.mode(STRICT)
    assert shop.asks("client")
    assert load.answers().keys() == {"served"}


def test_it_is_turned_on_and_off_without_a_failed_request(shop: Shop):
    def calls(*, by_tls: bool) -> bool:
        dump = shop.administration("client", "/config_dump?resource=dynamic_active_clusters")
        clusters = (each["cluster"] for each in dump.get("configs") or ())
        return any("transport_socket_matches" in each for each in clusters) is by_tls

    shop.mode(PERMISSIVE)
    load = Load(shop)
    for label in (f"{MTLS}-", f"{MTLS}={PERMISSIVE}"):
        shop.cluster.kubectl("label", "namespace", SPACE, label)
        shop.cluster.until(partial(calls, by_tls="=" in label), WAIT_S)
        assert [shop.asks(name) for name in ("client", "stranger")] == [True, True]
    assert load.answers().keys() == {"served"}


def test_certificates_of_others_are_refused(shop: Shop):
    shop.mode(STRICT)
    node = shop.cluster.server.identity("system:node:n1", "system:nodes")
    for each in (None, node, shop.cluster.server.admin, Authority(shop.cluster.folder, "other").issue("x", "sidecar")):
        assert shop.steals(each) == ""
    # the thief's tool works: with a certificate of the mesh it is served
    assert "served" in shop.steals(shop.mesh.issue("good", "sidecar"))


def test_a_pilot_that_comes_back_gives_new_certificates_and_no_request_fails(shop: Shop):
    shop.mode(STRICT)
    before = shop.serials("web")
    load = Load(shop)
    shop.cluster.daemons["mesh"].kill()
    shop.cluster.server.kill9()
    shop.cluster.server.start()
    assert shop.asks("client")
    assert not shop.asks("stranger")
    shop.cluster.daemons["mesh"].start()
    shop.cluster.until(lambda: not shop.serials("web") & before, WAIT_S)
    assert shop.asks("client")
    assert not shop.asks("stranger")
    assert load.answers().keys() == {"served"}


def test_a_gateway_calls_strict_pods_with_an_identity_of_its_own(shop: Shop):
    cluster, parts = shop.cluster, name_of_parts("edge")
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(definitions()))
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all")
    listener = {"name": "http", "port": 80, "protocol": "HTTP"}
    specs: dict[str, JsonObject] = {
        "GatewayClass": {"controllerName": CONTROLLER},
        "Gateway": {"gatewayClassName": "edge", "listeners": [listener]},
        "HTTPRoute": {"parentRefs": [{"name": "edge"}], "rules": [{"backendRefs": [{"name": "web", "port": PORT}]}]},
    }
    found = [
        {"apiVersion": f"{GROUP}/v1", "kind": kind, "spec": spec}
        | {"metadata": {"name": "edge", **({} if kind == "GatewayClass" else {"namespace": SPACE})}}
        for kind, spec in specs.items()
    ]
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(found))
    pilot = [{"ip": f"{cluster.node.range}.1", "hostnames": [PILOT]}]  # no server of names is here
    patch = json.dumps({"spec": {"template": {"spec": {"hostAliases": pilot}}}})
    cluster.until(lambda: cluster.admin.get(DEPLOYMENT, parts, SPACE), WAIT_S)
    cluster.kubectl("-n", SPACE, "patch", "deployment", parts, "-p", patch)
    shop.mode(STRICT)
    address = objects.spec(cluster.admin.get(SERVICE, parts, SPACE))["clusterIP"]
    cluster.until(lambda: shop.asks("stranger", f"http://{address}/"), WAIT_S)
    assert not shop.asks("stranger")


def test_a_pod_that_was_made_before_is_called_without_tls_beside_one_that_takes_it(shop: Shop):
    shop.mode(STRICT)
    shop.pod("old", ["sh", "-c", SERVE], {"app": "web", MTLS: DISABLED})
    shop.cluster.until(partial(shop.ready, "old"), WAIT_S)
    old = str(objects.status(shop.get("old"))["podIP"])
    # it takes connections of anybody, whatever its Namespace says; callers know that it does
    shop.cluster.until(lambda: shop.asks("stranger", f"http://{old}:{PORT}/"), WAIT_S)
    assert [shop.asks("client") for _ in range(20)] == [True] * 20
    shop.cluster.admin.delete(POD, "old", SPACE)


def test_a_policy_says_which_accounts_are_served_and_probes_pass_it(shop: Shop):
    cluster = shop.cluster
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(authorization.definition()))
    cluster.kubectl("wait", "--for=condition=Established", "crd", "authorizationpolicies.security.istio.io")
    shop.mode(PERMISSIVE)

    def allow(account: str) -> None:
        rule = {"from": [{"source": {"principals": [f"cluster.local/ns/{SPACE}/sa/{account}"]}}]}
        made = authorization.policy("web", rule, namespace=SPACE, app="web")
        cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(made))

    allow("default")
    cluster.until(lambda: not shop.asks("stranger"), WAIT_S)
    assert shop.asks("client")
    probe = {"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 1}
    shop.pod("probed", ["sh", "-c", SERVE], {"app": "web"}, readinessProbe=probe)
    cluster.until(partial(shop.ready, "probed"), WAIT_S)
    address = f"http://{objects.status(shop.get('probed'))['podIP']}:{PORT}/"
    assert not shop.asks("stranger", address)
    allow("nobody")
    cluster.until(lambda: not shop.asks("client"), WAIT_S)
    cluster.kubectl("-n", SPACE, "delete", "authorizationpolicy", "web")
    cluster.until(lambda: shop.asks("client") and shop.asks("stranger"), WAIT_S)
    assert shop.ready("probed")
    cluster.admin.delete(POD, "probed", SPACE)

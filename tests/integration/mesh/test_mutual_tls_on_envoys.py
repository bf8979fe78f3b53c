"""Mutual TLS where Services share a listener, of two pilots, and of fifty sidecars when a pilot starts again."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator

import pytest
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD, SERVICE
from minik8s_modules.api.pods.mutual_tls import MTLS, STRICT, identity
from minik8s_modules.api.pods.sidecars import with_sidecar
from minik8s_modules.cli.mesh.sidecars import DUMP, read_configuration
from minik8s_modules.mesh.crowds import CROWD
from minik8s_modules.mesh.identities.securing import IDENTITY, ROOTS, SECRET
from minik8s_modules.mesh.resources import CLUSTER
from tests.integration.control.conftest import Cluster, Daemon
from tests.integration.control.test_pilot_real import Pilot, Sidecar
from tests.integration.mesh.conftest import LONG_S, OK, PORT, Client, Mesh, run, serves
from tests.support.pki import Authority
from tests.support.servers.signer import Signer
from tests.support.waiting import until

SIDECARS = 50


@pytest.fixture(scope="module")
def authority(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authority]:
    """Yield the mesh's authority, with which a signer signs."""
    folder = tmp_path_factory.mktemp("signer")
    made = Authority(folder, "mesh")
    signer = Signer(cluster.server, folder, made).start()
    yield made
    signer.kill()


def strict(mesh: Mesh, authority: Authority, *names: str) -> None:
    """Make Pods that take TLS of the mesh alone."""
    mesh.cluster.server.kubectl("label", "namespace", mesh.namespace, f"{MTLS}={STRICT}")
    for name in names:
        own = authority.issue(name, "sidecar", uris=(identity(mesh.namespace, "default"),))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.ca))
        context.load_cert_chain(own.cert, own.key)
        context.set_alpn_protocols(["minik8s-mesh"])
        context.verify_mode = ssl.CERT_REQUIRED
        mesh.node.tls[name] = context
        meta = {"name": name, "namespace": mesh.namespace, "labels": {"app": "reviews"}}
        mesh.cluster.admin.create(POD, {"metadata": meta, "spec": with_sidecar(mesh.spec("v1"), mutual=True)})


@contextlib.contextmanager
def refusing(address: str) -> Iterator[list[bytes]]:
    """Close what comes to the address of a Service, as strict Pods behind a node's rules; yield what was said first."""
    said: list[bytes] = []
    run("ip", "addr", "replace", f"{address}/32", "dev", "lo")
    with socket.create_server((address, PORT)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):  # it ends
                while True:
                    peer, _address = server.accept()
                    with peer:
                        said.append(peer.recv(3))

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield said
        finally:
            server.shutdown(socket.SHUT_RDWR)
            run("ip", "addr", "del", f"{address}/32", "dev", "lo")


def test_services_that_share_a_listener_are_called_by_tls_and_refused_while_no_pilot_answers(
    mesh: Mesh, controllers: Daemon, authority: Authority
):
    assert controllers.process is not None
    strict(mesh, authority, "a", "b")
    addresses = [mesh.service()]
    for number in range(CROWD + 1):
        meta = {"name": f"more-{number}", "namespace": mesh.namespace}
        spec = {"selector": {"app": "reviews"}, "ports": [{"port": PORT, "targetPort": 8080}]}
        made = mesh.cluster.admin.create(SERVICE, {"metadata": meta, "spec": spec})
        addresses.append(str(objects.spec(made)["clusterIP"]))
    client = mesh.client()
    until(lambda: crowd_of(client) == len(addresses), LONG_S)
    serves(client, addresses[1])
    assert {client.get(addresses[1])[1] for _ in range(10)} == {"a v1", "b v1"}
    assert mesh.node.callers == {identity(mesh.namespace, "robot")}
    mesh.pilot.daemon.kill9()
    assert client.get(addresses[1])[0] == OK, "what it has called before, it calls by TLS"
    with refusing(addresses[3]) as said:
        assert client.get(addresses[3], method="POST")[0] == 503
    assert said == [b"POS"], "a first call goes by the node's rules without TLS"
    mesh.pilot.daemon.start()
    until(lambda: client.get(addresses[3], timeout_s=60)[0] == OK, LONG_S)
    assert mesh.node.callers == {identity(mesh.namespace, "robot")}


def crowd_of(client: Client) -> int:
    with contextlib.suppress(AssertionError):  # it has just begun
        return len(read_configuration(json.loads(client.stats(DUMP))).crowds.get(PORT, ()))
    return 0


def connected(pilot: Pilot, token: str, port: int = 0) -> Sidecar:
    """Return a sidecar that has asked for its certificate."""
    found = pilot.sidecar(token, port)
    found.ask(CLUSTER)
    found.next_response()
    found.ask(SECRET, IDENTITY, ROOTS)
    return found


def certificate(sidecar: Sidecar) -> str:
    """Return the certificate in the next response that has secrets; clusters come again as those who call by TLS."""
    while (response := sidecar.next_response()).type_url != SECRET:
        pass
    for each in response.resources:
        made = secret_pb2.Secret()
        assert each.resource.Unpack(made)
        if each.name == IDENTITY:
            return str(made.tls_certificate.certificate_chain.inline_string)
    raise AssertionError


def test_each_of_two_pilots_gives_certificates_and_a_pilot_that_starts_again_to_all(
    cluster: Cluster, authority: Authority
):
    assert authority.ca.exists()
    pilot, other = Pilot(cluster), Pilot(cluster)
    try:
        pilot.declare()
        # who neither takes TLS nor calls by it is given no certificate
        cluster.server.kubectl("label", "namespace", pilot.namespace, f"{MTLS}={STRICT}")
        app = {"serviceAccountName": "robot", "containers": [{"name": "app", "image": "a"}]}
        names = [f"client-{number}" for number in range(SIDECARS)]
        for name in names:
            cluster.admin.create(POD, {"metadata": {"name": name, "namespace": pilot.namespace}, "spec": app})
        tokens = [pilot.token(name) for name in names]
        both = [certificate(connected(pilot, tokens[0], port)) for port in (pilot.port, other.port)]
        assert both[0] != both[1]
        pilot.daemon.kill9()
        assert certificate(connected(pilot, tokens[1], other.port))
        pilot.daemon = pilot.start()
        until(lambda: _listens(pilot.port), LONG_S)
        begun = time.monotonic()
        sidecars = [connected(pilot, token) for token in tokens]
        assert len({certificate(each) for each in sidecars}) == SIDECARS
        print(f"{SIDECARS} sidecars: {time.monotonic() - begun:.1f} s until the last has a certificate")
    finally:
        for each in (pilot, other):
            each.daemon.stop()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
        return True
    return False

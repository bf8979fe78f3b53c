"""Attack: get a certificate of the mesh that says another service account than one's own, by what one may ask for.

Identities are given to who has a Pod's token, and are that Pod's service account's: no name that a sidecar asks for,
and nothing that it says of itself, is another's. Requests to the signer are the pilot's to make. Nor can a Pod have it
make ever more of them, or have others call by TLS what takes none.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2

from minik8s_modules.api import objects
from minik8s_modules.api.access.mesh_identities import MESH, SIDECAR, USAGES
from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kinds import CERTIFICATE_SIGNING_REQUEST, POD, SERVICE_ACCOUNT
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mutual_tls import MARK, MTLS, PERMISSIVE, identity, namespace_identity
from minik8s_modules.api.pods.sidecars import with_sidecar
from minik8s_modules.client.api import ApiClient
from minik8s_modules.mesh.identities.securing import IDENTITY, INBOUND, ROOTS, SECRET
from minik8s_modules.mesh.identities.turns import AT_ONCE
from minik8s_modules.mesh.resources import CLUSTER, ENDPOINTS, LISTENER
from tests.integration.control.conftest import Cluster, cluster, etcd
from tests.integration.control.test_pilot_real import IPS, Pilot, Sidecar
from tests.support.pki import Authority
from tests.support.servers.signer import Signer
from tests.support.waiting import until

__all__ = ["cluster", "etcd"]
LONG_S = 120.0


class Town:
    """A pilot, a signer with an authority of the mesh, and a namespace with a Pod of the account ``robot``."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.mesh = cluster, Authority(folder, "mesh")
        self.signer = Signer(cluster.server, folder, self.mesh).start()
        self.pilot = Pilot(cluster)
        self.pilot.declare()
        self.label(self.pilot.namespace)
        cluster.admin.create(SERVICE_ACCOUNT, {"metadata": {"name": "till", "namespace": self.pilot.namespace}})

    def stop(self) -> None:
        """End all."""
        self.pilot.daemon.stop()
        self.signer.kill()

    def certified(self, sidecar: Sidecar, *names: str) -> dict[str, secret_pb2.Secret]:
        """Return the secrets that a sidecar is told when it asks for names."""
        sidecar.ask(SECRET, *names)
        found = {}
        while (response := sidecar.next_response()).type_url != SECRET:
            pass
        for each in response.resources:
            made = secret_pb2.Secret()
            assert each.resource.Unpack(made)
            found[each.name] = made
        return found

    def label(self, namespace: str) -> None:
        """Turn mutual TLS on."""
        self.cluster.server.kubectl("label", "namespace", namespace, f"{MTLS}={PERMISSIVE}")

    def pod(self, name: str, spec: JsonObject, ip: str = "", namespace: str = "") -> None:
        """Create a Pod of the account ``robot``, which runs at an address."""
        meta = {"name": name, "namespace": namespace or self.pilot.namespace}
        made = self.cluster.admin.create(POD, {"metadata": meta, "spec": {**spec, "serviceAccountName": "robot"}})
        if ip:
            status = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}
            self.cluster.admin.update(POD, {**made, "status": status}, subresource="status")

    def requested(self, namespace: str) -> int:
        """Return for how many certificates of a namespace's accounts the signer has been asked."""
        found = self.cluster.admin.list(CERTIFICATE_SIGNING_REQUEST).items
        asked = (x509.load_pem_x509_csr(base64.b64decode(objects.spec(each)["request"])) for each in found)
        names = (each.extensions.get_extension_for_class(x509.SubjectAlternativeName).value for each in asked)
        uris = (uri for each in names for uri in each.get_values_for_type(x509.UniformResourceIdentifier))
        return sum(uri.startswith(namespace_identity(namespace)) for uri in uris)

    def request(self, client: ApiClient, name: str) -> str:
        """Ask the signer for the identity ``name``; return the request's name."""
        key = ec.generate_private_key(ec.SECP256R1())
        asked = (
            x509.CertificateSigningRequestBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, SIDECAR)]))
            .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(name)]), critical=False)
            .sign(key, hashes.SHA256())
            .public_bytes(serialization.Encoding.PEM)
        )
        spec = {"signerName": MESH, "request": base64.b64encode(asked).decode(), "usages": sorted(USAGES)}
        made = client.create(CERTIFICATE_SIGNING_REQUEST, {"metadata": {"generateName": "thief-"}, "spec": spec})
        return objects.name(made)

    def status(self, request: str) -> JsonObject:
        """Return what has become of a request."""
        return objects.status(self.cluster.admin.get(CERTIFICATE_SIGNING_REQUEST, request))


@pytest.fixture(scope="module")
def town(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    made = Town(cluster, tmp_path_factory.mktemp("signer"))
    yield made
    made.stop()


def uris(chain: str) -> list[str]:
    certificate = x509.load_pem_x509_certificate(chain.encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return names.get_values_for_type(x509.UniformResourceIdentifier)


def test_a_pod_gets_the_identity_of_its_own_account_whatever_it_asks_for(town: Town):
    space = town.pilot.namespace
    sidecar = town.pilot.sidecar(town.pilot.token("client"))
    sidecar.ask(CLUSTER)
    sidecar.next_response()
    others = (identity(space, "till"), "till", f"{space}/till", "spiffe://cluster.local/ns/kube-system/sa/default")
    found = town.certified(sidecar, *others, IDENTITY, ROOTS)
    assert found.keys() == {IDENTITY, ROOTS}
    told = found[IDENTITY].tls_certificate
    assert uris(told.certificate_chain.inline_string) == [identity(space, "robot")]
    certificate = x509.load_pem_x509_certificate(told.certificate_chain.inline_string.encode())
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(town.mesh.ca.read_bytes()))
    key = serialization.load_pem_private_key(told.private_key.inline_string.encode(), None)
    assert key.public_key() == certificate.public_key()
    roots = found[ROOTS].validation_context.trusted_ca.inline_string
    assert roots.encode() == town.mesh.ca.read_bytes(), "what is trusted is the mesh's authority, and not the cluster's"


def test_two_sidecars_of_one_account_have_keys_of_their_own(town: Town):
    keys = set()
    for _ in range(2):
        sidecar = town.pilot.sidecar(town.pilot.token("client"))
        sidecar.ask(CLUSTER)
        sidecar.next_response()
        keys.add(town.certified(sidecar, IDENTITY)[IDENTITY].tls_certificate.private_key.inline_string)
    assert len(keys) == 2


def test_a_token_of_no_pod_and_no_token_get_nothing(town: Town):
    for token in (town.pilot.token(), "", "x"):
        sidecar = town.pilot.sidecar(token)
        with pytest.raises(grpc.RpcError) as refused:
            town.certified(sidecar, IDENTITY)
        assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("name", ["system:minik8s:gateway", "system:node:n1", "administrator"])
def test_a_request_of_anybody_but_the_pilot_is_not_approved(town: Town, name: str):
    if name == "administrator":
        thief = town.cluster.admin
    else:
        identified = town.cluster.server.identity(name, "system:nodes")
        thief = ApiClient(town.cluster.server.url, town.cluster.server.authority.ca, *identified)
    wanted = identity(town.pilot.namespace, "till")
    try:
        request = town.request(thief, wanted)
    except Forbidden:
        return
    if name == "administrator":  # who may do everything may do this, and nobody else
        until(lambda: bool(town.status(request).get("certificate")), LONG_S)
        return
    # the signer has seen it when it has signed one that came later
    later = town.request(town.cluster.client("pilot"), wanted)
    until(lambda: bool(town.status(later).get("certificate")), LONG_S)
    assert not town.status(request).get("certificate")
    assert not town.status(request).get("conditions")


def test_the_pilot_gets_nothing_else_of_the_signer(town: Town):
    pilot = town.cluster.client("pilot")
    for name in (
        "spiffe://cluster.local/ns/shop/sa/web/../x",
        "spiffe://elsewhere/ns/shop/sa/web",
        "https://kubernetes.default.svc",
    ):
        request = town.request(pilot, name)
        until(lambda request=request: bool(town.status(request).get("conditions")), LONG_S)  # type: ignore[misc]
        assert {each["type"] for each in town.status(request)["conditions"]} == {"Denied"}
    request = town.request(pilot, identity(town.pilot.namespace, "robot"))
    approved = {**pilot.get(CERTIFICATE_SIGNING_REQUEST, request), "status": {"conditions": []}}
    with pytest.raises(Forbidden):
        pilot.update(CERTIFICATE_SIGNING_REQUEST, approved, subresource="approval")


APP: JsonObject = {"containers": [{"name": "app", "image": "a"}]}


def test_a_pod_that_begins_stream_after_stream_does_not_fill_the_cluster_with_requests(town: Town):
    space = town.cluster.namespace()
    town.cluster.admin.create(SERVICE_ACCOUNT, {"metadata": {"name": "robot", "namespace": space}})
    town.pod("plain", APP, namespace=space)
    town.pod("taker", with_sidecar(APP, mutual=True), namespace=space)
    for pod in ("plain", "taker"):
        for _ in range(2 * AT_ONCE):
            sidecar = town.pilot.sidecar(town.pilot.token(pod, space))
            sidecar.ask(SECRET, IDENTITY)
            sidecar.ask(LISTENER, "nothing")
            sidecar.next_response()
            sidecar.leave()
        # when somebody who comes later has one, what was asked for before has been asked for
        town.pod(f"later-{pod}", with_sidecar(APP, mutual=True))
        later = town.pilot.sidecar(town.pilot.token(f"later-{pod}"))
        later.ask(CLUSTER)
        town.certified(later, IDENTITY)
        most = AT_ONCE if pod == "taker" else 0
        assert town.requested(space) <= most, "who takes no TLS and calls nobody by it needs no certificate"


def test_nobody_is_called_by_tls_for_what_another_container_says_of_itself(town: Town):
    name = f"reviews.{town.pilot.namespace}:9080"
    beside = {"containers": [{**APP["containers"][0], "env": [MARK]}]}
    town.pod("liar", beside, IPS["a"])
    town.pod("of-the-node", {**with_sidecar(APP, mutual=True), "hostNetwork": True}, IPS["a"])
    town.pod("honest", with_sidecar(APP, mutual=True), IPS["b"])
    sidecar = town.pilot.sidecar(town.pilot.token("liar"))
    sidecar.ask(ENDPOINTS, name)
    while "b" not in (marked := by_tls(sidecar.next_response())):
        pass
    assert marked == {"b"}
    sidecar.ask(LISTENER)
    assert INBOUND not in {each.name for each in sidecar.next_response().resources}


def by_tls(response: Any) -> set[str]:
    """Return which Pods are to be called by TLS."""
    (resource,) = response.resources
    assignment = endpoint_pb2.ClusterLoadAssignment()
    assert resource.resource.Unpack(assignment)
    of = [each for group in assignment.endpoints for each in group.lb_endpoints if each.metadata.filter_metadata]
    found = {each.endpoint.address.socket_address.address for each in of}
    return {pod for pod, ip in IPS.items() if ip in found}

"""Nobody becomes somebody else by a certificate: it names one identity, and all who read it read the same.

The attack: a signing request for a node's client certificate with the subject ``O=system:nodes, CN=system:node:x,
CN=system:kube-controller-manager``. A signer that reads the first common name approves it by itself; an API server that
reads the last one lets the controllers in. Its relatives: the second name in one multi-valued RDN, further attributes,
groups, alternative names and extensions; the node called ``*``, whose serving certificate would be every node's; and
certificates of the cluster's own authority that name two.
"""

from __future__ import annotations

import base64
import http.client
import ipaddress
import secrets
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import AttributeOID, ExtendedKeyUsageOID, NameOID

from minik8s_modules.api.access import bootstrap_tokens
from minik8s_modules.apiserver.http.settings import TlsFiles
from minik8s_modules.apiserver.nodes.gateways import TlsGateways
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.reconcile.planning.planserver import PlanFiles, PlanServer
from minik8s_modules.streams.listener import StreamFiles, StreamServer
from tests.support.apiserver import Answer, ApiServerProcess
from tests.support.pki import Authority, Certificate, subject_of, write_kubeconfig
from tests.support.servers.signer import Signer
from tests.support.waiting import until

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
TOKENS = "/api/v1/namespaces/kube-system/secrets"
WHO_AM_I = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
CLIENT, LEGACY = "kubernetes.io/kube-apiserver-client", "kubernetes.io/legacy-unknown"
NODE_CLIENT, NODE_SERVING = "kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"
USAGES = {
    CLIENT: ["client auth"],
    LEGACY: ["client auth"],
    NODE_CLIENT: ["digital signature", "client auth"],
    NODE_SERVING: ["digital signature", "server auth"],
}
STRONG = "system:kube-controller-manager"
NODES = "system:nodes"
Attribute = tuple[x509.ObjectIdentifier, str]
O, CN = NameOID.ORGANIZATION_NAME, NameOID.COMMON_NAME  # noqa: E741 - as subjects are written


def named(*attributes: Attribute) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])


def joined(*attributes: Attribute) -> x509.Name:
    """A subject of one multi-valued RDN."""
    parts = [x509.NameAttribute(oid, value) for oid, value in attributes]
    return x509.Name([x509.RelativeDistinguishedName(parts)])


class Asked(NamedTuple):
    """A request: its signer, the subject, extensions with whether they are critical, and further attributes."""

    subject: x509.Name
    signer: str = NODE_CLIENT
    extensions: tuple[tuple[x509.ExtensionType, bool], ...] = ()
    attributes: tuple[tuple[x509.ObjectIdentifier, bytes], ...] = ()

    def body(self) -> dict[str, Any]:
        """The object, with a name and a key of its own."""
        builder = x509.CertificateSigningRequestBuilder().subject_name(self.subject)
        for extension, critical in self.extensions:
            builder = builder.add_extension(extension, critical=critical)
        for oid, value in self.attributes:
            builder = builder.add_attribute(oid, value)
        made = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
        request = base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()
        spec = {"request": request, "signerName": self.signer, "usages": USAGES[self.signer]}
        return {"metadata": {"name": f"attack-{secrets.token_hex(8)}"}, "spec": spec}


def alternative(*names: x509.GeneralName) -> tuple[tuple[x509.ExtensionType, bool], ...]:
    return ((x509.SubjectAlternativeName(names), False),)


OTHER_NAME = x509.OtherName(x509.ObjectIdentifier("1.3.6.1.4.1.311.20.2.3"), b"\x0c\x05admin")
ADDRESS = x509.IPAddress(ipaddress.ip_address("192.0.2.1"))
OWN_NAME = x509.DNSName("x.node.minik8s.internal")
AN_AUTHORITY = ((x509.BasicConstraints(ca=True, path_length=None), True),)
CONSTRAINED = ((x509.NameConstraints([OWN_NAME], None), True),)
FOR_SERVERS = ((x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),)
UNKNOWN = ((x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\5\0"), False),)
PASSWORD = ((AttributeOID.CHALLENGE_PASSWORD, b"x"),)
NODE_X, EVERY_NODE = subject_of("system:node:x", NODES), subject_of("system:node:*", NODES)
# fmt: off
REFUSED = {
    "two common names": Asked(named((O, NODES), (CN, "system:node:x"), (CN, STRONG))),
    "two common names, the node's last": Asked(named((O, NODES), (CN, STRONG), (CN, "system:node:x"))),
    "the same common name twice": Asked(named((O, NODES), (CN, "system:node:x"), (CN, "system:node:x"))),
    "two common names in one RDN": Asked(joined((O, NODES), (CN, "system:node:x"), (CN, STRONG))),
    "one RDN of group and name": Asked(joined((O, NODES), (CN, "system:node:x"))),
    "a repeated group": Asked(named((O, NODES), (O, NODES), (CN, "system:node:x"))),
    "masters beside the nodes": Asked(named((O, NODES), (O, "system:masters"), (CN, "system:node:x"))),
    "masters in place of the nodes": Asked(subject_of("system:node:x", "system:masters")),
    "no group": Asked(subject_of("system:node:x")),
    "an organizational unit": Asked(named((O, NODES), (NameOID.ORGANIZATIONAL_UNIT_NAME, "x"), (CN, "system:node:x"))),
    "a serial number": Asked(named((O, NODES), (NameOID.SERIAL_NUMBER, "1"), (CN, "system:node:x"))),
    "another identity": Asked(subject_of(STRONG, NODES)),
    "the node called *": Asked(EVERY_NODE),
    "a node with a slash": Asked(subject_of("system:node:a/b", NODES)),
    "a node with NUL": Asked(subject_of("system:node:x\0y", NODES)),
    "a node with a line break": Asked(subject_of("system:node:x\ny", NODES)),
    "the node without a name": Asked(subject_of("system:node:", NODES)),
    "a DNS name": Asked(NODE_X, NODE_CLIENT, alternative(OWN_NAME)),
    "an address": Asked(NODE_X, NODE_CLIENT, alternative(ADDRESS)),
    "a name of another form": Asked(NODE_X, NODE_CLIENT, alternative(OTHER_NAME)),
    "a directory's name": Asked(NODE_X, NODE_CLIENT, alternative(x509.DirectoryName(NODE_X))),
    "a registered identifier": Asked(NODE_X, NODE_CLIENT, alternative(x509.RegisteredID(CN))),
    "an authority": Asked(NODE_X, NODE_CLIENT, AN_AUTHORITY),
    "constraints of names": Asked(NODE_X, NODE_CLIENT, CONSTRAINED),
    "usages of its own": Asked(NODE_X, NODE_CLIENT, FOR_SERVERS),
    "an unknown extension": Asked(NODE_X, NODE_CLIENT, UNKNOWN),
    "an unknown attribute": Asked(NODE_X, NODE_CLIENT, (), PASSWORD),
    "serving another node": Asked(NODE_X, NODE_SERVING, alternative(x509.DNSName("y.node.minik8s.internal"))),
    "serving every node": Asked(EVERY_NODE, NODE_SERVING, alternative(x509.DNSName("*.node.minik8s.internal"))),
    "serving the API": Asked(NODE_X, NODE_SERVING, alternative(OWN_NAME, x509.DNSName("kubernetes.default.svc"))),
    "serving an address": Asked(NODE_X, NODE_SERVING, alternative(OWN_NAME, ADDRESS)),
    "serving a name of another form": Asked(NODE_X, NODE_SERVING, alternative(OWN_NAME, OTHER_NAME)),
    "serving nothing": Asked(NODE_X, NODE_SERVING),
    "a user of two names": Asked(named((CN, "jane"), (CN, STRONG)), LEGACY),
    "a user of no name": Asked(named((O, "people")), LEGACY),
    "a user with a unit": Asked(named((NameOID.ORGANIZATIONAL_UNIT_NAME, "x"), (CN, "jane")), LEGACY),
    "a user in a group twice": Asked(named((O, "people"), (O, "people"), (CN, "jane")), LEGACY),
    "a user who is an authority": Asked(subject_of("jane"), LEGACY, AN_AUTHORITY),
    "a user with a name of another form": Asked(subject_of("jane"), LEGACY, alternative(OTHER_NAME)),
}
# fmt: on

OF_USERS = {what: asked for what, asked in REFUSED.items() if asked.signer == LEGACY}


class Cluster:
    """An API server, and a signer that signs by itself what it recognizes."""

    def __init__(self, server: ApiServerProcess, signer: Signer) -> None:
        self.server = server
        self.signer = signer
        self.node = server.identity("system:node:x", NODES)

    def fate(self, name: str) -> dict[str, Any]:
        """Return the request's status once it is settled."""

        def settled() -> dict[str, Any]:
            status: dict[str, Any] = self.server.request("GET", f"{REQUESTS}/{name}").json["status"]
            types = {each["type"] for each in status.get("conditions") or []}
            return status if types & {"Denied", "Failed"} or status.get("certificate") else {}

        found: dict[str, Any] = until(settled)
        return found


@pytest.fixture(scope="module")
def cluster(server: ApiServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    signer = Signer(server, tmp_path_factory.mktemp("signer")).start()
    yield Cluster(server, signer)
    signer.kill()


@pytest.mark.parametrize("asked", REFUSED.values(), ids=REFUSED.keys())
def test_a_request_that_is_not_exactly_as_expected_is_denied(cluster: Cluster, asked: Asked):
    body = asked.body()
    answer = cluster.server.request("POST", REQUESTS, body, client=cluster.node)
    assert answer.code == 201, answer.body
    status = cluster.fate(body["metadata"]["name"])
    (condition,) = status["conditions"]
    assert (condition["type"], condition["reason"]) == ("Denied", "SignerValidationFailure"), condition
    assert condition["message"]
    assert not status.get("certificate")


@pytest.mark.parametrize("asked", OF_USERS.values(), ids=OF_USERS.keys())
def test_what_somebody_has_approved_already_is_not_signed(cluster: Cluster, asked: Asked):
    cluster.signer.kill()
    body = asked.body()
    name = body["metadata"]["name"]
    assert cluster.server.request("POST", REQUESTS, body).code == 201
    cluster.server.kubectl("certificate", "approve", name)
    cluster.signer.start()
    status = cluster.fate(name)
    assert [each["type"] for each in status["conditions"]] == ["Approved", "Failed"]
    assert not status.get("certificate")


@pytest.mark.parametrize("asked", OF_USERS.values(), ids=OF_USERS.keys())
def test_who_cannot_be_read_is_no_way_around_the_groups_that_are_refused(cluster: Cluster, asked: Asked):
    """Requests for people are looked at when they are made: system:masters gets no certificate."""
    subject = x509.Name([x509.NameAttribute(O, "system:masters"), *asked.subject])
    answer = cluster.server.request("POST", REQUESTS, asked._replace(signer=CLIENT, subject=subject).body())
    assert answer.code == 403, answer.body


def test_a_denied_request_is_denied_once(cluster: Cluster):
    """The signer must not come back to it: each further look would be a write, or an error in its log."""
    body = REFUSED["two common names"].body()
    cluster.server.request("POST", REQUESTS, body, client=cluster.node)
    name = body["metadata"]["name"]
    cluster.fate(name)
    revision = cluster.server.request("GET", f"{REQUESTS}/{name}").json["metadata"]["resourceVersion"]
    cluster.signer.kill()
    cluster.signer.start()  # which looks at everything anew
    later = Asked(NODE_X).body()
    cluster.server.request("POST", REQUESTS, later, client=cluster.node)
    assert cluster.fate(later["metadata"]["name"]).get("certificate")
    assert cluster.server.request("GET", f"{REQUESTS}/{name}").json["metadata"]["resourceVersion"] == revision
    assert "Traceback" not in cluster.signer.log.read_text()


def test_a_certificate_says_what_was_read_and_nothing_else(cluster: Cluster):
    asked = Asked(NODE_X, NODE_SERVING, alternative(OWN_NAME)).body()
    cluster.server.request("POST", REQUESTS, asked, client=cluster.node)
    found = x509.load_pem_x509_certificate(base64.b64decode(cluster.fate(asked["metadata"]["name"])["certificate"]))
    assert [(each.oid, each.value) for each in found.subject] == [(O, NODES), (CN, "system:node:x")]
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert list(names) == [OWN_NAME]
    assert not found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


# --- by a bootstrap token -------------------------------------------------------------------------


@pytest.fixture
def token(server: ApiServerProcess) -> str:
    made = bootstrap_tokens.new_token(secrets.choice)
    stored = bootstrap_tokens.secret_of(made, datetime.now(UTC) + timedelta(hours=1))
    assert server.request("POST", TOKENS, stored).code == 201
    return str(made)


BY_TOKEN = {
    what: asked
    for what, asked in REFUSED.items()
    if asked.signer == NODE_CLIENT and not asked.extensions and not asked.attributes
}


@pytest.mark.parametrize("asked", BY_TOKEN.values(), ids=BY_TOKEN.keys())
def test_a_bootstrap_token_becomes_a_node_and_nobody_else(cluster: Cluster, token: str, asked: Asked):
    answer = cluster.server.request("POST", REQUESTS, asked.body(), token=token)
    assert answer.code == 403, answer.body
    assert "a bootstrap token is for joining as a node" in answer.json["message"]


@pytest.mark.parametrize("what", ["a DNS name", "an authority", "an unknown attribute"])
def test_a_bootstrap_token_buys_no_more_than_a_name(cluster: Cluster, token: str, what: str):
    answer = cluster.server.request("POST", REQUESTS, REFUSED[what].body(), token=token)
    assert answer.code == 403, answer.body


# --- certificates of the authority itself ---------------------------------------------------------

CALLER = "system:minik8s:apiserver"
AMBIGUOUS = {
    "two common names": named((CN, "jane"), (CN, CALLER)),
    "two common names, turned round": named((CN, CALLER), (CN, "jane")),
    "two common names in one RDN": joined((CN, "jane"), (CN, CALLER)),
    "the same common name twice": named((CN, CALLER), (CN, CALLER)),
    "a common name that goes on after NUL": named((CN, f"{CALLER}\0.example")),
    "a common name of two lines": named((CN, f"{CALLER}\nx")),
}


@pytest.mark.parametrize("subject", AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
def test_the_api_server_lets_nobody_in_by_an_ambiguous_certificate(server: ApiServerProcess, subject: x509.Name):
    client = server.authority.issue(f"two-{secrets.token_hex(4)}", "", subject=subject)
    answer = server.request("POST", WHO_AM_I, {}, client=client)
    assert answer.code == 401, answer.body
    assert "refusing a client certificate: the subject" in server.log.read_text()


def test_a_token_counts_beside_a_certificate_that_does_not(server: ApiServerProcess):
    """As in Kubernetes: a certificate that names nobody is nobody's, whoever else shows himself."""
    server.kubectl("create", "serviceaccount", "robot")
    token = server.kubectl("create", "token", "robot").stdout.strip()
    client = server.authority.issue("two-and-token", "", subject=AMBIGUOUS["two common names"])
    answer = server.request("POST", WHO_AM_I, {}, client=client, headers={"Authorization": f"Bearer {token}"})
    assert answer.json["status"]["userInfo"]["username"] == "system:serviceaccount:default:robot"


class Peers(NamedTuple):
    """The gateway's streams and the reconciler's plans, which answer the API server alone."""

    authority: Authority
    streams: StreamServer
    plans: PlanServer

    def ask(self, port: int, method: str, path: str, client: Certificate) -> Answer:
        """Send one request and return the answer."""
        context = ssl.create_default_context(cafile=str(self.authority.ca))
        context.load_cert_chain(client.cert, client.key)
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=60)
        try:
            connection.request(method, path, b'{"objects": []}' if method == "POST" else None)
            response = connection.getresponse()
            return Answer(response.status, {}, response.read())
        finally:
            connection.close()


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peers]:
    authority = Authority(tmp_path_factory.mktemp("peers"), "cluster")
    own = authority.issue("own", "own")
    streams = StreamServer("127.0.0.1", 0, StreamFiles(own.cert, own.key, authority.ca), "/nowhere.sock")
    plans = PlanServer("127.0.0.1", 0, PlanFiles(own.cert, own.key, authority.ca), lambda _question: {"nodes": {}})
    streams.start()
    plans.start()
    yield Peers(authority, streams, plans)
    streams.stop()
    plans.stop()


def test_gateway_and_reconciler_answer_the_api_server(peers: Peers):
    caller = peers.authority.issue("caller", CALLER)
    assert peers.ask(peers.streams.port, "GET", "/nodes/n/pods/u/log?namespace=n&pod=p&container=c", caller).code == 503
    assert peers.ask(peers.plans.port, "POST", "/plan", caller).code == 200


@pytest.mark.parametrize("subject", AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
def test_gateway_and_reconciler_answer_no_ambiguous_certificate(peers: Peers, subject: x509.Name):
    client = peers.authority.issue(f"two-{secrets.token_hex(4)}", "", subject=subject)
    for port, method, path in (
        (peers.streams.port, "GET", "/nodes/n/pods/u/log?namespace=n&pod=p&container=c"),
        (peers.streams.port, "GET", "/metrics"),
        (peers.streams.port, "GET", "nonsense"),
        (peers.plans.port, "POST", "/plan"),
        (peers.plans.port, "GET", "/metrics/n1"),
    ):
        answer = peers.ask(port, method, path, client)
        assert (answer.code, b"the subject" in answer.body) == (403, True), answer.body


# --- servers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [None, ("localhost",)], ids=["in its common name", "in an alternative name"])
def test_a_user_called_like_a_server_is_none(peers: Peers, names: tuple[str, ...] | None):
    """Python's library takes the common name where no alternative name is: then a user's certificate is a server's."""
    shown = peers.authority.issue(f"like-{secrets.token_hex(4)}", "localhost", names=names)
    server = PlanServer("127.0.0.1", 0, PlanFiles(shown.cert, shown.key, peers.authority.ca), lambda _question: None)
    server.start()
    caller = peers.authority.issue("caller", CALLER)
    gateways = TlsGateways(TlsFiles(caller.cert, caller.key, peers.authority.ca))
    kubeconfig = write_kubeconfig(
        shown.cert.with_suffix(".yml"), f"https://localhost:{server.port}", peers.authority.ca, caller
    )
    client = ApiClient.from_kubeconfig(kubeconfig)
    try:
        if names is None:
            with pytest.raises(ssl.SSLCertVerificationError):
                gateways.connect(f"https://localhost:{server.port}", b"")
            with pytest.raises(ApiUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
                client.raw("GET", "/")
        else:
            gateways.connect(f"https://localhost:{server.port}", b"").close()
            assert client.raw("GET", "/").status == 404
    finally:
        client.close()
        server.stop()

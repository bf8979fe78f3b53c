"""Attack: be told the certificates of a Gateway, or have those of another namespace served, by what one may write.

A Gateway's Envoys are told private keys. Whose Envoy it is says the service account of its Pod's token: neither the
name of its node, nor an account of the same name in another namespace, nor any other Pod of the namespace is enough.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from minik8s_modules.api.kinds import POD, SECRET, SERVICE_ACCOUNT
from minik8s_modules.api.network.gateway_api import CONTROLLER, GROUP, name_of_parts
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.mesh.resources import LISTENER
from tests.integration.control.conftest import Cluster, cluster, etcd
from tests.integration.control.test_pilot_real import Pilot, Sidecar
from tests.support.gateway_api import definitions

__all__ = ["cluster", "etcd"]
ACCOUNT = name_of_parts("edge")
KEY = b"PRIVATE KEY"
SOON_S = 5.0


class Town:
    """A pilot, and two namespaces: the victim's, with a Gateway and its certificate, and the attacker's."""

    def __init__(self, cluster: Cluster) -> None:
        self.pilot = Pilot(cluster)
        self.cluster, self.victim, self.attacker = cluster, self.pilot.namespace, cluster.namespace()
        self.apply(*definitions())
        cluster.server.kubectl("wait", "--for=condition=Established", "crd", "--all")
        spec = {"controllerName": CONTROLLER}
        self.apply({"apiVersion": f"{GROUP}/v1", "kind": "GatewayClass", "metadata": {"name": "ours"}, "spec": spec})
        made = cluster.server.authority.issue("edge", "edge", names=("a.example",))
        files = (("tls.crt", made.cert), ("tls.key", made.key))
        data = {field: base64.b64encode(file.read_bytes()).decode() for field, file in files}
        meta = {"name": "edge-tls", "namespace": self.victim}
        cluster.admin.create(SECRET, {"metadata": meta, "type": "kubernetes.io/tls", "data": data})
        self.gateway(self.victim)
        for space, account in ((self.victim, ACCOUNT), (self.victim, "robot"), (self.attacker, ACCOUNT)):
            cluster.admin.create(SERVICE_ACCOUNT, {"metadata": {"name": account, "namespace": space}})
            pod = {"serviceAccountName": account, "containers": [{"name": "app", "image": "a"}]}
            cluster.admin.create(POD, {"metadata": {"name": f"of-{account}", "namespace": space}, "spec": pod})

    def apply(self, *found: JsonObject) -> None:
        """Apply objects."""
        self.cluster.server.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(found))

    def gateway(self, space: str, **ref: str) -> None:
        """Make a Gateway that names the certificate."""
        tls = {"certificateRefs": [{"name": "edge-tls", **ref}]}
        spec = {"gatewayClassName": "ours", "listeners": [{"name": "s", "port": 8443, "protocol": "HTTPS", "tls": tls}]}
        meta = {"name": "edge", "namespace": space}
        self.apply({"apiVersion": f"{GROUP}/v1", "kind": "Gateway", "metadata": meta, "spec": spec})

    def envoy(self, space: str, account: str) -> Sidecar:
        """Connect as the Envoy in a Pod of an account."""
        path = f"/api/v1/namespaces/{space}/serviceaccounts/{account}/token"
        bound = {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": f"of-{account}"}}
        answer = self.cluster.server.request("POST", path, {"spec": {"expirationSeconds": 900, **bound}})
        return self.pilot.sidecar(str(answer.json["status"]["token"]))


@pytest.fixture(scope="module")
def town(cluster: Cluster) -> Iterator[Town]:
    made = Town(cluster)
    yield made
    made.pilot.daemon.stop()


def heard(envoy: Sidecar, seconds: float, **said: Any) -> list[bytes]:
    """Return what an Envoy is told of listeners within so many seconds, or until one of them has a key."""
    found: list[bytes] = []

    def listen() -> None:
        try:
            while not any(KEY in each for each in found):
                found.extend(each.resource.value for each in envoy.next_response().resources)
        except Exception:  # noqa: BLE001 - the stream ends with the test
            return

    envoy.ask(LISTENER, **said)
    reader = threading.Thread(target=listen, daemon=True)
    reader.start()
    reader.join(seconds)
    return found


def test_the_gateways_own_pods_are_told_the_key(town: Town):
    assert any(KEY in each for each in heard(town.envoy(town.victim, ACCOUNT), 60.0))


def test_another_pod_of_the_namespace_is_not_whatever_it_says_of_itself(town: Town):
    said = {"id": f"{town.victim}/{ACCOUNT}", "cluster": "minik8s-gateway-edge"}
    assert not any(KEY in each for each in heard(town.envoy(town.victim, "robot"), SOON_S, node=said))


def test_an_account_of_the_same_name_in_another_namespace_is_not(town: Town):
    assert heard(town.envoy(town.attacker, ACCOUNT), SOON_S) == []


def test_a_gateway_of_another_namespace_has_no_certificate_without_a_grant(town: Town):
    town.gateway(town.attacker, namespace=town.victim)
    assert not any(KEY in each for each in heard(town.envoy(town.attacker, ACCOUNT), SOON_S))


def test_the_pilots_own_identity_reads_only_what_gateways_name_and_may_use(town: Town):
    server, admin = town.cluster.server, town.cluster.admin
    pilot = server.identity("system:minik8s:pilot")
    other = town.cluster.namespace()
    for space, name in ((town.victim, "unnamed"), (other, "edge-tls")):
        admin.create(SECRET, {"metadata": {"name": name, "namespace": space}, "data": {}})

    def code(space: str, name: str, method: str = "GET") -> int:
        return int(server.request(method, f"/api/v1/namespaces/{space}/secrets{name}", client=pilot).code)

    # what was just made is known to the API server that was asked to make it
    assert code(town.victim, "/edge-tls") == 200
    assert code(town.victim, "/edge-tls", "DELETE") == 403
    assert code(town.victim, "/unnamed") == code(town.victim, "/none") == code(town.victim, "") == 403
    # a Gateway elsewhere names it, and nothing there grants it
    town.gateway(town.attacker, namespace=other)
    assert code(other, "/edge-tls") == 403
    spec = {
        "from": [{"group": GROUP, "kind": "Gateway", "namespace": town.attacker}],
        "to": [{"group": "", "kind": "Secret"}],
    }
    meta = {"name": "yes", "namespace": other}
    town.apply({"apiVersion": f"{GROUP}/v1beta1", "kind": "ReferenceGrant", "metadata": meta, "spec": spec})
    assert code(other, "/edge-tls") == 200
    assert code(other, "") == 403

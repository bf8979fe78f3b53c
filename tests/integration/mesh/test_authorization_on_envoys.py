"""AuthorizationPolicies by a real pilot and Envoy: from a Pod's first packet, through changes, without a pilot."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import ENDPOINT_SLICE, POD
from minik8s_modules.api.network.authorization import AUTHORIZATION_POLICY
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mutual_tls import MTLS, PERMISSIVE
from minik8s_modules.api.pods.sidecars import with_sidecar
from tests.integration.control.conftest import Cluster
from tests.integration.mesh.conftest import LONG_S, Client, Mesh
from tests.support.authorization import definition, policy
from tests.support.guarded import CLOSED, HTTP, TCP, Callers, application
from tests.support.pki import Authority
from tests.support.servers.signer import Signer
from tests.support.waiting import until

IN = "table ip mesh { chain in { type nat hook prerouting priority -100; ip protocol tcp redirect to :15008; }; }"
NOBODY = ""


@pytest.fixture(scope="module")
def authority(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authority]:
    """Yield the mesh's authority, with which a signer signs; the kind is there, too."""
    cluster.server.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(definition()))
    cluster.server.kubectl("wait", "--for=condition=Established", "crd", "authorizationpolicies.security.istio.io")
    folder = tmp_path_factory.mktemp("signer")
    made = Authority(folder, "mesh")
    signer = Signer(cluster.server, folder, made).start()
    yield made
    signer.kill()


class Guarded:
    """A Pod that is called, in the mesh's namespace, and who calls it."""

    def __init__(self, mesh: Mesh, authority: Authority, name: str) -> None:
        self.mesh, self.name = mesh, name
        meta = {"name": name, "namespace": mesh.namespace, "labels": {"app": "web"}}
        app = {"serviceAccountName": "robot", "containers": [{"name": "app", "image": "a"}]}
        mesh.cluster.admin.create(POD, {"metadata": meta, "spec": with_sidecar(app, mutual=True)})
        self.client = Client(mesh.folder, name)
        mesh.clients.append(self.client)
        self.client.inside("nft", "-f", "-", stdin=IN)
        self.callers = Callers(authority, self.client.own)
        self._application = application(["ip", "netns", "exec", self.client.namespace])
        self.own, self.other = f"{mesh.namespace}/client", f"{mesh.namespace}/other"

    def start(self) -> None:
        """Start its sidecar."""
        ca = self.mesh.cluster.server.authority.ca.read_bytes()
        self.client.start(ca, self.mesh.pilot.token(self.name), self.mesh.pilot.port)

    def stop(self) -> None:
        """End the application."""
        self._application.kill()
        self._application.wait()

    def echoes(self, caller: str) -> bool:
        """Return whether a caller is let in at the port of no HTTP."""
        answer = self.callers.says(caller, "x", TCP)
        assert answer in {"x", CLOSED}, answer
        return answer == "x"

    def declare(self, *policies: JsonObject) -> None:
        """Have these policies, and wait until they are enforced."""
        stored = self.mesh.cluster.admin.list(AUTHORIZATION_POLICY, self.mesh.namespace).items
        for each in stored:
            if objects.name(each) not in {objects.name(one) for one in policies}:
                self.mesh.cluster.admin.delete(AUTHORIZATION_POLICY, objects.name(each), self.mesh.namespace)
        for one in policies:
            words = ("apply", "--server-side", "--force-conflicts", "-f", "-")
            self.mesh.cluster.server.kubectl(*words, stdin=yaml.safe_dump(one))

    def condition(self, name: str, kind: str = "Enforced") -> tuple[str, str]:
        """Return status and reason of a policy's condition."""
        found = self.mesh.cluster.admin.get(AUTHORIZATION_POLICY, name, self.mesh.namespace)
        told = objects.condition(found, kind) or {}
        fresh = objects.status(found).get("observedGeneration") == objects.metadata(found).get("generation")
        return (str(told.get("status")), str(told.get("reason"))) if fresh else ("", "")

    def policy(self, name: str, *rules: JsonObject, **spec: str) -> JsonObject:
        """Return a policy of the Pod."""
        return policy(name, *rules, namespace=self.mesh.namespace, app="web", **spec)

    def of_client(self) -> JsonObject:
        """Return where the one comes from that is let in."""
        return {"from": [{"source": {"principals": [f"cluster.local/ns/{self.own.replace('/', '/sa/')}"]}}]}


@pytest.fixture
def guarded(mesh: Mesh, authority: Authority) -> Iterator[Guarded]:
    mesh.cluster.server.kubectl("label", "namespace", mesh.namespace, f"{MTLS}={PERMISSIVE}")
    made = Guarded(mesh, authority, "web")
    yield made
    made.stop()


def test_a_policy_holds_from_the_first_packet_through_changes_and_without_a_pilot(guarded: Guarded, mesh: Mesh):
    guarded.declare(guarded.policy("own", guarded.of_client()))
    served, ended = list[str](), threading.Event()

    def intrude() -> None:
        while not ended.is_set():
            served.extend(each for each in (NOBODY, guarded.other) if guarded.echoes(each))
            ended.wait(0.02)

    intruder = threading.Thread(target=intrude, daemon=True)
    intruder.start()
    guarded.start()
    until(lambda: guarded.echoes(guarded.own), LONG_S)
    until(lambda: guarded.condition("own") == ("True", "Enforced"), LONG_S)
    # without a pilot, what there is stays, also over a restart of the sidecar, which then lets nobody in
    mesh.pilot.daemon.kill9()
    assert guarded.echoes(guarded.own)
    guarded.client.end()
    guarded.start()
    assert not guarded.echoes(guarded.own)
    mesh.pilot.daemon.start()
    until(lambda: guarded.echoes(guarded.own), LONG_S)
    ended.set()
    intruder.join()
    assert served == []
    # one more policy, which denies; one of another namespace says nothing; then none
    guarded.declare(guarded.policy("own", guarded.of_client()), guarded.policy("never", {}, action="DENY"))
    until(lambda: not guarded.echoes(guarded.own), LONG_S)
    mesh.cluster.admin.create(AUTHORIZATION_POLICY, policy("nothing", namespace="default"))
    guarded.declare()
    until(lambda: guarded.echoes(NOBODY), LONG_S)
    mesh.cluster.admin.delete(AUTHORIZATION_POLICY, "nothing", "default")


def test_paths_are_looked_at_where_a_service_says_http_and_refused_where_none_does(guarded: Guarded, mesh: Mesh):
    rule = {**guarded.of_client(), "to": [{"operation": {"paths": ["/public"], "methods": ["GET"]}}]}
    guarded.declare(guarded.policy("public", rule))
    guarded.start()
    until(lambda: guarded.condition("public") == ("True", "Enforced"), LONG_S)
    assert guarded.condition("public", "ProtocolKnown") == ("False", "NoHTTPPort")
    assert guarded.callers.code(guarded.own, "/public") == CLOSED
    points = [{"addresses": [guarded.client.own], "targetRef": {"kind": "Pod", "name": "web"}}]
    meta = {"name": "web-1", "namespace": mesh.namespace, "labels": {"kubernetes.io/service-name": "web"}}
    slices = {"addressType": "IPv4", "ports": [{"name": "http", "port": HTTP, "protocol": "TCP"}], "endpoints": points}
    mesh.cluster.admin.create(ENDPOINT_SLICE, {"metadata": meta, **slices})
    until(lambda: guarded.callers.code(guarded.own, "/public") == "200", LONG_S)
    until(lambda: guarded.condition("public", "ProtocolKnown") == ("True", "ProtocolKnown"), LONG_S)
    asked = [(guarded.own, "/public", "GET"), (guarded.own, "/x", "GET"), (guarded.own, "/public", "POST")]
    asked += [(guarded.other, "/public", "GET"), (NOBODY, "/public", "GET")]
    codes = [guarded.callers.code(*each) for each in asked]
    assert codes == ["200", "403", "403", "403", "403"]
    assert not guarded.echoes(guarded.own), "a port of no HTTP has no paths that are allowed"
    counted = guarded.client.stats("/stats?format=json&filter=authorization")
    denied = {each["name"]: each["value"] for each in json.loads(counted)["stats"] if each["name"].endswith("denied")}
    assert sum(denied.values()) >= 4

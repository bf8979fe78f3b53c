"""Gateway API on a real Envoy: the controllers make what a Gateway runs as, the pilot tells it, curl asks it."""

from __future__ import annotations

import base64
import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import POD, SECRET, SERVICE
from minik8s_modules.api.network.gateway_api import CONTROLLER, GATEWAY_KINDS, GATEWAY_NAME, GROUP, name_of_parts
from minik8s_modules.api.objects import JsonObject
from tests.integration.control.conftest import Cluster, Daemon
from tests.integration.mesh.conftest import LONG_S, OK, PORT, Client, Mesh
from tests.support.apiserver import ApiServerProcess
from tests.support.etcd import EtcdServer
from tests.support.gateway_api import definitions
from tests.support.waiting import until

HTTP, HTTPS = 8080, 8443
ASKED = 400
NAMES = ("web", "next")


class Edge:
    """A Gateway with a port for HTTP and one for HTTPS, and its Envoy; Services web and next, of a Pod each."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.apply(*definitions())
        mesh.cluster.server.kubectl("wait", "--for=condition=Established", "crd", "--all")
        tls = {"certificateRefs": [{"name": "edge-tls"}]}
        listeners = [
            {"name": "http", "port": HTTP, "protocol": "HTTP"},
            {"name": "https", "port": HTTPS, "protocol": "HTTPS", "hostname": "a.example", "tls": tls},
        ]
        self.apply(
            {
                "apiVersion": f"{GROUP}/v1",
                "kind": "GatewayClass",
                "metadata": {"name": "ours"},
                "spec": {"controllerName": CONTROLLER},
            },
            self.object("Gateway", "edge", {"gatewayClassName": "ours", "listeners": listeners}),
        )
        for name in NAMES:
            mesh.service(name)
            mesh.pod(name, app=name)
        until(lambda: bool(self.pods()), LONG_S)
        self.envoy = self.client(objects.name(self.pods()[0]))

    def client(self, pod: str) -> Client:
        """Start the Envoy of a Pod of the Gateway."""
        made = Client(self.mesh.folder, pod)
        self.mesh.clients.append(made)
        made.start(self.mesh.cluster.server.authority.ca.read_bytes(), self.token(pod), self.mesh.pilot.port)
        return made

    def token(self, pod: str) -> str:
        """Return the token that a Pod of the Gateway has."""
        account = f"/api/v1/namespaces/{self.mesh.namespace}/serviceaccounts/{name_of_parts('edge')}/token"
        bound = {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": pod}}
        answer = self.mesh.cluster.server.request("POST", account, {"spec": {"expirationSeconds": 900, **bound}})
        return str(answer.json["status"]["token"])

    def pods(self) -> list[JsonObject]:
        """Return the Gateway's Pods that are ready."""
        found = self.mesh.cluster.admin.list(POD, self.mesh.namespace).items
        return [
            each
            for each in found
            if GATEWAY_NAME in objects.labels(each) and (objects.condition(each, "Ready") or {}).get("status") == "True"
        ]

    def object(self, kind: str, name: str, spec: JsonObject) -> JsonObject:
        """Return an object of Gateway API."""
        meta = {"name": name, "namespace": self.mesh.namespace}
        return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": meta, "spec": spec}

    def apply(self, *found: JsonObject) -> None:
        """Apply objects."""
        self.mesh.cluster.server.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(found))

    def route(self, *rules: JsonObject, name: str = "web", **spec: Any) -> None:
        """Declare a route of the Gateway."""
        self.apply(self.object("HTTPRoute", name, {"parentRefs": [{"name": "edge"}], "rules": [*rules], **spec}))

    def get(self, path: str = "/", *words: str, port: int = HTTP, scheme: str = "http") -> tuple[int, str]:
        """Ask once from outside; return code and body."""
        told = "\\n%{http_code} %{redirect_url}"
        at = ("--connect-to", f"a.example:{port}:{self.envoy.own}:{port}", f"{scheme}://a.example:{port}{path}")
        asked = ["curl", "-s", "-k", "-m", "30", "-w", told, *words, *at]
        body, _, last = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.rpartition("\n")
        code, _, where = last.partition(" ")
        return int(code), body.strip() or where

    def by_ipv6(self) -> str:
        """Ask the Envoy once at an IPv6 address; return code and body."""
        asked = ("curl", "-s", "-m", "30", "-w", " %{http_code}", "--connect-to", f"a.example:{HTTP}:[::1]:{HTTP}")
        words = ["ip", "netns", "exec", self.envoy.namespace, *asked, f"http://a.example:{HTTP}/"]
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout

    def conditions(self, kind: str, name: str) -> dict[str, str]:
        """Return reasons by type; of a route those of its parent here."""
        kinds = {each.kind: each for each in GATEWAY_KINDS}
        try:
            status = objects.status(self.mesh.cluster.admin.get(kinds[kind], name, self.mesh.namespace))
        except NotFound:
            return {}
        found = status if kind == "Gateway" else next(iter(status.get("parents") or []), {})
        return {each["type"]: each["reason"] for each in found.get("conditions") or []}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, etcd: EtcdServer) -> Iterator[Cluster]:
    """Yield a cluster whose Services may have addresses of both families."""
    folder = tmp_path_factory.mktemp("cluster")
    second = "fd00:96::/112"
    server = ApiServerProcess(folder / "api", etcd.endpoint, dual_stack=True, service_cidr_ipv6=second).start()
    made = Cluster(folder, server)
    yield made
    made.admin.close()
    server.stop()


@pytest.fixture
def edge(mesh: Mesh, controllers: Daemon) -> Edge:
    assert controllers.process is not None
    return Edge(mesh)


def test_requests_come_by_ipv6_where_the_gateways_service_has_an_address(edge: Edge):
    edge.route(to("web"))
    until(lambda: edge.by_ipv6() == f"web v1 {OK}", LONG_S)
    becomes((OK, "web v1"), edge.get)
    own = edge.mesh.cluster.admin.get(SERVICE, name_of_parts("edge"), edge.mesh.namespace)["spec"]
    assert own["ipFamilies"] == ["IPv4", "IPv6"]
    gateway = edge.mesh.cluster.admin.get(GATEWAY_KINDS.gateways, "edge", edge.mesh.namespace)
    assert [each["value"] for each in objects.status(gateway)["addresses"]] == own["clusterIPs"]


def to(name: str, **more: Any) -> JsonObject:
    return {"backendRefs": [{"name": name, "port": PORT, **more}]}


def becomes(wanted: tuple[int, str], ask: Callable[[], tuple[int, str]]) -> None:
    until(lambda: ask() == wanted, LONG_S)


def test_requests_from_outside_go_where_routes_and_certificates_say(edge: Edge, tmp_path: Any):
    first, second = (OK, "web v1"), (OK, "next v1")
    edge.route(to("web"))
    becomes(first, edge.get)
    until(
        lambda: edge.conditions("HTTPRoute", "web") == {"Accepted": "Accepted", "ResolvedRefs": "ResolvedRefs"}, LONG_S
    )

    header = [{"name": "end-user", "value": "jason"}]
    path = {"path": {"type": "PathPrefix", "value": "/next"}}
    plain = {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}
    moved = {"type": "RequestRedirect", "requestRedirect": {"scheme": "https", "statusCode": 301}}
    edge.route(
        {"matches": [path], **to("next"), "filters": [{"type": "URLRewrite", "urlRewrite": {"path": plain}}]},
        {"matches": [{"headers": header}], **to("next")},
        {"matches": [{"path": {"type": "Exact", "value": "/moved"}}], "filters": [moved]},
        {"matches": [{"path": {"type": "Exact", "value": "/gone"}}], **to("none")},
        to("web"),
    )
    becomes(second, partial(edge.get, "/next/door"))
    assert edge.mesh.node.requests["next"][-1].startswith("GET /door ")
    assert edge.get("/nextdoor") == first
    assert edge.get("/", "-H", "End-User: jason") == second
    assert edge.get("/moved") == (301, "https://a.example:443/moved")
    assert edge.get("/gone")[0] == 500
    until(lambda: edge.conditions("HTTPRoute", "web").get("ResolvedRefs") == "BackendNotFound", LONG_S)

    shares = {
        "backendRefs": [{"name": name, "port": PORT, "weight": weight} for name, weight in (("web", 3), ("next", 1))]
    }
    edge.route(shares)
    until(lambda: {edge.get()[1] for _ in range(20)} == {"web v1", "next v1"}, LONG_S)
    found = Counter(edge.get()[1] for _ in range(ASKED))
    assert found["next v1"] / ASKED == pytest.approx(0.25, abs=0.08)

    # the certificate comes after the listener that names it, and is replaced
    assert edge.conditions("Gateway", "edge")["Accepted"] == "ListenersNotValid"
    made = edge.mesh.cluster.server.authority.issue("edge", "edge", names=("a.example",))
    data = {
        field: base64.b64encode(file.read_bytes()).decode()
        for field, file in (("tls.crt", made.cert), ("tls.key", made.key))
    }
    meta = {"name": "edge-tls", "namespace": edge.mesh.namespace}
    edge.mesh.cluster.admin.create(SECRET, {"metadata": meta, "type": "kubernetes.io/tls", "data": data})
    until(lambda: edge.get(port=HTTPS, scheme="https")[0] == OK, LONG_S)
    served = {"Accepted": "Accepted", "Programmed": "Programmed"}
    until(lambda: edge.conditions("Gateway", "edge") == served, LONG_S)
    assert json.loads(edge.envoy.log().strip().splitlines()[-1])["service"].endswith("/web")


def test_routes_stay_while_the_pilot_is_killed_and_change_when_another_is_there(edge: Edge):
    edge.route(to("web"))
    becomes((OK, "web v1"), edge.get)
    edge.mesh.pilot.daemon.kill9()
    assert {edge.get() for _ in range(20)} == {(OK, "web v1")}
    edge.route(to("next"))
    edge.mesh.pilot.daemon.start()
    becomes((OK, "next v1"), edge.get)


def test_a_get_outlives_a_connection_that_ends_before_the_answer(edge: Edge):
    """Two Pods answer, one of which closes every connection: a GET goes on to the other, a POST may not."""
    edge.mesh.node.breaking.add("broken")
    edge.mesh.pod("broken", app="web")
    edge.route(to("web"))
    until(lambda: {edge.get("/", "-X", "POST")[0] for _ in range(10)} == {OK, 503}, LONG_S)
    broken = len(edge.mesh.node.requests["broken"])
    assert {edge.get() for _ in range(20)} == {(OK, "web v1")}
    assert len(edge.mesh.node.requests["broken"]) > broken, "the one that closes has been asked, too"
    assert {edge.get("/", "-X", "PUT")[0] for _ in range(20)} == {OK, 503}

"""``trace`` for somebody who may read one namespace."""

from __future__ import annotations

from typing import cast

import pytest

from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import DNS, ENDPOINT_SLICE, HOST_GRANT, INGRESS, INGRESS_CLASS, NODE, POD, SERVICE
from minik8s_modules.cli.causes.trace import trace
from minik8s_modules.cli.main import parse
from minik8s_modules.client.api import ApiClient
from tests.unit.cli.causes.confined import Confined
from tests.unit.cli.causes.samples import META, SEEN, an_ingress, pod, with_endpoint


@pytest.fixture
def confined() -> Confined:
    made = Confined()
    spec = {"selector": {"app": "web"}, "clusterIP": "100.0.0.7", "ports": [{"port": 80, "targetPort": "http"}]}
    made.create(SERVICE, {"metadata": {"name": "web", **META}, "spec": spec})
    with_endpoint(made)
    an_ingress(made, "shop", "shop.test")
    an_ingress(made, "other", "other.test", ingressClassName="nginx")
    an_ingress(made, "noted", "noted.test")
    made.patch(INGRESS, "noted", "default", {"metadata": {"annotations": {"kubernetes.io/ingress.class": "internal"}}})
    an_ingress(made, "gone", "gone.test", "gone")
    an_ingress(made, "port", "port.test")
    at_y = [{"path": "/y", "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 81}}}}]
    made.patch(INGRESS, "port", "default", {"spec": {"rules": [{"host": "port.test", "http": {"paths": at_y}}]}})
    to_web = [{"path": "/", "backend": {"service": {"name": "web", "port": 80}}}]
    made.create(DNS, {"metadata": {"name": "own", **META}, "spec": {"rules": [{"host": "own.test", "paths": to_web}]}})
    made.create(POD, pod("a", {"phase": "Running", "podIP": "10.244.0.7"}))
    return made


ELSEWHERE = "services of other namespaces than default"
FAR = "as far as you may read"
CLAIMING = frozenset({DNS, HOST_GRANT, INGRESS, INGRESS_CLASS})


@pytest.mark.parametrize(
    ("words", "code", "printed", "without"),
    [
        (["web"], 0, SEEN, ELSEWHERE),
        (["web.default", "--from-namespace", "other"], 0, SEEN, ELSEWHERE),
        (["100.0.0.7"], 0, SEEN, ELSEWHERE),
        (["shop.test/"], 0, SEEN, "ingressclasses, ingresses of other namespaces than default"),
        (["nobody.test"], 0, f"declares nobody.test: nginx answers 404 {FAR}", "what Gateways depend on"),
        (["web.other"], 0, f"web.other: not in the cluster's DNS {FAR}", ELSEWHERE),
        (["web.other"], 0, "no Ingress or DNS object that you may read declares web.other", ELSEWHERE),
        (["shop.test/"], 0, "Ingress default/shop\n", "ingressclasses"),
        (["other.test/"], 0, "Ingress default/other, if its class nginx is this installation's\n", "ingressclasses"),
        (["noted.test/"], 0, "Ingress default/noted, if its class internal is this installation's\n", "ingressclasses"),
        (["other.test/"], 0, SEEN, "ingressclasses"),
        (["gone.test/"], 0, f"there is no Service default/gone: nginx answers 503 {FAR}", "ingressclasses"),
        (["port.test/y"], 0, f"Service default/web has no port 81: nginx answers 503 {FAR}", "ingressclasses"),
        (["port.test/x"], 0, f"port.test has no path for /x: nginx answers 404 {FAR} (paths: /y)", "ingressclasses"),
        (["away"], 1, "namespace default has no such Service that you may read", ELSEWHERE),
        (["away.other"], 0, f"away.other: not in the cluster's DNS {FAR}", ELSEWHERE),
        (["jobs.batch/x"], 0, f"jobs.batch: not in the cluster's DNS {FAR}", ELSEWHERE),
        (["svc/away"], 1, "away: namespace default has no such Service", ""),
        (
            ["svc/away", "--from-namespace", "other"],
            0,
            "away: namespace other has no such Service that you",
            "of namespace other",
        ),
        (["http://web:80/", "--from", "a"], 0, SEEN, ""),
    ],
)
def test_who_may_read_one_namespace_is_told_of_it_and_what_else_there_may_be(
    confined: Confined, capsys: pytest.CaptureFixture[str], words: list[str], code: int, printed: str, without: str
) -> None:
    assert trace(cast("ApiClient", confined), parse(["trace", "-n", "default", *words])) == code
    shown = capsys.readouterr()
    assert printed in shown.out
    (*_, told) = ["", *(line for line in shown.err.splitlines() if "without what you may not read: " in line)]
    assert without in told
    assert bool(told) == bool(without)


NOBODYS = "no Service, Pod or node that you may read has this address and port"


@pytest.mark.parametrize(
    ("place", "printed"),
    [
        ("http://192.0.2.1/", f"192.0.2.1: {NOBODYS} 80 (nodes: none)"),
        ("http://192.0.2.1:8080/", "192.0.2.1:8080 → the load balancer of Service default/edge"),
        ("http://192.0.2.1:8082/", "192.0.2.1:8082 → the host port of Pod default/agent"),
        ("https://198.51.100.1/", f"198.51.100.1: {NOBODYS} 443 (nodes: none)"),
        ("http://198.51.100.1/", "198.51.100.1 → 198.51.100.1 (Service default/web)"),
    ],
)
def test_an_address_outside_may_be_a_nodes_where_nodes_may_not_be_listed(
    confined: Confined, capsys: pytest.CaptureFixture[str], place: str, printed: str
) -> None:
    ports = [{"name": "http", "port": 8080, "targetPort": "http"}]
    points = [{"ip": "192.0.2.1", "ipMode": "Proxy", "ports": [{"port": 8080, "protocol": "TCP"}]}]
    edge = {"type": "LoadBalancer", "clusterIP": "100.0.0.8", "ports": ports}
    status = {"loadBalancer": {"ingress": points}}
    confined.create(SERVICE, {"metadata": {"name": "edge", **META}, "spec": edge, "status": status})
    confined.patch(SERVICE, "web", "default", {"spec": {"externalIPs": ["198.51.100.1"]}})
    agent = pod("agent", {"phase": "Running", "hostIP": "192.0.2.1", "podIP": "10.244.0.8"})
    agent["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    agent["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8082}]
    confined.create(POD, agent)
    code = trace(cast("ApiClient", confined), parse(["trace", "-n", "default", place]))
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0] == f"name       {printed}"
    assert code == ("edge" in printed), shown  # its Service has no endpoints, whosever the rest is
    assert "nodes" in shown.err


@pytest.mark.parametrize("path", ["/", "/x"])
def test_a_port_of_a_node_may_be_that_of_what_may_not_be_read(
    confined: Confined, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    if path == "/x":  # nginx has that of any host, and no other
        paths = [{"path": "/y", "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 80}}}}]
        confined.create(INGRESS, {"metadata": {"name": "any", **META}, "spec": {"rules": [{"http": {"paths": paths}}]}})
    status = {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}
    confined.create(NODE, {"metadata": {"name": "n1"}, "status": status})
    for seen, code in ((frozenset({SERVICE, POD}), 1), (frozenset({POD}), 0), (frozenset({SERVICE}), 0)):
        confined.everywhere = CLAIMING | {NODE} | seen
        assert trace(cast("ApiClient", confined), parse(["trace", f"192.0.2.1:8080{path}", "-n", "default"])) == code
        assert "the nginx of the node that has this address\n" in capsys.readouterr().out


def test_the_service_of_an_ingress_is_looked_at_in_its_namespace(
    confined: Confined, capsys: pytest.CaptureFixture[str]
) -> None:
    confined.everywhere = CLAIMING
    asked = ["trace", "shop.test", "--from-namespace", "other", "-n", "other"]
    assert trace(cast("ApiClient", confined), parse(asked)) == 0
    assert SEEN in capsys.readouterr().out
    confined.hidden = frozenset({SERVICE})
    assert trace(cast("ApiClient", confined), parse(asked)) == 0
    text = f"there is no Service default/web that you may read: nginx answers 503 {FAR}"
    assert text in capsys.readouterr().out


def test_a_grant_that_may_not_be_read_may_give_a_name_to_all(
    confined: Confined, capsys: pytest.CaptureFixture[str]
) -> None:
    confined.everywhere = CLAIMING
    for hidden, code in ((frozenset[Kind](), 1), (frozenset({HOST_GRANT}), 0)):
        confined.hidden = hidden
        assert trace(cast("ApiClient", confined), parse(["trace", "own.test", "--from-namespace", "other"])) == code
        assert "in the pods of namespace default alone" in capsys.readouterr().out


@pytest.mark.parametrize("kind", [ENDPOINT_SLICE, POD])
def test_nothing_is_said_of_endpoints_that_may_not_be_read(
    confined: Confined, capsys: pytest.CaptureFixture[str], kind: Kind
) -> None:
    confined.hidden = frozenset({kind})
    assert trace(cast("ApiClient", confined), parse(["trace", "web", "-n", "default"])) == 0
    shown = capsys.readouterr()
    assert "none: " not in shown.out
    assert (SEEN in shown.out) == (kind == POD)
    assert f"{kind.plural} of namespace default" in shown.err

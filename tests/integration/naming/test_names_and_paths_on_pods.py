"""Names and paths end to end: real pods, CoreDNS, nginx and kubectl, from this machine and from pods."""

from __future__ import annotations

import base64
import json
import uuid
from functools import partial
from http import HTTPStatus
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import BadRequest
from minik8s_modules.api.kinds import DNS, EVENT, INGRESS, NODE, POD, SECRET, SERVICE
from minik8s_modules.api.network.ingress_routes import has_place
from minik8s_modules.api.objects import JsonObject
from tests.integration.naming.conftest import OUTSIDE, OUTSIDE_ADDRESS, Cluster, free_node_port, health
from tests.support.pki import Authority


def dns(name: str, host: str, **paths: str) -> JsonObject:
    """Return a DNS object: path (without its slash) to service."""
    rows = [
        {"path": f"/{path}", "backend": {"service": {"name": service, "port": 80}}} for path, service in paths.items()
    ]
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"rules": [{"host": host, "paths": rows}]}}


def ingress(name: str, host: str, paths: list[tuple[str, str, str]], **spec: Any) -> JsonObject:
    """Return an Ingress: (type, path, service)."""
    rows = [
        {"pathType": kind, "path": path, "backend": {"service": {"name": service, "port": {"number": 80}}}}
        for kind, path, service in paths
    ]
    rules = [{"host": host, "http": {"paths": rows}}]
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"rules": rules, **spec}}


def _answers(cluster: Cluster, pod: str, name: str) -> bool:
    return cluster.fetch_inside(pod, name) == "web"


def _served(cluster: Cluster, authority: Authority, host: str = "tls.example.test", pod: str = "web") -> bool:
    return cluster.get(host, tls=str(authority.ca)) == (200, pod)


def _from_pod(answer: tuple[int, str]) -> bool:
    """Return whether a 404 is the pod's own, not nginx'."""
    return answer[0] == HTTPStatus.NOT_FOUND and "minik8s" not in answer[1]


def events_of(cluster: Cluster, name: str) -> str:
    """Return the events of an object."""
    found = cluster.admin.list(EVENT, "default").items
    return "\n".join(f"{one['reason']}: {one['message']}" for one in found if one["involvedObject"]["name"] == name)


def times(cluster: Cluster, name: str, reason: str) -> int:
    """Return how often an object was told something."""
    found = cluster.admin.list(EVENT, "default").items
    return sum(
        one.get("count") or 1 for one in found if (one["involvedObject"]["name"], one["reason"]) == (name, reason)
    )


def looked_up(cluster: Cluster, pod: str, name: str) -> list[str]:
    """Return the words of what a pod is told about a name."""
    return cluster.inside(pod, "nslookup", name).stdout.split()


def _told_as(cluster: Cluster, name: str, kind: str, answer: tuple[str, list[str]]) -> bool:
    return cluster.resolve(name, kind) == answer


@pytest.fixture
def stands(cluster: Cluster) -> str:
    """A host that a pod answers for, whichever tests were here before."""
    host = "stands.example.test"
    known = {objects.name(one) for kind in (POD, SERVICE, INGRESS) for one in cluster.admin.list(kind, "default").items}
    if "stands" not in known:
        cluster.web("stands", {"app": "stands"})
        cluster.service("stands", {"app": "stands"})
        cluster.admin.create(INGRESS, ingress("stands", host, [("Prefix", "/", "stands")]))
    cluster.until(lambda: cluster.get(host) == (200, "stands"), 60)
    return host


def test_a_pod_resolves_services_by_every_name(cluster: Cluster) -> None:
    cluster.web("web", {"app": "web"})
    cluster.create("client")
    address = cluster.service("web", {"app": "web"})
    cluster.until(lambda: cluster.ready("web") and cluster.ready("client"), 60)
    for name in ("web", "web.default", "web.default.svc", "web.default.svc.cluster.local"):
        cluster.until(partial(_answers, cluster, "client", name))
    cluster.until(lambda: cluster.resolve("web.nodes.cluster.local") == ("NOERROR", [address]))
    # the backing pod itself, whose own name is web, too
    cluster.until(partial(_answers, cluster, "web", "web.default"))


def test_a_service_created_again_at_once_has_its_new_address(cluster: Cluster) -> None:
    first = cluster.service("moved", {"app": "web"})
    cluster.until(lambda: cluster.resolve("moved.default.svc.cluster.local") == ("NOERROR", [first]))
    taken = {one["spec"].get("clusterIP") for one in cluster.admin.list(SERVICE).items}
    every = (f"{first.rpartition('.')[0]}.{number}" for number in range(200, 250))
    former, then, now = (first, *(one for one in every if one not in taken))[:3]
    for address in (then, now):
        cluster.admin.delete(SERVICE, "moved", "default")
        cluster.service("moved", {"app": "web"}, clusterIP=address)
    for name in ("moved.default.svc.cluster.local", "moved.nodes.cluster.local"):
        cluster.until(partial(_told_as, cluster, name, "A", ("NOERROR", [now])))
    found = ("NOERROR", ["moved.default.svc.cluster.local"])
    for address, answer in ((now, found), (then, ("NXDOMAIN", [])), (former, ("NXDOMAIN", []))):
        cluster.until(partial(_told_as, cluster, _reverse(address), "PTR", answer))
    cluster.until(partial(_answers, cluster, "client", "moved"))
    assert not {former, then} & {*looked_up(cluster, "client", "moved")}


def _reverse(address: str) -> str:
    return ".".join(reversed(address.split("."))) + ".in-addr.arpa"


def test_what_the_cluster_does_not_know_is_asked_outside(cluster: Cluster) -> None:
    cluster.until(lambda: cluster.resolve(OUTSIDE) == ("NOERROR", [OUTSIDE_ADDRESS]))
    cluster.until(lambda: OUTSIDE_ADDRESS in looked_up(cluster, "client", OUTSIDE))
    cluster.until(lambda: cluster.resolve("nowhere.outside.test") == ("NXDOMAIN", []))


def test_an_external_name_leads_to_the_address_it_stands_for(cluster: Cluster) -> None:
    cluster.service("away", None, type="ExternalName", externalName=OUTSIDE, ports=[])
    name = "away.default.svc.cluster.local"
    cluster.until(lambda: cluster.resolve(name) == ("NOERROR", [OUTSIDE_ADDRESS, OUTSIDE]))
    cluster.until(partial(_told_as, cluster, name, "CNAME", ("NOERROR", [OUTSIDE])))
    cluster.until(lambda: OUTSIDE_ADDRESS in looked_up(cluster, "client", "away"))
    # one that stands for a Service of the cluster
    cluster.service("nick", None, type="ExternalName", externalName="web.default.svc.cluster.local", ports=[])
    cluster.until(partial(_answers, cluster, "client", "nick"))


def test_a_headless_service_has_its_pods_names(cluster: Cluster) -> None:
    cluster.service("db", {"app": "db"}, clusterIP="None", ports=[{"name": "http", "port": 80, "targetPort": "http"}])
    cluster.web("db-0", {"app": "db"}, hostname="db-0", subdomain="db")
    ip = cluster.until(lambda: cluster.ready("db-0") and cluster.pod("db-0")["status"]["podIP"], 60)
    cluster.until(lambda: cluster.resolve("db-0.db.default.svc.cluster.local") == ("NOERROR", [ip]))
    assert cluster.resolve("db.default.svc.cluster.local") == ("NOERROR", [ip])
    srv = ("NOERROR", ["8080 db-0.db.default.svc.cluster.local"])
    assert cluster.resolve("_http._tcp.db.default.svc.cluster.local", "SRV") == srv
    assert cluster.resolve(_reverse(ip), "PTR") == ("NOERROR", ["db-0.db.default.svc.cluster.local"])


def test_a_dns_object_leads_paths_of_a_host_to_services(cluster: Cluster) -> None:
    cluster.service("again", {"app": "web"})
    cluster.admin.create(DNS, dns("shop", "shop.example.test", web="web", api="again"))
    cluster.until(lambda: cluster.get("shop.example.test", "/web") == (200, "web"))
    # the workers of before a reload may accept for a moment
    cluster.until(lambda: cluster.get("shop.example.test", "/api/index.html") == (200, "web"))
    assert cluster.get("shop.example.test", "/website")[0] == 404
    assert cluster.get("shop.example.test", "/")[0] == 404
    cluster.until(lambda: cluster.resolve("shop.example.test") == ("NOERROR", [cluster.listen]))
    script = f"wget -qO- http://shop.example.test:{cluster.http_port}/web"
    cluster.until(lambda: cluster.inside("client", "sh", "-c", script).stdout.strip() == "web")


def test_of_two_objects_with_one_host_the_second_is_refused_with_its_name(cluster: Cluster) -> None:
    cluster.until(lambda: has_place(cluster.admin.get(DNS, "shop", "default")))
    with pytest.raises(BadRequest, match=r"host shop.example.test conflicts with existing host of DNS default/shop"):
        cluster.admin.create(DNS, dns("second", "shop.example.test", web="again"))
    with pytest.raises(BadRequest, match=r"DNS default/shop"):
        cluster.admin.create(INGRESS, ingress("third", "shop.example.test", [("Prefix", "/new", "web")]))


def test_of_two_objects_admitted_at_the_same_moment_the_second_is_told_the_firsts_name(cluster: Cluster) -> None:
    # of one second the first is the one whose name is: shop, in both cases
    cluster.admin.create(DNS, dns("upstart", "raced.example.test", web="again"))
    cluster.admin.create(INGRESS, ingress("third", "raced2.example.test", [("Prefix", "/new", "web")]))
    cluster.slip_in(DNS, "upstart", "raced.example.test", "shop.example.test")
    cluster.slip_in(INGRESS, "third", "raced2.example.test", "shop.example.test")
    cluster.until(lambda: "DNS default/shop" in events_of(cluster, "upstart"))
    cluster.until(lambda: "DNS default/shop" in events_of(cluster, "third"))
    conditions = cluster.admin.get(DNS, "upstart", "default")["status"]["conditions"]
    assert {one["type"]: one["reason"] for one in conditions}["Accepted"] == "HostConflict"
    assert cluster.get("shop.example.test", "/new") != (200, "web")
    cluster.until(lambda: cluster.get("shop.example.test", "/new")[0] == 404)


def test_ingress_exact_goes_before_prefix_and_the_longest_wins(cluster: Cluster) -> None:
    cluster.web("other", {"app": "other"})
    cluster.service("other", {"app": "other"})
    paths = [("Prefix", "/", "web"), ("Prefix", "/index.html", "web"), ("Exact", "/index.html", "other")]
    cluster.admin.create(INGRESS, ingress("ways", "ways.example.test", paths))
    cluster.until(lambda: cluster.get("ways.example.test", "/index.html") == (200, "other"), 60)
    cluster.until(lambda: cluster.get("ways.example.test", "/") == (200, "web"))
    given = cluster.until(
        lambda: cluster.admin.get(INGRESS, "ways", "default")["status"]["loadBalancer"].get("ingress")
    )
    assert given
    assert all("ip" in one for one in given)


def test_a_wildcard_stands_for_one_label_and_gives_way_to_a_host_of_its_own(cluster: Cluster) -> None:
    cluster.admin.create(INGRESS, ingress("many", "*.many.example.test", [("Prefix", "/", "web")]))
    cluster.until(lambda: cluster.get("any.many.example.test") == (200, "web"))
    for host in ("many.example.test", "a.b.many.example.test"):
        assert "nothing is declared for this host" in cluster.get(host)[1]
    cluster.admin.create(INGRESS, ingress("one", "one.many.example.test", [("Exact", "/index.html", "other")]))
    cluster.until(lambda: cluster.get("one.many.example.test", "/index.html") == (200, "other"))
    # what that host does not name is not the wildcard's; the workers of before a reload may accept for a moment
    cluster.until(lambda: "no path of this host" in cluster.get("one.many.example.test", "/")[1])
    assert cluster.get("two.many.example.test", "/index.html") == (200, "web")


def test_a_default_backend_takes_what_no_host_and_no_path_does(cluster: Cluster) -> None:
    default = {"service": {"name": "web", "port": {"number": 80}}}
    rest = {"metadata": {"name": "rest", "namespace": "default"}, "spec": {"defaultBackend": default}}
    assert cluster.get("unheard-of.test")[0] == HTTPStatus.NOT_FOUND
    cluster.admin.create(INGRESS, rest)
    for host in ("unheard-of.test", "127.0.0.1"):
        cluster.until(partial(_is_web, cluster, host))
    # with hosts of its own: their paths that no rule names
    part = ingress("part", "part.example.test", [("Exact", "/index.html", "other")], defaultBackend=default)
    cluster.admin.create(INGRESS, part)
    cluster.until(lambda: cluster.get("part.example.test", "/index.html") == (200, "other"))
    assert cluster.get("part.example.test") == (200, "web")
    for name in ("rest", "part"):
        cluster.admin.delete(INGRESS, name, "default")
    cluster.until(lambda: "nothing is declared" in cluster.get("unheard-of.test")[1])


def _is_web(cluster: Cluster, host: str) -> bool:
    return cluster.get(host) == (200, "web")


def test_a_service_without_endpoints_is_a_clear_503(cluster: Cluster) -> None:
    cluster.service("empty", {"app": "nobody"})
    cluster.admin.create(INGRESS, ingress("empty", "empty.example.test", [("Prefix", "/", "empty")]))
    wanted = "service default/empty has no endpoints"
    cluster.until(
        lambda: cluster.get("empty.example.test")[0] == 503 and wanted in cluster.get("empty.example.test")[1], 30
    )
    cluster.admin.create(INGRESS, ingress("absent", "absent.example.test", [("Prefix", "/", "absent")]))
    cluster.until(lambda: "does not exist" in cluster.get("absent.example.test")[1])
    cluster.until(lambda: "ServiceNotFound" in events_of(cluster, "absent"))


def test_a_certificate_from_a_secret_is_served_and_replaced(cluster: Cluster) -> None:
    first, second = (Authority(cluster.folder / name, name) for name in ("ca-1", "ca-2"))
    pairs = [one.issue("tls", "tls.example.test") for one in (first, second)]
    spec = {"tls": [{"hosts": ["tls.example.test"], "secretName": "tls"}]}
    cluster.admin.create(INGRESS, ingress("tls", "tls.example.test", [("Prefix", "/", "web")], **spec))
    cluster.until(lambda: cluster.get("tls.example.test") == (200, "web"))
    for number, (authority, pair) in enumerate(zip((first, second), pairs, strict=True)):
        files = [f"--cert={pair.cert}", f"--key={pair.key}"]
        made = cluster.kubectl("create", "secret", "tls", "tls", *files, "--dry-run=client", "-o", "json").stdout
        if number:
            cluster.admin.delete(SECRET, "tls", "default")
        cluster.admin.create(SECRET, json.loads(made) | {"metadata": {"name": "tls", "namespace": "default"}})
        cluster.until(partial(_served, cluster, authority))


def test_plain_requests_of_a_host_with_a_certificate_are_sent_to_https_unless_told_not_to(cluster: Cluster) -> None:
    cluster.until(lambda: cluster.get("tls.example.test", "/a?b=c")[0] == HTTPStatus.PERMANENT_REDIRECT)
    wanted = f"https://tls.example.test:{cluster.https_port}/a?b=c"
    # the workers of before a reload may accept for a moment
    cluster.until(lambda: cluster.location("tls.example.test", "/a?b=c") == wanted)
    off = {"metadata": {"annotations": {"nginx.ingress.kubernetes.io/ssl-redirect": "false"}}}
    cluster.admin.patch(INGRESS, "tls", "default", off)
    cluster.until(lambda: cluster.get("tls.example.test") == (200, "web"))


@pytest.mark.usefixtures("stands")
def test_nginx_syntax_in_a_path_stays_data(cluster: Cluster) -> None:
    wild = '/a"; } location / { return 200 "owned"; } #${host}\\'
    paths = [("Prefix", wild, "stands"), ("Exact", "/index.html", "stands"), ("Prefix", "/re/(.*)", "stands")]
    cluster.admin.create(INGRESS, ingress("wild", "wild.example.test", paths))
    cluster.until(lambda: cluster.get("wild.example.test", "/index.html") == (200, "stands"))
    assert cluster.get("wild.example.test", "/y")[0] == 404
    assert "owned" not in cluster.get("wild.example.test", "/y")[1]
    # a pattern is a text: what it would fit is no path, and what it says is one (which the pod has no file for)
    cluster.until(lambda: "no path of this host" in cluster.get("wild.example.test", "/re/y")[1])
    cluster.until(lambda: _from_pod(cluster.get("wild.example.test", "/re/(.*)")))


def test_a_file_broken_by_somebody_else_is_put_right_and_requests_go_on(cluster: Cluster, stands: str) -> None:
    path = cluster.state / f"nginx/hosts/{stands}.conf"
    good = path.read_text()
    path.write_text("server { this is no nginx\n")
    (path.parent / "zz.conf").write_text("server {")
    plan = cluster.plan()
    assert any(step["section"] == "ingress" for step in plan["nodes"][cluster.node.name]["steps"]), plan
    assert cluster.get(stands) == (200, "stands")
    cluster.admin.create(INGRESS, ingress("next", "next.example.test", [("Prefix", "/", "stands")]))
    cluster.until(lambda: cluster.get("next.example.test") == (200, "stands"))
    assert path.read_text() == good
    assert not (path.parent / "zz.conf").exists()


def test_a_host_that_nginx_refuses_is_told_at_its_object_until_it_is_over(cluster: Cluster, stands: str) -> None:
    host, metadata = "odd.example.test", {"name": "odd-pair", "namespace": "default"}
    broken = {name: base64.b64encode(b"no certificate").decode() for name in ("tls.crt", "tls.key")}
    cluster.admin.create(SECRET, {"metadata": metadata, "type": "kubernetes.io/tls", "data": broken})
    spec = {"tls": [{"hosts": [host], "secretName": "odd-pair"}]}
    cluster.admin.create(INGRESS, ingress("odd", host, [("Prefix", "/", "stands")], **spec))
    cluster.until(lambda: times(cluster, "odd", "FailedToUpdatePaths"))
    assert "cannot load certificate" in events_of(cluster, "odd")
    assert cluster.get(stands) == (200, "stands")
    assert not times(cluster, "odd", "PathsUpdated")
    authority = Authority(cluster.folder / "ca-odd", "ca-odd")
    pair = authority.issue("odd", host)
    whole = {"tls.crt": pair.cert, "tls.key": pair.key}
    data = {name: base64.b64encode(path.read_bytes()).decode() for name, path in whole.items()}
    cluster.admin.patch(SECRET, "odd-pair", "default", {"data": data})
    cluster.until(lambda: _served(cluster, authority, host, "stands"))
    cluster.until(lambda: times(cluster, "odd", "PathsUpdated"))


def test_an_nginx_that_somebody_stopped_is_told_at_its_node_until_it_runs(cluster: Cluster, stands: str) -> None:
    node = cluster.node.name
    failed, over = (times(cluster, node, reason) for reason in ("FailedToUpdatePaths", "PathsUpdated"))
    with cluster.without_nginx():
        cluster.admin.create(INGRESS, ingress("late", "late.example.test", [("Prefix", "/", "stands")]))
        cluster.until(lambda: times(cluster, node, "FailedToUpdatePaths") > failed)
        assert "nginx does not run on this node" in events_of(cluster, node)
        assert times(cluster, node, "PathsUpdated") == over
    cluster.until(lambda: cluster.get("late.example.test") == (200, "stands"))
    cluster.until(lambda: times(cluster, node, "PathsUpdated") > over, 60)


def test_an_nginx_that_somebody_broke_for_good_runs_again(cluster: Cluster, stands: str) -> None:
    node, folder = cluster.node.name, cluster.state / "nginx"
    failed, over = (times(cluster, node, reason) for reason in ("FailedToUpdatePaths", "PathsUpdated"))
    good = (folder / "nginx.conf").read_text()
    (folder / "nginx.conf").write_text("no configuration\n")
    cluster.stop_nginx()  # whoever starts it again does so in vain
    cluster.admin.patch(NODE, node, "", {"metadata": {"annotations": {"minik8s.io/observe": uuid.uuid4().hex}}})
    cluster.until(lambda: cluster.get(stands) == (200, "stands"), 60)
    assert (folder / "nginx.conf").read_text() == good
    cluster.until(lambda: times(cluster, node, "FailedToUpdatePaths") > failed)
    cluster.until(lambda: times(cluster, node, "PathsUpdated") > over, 60)


def test_a_node_tells_load_balancers_whether_it_has_pods_of_a_service(cluster: Cluster) -> None:
    port, key = free_node_port(), ("ingress", "_health/default/balanced")
    local = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": port}
    spec = {"ports": [{"port": 80}], "selector": {"app": "balanced"}, **local}
    body = {"metadata": {"name": "balanced", "namespace": "default"}, "spec": spec}
    node = cluster.plan(objects=[{"apiVersion": "v1", "kind": "Service", **body}])["nodes"][cluster.node.name]
    assert key in {(step["section"], step["key"]) for step in node["steps"]}, node
    cluster.admin.create(SERVICE, body)
    cluster.until(lambda: health(port)[:2] == (503, "0"))
    cluster.web("balanced", {"app": "balanced"})
    cluster.until(lambda: health(port)[:2] == (200, "1"), 60)
    path = cluster.state / "nginx/hosts/_health.default.balanced.conf"
    path.unlink()
    drift = cluster.plan()["nodes"][cluster.node.name]
    assert key in {(step["section"], step["key"]) for step in drift["steps"]} or path.exists(), drift
    cluster.admin.delete(POD, "balanced", "default")
    cluster.until(lambda: health(port)[:2] == (503, "0") and path.exists())
    cluster.admin.delete(SERVICE, "balanced", "default")
    cluster.until(lambda: health(port)[0] == 0)


def test_what_is_deleted_no_longer_resolves_or_routes(cluster: Cluster) -> None:
    cluster.admin.delete(DNS, "shop", "default")
    # the one that was refused has the host now
    cluster.until(lambda: cluster.get("shop.example.test", "/api")[0] == 404)
    cluster.until(lambda: cluster.get("shop.example.test", "/web") == (200, "web"))
    cluster.admin.delete(DNS, "upstart", "default")
    cluster.until(lambda: cluster.resolve("shop.example.test")[0] != "NOERROR")
    cluster.admin.delete(SERVICE, "again", "default")
    cluster.until(lambda: cluster.resolve("again.default.svc.cluster.local")[0] == "NXDOMAIN")


def test_a_plan_shows_names_and_paths_before_they_are(cluster: Cluster) -> None:
    made = ingress("planned", "planned.example.test", [("Prefix", "/", "web")])
    asked = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", **made}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "soon", "namespace": "default"}}
    service["spec"] = {"ports": [{"port": 80}], "selector": {"app": "web"}}
    node = cluster.plan(objects=[asked, service])["nodes"][cluster.node.name]
    touched = {(step["section"], step["key"]) for step in node["steps"]}
    assert ("ingress", "planned.example.test") in touched, node
    assert ("dns", "service/default/soon") in touched, node
    assert cluster.get("planned.example.test")[0] == 404


def test_a_plan_shows_which_names_a_grant_gives_and_takes(cluster: Cluster) -> None:
    grant = {"apiVersion": "minik8s.io/v1", "kind": "HostGrant", "metadata": {"name": "default"}}
    node = cluster.plan(deleted=[grant])["nodes"][cluster.node.name]
    assert ("dns", "service/default/web") in {(step["section"], step["key"]) for step in node["steps"]}, node
    assert "web.nodes.cluster.local" in node["diff"]["dns"]["before"]
    assert "web.nodes.cluster.local" not in node["diff"]["dns"]["after"]

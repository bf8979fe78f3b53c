"""One host and path belong to whoever came first: the second object is refused, in the words of the original."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.integration.apiserver.conftest import Namespace
from tests.support.apiserver import Answer, own_server

INGRESSES = "/apis/networking.k8s.io/v1/namespaces/{}/ingresses"
MERGE = {"Content-Type": "application/merge-patch+json"}


def _host() -> str:
    return f"{uuid.uuid4().hex[:8]}.example"


@pytest.fixture(autouse=True)
def web(namespace: Namespace) -> None:
    service = {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}
    assert namespace.server.request("POST", namespace.path("services"), service).code == 201


def _dns(name: str, *hosts: str) -> dict[str, Any]:
    paths = [{"path": "/", "backend": {"service": {"name": "web", "port": 80}}}]
    return {"metadata": {"name": name}, "spec": {"rules": [{"host": host, "paths": paths} for host in hosts]}}


def _ingress(name: str, host: str, *paths: str, **spec: Any) -> dict[str, Any]:
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    rows = [{"path": path, "pathType": "Prefix", "backend": backend} for path in paths]
    return {"metadata": {"name": name}, "spec": {"rules": [{"host": host, "http": {"paths": rows}}], **spec}}


def _post(namespace: Namespace, body: dict[str, Any], kind: str = "ingresses", query: str = "") -> Answer:
    path = namespace.path("dns") if kind == "dns" else INGRESSES.format(namespace.name)
    return namespace.server.request("POST", path + query, body)


def test_a_second_dns_object_of_a_host_is_refused_as_the_original_does(namespace: Namespace) -> None:
    host = _host()
    assert _post(namespace, _dns("first", host), "dns").code == 201
    answer = _post(namespace, _dns("second", _host(), host), "dns")
    assert answer.code == 400
    assert answer.json["message"] == f"host {host} conflicts with existing host of DNS {namespace.name}/first"
    assert namespace.get("second", "dns").code == 404
    assert _post(namespace, _dns("second", host), "dns", "?dryRun=All").code == 400
    namespace.server.request("DELETE", namespace.path("dns", "first"))
    assert _post(namespace, _dns("second", host), "dns").code == 201


def test_a_dns_object_to_a_missing_service_is_refused_as_the_original_does(namespace: Namespace) -> None:
    astray = _dns("astray", _host())
    backend = astray["spec"]["rules"][0]["paths"][0]["backend"]["service"]
    backend["name"] = "later"
    answer = _post(namespace, astray, "dns")
    assert (answer.code, answer.json["reason"]) == (400, "BadRequest")
    assert answer.json["message"].startswith(f"service {namespace.name}/later not found")
    backend |= {"name": "web", "port": 81}
    assert _post(namespace, astray, "dns").json["message"] == "service web does not have port 81"
    backend["port"] = 80
    assert _post(namespace, astray, "dns").code == 201
    namespace.server.request("DELETE", namespace.path("services", "web"))
    labelled = {"metadata": {"labels": {"a": "b"}}}
    assert namespace.server.request("PATCH", namespace.path("dns", "astray"), labelled, headers=MERGE).code == 200


def test_ingresses_share_a_host_but_no_path(namespace: Namespace) -> None:
    host = _host()
    assert _post(namespace, _ingress("first", host, "/a")).code == 201
    assert _post(namespace, _ingress("beside", host, "/b")).code == 201
    answer = _post(namespace, _ingress("second", host, "/c", "/a/"))
    assert answer.code == 201
    text = f"host {host} path /a/ is in use by Ingress {namespace.name}/first; this Ingress has no effect there"
    assert text in answer.headers["warning"]
    answer = _post(namespace, _dns("third", host), "dns")
    assert answer.code == 400
    assert f"host {host} conflicts with existing host of Ingress {namespace.name}/" in answer.json["message"]


def _another(namespace: Namespace) -> Namespace:
    """Return one more namespace on the same server, with a Service."""
    other = Namespace(namespace.server, f"{namespace.name}-other")
    assert other.server.request("POST", "/api/v1/namespaces", {"metadata": {"name": other.name}}).code == 201
    service = {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}
    assert other.server.request("POST", other.path("services"), service).code == 201
    return other


def test_an_ingress_of_another_namespace_is_kept_and_told_and_a_dns_objects_place_is_refused(
    namespace: Namespace,
) -> None:
    host, other = _host(), _another(namespace)
    assert _post(namespace, _ingress("first", host, "/")).code == 201
    answer = _post(other, _ingress("second", host, "/"))
    assert answer.code == 201, answer.json
    assert f"host {host} path / is in use by Ingress {namespace.name}/first; " in answer.headers["warning"]
    assert "this Ingress has no effect there" in answer.headers["warning"]
    assert _post(other, _dns("third", host), "dns").code == 400
    taken = _host()
    assert _post(namespace, _dns("fourth", taken), "dns").code == 201
    assert _post(other, _ingress("fifth", taken, "/")).code == 400


def test_an_ingress_that_waits_for_its_place_may_be_changed_to_wait_for_another(namespace: Namespace) -> None:
    host, other = _host(), _another(namespace)
    assert _post(namespace, _ingress("first", host, "/")).code == 201
    assert _post(other, _ingress("second", host, "/")).code == 201
    moved = {"spec": _ingress("second", host, "/else")["spec"]}
    answer = other.server.request("PATCH", f"{INGRESSES.format(other.name)}/second", moved, headers=MERGE)
    assert answer.code == 200, answer.json
    # the first has no such path: it is the host that is not shared
    assert f"host {host} is in use by Ingress {namespace.name}/first; namespaces share" in answer.headers["warning"]


def test_a_cluster_may_refuse_ingresses_for_places_of_other_namespaces(tmp_path: Path) -> None:
    with own_server(tmp_path, refuse_taken_hosts=True) as server:
        assert server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}}).code == 201
        shop, host = Namespace(server, "shop"), _host()
        other = _another(shop)
        assert _post(shop, _ingress("first", host, "/")).code == 201
        assert _post(shop, _ingress("second", host, "/")).code == 201
        answer = _post(other, _ingress("third", host, "/"))
        assert answer.code == 400
        assert answer.json["message"].startswith(f"host {host} path / is in use by Ingress shop/first; ")


def test_an_older_object_cannot_take_a_place_by_an_update_and_keeps_what_it_has(namespace: Namespace) -> None:
    host, other = _host(), _host()
    path = INGRESSES.format(namespace.name)
    assert _post(namespace, _ingress("old", other, "/")).code == 201
    assert _post(namespace, _ingress("young", host, "/")).code == 201
    moved = {"spec": _ingress("old", host, "/")["spec"]}
    answer = namespace.server.request("PATCH", f"{path}/old", moved, headers=MERGE)
    assert (answer.code, answer.json["message"]) == (
        400,
        f"host {host} path / is in use by Ingress {namespace.name}/young",
    )
    labelled = {"metadata": {"labels": {"a": "b"}}}
    assert namespace.server.request("PATCH", f"{path}/old", labelled, headers=MERGE).code == 200


def test_another_class_claims_nothing_and_certificates_are_no_claim(namespace: Namespace) -> None:
    host = _host()
    assert _post(namespace, _ingress("first", host, "/")).code == 201
    assert _post(namespace, _ingress("others", host, "/", ingressClassName="haproxy")).code == 201
    tls = {"tls": [{"hosts": [host], "secretName": "mine"}]}
    assert _post(namespace, _ingress("beside", host, "/x", **tls)).code == 201
    more = {"tls": [{"hosts": [host], "secretName": "another"}]}
    assert _post(namespace, _ingress("again", host, "/y", **more)).code == 201


def test_apply_tells_a_person_whose_the_host_is(namespace: Namespace) -> None:
    host = _host()
    assert _post(namespace, _dns("first", host), "dns").code == 201
    manifest = {"apiVersion": "v1", "kind": "DNS", **_dns("second", host)}
    done = namespace.server.kubectl("apply", "-n", namespace.name, "-f", "-", stdin=json.dumps(manifest), check=False)
    assert done.returncode == 1
    assert f"host {host} conflicts with existing host" in done.stderr

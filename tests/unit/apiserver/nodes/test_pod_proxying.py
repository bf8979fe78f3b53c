"""A request to a proxy: the path, the port of a pod or of a service's endpoints, the request that the pod gets."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api.errors import BadRequest, ServiceUnavailable, StatusError
from minik8s_modules.apiserver.http.target import parse, proxy_prefix, rights, verb_of
from minik8s_modules.apiserver.nodes import proxying
from minik8s_modules.apiserver.nodes.proxying import Name, Path, Place

POD = "/api/v1/namespaces/ns/pods/web:80/proxy"


def pod(name: str = "web", ip: str = "10.1.0.7", **spec: Any) -> dict[str, Any]:
    ports = [{"name": "http", "containerPort": 8080}, {"containerPort": 9090}]
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": "u1"},
        "spec": {"nodeName": "n1", "containers": [{"name": "app"}, {"name": "web", "ports": ports}], **spec},
        "status": {"podIP": ip, "podIPs": [{"ip": ip}]},
    }


SERVICE = {
    "metadata": {"name": "site", "namespace": "ns"},
    "spec": {"ports": [{"name": "plain", "port": 80}, {"name": "tls", "port": 443}]},
}


def endpoints(target: dict[str, Any] | None, *addresses: str, **changes: Any) -> dict[str, Any]:
    entry = {"addresses": addresses, **({"targetRef": target} if target else {}), **changes}
    return {
        "metadata": {"name": "s", "namespace": "ns", "labels": {"kubernetes.io/service-name": "site"}},
        "endpoints": [entry],
        "ports": [{"name": "plain", "port": 8080}, {"name": "tls", "port": 8443}],
    }


WEB = {"kind": "Pod", "namespace": "ns", "name": "web"}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("web", Name("http", "web", "")),
        ("web:80", Name("http", "web", "80")),
        ("web:", Name("http", "web", "")),
        ("https:web:", Name("https", "web", "")),
        ("http:web:main", Name("http", "web", "main")),
        (":web:80", Name("http", "web", "80")),
    ],
)
def test_names(text: str, name: Name) -> None:
    assert proxying.name_of(text, "pod") == name


@pytest.mark.parametrize("text", [":80", "ftp:web:80", "a:b:c:d", "https::443", ""])
def test_what_is_no_name(text: str) -> None:
    with pytest.raises(BadRequest, match=r"invalid pod request.*or https:NAME:PORT$"):
        proxying.name_of(text, "pod")
    with pytest.raises(BadRequest, match=r"invalid node request.*: write NAME or NAME:PORT$"):
        proxying.name_of(text, "node")


@pytest.mark.parametrize(
    ("uri", "path", "found"),
    [
        (POD, POD, Path(POD, "", "")),
        (f"{POD}/?a=/b", f"{POD}/", Path(POD, "/", "a=/b")),
        (f"{POD}//a%2Fb/..?c", f"{POD}//a/b/..", Path(POD, "//a%2Fb/..", "c")),
        (POD.replace(":", "%3A"), POD, Path(POD.replace(":", "%3A"), "", "")),
    ],
)
def test_paths_stay_as_they_came(uri: str, path: str, found: Path) -> None:
    assert proxying.path_of(uri, path) == found


def test_a_path_is_read_one_way() -> None:
    """What was authorized is what is asked: an escaped slash moves no border between the names."""
    with pytest.raises(BadRequest):
        proxying.path_of("/api/v1/namespaces/ns/pods%2Fweb:80/proxy/x", f"{POD}/x")
    with pytest.raises(BadRequest):
        proxying.path_of("http://elsewhere/api/v1/namespaces/ns/pods/web:80/proxy/x", f"{POD}/x")


def test_what_the_pod_is_asked_for() -> None:
    assert Path(POD, "/a%20\xe4", "b=\xff").target == "/a%20%E4?b=%FF"
    assert Path(POD, "", "").target == "/"
    assert (Path(POD, "", "a=b").redirect, Path(POD, "/", "").redirect) == (f"{POD}/?a=b", "")


def test_what_stands_below_a_proxy_is_no_part_of_the_target() -> None:
    target = parse(f"{POD}/api/v1/secrets//x")
    assert target is not None
    assert (target.kind.plural, target.namespace, target.name, target.subresource) == ("pods", "ns", "web:80", "proxy")
    assert target == parse(POD)
    assert proxy_prefix("/api/v1/namespaces/ns/pods/proxy/log") == ""
    assert parse("/api/v1/namespaces/ns/configmaps/x/proxy/y") is None
    assert parse("/api/v1/namespaces/ns/secrets/x/proxy/y") is None


def test_verbs_and_rights() -> None:
    target = parse(f"{POD}/x")
    assert target is not None
    methods = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
    verbs = [verb_of(method, target, watch=True) for method in methods]
    assert verbs == ["get", "get", "create", "update", "patch", "delete", "options"]
    assert rights(target, "get") == ("get",)
    assert rights(target, "get", upgrade=True) == ("get", "create")
    assert rights(target, "create", upgrade=True) == ("create",)


def test_ports_of_pods() -> None:
    assert proxying.pod_port(pod(), Name("http", "web", "")) == 8080
    assert proxying.pod_port(pod(), Name("http", "web", "http")) == 8080
    assert proxying.pod_port(pod(), Name("http", "web", "1234")) == 1234
    assert proxying.pod_port(pod(containers=[{"name": "app"}]), Name("http", "web", "")) == 80
    assert proxying.pod_port(pod(containers=[{"name": "app"}]), Name("https", "web", "")) == 443
    for port in ("0", "65536", "admin", "-1", "8080 ", "\u0661"):
        with pytest.raises(BadRequest, match="has no port"):
            proxying.pod_port(pod(), Name("http", "web", port))


def test_on_a_nodes_network_only_declared_ports_are_reached() -> None:
    shared = pod(hostNetwork=True)
    assert proxying.pod_port(shared, Name("http", "web", "9090")) == 9090
    with pytest.raises(BadRequest, match="shares the network of its node"):
        proxying.pod_port(shared, Name("http", "web", "2379"))
    slices = [{**endpoints(WEB, "10.1.0.7"), "ports": [{"name": "plain", "port": 2379}]}]
    with pytest.raises(ServiceUnavailable, match="no endpoints"):
        proxying.service_places(SERVICE, Name("http", "site", "80"), slices, {"web": shared}.get)


@pytest.mark.parametrize(("port", "number"), [("80", 8080), ("plain", 8080), ("tls", 8443), ("443", 8443)])
def test_ports_of_services(port: str, number: int) -> None:
    found = proxying.service_places(
        SERVICE, Name("http", "site", port), [endpoints(WEB, "10.1.0.7")], {"web": pod()}.get
    )
    assert found == [Place(pod(), number)]


def test_a_service_whose_only_port_has_no_name() -> None:
    service = {**SERVICE, "spec": {"ports": [{"port": 80}]}}
    slices = [{**endpoints(WEB, "10.1.0.7"), "ports": [{"name": "", "port": 8080}]}]
    for port in ("", "80"):
        found = proxying.service_places(service, Name("http", "site", port), slices, {"web": pod()}.get)
        assert found == [Place(pod(), 8080)]


REFUSED = {
    "an address without a pod": endpoints(None, "10.1.0.7"),
    "loopback": endpoints(WEB, "127.0.0.1"),
    "link-local": endpoints(WEB, "169.254.169.254"),
    "another pod's address": endpoints(WEB, "10.1.0.8"),
    "another namespace": endpoints({**WEB, "namespace": "other"}, "10.1.0.7"),
    "another kind": endpoints({**WEB, "kind": "Node"}, "10.1.0.7"),
    "no such pod": endpoints({**WEB, "name": "gone"}, "10.1.0.7"),
    "not ready": endpoints(WEB, "10.1.0.7", conditions={"ready": False}),
}


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED.keys())
def test_endpoints_that_are_not_followed(refused: dict[str, Any]) -> None:
    with pytest.raises(ServiceUnavailable, match='no endpoints available for service "site"'):
        proxying.service_places(SERVICE, Name("http", "site", "80"), [refused], {"web": pod()}.get)


@pytest.mark.parametrize("port", ["81", "0", "nothing", ""])
def test_ports_that_a_service_does_not_have(port: str) -> None:
    with pytest.raises(StatusError) as caught:
        proxying.service_places(SERVICE, Name("http", "site", port), [endpoints(WEB, "10.1.0.7")], {"web": pod()}.get)
    assert caught.value.code == 503


def test_what_is_asked_of_the_node() -> None:
    wanted = proxying.wanted(Place(pod(), 8080), "https", POD)
    assert (wanted.node, wanted.uid, wanted.what) == ("n1", "u1", "proxy")
    assert dict(wanted.options) == {
        "namespace": "ns", "pod": "web", "ports": "8080", "scheme": "https", "prefix": POD, "host": "10.1.0.7:8080",
    }  # fmt: skip
    with pytest.raises(BadRequest, match="does not have a host assigned"):
        proxying.wanted(Place(pod(nodeName=""), 8080), "https", POD)


def head(line: str = "GET / HTTP/1.1", length: int = 0, **headers: str) -> list[str]:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    text = proxying.forwarded(line, given, Path(POD, "/x", ""), "192.0.2.1", length).decode("latin-1")
    assert text.endswith("\r\n\r\n")
    return text.removesuffix("\r\n\r\n").split("\r\n")


def test_the_request_that_a_pod_gets() -> None:
    assert head(Host="here:1", Accept="*/*", X_Forwarded_For="a, b", Cookie="c=d") == [
        "GET / HTTP/1.1", "Host: here:1", "Connection: close", "X-Forwarded-For: a, b, 192.0.2.1",
        f"X-Forwarded-Uri: {POD}/x", "Accept: */*", "Cookie: c=d",
    ]  # fmt: skip
    assert "Content-Length: 0" in head("POST / HTTP/1.1")
    assert "Content-Length: 7" in head("GET / HTTP/1.1", 7, Content_Length="9", Transfer_Encoding="chunked")


@pytest.mark.parametrize(
    "name",
    [
        "Authorization", "Impersonate-User", "Impersonate-Extra-Scopes", "X-Remote-User", "X-Remote-Group",
        "X-Remote-Extra-Scopes", "X-Remote-Uid", "Proxy-Authorization", "Te", "Keep-Alive", "Expect", "Named",
    ],
)  # fmt: skip
def test_headers_that_stay_here(name: str) -> None:
    sent = {"Connection": "close, named", name: "secret"}
    result = proxying.forwarded("GET / HTTP/1.1", sent, Path(POD, "/x", ""), "192.0.2.1", 0)
    assert b"secret" not in result


def test_upgrades() -> None:
    result = head(Connection="keep-alive, Upgrade", Upgrade="websocket", Sec_WebSocket_Key="k")
    assert {"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: k"} <= {*result}
    assert not [line for line in head(Upgrade="websocket") if line.startswith("Upgrade")]
    offered = "base64url.bearer.authorization.k8s.io.c2VjcmV0, chat"
    assert "Sec-WebSocket-Protocol: chat" in head(Sec_WebSocket_Protocol=offered)
    assert not [line for line in head(Sec_WebSocket_Protocol=offered.partition(",")[0]) if "bearer" in line]

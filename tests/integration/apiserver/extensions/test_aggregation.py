"""APIServices: a program of its own, with real TLS, answers a group in the server's stead."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.apiserver import ApiServerProcess, own_server
from tests.support.extension import GROUP, PATH, VERSION, Extension, front_proxy
from tests.support.pki import Authority
from tests.support.waiting import until

SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
NAME = f"{VERSION}.{GROUP}"
FLUNDERS = f"{PATH}/namespaces/default/flunders"
MERGE = {"Content-Type": "application/merge-patch+json"}
AGGREGATED = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    """An API server with a front-proxy certificate; its authority's certificate is at ``proxy_ca``."""
    folder = tmp_path_factory.mktemp("aggregation")
    authority, client = front_proxy(folder)
    files = {"cert": str(client.cert), "key": str(client.key), "ca": str(authority.ca)}
    with own_server(folder, front_proxy=files) as server:
        (folder / "proxy-ca").write_text(str(authority.ca))
        yield server


def proxy_ca(api: ApiServerProcess) -> Path:
    return Path((api.directory.parent / "proxy-ca").read_text())


@pytest.fixture
def extension(api: ApiServerProcess, tmp_path: Path) -> Iterator[Extension]:
    """An available extension."""
    with Extension(tmp_path, proxy_ca(api)) as found:
        installed(api, found)
        wait_for(api, "Passed")
        yield found
        api.request("DELETE", f"{SERVICES}/{NAME}")


def installed(api: ApiServerProcess, extension: Extension, **spec: Any) -> None:
    """Make what leads to an extension, and its APIService."""
    for path, obj in extension.objects():
        answer = api.request("POST", path, obj)
        assert answer.code in {201, 409}, answer.body
        if answer.code == 409 and "endpointslices" in path:
            changed = api.request("PATCH", f"{path}/api", {"ports": obj["ports"]}, headers=MERGE)
            assert changed.code == 200, changed.body
    answer = api.request("POST", SERVICES, extension.api_service(**spec))
    assert answer.code == 201, answer.body


def condition(api: ApiServerProcess, name: str = NAME) -> dict[str, Any]:
    answer = api.request("GET", f"{SERVICES}/{name}")
    if answer.code != 200:  # it is being made again
        return {}
    return dict((answer.json.get("status", {}).get("conditions") or [{}])[0])


def wait_for(api: ApiServerProcess, reason: str, name: str = NAME) -> dict[str, Any]:
    """Wait until an APIService is available, or not, for that reason."""
    found: dict[str, Any] = until(lambda: (c := condition(api, name)).get("reason") == reason and c)
    return found


def test_every_group_has_an_api_service(api: ApiServerProcess) -> None:
    def listed() -> dict[str, Any]:
        return {each["metadata"]["name"]: each for each in api.request("GET", SERVICES).json["items"]}

    names = {"v1.", "v1.apps", "v1.batch", "v1.apiregistration.k8s.io", "v1beta1.metrics.k8s.io"}
    until(lambda: names <= set(listed()))
    items = listed()
    assert items["v1.apps"]["metadata"]["labels"] == {"kube-aggregator.kubernetes.io/automanaged": "onstart"}
    assert items["v1."]["spec"] == {"version": "v1", "group": "", "groupPriorityMinimum": 18000, "versionPriority": 1}
    shown = api.kubectl("get", "apiservices", "v1.apps", "--no-headers").stdout.split()
    assert shown[:3] == ["v1.apps", "Local", "True"]


def test_a_definitions_group_has_an_api_service_as_long_as_it_lives(api: ApiServerProcess) -> None:
    names = {"plural": "gears", "kind": "Gear"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    definition = {
        "metadata": {"name": "gears.machines.example.com"},
        "spec": {"group": "machines.example.com", "scope": "Cluster", "names": names, "versions": [version]},
    }
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert api.request("POST", path, definition).code == 201
    own = f"{SERVICES}/v1.machines.example.com"
    found = until(lambda: (answer := api.request("GET", own)).code == 200 and answer.json)
    assert found["metadata"]["labels"] == {"kube-aggregator.kubernetes.io/automanaged": "true"}
    assert api.request("DELETE", f"{path}/gears.machines.example.com").code == 200
    until(lambda: api.request("GET", own).code == 404)


def test_an_extension_is_asked_and_watched(api: ApiServerProcess, extension: Extension) -> None:
    assert "flunder.wardle.example.com/one" in api.kubectl("get", "flunders", "-o", "name").stdout
    assert api.request("GET", f"{FLUNDERS}/one").json["spec"] == {"reference": "one"}
    made = api.request("POST", FLUNDERS, {"kind": "Flunder", "metadata": {"name": "x"}})
    assert (made.code, made.json["metadata"]) == (201, {"name": "x"})
    connection = api.connection()
    connection.request("GET", f"{FLUNDERS}?watch=true")
    response = connection.getresponse()
    assert json.loads(response.readline())["type"] == "ADDED"
    connection.close()
    metrics = api.request("GET", "/metrics").body.decode()
    assert f'aggregator_unavailable_apiservice{{name="{NAME}"}} 0.0' in metrics


def test_an_extension_knows_who_asks(api: ApiServerProcess, extension: Extension) -> None:
    forged = {"X-Remote-User": "mallory", "x-remote-group": "system:masters", "X-Remote-Extra-Scopes": "all"}
    given = {
        **forged,
        "Authorization": "Basic c2VjcmV0",
        "Impersonate-Extra-Scopes%2Fa": "b",
        "Impersonate-User": "jane",
    }
    assert api.request("GET", f"{FLUNDERS}/one", headers=given).code == 403  # jane may not
    assert not extension.asked(f"{FLUNDERS}/one")
    as_jane = {**given, "Impersonate-Group": "system:masters"}
    assert api.request("GET", f"{FLUNDERS}/one", headers=as_jane).code == 200
    (asked,) = extension.asked(f"{FLUNDERS}/one")
    assert asked["peer"] == ["front-proxy-client"]
    listed = [(name, value) for name, value in asked["headers"] if name.startswith(("x-remote", "auth", "imperson"))]
    assert ("x-remote-user", "jane") in listed
    assert {value for name, value in listed if name == "x-remote-group"} == {"system:masters", "system:authenticated"}
    assert [value for name, value in listed if name.startswith("x-remote-extra")] == ["b"]
    assert {name for name, _ in listed} <= {"x-remote-user", "x-remote-group", "x-remote-extra-scopes%2fa"}


def test_a_certificate_of_another_authority_is_trusted_only_where_that_is_said(
    api: ApiServerProcess, tmp_path: Path
) -> None:
    with Extension(tmp_path, proxy_ca(api)) as found:
        installed(api, found, caBundle=extension_of(tmp_path))
        assert "certificate" in wait_for(api, "FailedDiscoveryCheck")["message"].lower()
        refused = api.request("GET", FLUNDERS)
        assert (refused.code, refused.json["message"]) == (503, "service unavailable")
        blind = {"spec": {"caBundle": None, "insecureSkipTLSVerify": True}}
        assert api.request("PATCH", f"{SERVICES}/{NAME}", blind, headers=MERGE).code == 200
        wait_for(api, "Passed")
        assert api.request("GET", FLUNDERS).code == 200
        assert api.request("DELETE", f"{SERVICES}/{NAME}").code == 200
        assert api.request("GET", FLUNDERS).code == 404


def extension_of(folder: Path) -> str:
    """Return an authority that signed nothing."""
    import base64  # noqa: PLC0415

    return base64.b64encode(Authority(folder / "other", "other").ca.read_bytes()).decode()


def test_discovery_tells_of_extensions_in_every_form(api: ApiServerProcess, extension: Extension) -> None:
    groups = {each["name"]: each for each in api.request("GET", "/apis").json["groups"]}
    assert groups[GROUP]["preferredVersion"] == {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
    assert api.request("GET", f"/apis/{GROUP}").json["versions"][0]["version"] == VERSION
    items = api.request("GET", "/apis", headers=AGGREGATED).json["items"]
    (found,) = [each for each in items if each["metadata"]["name"] == GROUP]
    assert found["versions"][0]["freshness"] == "Current"
    (flunders,) = found["versions"][0]["resources"]
    assert flunders["responseKind"] == {"group": GROUP, "version": VERSION, "kind": "Flunder"}
    assert flunders["subresources"][0]["subresource"] == "echo"
    index = api.request("GET", "/openapi/v3").json["paths"]
    assert index[PATH[1:]] == {"serverRelativeURL": f"/openapi/v3{PATH}?hash=AB12"}
    assert api.request("GET", f"/openapi/v3{PATH}").json["info"]["title"] == "wardle"
    rows = [line.split() for line in api.kubectl("api-resources").stdout.splitlines()]
    assert ["flunders", "fl,po", f"{GROUP}/{VERSION}", "true", "Flunder"] in rows
    # a short name that a built-in kind has stays its own
    done = api.kubectl("get", "po").stderr
    assert 'short name "po" could also match lower priority resource flunders.wardle.example.com' in done
    assert "No resources found in default namespace." in done


def test_openapi_v2_has_an_extensions_paths_and_leaves_the_servers_own(
    api: ApiServerProcess, extension: Extension
) -> None:
    def document() -> dict[str, Any]:
        return dict(api.request("GET", "/openapi/v2").json)

    until(lambda: f"{PATH}/flunders" in document()["paths"])
    result = document()
    flunder = result["definitions"]["wardle.Flunder"]
    assert flunder["x-kubernetes-group-version-kind"] == [{"group": GROUP, "version": VERSION, "kind": "Flunder"}]
    assert flunder["properties"]["metadata"] == {
        "$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta_v2"
    }
    assert result["definitions"]["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["type"] == "object"
    assert result["definitions"]["io.k8s.api.apps.v1.Deployment"]["type"] == "object"
    assert "/apis/apps/v1/deployments" not in result["paths"]
    assert api.request("DELETE", f"{SERVICES}/{NAME}").code == 200
    until(lambda: f"{PATH}/flunders" not in document()["paths"])


def test_an_extension_that_is_gone_is_told_and_slows_nobody(api: ApiServerProcess, extension: Extension) -> None:
    extension.__exit__(None, None, None)
    path = "/apis/discovery.k8s.io/v1/namespaces/wardle/endpointslices/api"
    gone = [{"addresses": ["192.0.2.1"], "conditions": {"ready": False}}]
    assert api.request("PATCH", path, {"endpoints": gone}, headers=MERGE).code == 200
    assert wait_for(api, "MissingEndpoints")["status"] == "False"
    assert api.request("GET", FLUNDERS).code == 503
    items = api.request("GET", "/apis", headers=AGGREGATED).json["items"]
    (found,) = [each for each in items if each["metadata"]["name"] == GROUP]
    assert found["versions"][0]["freshness"] == "Stale"
    assert "False (MissingEndpoints)" in api.kubectl("get", "apiservices", NAME).stdout
    assert api.request("DELETE", "/apis/discovery.k8s.io/v1/namespaces/wardle/endpointslices/api").code == 200
    wait_for(api, "EndpointsNotFound")
    assert api.request("DELETE", "/api/v1/namespaces/wardle/services/api").code == 200
    wait_for(api, "ServiceNotFound")


def test_bytes_pass_both_ways_after_an_upgrade_and_only_then(api: ApiServerProcess, extension: Extension) -> None:
    head = f"GET {FLUNDERS}/one/echo HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
    with api.context(api.admin).wrap_socket(
        socket.create_connection(("127.0.0.1", api.port), 60), server_hostname="127.0.0.1"
    ) as stream:
        stream.sendall(head.encode())
        assert read_until(stream, b"hello ").startswith(b"HTTP/1.1 101 ")
        stream.sendall(b"and back")
        assert read_until(stream, b"and back") == b"and back"
    second = f"GET {FLUNDERS}/two HTTP/1.1\r\nHost: x\r\nX-Remote-User: root\r\n\r\n".encode()
    with api.context(api.admin).wrap_socket(
        socket.create_connection(("127.0.0.1", api.port), 60), server_hostname="127.0.0.1"
    ) as stream:
        stream.sendall(second.replace(b"two", b"one") + second)
        answer = b""
        while data := stream.recv(65536):
            answer += data
    assert answer.count(b"HTTP/1.1 200") == 1
    assert extension.asked(f"{FLUNDERS}/one")
    assert not extension.asked(f"{FLUNDERS}/two")


def read_until(stream: Any, end: bytes) -> bytes:
    """Return what comes up to and with ``end``."""
    found = b""
    while not found.endswith(end):
        data = stream.recv(4096)
        assert data, found
        found += data
    return found


def test_metrics_are_somebody_elses_and_ours_again(api: ApiServerProcess, extension: Extension) -> None:
    ours = until(lambda: (a := api.request("GET", f"{SERVICES}/v1beta1.metrics.k8s.io")).code == 200 and a.json)
    assert ours["metadata"]["labels"] == {"kube-aggregator.kubernetes.io/automanaged": "onstart"}
    spec = {"service": {"namespace": "wardle", "name": "api"}, "caBundle": extension.ca_bundle}
    path = f"{SERVICES}/v1beta1.metrics.k8s.io"
    assert api.request("PATCH", path, {"spec": spec}, headers=MERGE).code == 200
    wait_for(api, "FailedDiscoveryCheck", "v1beta1.metrics.k8s.io")  # it serves another group
    assert api.request("GET", "/apis/metrics.k8s.io/v1beta1/nodes").json["message"] == "service unavailable"
    assert api.request("DELETE", path).code == 200
    assert "no gateway reports usage" in api.request("GET", "/apis/metrics.k8s.io/v1beta1/nodes").json["message"]
    wait_for(api, "Local", "v1beta1.metrics.k8s.io")


def test_extensions_read_whom_they_are_to_believe(api: ApiServerProcess) -> None:
    path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    data = until(lambda: (answer := api.request("GET", path)).code == 200 and answer.json["data"])
    assert data["requestheader-client-ca-file"] == proxy_ca(api).read_text()
    assert data["client-ca-file"] == api.authority.ca.read_text()
    assert json.loads(data["requestheader-username-headers"]) == ["X-Remote-User"]
    assert json.loads(data["requestheader-allowed-names"]) == ["front-proxy-client"]
    role = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles/extension-apiserver-authentication-reader"
    assert until(lambda: api.request("GET", role).code == 200)


def test_the_audit_log_names_what_an_extension_was_asked(api: ApiServerProcess, extension: Extension) -> None:
    assert api.request("POST", FLUNDERS, {"metadata": {"name": "kept"}, "data": "a secret"}).code == 201

    def event() -> Any:
        lines = [json.loads(line) for line in api.audit.read_text().splitlines()]
        found = [line for line in lines if line["requestURI"] == FLUNDERS and line["verb"] == "create"]
        return found[-1] if found else None

    events = until(event)
    assert events["objectRef"] == {
        "resource": "flunders", "namespace": "default", "apiGroup": GROUP, "apiVersion": VERSION,
    }  # fmt: skip
    assert (events["stage"], "requestObject" in events) == ("ResponseComplete", False)
    assert events["responseStatus"] == {"metadata": {}, "code": 201}
    metrics = api.request("GET", "/metrics").body.decode()
    assert f'apiserver_request_total{{code="201",resource="{NAME}",verb="create"}}' in metrics


def test_a_read_of_an_extension_has_no_body(api: ApiServerProcess, extension: Extension) -> None:
    refused = api.request("GET", f"{FLUNDERS}/bodiless", {"kind": "Flunder"})
    assert refused.code == 400
    assert "get no body with GET" in refused.json["message"]
    assert not extension.asked(f"{FLUNDERS}/bodiless")


def test_the_how_to_does_what_it_says(api: ApiServerProcess, extension: Extension) -> None:
    page = Path(__file__).parents[4] / "docs/how-to/extension-api-servers.md"
    manifest = page.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0]
    assert api.request("DELETE", f"{SERVICES}/{NAME}").code == 200
    api.kubectl("apply", "-f", "-", stdin=manifest)
    api.kubectl("wait", "--for=condition=Available", f"apiservice/{NAME}")
    assert "one" in api.kubectl("get", "flunders").stdout
    rows = [line.split()[:3] for line in api.kubectl("get", "apiservices").stdout.splitlines()]
    assert ["NAME", "SERVICE", "AVAILABLE"] in rows
    assert [NAME, "wardle/api", "True"] in rows
    assert ["v1.", "Local", "True"] in rows


def test_a_plan_says_that_it_cannot_foretell_an_extension(api: ApiServerProcess, extension: Extension) -> None:
    flunder = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Flunder", "metadata": {"name": "one"}}
    answer = api.request("POST", "/apis/minik8s.io/v1/plans", {"spec": {"objects": [flunder]}})
    assert answer.code == 400
    assert (
        f"an extension API server answers {GROUP}/{VERSION}: what it makes of a Flunder cannot"
        in answer.json["message"]
    )

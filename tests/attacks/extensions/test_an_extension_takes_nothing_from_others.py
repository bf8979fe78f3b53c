"""Extension API servers that hang, lie, overflow or lead elsewhere, and APIServices that reach for others' groups."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.apiserver import ApiServerProcess, own_server
from tests.support.extension import GROUP, PATH, VERSION, Extension, front_proxy
from tests.support.pki import Authority, Certificate
from tests.support.waiting import until

SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
NAME = f"{VERSION}.{GROUP}"
FLUNDERS = f"{PATH}/namespaces/default/flunders"
MERGE = {"Content-Type": "application/merge-patch+json"}
SLICE = "/apis/discovery.k8s.io/v1/namespaces/wardle/endpointslices/api"


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Certificate]:
    return front_proxy(tmp_path_factory.mktemp("proxy"))


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, proxy: tuple[Authority, Certificate]) -> Iterator[ApiServerProcess]:
    authority, client = proxy
    files = {"cert": str(client.cert), "key": str(client.key), "ca": str(authority.ca)}
    with own_server(tmp_path_factory.mktemp("api"), front_proxy=files) as server:
        yield server


def install(api: ApiServerProcess, extension: Extension, **spec: Any) -> None:
    for path, obj in extension.objects():
        if api.request("POST", path, obj).code == 409 and "endpointslices" in path:
            fresh = {"ports": obj["ports"], "endpoints": obj["endpoints"]}
            assert api.request("PATCH", f"{path}/api", fresh, headers=MERGE).code == 200
    assert api.request("DELETE", f"{SERVICES}/{NAME}").code in {200, 404}
    assert api.request("POST", SERVICES, extension.api_service(**spec)).code == 201


def condition(api: ApiServerProcess, name: str = NAME) -> dict[str, Any]:
    answer = api.request("GET", f"{SERVICES}/{name}")
    if answer.code != 200:
        return {}
    return dict((answer.json.get("status", {}).get("conditions") or [{}])[0])


def wait_for(api: ApiServerProcess, reason: str, name: str = NAME) -> str:
    found = until(lambda: (c := condition(api, name)).get("reason") == reason and c)
    return str(found["message"])


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("hang", ""),
        ("garbage", "malformed HTTP"),
        ("huge", "longer than"),
        ("lie", "the answer is about 'apps/v1alpha1'"),
    ],
)
def test_an_extension_that_answers_nonsense_serves_nothing_and_hides_nobody(
    api: ApiServerProcess, proxy: tuple[Authority, Certificate], tmp_path: Path, mode: str, message: str
) -> None:
    with Extension(tmp_path, proxy[0].ca, mode) as extension:
        install(api, extension)
        assert message in wait_for(api, "FailedDiscoveryCheck")
        assert api.request("GET", FLUNDERS).json["message"] == "service unavailable"
        groups = {each["name"]: each for each in api.request("GET", "/apis").json["groups"]}
        assert [each["version"] for each in groups["apps"]["versions"]] == ["v1"]
        assert api.request("GET", "/apis/apps/v1/deployments").json["kind"] == "DeploymentList"
        assert "deployments" in api.kubectl("api-resources", "--api-group=apps").stdout


def test_what_an_extension_lists_spoils_nobodys_discovery(
    api: ApiServerProcess, proxy: tuple[Authority, Certificate], tmp_path: Path
) -> None:
    with Extension(tmp_path, proxy[0].ca, "odd") as extension:
        install(api, extension)
        wait_for(api, "Passed")
        aggregated = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
        answer = api.request("GET", "/apis", headers=aggregated)
        assert answer.code == 200
        (found,) = [each for each in answer.json["items"] if each["metadata"]["name"] == GROUP]
        offered = {each["resource"]: each for each in found["versions"][0]["resources"]}
        assert [*offered] == ["odd3", "odd4", "odd5"]
        assert not any("shortNames" in each for each in offered.values())
        kinds = [each["responseKind"] for each in offered.values()]
        assert kinds == [{"group": GROUP, "version": VERSION, "kind": "Flunder"}] * 3
        assert "odd4" in api.kubectl("api-resources", f"--api-group={GROUP}").stdout


@pytest.fixture
def extension(api: ApiServerProcess, proxy: tuple[Authority, Certificate], tmp_path: Path) -> Iterator[Extension]:
    with Extension(tmp_path, proxy[0].ca) as found:
        install(api, found)
        wait_for(api, "Passed")
        yield found


def test_requests_that_hang_keep_no_thread_from_others(api: ApiServerProcess, extension: Extension) -> None:
    streams = []
    for _ in range(90):  # of the 100 that one user may have
        connection = api.connection()
        connection.request("GET", f"{FLUNDERS}/hang")
        streams.append(connection)
    until(lambda: len(extension.asked(f"{FLUNDERS}/hang")) == 90)
    answers = []
    askers = [
        threading.Thread(target=lambda: answers.append(api.request("GET", "/api/v1/pods").code)) for _ in range(8)
    ]
    for each in askers:
        each.start()
    for each in askers:
        each.join(60)
    assert answers == [200] * 8
    assert api.request("GET", f"{FLUNDERS}/one").code == 200
    for connection in streams:
        connection.close()


def test_an_answer_leads_nowhere_and_asks_for_nothing(api: ApiServerProcess, extension: Extension) -> None:
    answer = api.request("GET", f"{FLUNDERS}/redirect")
    assert (answer.code, "location" in answer.headers) == (502, False)
    assert answer.body == b"the backend attempted to redirect this request, which is not permitted"
    answer = api.request("GET", f"{FLUNDERS}/login")
    assert answer.code == 401
    assert not {"www-authenticate", "set-cookie"} & set(answer.headers)
    answer = api.request("GET", f"{FLUNDERS}/garbage")
    assert answer.code == 503
    assert answer.json["message"].startswith("error trying to reach service: ")


def test_a_second_answer_is_nobodys(api: ApiServerProcess, extension: Extension) -> None:
    with api.context(api.admin).wrap_socket(
        socket.create_connection(("127.0.0.1", api.port), 60), server_hostname="127.0.0.1"
    ) as stream:
        stream.sendall(f"GET {FLUNDERS}/twice HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = b""
        while data := stream.recv(65536):
            answer += data
    assert answer.count(b"HTTP/1.1") == 1


def test_no_connection_that_names_its_user_is_switched_to_one_for_further_requests(
    api: ApiServerProcess, extension: Extension
) -> None:
    """Over HTTP/2 in clear text the client would write the requests, X-Remote-User and all, by itself."""
    echo, listed, schema = f"{FLUNDERS}/one/echo", PATH, f"/openapi/v3{PATH}"
    for path, protocol in [(echo, "h2c"), (echo, "HTTP/2.0"), (echo, "TLS/1.3"), (echo, "SPDY/3.1, h2c"),
                           (listed, "SPDY/3.1"), (listed, "h2c"), (schema, "SPDY/3.1")]:  # fmt: skip
        before = len(extension.asked(path))
        headers = {"Connection": "Upgrade", "Upgrade": protocol}
        assert api.request("GET", path, headers=headers).code == 400, (path, protocol)
        upgrades = [dict(each["headers"]).get("upgrade") for each in extension.asked(path)[before:]]
        assert not any(upgrades)


def test_nobody_but_the_front_proxy_says_who_asks(api: ApiServerProcess, extension: Extension) -> None:
    """What the cluster's own authority signs is no front proxy, and the server itself believes no such header."""
    jane = api.identity("jane")
    assert api.request("GET", "/api/v1/secrets", client=jane, headers={"X-Remote-User": "minik8s-admin"}).code == 403
    forged = {"X-Remote-User": "root", "X-Remote-Group": "system:masters"}
    assert api.request("GET", f"{FLUNDERS}/one", client=jane, headers=forged).code == 403
    assert api.request("GET", f"{FLUNDERS}/one", anonymous=True, headers=forged).code == 401
    proxy_like = api.identity("front-proxy-client")
    assert api.request("GET", "/api/v1/secrets", client=proxy_like, headers=forged).code == 403
    assert not extension.asked(f"{FLUNDERS}/one")


@pytest.mark.parametrize("name", ["v1.apps", "v1.", "v1.rbac.authorization.k8s.io", "v1.apiregistration.k8s.io"])
def test_a_built_in_group_stays_the_servers(api: ApiServerProcess, extension: Extension, name: str) -> None:
    stolen = {
        "metadata": {"labels": {"kube-aggregator.kubernetes.io/automanaged": None}},
        "spec": {"service": {"namespace": "wardle", "name": "api"}, "caBundle": extension.ca_bundle},
    }
    until(lambda: api.request("GET", f"{SERVICES}/{name}").code == 200)
    assert api.request("PATCH", f"{SERVICES}/{name}", stolen, headers=MERGE).code == 200
    assert api.request("GET", "/apis/apps/v1/deployments").json["kind"] == "DeploymentList"
    assert api.request("GET", "/api/v1/secrets").json["kind"] == "SecretList"

    def is_put_back() -> bool:
        found = api.request("GET", f"{SERVICES}/{name}").json
        kept = (found["metadata"].get("labels") or {}).get("kube-aggregator.kubernetes.io/automanaged")
        return "service" not in found["spec"] and kept == "onstart"

    until(is_put_back)
    assert {each["path"] for each in extension.asked()} <= {PATH, "/openapi/v2", "/openapi/v3"}


def test_another_version_of_a_built_in_group_is_not_given_away(api: ApiServerProcess, extension: Extension) -> None:
    stolen = extension.api_service(group="apps", version="v2", groupPriorityMinimum=20000, versionPriority=1000)
    assert api.request("POST", SERVICES, stolen).code == 201
    assert "no extension may take it over" in wait_for(api, "BuiltInGroup", "v2.apps")
    assert api.request("GET", "/apis/apps/v2/deployments").code == 404
    assert api.request("GET", "/apis/apps").json["preferredVersion"]["version"] == "v1"
    assert api.request("DELETE", f"{SERVICES}/v2.apps").code == 200


def test_an_endpoint_on_the_servers_own_loopback_is_not_asked(api: ApiServerProcess, extension: Extension) -> None:
    local = [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}]
    answer = api.request("PATCH", SLICE, {"endpoints": local}, headers=MERGE)
    if answer.code == 200:
        assert "no endpoints available" in wait_for(api, "FailedDiscoveryCheck")
    else:
        assert answer.code == 422


def test_who_may_not_write_api_services_gets_nowhere(api: ApiServerProcess, extension: Extension) -> None:
    """The roles of a namespace's people give nothing of APIServices, nor of what extensions serve."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    binding = {
        "metadata": {"name": "pat-admin"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "pat"}],
    }
    assert api.request("POST", f"{rbac}/clusterrolebindings", binding).code in {201, 409}
    pat = api.identity("pat")
    until(lambda: api.request("GET", "/api/v1/pods", client=pat).code == 200)
    assert api.request("POST", SERVICES, extension.api_service(version="v2"), client=pat).code == 403
    assert api.request("PATCH", f"{SERVICES}/{NAME}", {"spec": {}}, client=pat, headers=MERGE).code == 403
    assert api.request("GET", FLUNDERS, client=pat).code == 403
    message = json.loads(api.request("GET", FLUNDERS, client=pat).body)["message"]
    assert 'User "pat" cannot list resource "flunders" in API group "wardle.example.com" in the namespace' in message

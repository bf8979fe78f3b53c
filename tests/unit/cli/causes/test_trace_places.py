"""What ``trace`` may be given: URLs and parts of them, ports, Services, Pods; what means nothing there is refused."""

from __future__ import annotations

from typing import Any, cast

import pytest

from minik8s_modules.api.kinds import DNS, ENDPOINT_SLICE, INGRESS, NODE, POD, SERVICE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.places import bracketed
from minik8s_modules.cli.causes.places import Place, place_of
from minik8s_modules.cli.causes.trace import trace
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.main import parse
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.fake import FakeApi
from tests.unit.cli.causes.logged_api import LoggedApi
from tests.unit.cli.causes.samples import META, SEEN, an_ingress, pod, with_endpoint

READY = {"phase": "Running", "podIP": "10.244.0.7", "podIPs": [{"ip": "10.244.0.7"}, {"ip": "fd00:244::7"}]}
READY |= {"conditions": [{"type": "Ready", "status": "True"}]}


@pytest.fixture
def api() -> FakeApi:
    """Return a cluster with the Service ``web`` and its one Pod ``a``, which is ready."""
    made = LoggedApi()
    service(made, "web", clusterIP="100.0.0.7")
    addresses = [{"type": "InternalIP", "address": one} for one in ("192.0.2.1", "fd00:2::1")]
    status = {"conditions": [{"type": "Ready", "status": "True"}], "addresses": addresses}
    made.create(NODE, {"metadata": {"name": "n1"}, "status": status})
    a_pod(made, "a", READY)
    with_endpoint(made)
    made.patch(ENDPOINT_SLICE, "s", "default", {"endpoints": [endpoint(made)]})
    return made


def service(api: FakeApi, name: str, **spec: Any) -> None:
    ports = [{"name": "http", "port": 80, "targetPort": "http"}]
    declared = {"selector": {"app": "web"}, "ports": ports, **spec}
    api.create(SERVICE, {"metadata": {"name": name, **META}, "spec": declared})


def a_pod(api: FakeApi, name: str, status: JsonObject, **spec: Any) -> None:
    containers = [{"name": "c", "ports": [{"name": "http", "containerPort": 8080}]}]
    made = pod(name, status)
    api.create(POD, {**made, "spec": {**made["spec"], "containers": containers, **spec}})


def endpoint(api: FakeApi) -> JsonObject:
    uid = api.get(POD, "a", "default")["metadata"]["uid"]
    target = {"kind": "Pod", "name": "a", "uid": uid}
    return {"addresses": ["10.244.0.7"], "conditions": {"ready": True}, "targetRef": target}


def run(api: FakeApi, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Return the code of ``trace`` in the namespace ``default``, and what it printed."""
    return trace(cast("ApiClient", api), parse(["trace", "-n", "default", *words])), capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "place", "port"),
    [
        ("shop.test", Place(None, "shop.test", "/"), ""),
        ("shop.test?a=/b", Place(None, "shop.test", "/"), ""),
        ("shop.test:8080/a/b?c=http://d", Place(None, "shop.test:8080", "/a/b"), "8080"),
        ("http://shop.test/a", Place(None, "shop.test", "/a", "http"), "80"),
        ("HTTPS://shop.test", Place(None, "shop.test", "/", "https"), "443"),
        ("http://[fd00::7]:81/", Place(None, "[fd00::7]:81", "/", "http"), "81"),
        ("svc/web", Place(SERVICE, "web", "/"), ""),
        ("Services/web:http/a", Place(SERVICE, "web:http", "/a"), "http"),
        ("po/a", Place(POD, "a", "/"), ""),
        ("pod/", Place(None, "pod", "/"), ""),
        ("tcp://web", Place(None, "web", "/", "tcp"), ""),
        ("http://svc/web", Place(None, "svc", "/web", "http"), "80"),
    ],
)
def test_a_place_is_a_url_a_part_of_one_or_a_type_with_a_name(text: str, place: Place, port: str) -> None:
    assert (place_of(text), place_of(text).port) == (place, port)


@pytest.mark.parametrize("place", ["pod/a", "pods/a/", "po/a", "Pod/a"])
def test_a_pod_is_told_with_the_services_that_lead_to_it(
    api: FakeApi, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    assert run(api, capsys, place) == (
        0,
        "name       a → 10.244.0.7 (Pod default/a)\npod        on node n1, ready\nservice    default/web leads to it\n",
    )


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("pod/a:http", "a → 10.244.0.7:8080"),
        ("pod/a:9", "a → 10.244.0.7:9"),
        ("http://10.244.0.7:8080/x", "10.244.0.7 → 10.244.0.7:8080"),
        ("http://[fd00:244:0::7]/", "fd00:244:0::7 → [fd00:244:0::7]:80"),
    ],
)
def test_a_pod_is_found_by_its_address_and_its_port_by_name(
    api: FakeApi, capsys: pytest.CaptureFixture[str], place: str, name: str
) -> None:
    code, printed = run(api, capsys, place)
    assert (code, printed.splitlines()[0]) == (0, f"name       {name} (Pod default/a)")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_address_is_that_of_the_pod_that_has_it_now(capsys: pytest.CaptureFixture[str], phase: str) -> None:
    made = LoggedApi()
    a_pod(made, "a", {**READY, "phase": phase, "conditions": []})
    assert run(made, capsys, "10.244.0.7")[0] == 1
    a_pod(made, "a-foreign-one", {**READY, "podIPs": [{"ip": "no address"}, {}]})
    a_pod(made, "b", READY)
    code, printed = run(made, capsys, "10.244.0.7")
    assert (code, printed.splitlines()[0]) == (0, "name       10.244.0.7 → 10.244.0.7 (Pod default/b)")


def test_the_address_of_a_node_is_that_of_its_nginx_and_of_no_pod(
    api: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    a_pod(api, "agent", {**READY, "podIPs": [{"ip": "192.0.2.1"}]}, hostNetwork=True)
    for host in ("192.0.2.1", "fd00:2:0::1"):
        code, printed = run(api, capsys, f"http://{bracketed(host)}/")
        assert printed == (
            f"name       {host} → the nginx of the node that has this address\n"
            f"ingress    no Ingress or DNS object declares {host}: nginx answers 404\n"
        )
        assert code == 1


def test_an_address_outside_is_nobodys(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    told = "no Service, Pod or node has this address (nodes: 192.0.2.1, fd00:2::1)"
    assert run(api, capsys, "198.51.100.1:443") == (1, f"name       198.51.100.1: {told}\n")


@pytest.mark.parametrize(
    "more",
    [
        {"spec": {"externalIPs": ["198.51.100.1"]}},
        {"spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}]}}},
    ],
)
def test_a_service_is_found_by_its_addresses_outside(
    api: FakeApi, capsys: pytest.CaptureFixture[str], more: JsonObject
) -> None:
    api.patch(SERVICE, "web", "default", more)
    code, printed = run(api, capsys, "http://198.51.100.1/")
    assert (code, printed.splitlines()[0]) == (0, "name       198.51.100.1 → 198.51.100.1 (Service default/web)")
    assert SEEN in printed


def at_nodes(*ips: str, **more: Any) -> JsonObject:
    return {"loadBalancer": {"ingress": [{"ip": ip, "ipMode": "Proxy", **more} for ip in ips]}}


@pytest.mark.parametrize(
    ("place", "code", "told"),
    [
        ("http://192.0.2.1:8080/", 0, "192.0.2.1:8080 → the load balancer of Service default/web"),
        ("http://203.0.113.5:8080/", 0, "203.0.113.5:8080 → the load balancer of Service default/web"),
        ("http://[fd00:2:0::1]:8080/", 0, "[fd00:2:0::1]:8080 → the load balancer of Service default/web"),
        ("http://192.0.2.1:30080/", 0, "192.0.2.1:30080 → the node port of port 80 of Service default/web"),
        ("http://192.0.2.1:8081/", 1, "192.0.2.1 → the nginx of the node that has this address"),
        ("http://192.0.2.1:30053/", 1, "192.0.2.1 → the nginx of the node that has this address"),
        ("http://192.0.2.1:5353/", 1, "192.0.2.1 → the nginx of the node that has this address"),
        ("http://192.0.2.1/", 1, "192.0.2.1 → the nginx of the node that has this address"),
        ("http://203.0.113.5/", 1, "203.0.113.5 → the nginx of the node that has this address"),
        ("203.0.113.5", 1, "203.0.113.5 → the nginx of the node that has this address"),
    ],
)
def test_a_port_of_a_node_is_the_services_that_has_it_there(
    api: FakeApi, capsys: pytest.CaptureFixture[str], place: str, code: int, told: str
) -> None:
    outside = {"type": "ExternalIP", "address": "203.0.113.5"}
    own = [*api.get(NODE, "n1", "")["status"]["addresses"], outside]
    api.patch(NODE, "n1", "", {"status": {"addresses": own}}, subresource="status")
    service(api, "another", type="LoadBalancer", clusterIP="100.0.0.9")
    given = [{"port": 8080, "protocol": "TCP"}, {"port": 5353, "protocol": "UDP"}]
    status = at_nodes("192.0.2.1", "fd00:2::1", ports=given)
    ports = [{"name": "http", "port": 80, "targetPort": "http", "nodePort": 30080}]
    ports += [{"name": "dns", "port": 53, "protocol": "UDP", "nodePort": 30053}]
    api.patch(SERVICE, "web", "default", {"spec": {"type": "LoadBalancer", "ports": ports}, "status": status})
    found, printed = run(api, capsys, place)
    assert (found, printed.splitlines()[0].startswith(f"name       {told}")) == (code, True), printed
    assert (SEEN in printed) is (code == 0)


@pytest.mark.parametrize("port", ["8080", "30099"])
def test_nginx_may_have_another_port_of_a_node(api: FakeApi, capsys: pytest.CaptureFixture[str], port: str) -> None:
    service(api, "own", clusterIP="100.0.0.9")
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    rules = [{"http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}]
    api.create(INGRESS, {"metadata": {"name": "any", **META}, "spec": {"rules": rules}})
    code, printed = run(api, capsys, f"http://192.0.2.1:{port}/")
    ports = "(minik8s_ingress_http_port, minik8s_ingress_https_port)"
    assert printed.startswith(
        "name       192.0.2.1 → the nginx of the node that has this address\n"
        f"           if it was installed with port {port} {ports}: no Service or Pod has it\n"
        "ingress    any host Prefix /: Ingress default/any\n"
    )
    assert (code, SEEN in printed) == (0, True)


ON_N1 = {**READY, "hostIP": "192.0.2.1"}


@pytest.mark.parametrize(
    ("place", "port", "expected"),
    [
        ("192.0.2.1:81", {"hostPort": 81}, 0),
        ("192.0.2.1:81", {"hostPort": 81, "hostIP": "0.0.0.0"}, 0),
        ("[fd00:2:0::1]:81", {"hostPort": 81, "hostIP": "0.0.0.0"}, 1),
        ("[fd00:2:0::1]:81", {"hostPort": 81, "hostIP": "::"}, 0),
        ("[fd00:2:0::1]:81", {"hostPort": 81, "hostIP": "fd00:2::01"}, 0),
        ("192.0.2.1:81", {"hostPort": 81, "hostIP": "127.0.0.1"}, 1),
        ("192.0.2.1:81", {"hostPort": 81, "protocol": "UDP"}, 1),
        ("192.0.2.1:81", {"hostPort": 82}, 1),
        ("192.0.2.1", {"hostPort": 80}, 1),
    ],
)
def test_a_port_of_a_node_is_the_pods_that_declares_it_there(
    api: FakeApi, capsys: pytest.CaptureFixture[str], place: str, port: JsonObject, expected: int
) -> None:
    containers = [{"name": "c", "ports": [{"containerPort": 8081, **port}]}]
    a_pod(api, "over", {**ON_N1, "phase": "Failed"}, containers=containers)
    a_pod(api, "away", {**ON_N1, "hostIP": "192.0.2.2"}, containers=containers)
    a_pod(api, "here", ON_N1, containers=containers)
    code, printed = run(api, capsys, place)
    assert (code, "the nginx of the node" not in printed) == (expected, expected == 0), printed
    told = f"name       {place.replace('2:0:', '2:')} → the host port of Pod default/here\n"
    told += "           here → 10.244.0.7:8081 (Pod default/here)\npod        on node n1, ready\n"
    assert printed.replace("2:0:", "2:").startswith(told) is (expected == 0), printed


def test_a_load_balancer_of_others_has_an_address_of_its_own(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.patch(SERVICE, "web", "default", {"spec": {"type": "LoadBalancer"}, "status": at_nodes("203.0.113.9")})
    code, printed = run(api, capsys, "http://203.0.113.9/")
    assert (code, printed.splitlines()[0]) == (0, "name       203.0.113.9 → 203.0.113.9 (Service default/web)")
    assert "Service default/web has no port 81\n" in run(api, capsys, "203.0.113.9:81")[1]


@pytest.mark.parametrize("others", ["not-an-ip", "100.0.0.77"])
def test_what_others_wrote_as_an_address_hides_no_service(
    api: FakeApi, capsys: pytest.CaptureFixture[str], others: str
) -> None:
    service(api, "bad", externalIPs=[others], clusterIP="100.0.0.10")
    service(api, "good", clusterIP="100.0.0.77")
    _, printed = run(api, capsys, "http://100.0.0.77/")
    assert printed.splitlines()[0] == "name       100.0.0.77 → 100.0.0.77 (Service default/good)"


def test_an_address_outside_that_a_machine_has_is_the_machines(
    api: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.patch(SERVICE, "web", "default", {"spec": {"externalIPs": ["192.0.2.1"]}})
    assert "192.0.2.1 → the nginx of the node" in run(api, capsys, "http://192.0.2.1/")[1]


def test_of_services_with_one_address_outside_that_with_the_port_is_called(
    api: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    service(api, "a", clusterIP="100.0.0.9", ports=[{"port": 443}], externalIPs=["198.51.100.1"])
    api.patch(SERVICE, "web", "default", {"spec": {"externalIPs": ["198.51.100.1"]}})
    for port, name in ((80, "web"), (443, "a")):
        assert f"(Service default/{name})\n" in run(api, capsys, f"198.51.100.1:{port}")[1]


def test_a_pod_that_does_not_answer_is_told_with_the_reason(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    waiting = {"name": "c", "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}}
    a_pod(api, "b", {**READY, "conditions": [], "containerStatuses": [waiting]})
    code, printed = run(api, capsys, "pod/b")
    assert code == 1
    assert "pod        on node n1, container c: CrashLoopBackOff: back-off 10s\n" in printed
    assert "service    default/web does not lead to it: it is not ready: container c: CrashLoopBackOff" in printed
    a_pod(api, "c", {"phase": "Pending"}, nodeName="")
    code, printed = run(api, capsys, "pod/c")
    assert (code, "c → no address yet (Pod default/c)\npod        on no node yet, " in printed) == (1, True), printed
    for place, told in (("pod/d", "d: namespace default has no such Pod"), ("pod/a:x", "has a port named x")):
        code, printed = run(api, capsys, place)
        assert (code, told in printed) == (1, True), printed


def test_a_pod_that_no_service_selects_is_told_so(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.patch(SERVICE, "web", "default", {"spec": {"selector": {"app": "other"}}})
    code, printed = run(api, capsys, "pod/a")
    assert (code, "service    no Service of namespace default selects it\n" in printed) == (0, True)
    assert run(api, capsys, "pod/a", "--from-namespace", "other")[0] == 1


def test_a_name_of_an_external_host_leads_to_no_pod(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    service(api, "mail", type="ExternalName", externalName="mail.example")
    code, printed = run(api, capsys, "pod/a")
    assert (code, printed.splitlines()[2:]) == (0, ["service    default/web leads to it"])


@pytest.mark.parametrize(
    ("place", "code", "told"),
    [
        ("web:80", 0, SEEN),
        ("svc/web:http", 0, SEEN),
        ("http://web/", 0, SEEN),
        ("web:81", 1, "Service default/web has no port 81"),
        ("svc/web:81", 1, "Service default/web has no port 81"),
        ("https://web/", 1, "Service default/web has no port 443"),
        ("https://100.0.0.7/", 1, "Service default/web has no port 443"),
        ("headless:81", 0, "name       headless → None (Service default/headless)"),
        ("away:81", 0, "name       away → shop.test (Service default/away)"),
    ],
)
def test_a_service_is_called_at_a_port_that_it_has(
    api: FakeApi, capsys: pytest.CaptureFixture[str], place: str, code: int, told: str
) -> None:
    service(api, "headless", clusterIP="None")
    api.patch(ENDPOINT_SLICE, "s", "default", {"metadata": {"labels": {"kubernetes.io/service-name": "headless"}}})
    service(api, "away", type="ExternalName", externalName="shop.test", ports=[])
    if "web" in place or "100." in place:
        api.patch(ENDPOINT_SLICE, "s", "default", {"metadata": {"labels": {"kubernetes.io/service-name": "web"}}})
    found, printed = run(api, capsys, place)
    assert (found, told in printed) == (code, True), printed


@pytest.mark.parametrize(("place", "code"), [("https://web/", 1), ("http://web:http/", 0), ("web:81", 1), ("web", 0)])
def test_a_pod_calls_the_port_that_the_url_says(
    api: FakeApi, capsys: pytest.CaptureFixture[str], place: str, code: int
) -> None:
    found, printed = run(api, capsys, place, "--from", "a")
    assert (found, "has no port" in printed) == (code, bool(code)), printed


@pytest.mark.parametrize("place", ["pod/a", "10.244.0.7:8080"])
def test_what_decides_between_two_pods_is_told_by_another_command(api: FakeApi, place: str) -> None:
    options = parse(["trace", place, "--from", "b", "-n", "default"])
    told = r"strict Namespace refuses.*see no caller; what NetworkPolicies allow: minik8s why connect -n default b "
    with pytest.raises(UsageError, match=rf"{told}(a:PORT|10\.244\.0\.7:8080)$"):
        trace(cast("ApiClient", api), options)


def test_an_object_that_no_request_goes_to_is_no_host(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match=r"deploy/web names a Deployment.*svc/NAME.*http://deploy/web"):
        run(api, capsys, "deploy/web")
    service(api, "jobs", clusterIP="100.0.0.8")
    code, printed = run(api, capsys, "jobs/list")
    assert "jobs → 100.0.0.8 (Service default/jobs)" in printed, code


def test_what_has_the_name_of_a_type_as_its_host_is_called_by_it(
    api: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = {"metadata": {"name": "jobs", "namespace": "batch"}, "spec": {"clusterIP": "100.0.0.8"}}
    for place in ("jobs.batch/list", "cronjobs/a", "secrets/a"):
        with pytest.raises(UsageError, match="no request goes to one"):
            run(api, capsys, place)
    api.create(SERVICE, batch)
    assert "jobs.batch → 100.0.0.8 (Service batch/jobs)" in run(api, capsys, "jobs.batch/list")[1]
    an_ingress(api, "shop", "cronjobs")
    assert "cronjobs Prefix /: Ingress default/shop" in run(api, capsys, "cronjobs/a")[1]
    to_web = [{"path": "/", "backend": {"service": {"name": "web", "port": 80}}}]
    api.create(DNS, {"metadata": {"name": "own", **META}, "spec": {"rules": [{"host": "secrets", "paths": to_web}]}})
    assert "secrets Prefix /: DNS default/own" in run(api, capsys, "secrets/a")[1]


def test_a_scheme_without_a_port_of_its_own_means_none(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    service(api, "calls", clusterIP="100.0.0.8", ports=[{"port": 50051}])
    assert "no port" not in run(api, capsys, "grpc://calls/x")[1]
    with pytest.raises(UsageError, match=r"^grpc has no port of its own: write grpc://calls:PORT/x$"):
        run(api, capsys, "grpc://calls/x", "--from", "a")
    assert "has no port 1" in run(api, capsys, "grpc://calls:1/x", "--from", "a")[1]


@pytest.mark.parametrize(
    "words",
    [
        ["web", "--from", "a", "--from-namespace", "other"],
        ["apiservice/v1.example.com", "--from", "a"],
        ["apiservice/v1.example.com", "--from-namespace", "other"],
    ],
)
def test_what_would_mean_nothing_is_refused(api: FakeApi, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run(api, capsys, *words)
    assert end.value.code == 2
    assert "leave --from" in capsys.readouterr().err

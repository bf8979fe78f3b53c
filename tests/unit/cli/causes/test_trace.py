"""``trace``, ``why`` and what stands above ``describe``: the way of a request, and why a pod is no endpoint."""

from __future__ import annotations

import base64
import json
from typing import Any, cast

import pytest

from minik8s_modules.api.kinds import (
    DNS,
    ENDPOINT_SLICE,
    EVENT,
    HOST_GRANT,
    INGRESS,
    INGRESS_CLASS,
    NODE,
    POD,
    REPLICATION_CONTROLLER,
    SECRET,
    SERVICE,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli import kubectl
from minik8s_modules.cli.causes.surroundings import Around
from minik8s_modules.cli.causes.trace import trace
from minik8s_modules.cli.causes.why import causes_of, why
from minik8s_modules.cli.main import parse
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.fake import FakeApi
from tests.unit.cli.causes.logged_api import LoggedApi
from tests.unit.cli.causes.samples import META, SEEN, an_ingress, pod, with_endpoint


@pytest.fixture
def api() -> FakeApi:
    made = LoggedApi()
    ports = [{"port": 80, "targetPort": "http"}]
    spec = {"selector": {"app": "web"}, "clusterIP": "100.0.0.7", "ports": ports}
    made.create(SERVICE, {"metadata": {"name": "web", **META}, "spec": spec})
    return made


@pytest.fixture(autouse=True)
def found(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the fake answer in kubectl's place."""
    monkeypatch.setattr(kubectl, "read", lambda argv: ([named(api, argv[1], argv[2])], True, ""))


def named(api: FakeApi, kind: str, name: str) -> JsonObject:
    """Return the object of a type and name."""
    return api.get(
        {"service": SERVICE, "ingress": INGRESS, "dns": DNS, "rc": REPLICATION_CONTROLLER}[kind], name, "default"
    )


def run(api: FakeApi, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Run a command; return its code and what it printed."""
    client = cast("ApiClient", api)
    if words[0] == "describe":
        return 0, "\n".join(causes_of(Around(client), named(api, *words[1:3])))
    return {"trace": trace, "why": why}[words[0]](client, parse(list(words))), capsys.readouterr().out


def test_a_way_is_shown_from_the_name_to_the_endpoints(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    with_endpoint(api)
    paths = [{"path": "/web", "backend": {"service": {"name": "web", "port": 80}}}]
    api.create(DNS, {"metadata": {"name": "shop", **META}, "spec": {"rules": [{"host": "shop.test", "paths": paths}]}})
    api.create(HOST_GRANT, {"metadata": {"name": "all"}, "spec": {"namespaces": ["default"], "hosts": ["*"]}})
    code, printed = run(api, capsys, "trace", "http://shop.test:80/web/x?y=1", "--from-namespace", "other")
    assert code == 0, printed
    for part in ("cluster DNS", "DNS default/shop", "default/web:80 → 100.0.0.7", "10.244.0.7:8080 (pod a, ready)"):
        assert part in printed
    code, printed = run(api, capsys, "trace", "web.default")
    assert (code, "10.244.0.7:8080" in printed) == (0, True)


@pytest.mark.parametrize("place", ["http://[fd00:10:96:0::7]:80/", "[FD00:10:96::7]", "fd00:10:96::7/", "100.0.0.7:80"])
def test_a_service_is_found_by_its_address_however_it_is_written(
    api: FakeApi, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    with_endpoint(api)
    api.patch(SERVICE, "web", "default", {"spec": {"clusterIPs": ["100.0.0.7", "fd00:10:96::7"]}})
    code, printed = run(api, capsys, "trace", place)
    assert code == 0, printed
    address = "100.0.0.7" if "." in place else "fd00:10:96::7"
    assert f"→ {address} (Service default/web)" in printed
    assert "10.244.0.7:8080 (pod a, ready)" in printed


def test_an_address_that_no_service_has_is_told_whole(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = run(api, capsys, "trace", "http://[fd00:10:96::9]:80/")
    assert (code, "fd00:10:96::9: no Service, Pod or node has this address" in printed) == (1, True), printed


def test_names_differ_from_one_namespace_to_another(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    with_endpoint(api)
    paths = [{"path": "/web", "backend": {"service": {"name": "web", "port": 80}}}]
    api.create(DNS, {"metadata": {"name": "shop", **META}, "spec": {"rules": [{"host": "shop.test", "paths": paths}]}})
    code, printed = run(api, capsys, "trace", "shop.test/web", "-n", "default")
    assert (code, "shop.test.default.hosts.cluster.local" in printed) == (0, True)
    code, printed = run(api, capsys, "trace", "shop.test/web", "--from-namespace", "other")
    assert (code, "in the pods of namespace default alone, as no HostGrant gives it more" in printed) == (1, True)
    assert run(api, capsys, "trace", "web", "-n", "default")[0] == 0
    code, printed = run(api, capsys, "trace", "web", "--from-namespace", "other")
    assert (code, "namespace other has no such Service" in printed) == (1, True)


def test_names_are_found_as_pods_of_the_commands_namespace_do(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    with_endpoint(api)
    code, printed = run(api, capsys, "trace", "web", "-n", "other")
    assert (code, "namespace other has no such Service" in printed) == (1, True), printed
    assert run(api, capsys, "trace", "web", "-n", "other", "--from-namespace", "default")[0] == 0


@pytest.mark.parametrize("place", ["svc/web", "service/web", "services/web/"])
def test_a_service_may_be_named_by_its_type(api: FakeApi, capsys: pytest.CaptureFixture[str], place: str) -> None:
    with_endpoint(api)
    code, printed = run(api, capsys, "trace", place, "-n", "default")
    assert code == 0, printed
    assert "web → 100.0.0.7 (Service default/web)" in printed
    assert "10.244.0.7:8080 (pod a, ready)" in printed
    code, printed = run(api, capsys, "trace", "svc/none", "-n", "default")
    assert (code, "none: namespace default has no such Service" in printed) == (1, True), printed
    code, printed = run(api, capsys, "trace", "http://svc/web", "-n", "default")
    assert (code, "svc: namespace default has no such Service" in printed) == (1, True), printed


def test_a_service_that_is_named_by_its_type_is_no_host_of_another(
    api: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    with_endpoint(api)
    an_ingress(api, "i", "web", "other")
    paths = [{"path": "/", "backend": {"service": {"name": "other", "port": 80}}}]
    api.create(DNS, {"metadata": {"name": "d", **META}, "spec": {"rules": [{"host": "none", "paths": paths}]}})
    code, printed = run(api, capsys, "trace", "svc/web", "-n", "default")
    assert (code, "web → 100.0.0.7" in printed, SEEN in printed) == (0, True, True), printed
    code, printed = run(api, capsys, "trace", "svc/none", "-n", "default")
    assert (code, "none: namespace default has no such Service" in printed) == (1, True), printed


def test_a_pods_way_to_a_service_that_is_named_by_its_type(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    with_endpoint(api)
    api.create(POD, pod("a", {"phase": "Running", "podIP": "10.244.0.7"}))
    told = [
        run(api, capsys, "trace", place, "--from", "a", "-n", "default") for place in ("web", "svc/web", "svc/web:80")
    ]
    assert told[0] == told[1] == told[2]
    assert (told[0][0], SEEN in told[0][1]) == (0, True)
    code, printed = run(api, capsys, "trace", "svc/none", "--from", "a", "-n", "default")
    assert (code, "none: namespace default has no such Service" in printed) == (1, True), printed


def test_why_names_a_missing_grant_and_how_to_make_one(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    with_endpoint(api)
    paths = [{"path": "/", "backend": {"service": {"name": "web", "port": 80}}}]
    status = {"conditions": [{"type": "Accepted", "status": "True"}]}
    rules = [{"host": "shop.test", "paths": paths}]
    api.create(DNS, {"metadata": {"name": "shop", **META}, "spec": {"rules": rules}, "status": status})
    _, printed = run(api, capsys, "why", "dns", "shop", "-n", "default")
    assert "HostNotGranted: host shop.test answers in the pods of namespace default alone: no HostGrant" in printed
    command = printed[printed.index("echo '") + len("echo '") : printed.index("' | kubectl create -f -")]
    api.create(HOST_GRANT, {**json.loads(command), "metadata": {"name": "made-as-told"}})
    _, printed = run(api, capsys, "why", "dns", "shop", "-n", "default")
    assert "as it should be" in printed


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nobody.test/", "no Ingress or DNS object declares nobody.test"),
        ("shop.test/other", "has no path for /other: nginx answers 404 (paths: /gone, /web)"),
        ("shop.test/gone", "there is no Service default/gone: nginx answers 503"),
        ("shop.test/web", "no pod of namespace default has the labels app=web"),
    ],
)
def test_where_a_way_ends_is_said(api: FakeApi, capsys: pytest.CaptureFixture[str], place: str, message: str) -> None:
    paths = [
        {"path": f"/{name}", "pathType": "Prefix", "backend": {"service": {"name": name, "port": {"number": 80}}}}
        for name in ("web", "gone")
    ]
    rules = [{"host": "shop.test", "http": {"paths": paths}}]
    api.create(INGRESS, {"metadata": {"name": "shop", **META}, "spec": {"rules": rules}})
    code, shown = run(api, capsys, "trace", place)
    assert code == 1
    assert message in shown


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({"phase": "Succeeded"}, "it is over (Succeeded)"),
        ({"phase": "Pending"}, "it has no address yet"),
        ({"phase": "Running", "podIP": "10.244.0.9"}, "it is not ready"),
        (
            {"phase": "Running", "podIP": "10.244.0.9", "conditions": [{"type": "Ready", "status": "True"}]},
            "no container of it has a port named http",
        ),
    ],
)
def test_a_pod_that_is_no_endpoint_is_told_with_the_reason(
    api: FakeApi, capsys: pytest.CaptureFixture[str], status: JsonObject, message: str
) -> None:
    with_endpoint(api)
    node = {"metadata": {"name": "n1"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    api.create(NODE, node)
    api.create(POD, pod("late", status))
    _, shown = run(api, capsys, "describe", "service", "web", "-n", "default")
    assert f"pod late: {message}" in shown


def test_why_finds_the_pods_of_a_replication_controller(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    template = {"metadata": {"labels": {"app": "rc"}}, "spec": {"containers": [{"name": "a", "image": "i"}]}}
    api.create(
        REPLICATION_CONTROLLER,
        {"metadata": {"name": "rc", **META}, "spec": {"selector": {"app": "rc"}, "template": template}},
    )
    waiting = {"containerStatuses": [{"name": "a", "state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}]}
    for name, label in (("rc-1", "rc"), ("other", "other")):
        api.create(POD, {"metadata": {"name": name, "labels": {"app": label}, **META}, "spec": {}, "status": waiting})
    _, shown = run(api, capsys, "why", "rc", "rc", "-n", "default")
    assert "pod rc-1: container a: ErrImagePull: no" in shown
    assert "other" not in shown


def test_why_a_service_waits_for_a_load_balancer(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    with_endpoint(api)
    ports = [{"port": 80, "targetPort": 80, "nodePort": 30080}]
    api.patch(SERVICE, "web", "default", {"spec": {"type": "LoadBalancer", "ports": ports}})
    _, shown = run(api, capsys, "why", "service", "web", "-n", "default")
    assert "no load balancer has given it an address" in shown
    assert "port 30080 of every node" in shown
    for at, reason, message in ((1, "PortInUse", "port 80/TCP is another's"), (2, "PortKept", "port 80 is kept")):
        event = {"metadata": {"name": reason, **META}, "type": "Warning", "reason": reason, "message": message}
        uid = api.get(SERVICE, "web", "default")["metadata"]["uid"]
        event |= {"involvedObject": {"kind": "Service", "name": "web", "namespace": "default", "uid": uid}}
        api.create(EVENT, event | {"lastTimestamp": f"2026-01-01T00:00:0{at}Z"})
    _, shown = run(api, capsys, "why", "service", "web", "-n", "default")
    assert "given it an address: PortKept: port 80 is kept; from outside it is reached on port 30080" in shown
    assert "Next: kubectl -n default edit service/web" in shown
    api.patch(SERVICE, "web", "default", {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}})
    _, shown = run(api, capsys, "why", "service", "web", "-n", "default")
    assert "as it should be" in shown


def test_why_a_service_leads_nowhere_is_one_line(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    _, shown = run(api, capsys, "why", "service", "web", "-n", "default")
    assert "no pod of namespace default has the labels app=web" in shown
    with_endpoint(api)
    _, shown = run(api, capsys, "why", "service", "web", "-n", "default")
    assert "as it should be" in shown


def test_why_names_the_family_of_a_service_that_leads_nowhere(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    addresses = ["100.0.0.7", "fd00:96::2"]
    spec = {"ipFamilies": ["IPv4", "IPv6"], "clusterIPs": addresses, "ports": [{"port": 80, "targetPort": 8080}]}
    api.patch(SERVICE, "web", "default", {"spec": spec})
    status = {"phase": "Running", "podIP": "192.0.2.5", "podIPs": [{"ip": "192.0.2.5"}]}
    ready = [{"type": "Ready", "status": "True"}]
    api.create(POD, pod("agent", {**status, "conditions": ready}))
    with_endpoint(api)
    api.patch(ENDPOINT_SLICE, "s", "default", {"addressType": "IPv4"})
    _, shown = run(api, capsys, "why", "service", "web", "-n", "default")
    told = "it has no IPv6 endpoints, so nobody reaches it at fd00:96::2; without such an address: pod agent"
    assert told in shown
    labels = {"kubernetes.io/service-name": "web"}
    second = {"addresses": ["fd00:10:244::7"], "conditions": {"ready": True}}
    about = {"addressType": "IPv6", "endpoints": [second], "ports": [{"port": 8080}]}
    api.create(ENDPOINT_SLICE, {"metadata": {"name": "t", "labels": labels, **META}, **about})
    _, shown = run(api, capsys, "why", "service", "web", "-n", "default")
    assert "IPv6" not in shown
    gone = (
        "spec.clusterIPs: nobody reaches fd00:96::2: the cluster has no range of IPv6 for Services; set ipFamilyPolicy"
    )
    assert isinstance(api, LoggedApi)
    api.warned = [gone, "spec.other: of no interest here"]
    _, shown = run(api, capsys, "why", "service", "web", "-n", "default")
    assert gone in shown
    assert "of no interest" not in shown


def ready_node(api: FakeApi, name: str = "n1") -> None:
    """Make a node that is ready."""
    api.create(NODE, {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}})


def unready(name: str, **container: Any) -> JsonObject:
    """Return a pod that runs and is not ready."""
    conditions = [{"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "unready: [c]"}]
    status = {"phase": "Running", "podIP": "10.244.0.9", "conditions": conditions, **container}
    return pod(name, status)


def probe_said(api: FakeApi, of: str, message: str) -> None:
    """Make the Event of a failing probe."""
    involved = {"kind": "Pod", "name": of, "namespace": "default", "uid": of}
    metadata = {"generateName": "e-", **META}
    api.create(EVENT, {"metadata": metadata, "involvedObject": involved, "reason": "Unhealthy", "message": message})


def test_an_unready_pod_is_told_with_what_its_probe_said(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    ready_node(api)
    created = api.create(POD, unready("late"))
    probe_said(api, created["metadata"]["uid"], "Readiness probe failed: HTTP probe failed with statuscode: 500")
    _, shown = run(api, capsys, "why", "service", "web", "-n", "default")
    assert "pod late: it is not ready: Readiness probe failed: HTTP probe failed with statuscode: 500" in shown


def test_a_dead_node_or_container_is_a_nearer_cause_than_a_probe(
    api: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    created = api.create(POD, unready("late"))
    probe_said(api, created["metadata"]["uid"], "Readiness probe failed: timeout")
    _, shown = run(api, capsys, "why", "service", "web", "-n", "default")
    assert "pod late: it is not ready: node n1 does not exist" in shown
    ready_node(api)
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    broken = api.create(POD, unready("broken", containerStatuses=[{"name": "c", "state": waiting}]))
    probe_said(api, broken["metadata"]["uid"], "Readiness probe failed: timeout")
    _, shown = run(api, capsys, "describe", "service", "web", "-n", "default")
    assert "pod broken: it is not ready: container c: CrashLoopBackOff: back-off 10s" in shown
    assert "pod late: it is not ready: Readiness probe failed: timeout" in shown


def test_a_pod_that_ends_or_lacks_one_port_is_told(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    ready_node(api)
    with_endpoint(api)
    ending = {"deletionTimestamp": "2026-11-20T00:00:00Z"}
    api.create(POD, pod("going", {"phase": "Running", "podIP": "10.244.0.8"}, **ending))
    here = pod("a", {"phase": "Running", "podIP": "10.244.0.7", "conditions": [{"type": "Ready", "status": "True"}]})
    uid = api.create(POD, here)["metadata"]["uid"]
    found = api.list(ENDPOINT_SLICE, "default").items[0]
    found["endpoints"][0]["targetRef"]["uid"] = uid
    api.update(ENDPOINT_SLICE, found)
    _, shown = run(api, capsys, "describe", "service", "web", "-n", "default")
    assert "pod going: it is being deleted" in shown
    assert "pod a: no container of it has a port named http; it is an endpoint of the other ports" in shown


@pytest.mark.parametrize(
    ("service", "spec", "message"),
    [
        ("gone", {}, "ServiceNotFound: path /: there is no Service default/gone"),
        ("web", {}, "Service default/web has no endpoints (nginx answers 503): no pod of namespace default has the"),
        ("web", {"ingressClassName": "haproxy"}, "IngressClassNotFound: there is no IngressClass haproxy"),
        (
            "web",
            {"ingressClassName": "other"},
            "its class other belongs to another controller: minik8s does not act on it",
        ),
        (
            "web",
            {"tls": [{"hosts": ["a.test"], "secretName": "absent"}]},
            "no certificate for a.test: there is no Secret default/absent",
        ),
        (
            "web",
            {"tls": [{"hosts": ["a.test"], "secretName": "half"}]},
            "no certificate for a.test: Secret default/half has no tls.key",
        ),
        (
            "web",
            {"tls": [{"hosts": ["a.test"], "secretName": "wrong"}]},
            "no certificate for a.test: tls.crt of Secret default/wrong is not PEM",
        ),
    ],
)
def test_why_an_ingress_leads_nowhere(
    api: FakeApi, capsys: pytest.CaptureFixture[str], service: str, spec: JsonObject, message: str
) -> None:
    key = base64.b64encode(b"-----BEGIN PRIVATE KEY-----").decode()
    api.create(SECRET, {"metadata": {"name": "half", **META}, "data": {"tls.crt": "eA=="}})
    api.create(SECRET, {"metadata": {"name": "wrong", **META}, "data": {"tls.crt": "eA==", "tls.key": key}})
    api.create(INGRESS_CLASS, {"metadata": {"name": "other"}, "spec": {"controller": "example.com/other"}})
    an_ingress(api, "i", "a.test", service, **spec)
    for command in ("why", "describe"):
        _, shown = run(api, capsys, command, "ingress", "i", "-n", "default")
        assert message in shown


def test_why_a_second_object_has_not_its_host(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    with_endpoint(api)
    an_ingress(api, "i", "a.test")
    an_ingress(api, "second", "a.test")
    _, shown = run(api, capsys, "why", "ingress", "second", "-n", "default")
    assert "HostConflict: host a.test path / is in use by Ingress default/i" in shown
    paths = [{"path": "/x", "backend": {"service": {"name": "web", "port": 81}}}]
    named = {"name": "d", "creationTimestamp": "2026-11-20T00:00:00Z", **META}
    api.create(DNS, {"metadata": named, "spec": {"rules": [{"host": "b.test", "paths": paths}]}})
    _, shown = run(api, capsys, "why", "dns", "d", "-n", "default")
    assert "ServicePortNotFound: path /x: Service default/web has no port 81" in shown


def test_what_nginx_refused_is_a_cause_until_it_is_put_right(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    with_endpoint(api)
    an_ingress(api, "i", "a.test")
    uid = api.get(INGRESS, "i", "default")["metadata"]["uid"]
    involved = {"kind": "Ingress", "name": "i", "namespace": "default", "uid": uid}
    for number, (reason, wanted) in enumerate([("FailedToUpdatePaths", True), ("PathsUpdated", False)]):
        metadata = {"name": f"e{number}", **META}
        event = {"metadata": metadata, "involvedObject": involved, "lastTimestamp": f"2026-11-20T00:00:0{number}Z"}
        api.create(EVENT, {**event, "reason": reason, "message": "node n1: no such file"})
        _, shown = run(api, capsys, "why", "ingress", "i", "-n", "default")
        assert ("FailedToUpdatePaths: node n1: no such file" in shown) == wanted


def test_what_a_server_without_etcd_still_knows_is_said_to_be_old(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without = LoggedApi(readyz="[-]etcd failed: no answer within 2 s\n")
    found: list[JsonObject] = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", **META}}]
    monkeypatch.setattr(kubectl, "read", lambda _argv: (found, True, ""))
    assert why(cast("ApiClient", without), parse(["why", "cm", "settings"])) == 0
    shown = capsys.readouterr()
    assert "as it should be" in shown.out
    assert "the API server is not ready: etcd failed: no answer within 2 s; what follows may be old" in shown.err
    monkeypatch.setattr(kubectl, "read", lambda _argv: ([], False, ""))
    assert why(cast("ApiClient", without), parse(["why", "cm", "settings"])) == 1
    assert capsys.readouterr().out.startswith("Cause:  the API server is not ready: etcd failed")

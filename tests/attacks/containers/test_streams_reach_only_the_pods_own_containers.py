"""exec, attach, logs, port-forward and proxies end in the pod that the request names, and in no other.

An editor wrote another pod's UID into the annotation ``kubernetes.io/config.mirror`` of his own pod, and ``kubectl
exec`` ran in the other. That annotation cannot be written any more (test_a_pod_cannot_stand_for_another.py); here a pod
bears it all the same, as one stored before the rule, and both ends refuse by themselves.
"""

from __future__ import annotations

import contextlib
import http.client
import ssl
from urllib.parse import urlencode

import orjson
import pytest

from minik8s_modules.api.errors import Invalid
from minik8s_modules.api.kinds import ENDPOINT_SLICE, POD, SERVICE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.store.etcd import EtcdStore
from tests.integration.streams.conftest import Streaming
from tests.support.servers.signed import signature_headers

MIRROR = "kubernetes.io/config.mirror"
SECRET = "only-the-victim-knows"
VICTIM = {"pod": "victim", "namespace": "default"}
SERVICE_NAME = "kubernetes.io/service-name"


@pytest.fixture(scope="module")
def victim(streaming: Streaming) -> JsonObject:
    script = f"echo {SECRET}; (while true; do echo {SECRET} | nc -l -p 8080; done) & sleep 3600"
    made = streaming.pod("victim", script)
    streaming.until(lambda: SECRET in streaming.kubectl("logs", "victim").stdout)
    return made


@pytest.fixture(scope="module")
def forged(streaming: Streaming, victim: JsonObject) -> JsonObject:
    """A pod in the store that claims to stand for the victim; it has no containers of its own."""
    marks = {MIRROR: victim["metadata"]["uid"], "kubernetes.io/config.hash": victim["metadata"]["uid"]}
    name = f"forged-{streaming.node.name}"
    meta = {**victim["metadata"], "name": name, "uid": "11111111-2222-4333-8444-555555555555", "annotations": marks}
    meta.pop("resourceVersion")
    store = EtcdStore([streaming.etcd.endpoint])
    store.create(POD.key("default", name), orjson.dumps({**victim, "metadata": meta}))
    store.close()
    streaming.until(lambda: streaming.kubectl("get", "pod", name, check=False).returncode == 0)
    return {**victim, "metadata": meta}


def test_a_command_does_not_run_in_another_pod(streaming: Streaming, victim: JsonObject, forged: JsonObject):
    assert streaming.kubectl("exec", "victim", "--", "echo", "here").stdout == "here\n"
    done = streaming.kubectl("exec", forged["metadata"]["name"], "--", "echo", "here", check=False)
    assert done.returncode != 0
    assert "here" not in done.stdout
    assert "container not found" in done.stderr


def test_nothing_attaches_to_another_pod(streaming: Streaming, victim: JsonObject, forged: JsonObject):
    done = streaming.kubectl("attach", forged["metadata"]["name"], check=False)
    assert done.returncode != 0
    assert "container not found" in done.stderr


def test_the_log_of_another_pod_stays_unread(streaming: Streaming, victim: JsonObject, forged: JsonObject):
    done = streaming.kubectl("logs", forged["metadata"]["name"], check=False)
    assert done.returncode != 0
    assert SECRET not in done.stdout


def test_no_port_of_another_pod_is_reached(streaming: Streaming, victim: JsonObject, forged: JsonObject):
    name = forged["metadata"]["name"]
    answer = _asked(streaming, forged["metadata"]["uid"], "portforward", {"pod": name, "namespace": "default"})
    assert (answer.status, b"has no running sandbox" in answer.read()) == (400, True)


@pytest.mark.parametrize("what", ["exec", "attach", "log", "portforward"])
@pytest.mark.parametrize("named", [{"pod": "other"}, {"namespace": "other"}, {"pod": ""}, {"namespace": ""}])
def test_a_uid_alone_opens_nothing_at_the_gateway(streaming: Streaming, victim: JsonObject, what, named):
    """Whatever an API server asks for: the containers' own marks must bear the pod's name and namespace, too."""
    claimed = {"pod": "victim", "namespace": "default", **named}
    options = {**claimed, "container": "app", "command": "id", "stdout": "true", "ports": "8080"}
    answer = _asked(streaming, victim["metadata"]["uid"], what, options)
    assert answer.status == 400
    assert SECRET.encode() not in answer.read()


def test_the_gateway_serves_the_pod_that_is_named_in_full(streaming: Streaming, victim: JsonObject):
    options = {"pod": "victim", "namespace": "default", "container": "app"}
    answer = _asked(streaming, victim["metadata"]["uid"], "log", options)
    assert (answer.status, SECRET.encode() in answer.read()) == (200, True)


@pytest.mark.parametrize("named", [{"pod": "other"}, {"namespace": "other"}])
def test_a_uid_alone_opens_no_proxy(streaming: Streaming, victim: JsonObject, named):
    answer = _asked(streaming, victim["metadata"]["uid"], "proxy", {**VICTIM, **named, "ports": "8080"})
    assert (answer.status, b"has no running sandbox" in answer.read()) == (503, True)


@pytest.mark.parametrize("ports", ["", "0", "65536", "8080,22", "http", "-1"])
def test_a_proxy_is_to_one_port(streaming: Streaming, victim: JsonObject, ports: str):
    answer = _asked(streaming, victim["metadata"]["uid"], "proxy", {**VICTIM, "ports": ports})
    assert (answer.status, SECRET.encode() in answer.read()) == (400, False)


@pytest.fixture(scope="module")
def thief(streaming: Streaming) -> JsonObject:
    """A pod where nothing listens on 8080, and a Service before it."""
    ports = {"ports": [{"port": 80, "targetPort": 8080}]}
    streaming.admin.create(SERVICE, {"metadata": {"name": "thief", "namespace": "default"}, "spec": ports})
    return streaming.pod("thief", "sleep 3600")


@pytest.mark.parametrize("whose", ["the victim's", "the node's", "127.0.0.1", "169.254.169.254"])
def test_neither_a_status_nor_an_endpoint_tells_a_proxy_where_to_go(
    streaming: Streaming, victim: JsonObject, thief: JsonObject, whose: str
):
    """Who may write both has the server dial the pod's own address all the same: nobody listens there."""
    given = {"the victim's": streaming.address(victim), "the node's": f"{streaming.node.range}.1"}
    address = given.get(whose, whose)
    forged = {"status": {"podIP": address, "podIPs": [{"ip": address}]}}
    streaming.admin.patch(POD, "thief", "default", forged, subresource="status")
    target = {"kind": "Pod", "namespace": "default", "name": "thief"}
    found = {
        "metadata": {"generateName": "thief-", "namespace": "default", "labels": {SERVICE_NAME: "thief"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "targetRef": target}],
        "ports": [{"name": "", "port": 8080}],
    }
    paths = ["pods/thief:8080"]
    with contextlib.suppress(Invalid):  # loopback and link-local addresses are not even stored
        streaming.admin.create(ENDPOINT_SLICE, found)
        paths.append("services/thief:80")
    assert (len(paths) == 1) == (whose in {"127.0.0.1", "169.254.169.254"})
    for path in paths:
        answer = streaming.server.request("GET", f"/api/v1/namespaces/default/{path}/proxy/")
        message = (answer.code, answer.json["message"])
        assert message == (503, "error trying to reach service: connection refused")


def _asked(streaming: Streaming, uid: str, what: str, options: dict[str, str]) -> http.client.HTTPResponse:
    """Ask the gateway as an API server does."""
    context = ssl.create_default_context(cafile=str(streaming.authority.ca))
    context.check_hostname = False
    own = streaming.authority.issue("asker", "system:minik8s:apiserver")
    context.load_cert_chain(own.cert, own.key)
    connection = http.client.HTTPSConnection("127.0.0.1", streaming.port, context=context, timeout=60)
    path = f"/nodes/{streaming.node.name}/pods/{uid}/{what}?{urlencode(options)}"
    upgrade = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "v4.channel.k8s.io"}
    if what == "portforward":
        upgrade["X-Stream-Protocol-Version"] = "portforward.k8s.io"
    method = "GET" if what == "log" else "POST"
    headers = signature_headers(f"{method} {path} HTTP/1.1", own)
    connection.request(method, path, headers={**headers, **({} if what == "log" else upgrade)})
    return connection.getresponse()

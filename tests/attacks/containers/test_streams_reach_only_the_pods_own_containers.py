"""exec, attach, logs and port-forward end in the containers of the pod that the request names, and in no others.

An editor wrote another pod's UID into the annotation ``kubernetes.io/config.mirror`` of his own pod, and ``kubectl
exec`` ran in the other. That annotation cannot be written any more (test_a_pod_cannot_stand_for_another.py); here a pod
bears it all the same, as one stored before the rule, and both ends refuse by themselves.
"""

from __future__ import annotations

import http.client
import ssl
from urllib.parse import urlencode

import orjson
import pytest

from minik8s_modules.api.kinds import POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.store.etcd import EtcdStore
from tests.integration.streams.conftest import Streaming
from tests.support.signed import signature_headers

MIRROR = "kubernetes.io/config.mirror"
SECRET = "only-the-victim-knows"


@pytest.fixture(scope="module")
def victim(streaming: Streaming) -> JsonObject:
    script = f"echo {SECRET}; (while true; do echo {SECRET} | nc -l -p 8080; done) & sleep 3600"
    return streaming.pod("victim", script)


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
    told = streaming.kubectl("exec", forged["metadata"]["name"], "--", "echo", "here", check=False)
    assert told.returncode != 0
    assert "here" not in told.stdout
    assert "container not found" in told.stderr


def test_nothing_attaches_to_another_pod(streaming: Streaming, victim: JsonObject, forged: JsonObject):
    told = streaming.kubectl("attach", forged["metadata"]["name"], check=False)
    assert told.returncode != 0
    assert "container not found" in told.stderr


def test_the_log_of_another_pod_stays_unread(streaming: Streaming, victim: JsonObject, forged: JsonObject):
    assert SECRET in streaming.kubectl("logs", "victim").stdout
    told = streaming.kubectl("logs", forged["metadata"]["name"], check=False)
    assert told.returncode != 0
    assert SECRET not in told.stdout


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


def _asked(streaming: Streaming, uid: str, what: str, options: dict[str, str]) -> http.client.HTTPResponse:
    """Ask the gateway as an API server does."""
    context = ssl.create_default_context(cafile=str(streaming.authority.ca))
    context.check_hostname = False
    own = streaming.authority.issue("asker", "system:minik8s:apiserver")
    context.load_cert_chain(own.cert, own.key)
    connection = http.client.HTTPSConnection("127.0.0.1", streaming.port, context=context, timeout=10)
    path = f"/nodes/{streaming.node.name}/pods/{uid}/{what}?{urlencode(options)}"
    upgrade = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "v4.channel.k8s.io"}
    if what == "portforward":
        upgrade["X-Stream-Protocol-Version"] = "portforward.k8s.io"
    method = "GET" if what == "log" else "POST"
    headers = signature_headers(f"{method} {path} HTTP/1.1", own)
    connection.request(method, path, headers={**headers, **({} if what == "log" else upgrade)})
    return connection.getresponse()

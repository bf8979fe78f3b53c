"""Who may only read runs nothing: exec, attach and port-forward need ``create``, whichever way they come.

The attack: a role with ``get`` on ``pods/exec`` (or on everything, as roles for monitoring have it) sufficed over
WebSocket, which begins with GET. As Kubernetes since 1.35 (AuthorizePodWebsocketUpgradeCreatePermission). Rights are
decided before the pod is looked at, so a pod without a node shows who gets through: it has no host to reach.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minik8s_modules.api.kind import CONNECTING, SUBRESOURCE_VERBS
from minik8s_modules.apiserver.nodes.pod_streams import STREAMED
from tests.integration.apiserver.conftest import Namespace
from tests.support.apiserver import Answer, ApiServerProcess

UPGRADES = {
    "WebSocket": {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol": "v5.channel.k8s.io",
    },
    "SPDY": {"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "v4.channel.k8s.io"},
    "no upgrade": {},
}
QUERY = "?command=id&stdout=true&stdin=true&ports=80"
Connect = Callable[..., Answer]


@pytest.fixture
def connect(server: ApiServerProcess, namespace: Namespace) -> Connect:
    """Return a function that connects to a pod as somebody with these verbs on these resources."""
    pod = {"metadata": {"name": "idle"}, "spec": {"containers": [{"name": "app", "image": "a"}]}}
    assert server.request("POST", namespace.path("pods"), pod).code == 201
    numbers = iter(range(100))

    def connecting(method: str, what: str, upgrade: str, verbs: str, resources: str = "") -> Answer:
        user = f"{namespace.name}-{next(numbers)}"
        space = f"--namespace={namespace.name}"
        rule = (f"--verb={verbs}", f"--resource={resources or f'pods/{what}'}")
        server.kubectl("create", "role", user, *rule, space)
        server.kubectl("create", "rolebinding", user, f"--role={user}", f"--user={user}", space)
        path = f"{namespace.path('pods', 'idle')}/{what}{QUERY}"
        return server.request(method, path, client=server.identity(user), headers=UPGRADES[upgrade])

    return connecting


@pytest.mark.parametrize("what", ["exec", "attach", "portforward"])
@pytest.mark.parametrize("upgrade", list(UPGRADES))
def test_reading_is_not_enough(connect: Connect, what: str, upgrade: str):
    answer = connect("GET", what, upgrade, "get,list,watch")
    assert answer.code == 403, answer.body
    assert f'cannot create resource "pods/{what}" in API group ""' in answer.json["message"]


@pytest.mark.parametrize("what", ["exec", "attach", "portforward"])
def test_who_may_read_everything_still_runs_nothing(connect: Connect, what: str):
    assert connect("GET", what, "WebSocket", "get,list,watch", f"pods,pods/log,pods/status,pods/{what}").code == 403


@pytest.mark.parametrize("what", ["exec", "attach", "portforward"])
def test_who_may_create_gets_through(connect: Connect, what: str):
    for method, upgrade, verbs in (("GET", "WebSocket", "get,create"), ("POST", "SPDY", "create")):
        answer = connect(method, what, upgrade, verbs)
        assert (answer.code, "does not have a host assigned" in answer.json["message"]) == (400, True), answer.body


@pytest.mark.parametrize("what", ["exec", "attach", "portforward"])
def test_what_the_method_means_is_needed_too(connect: Connect, what: str):
    """As in Kubernetes, whose clients over WebSocket need both."""
    assert f'cannot get resource "pods/{what}"' in connect("GET", what, "WebSocket", "create").json["message"]
    assert f'cannot create resource "pods/{what}"' in connect("POST", what, "SPDY", "get").json["message"]


def test_logs_are_read(connect: Connect):
    assert connect("GET", "log", "no upgrade", "get").code == 200


@pytest.mark.parametrize(("role", "may"), [("view", "no"), ("edit", "yes"), ("admin", "yes")])
@pytest.mark.parametrize("what", ["exec", "attach", "portforward"])
def test_people_are_told_what_they_may(server: ApiServerProcess, namespace: Namespace, role: str, may: str, what: str):
    space = f"--namespace={namespace.name}"
    server.kubectl("create", "rolebinding", role, f"--clusterrole={role}", "--user=jane", space)
    asked = server.kubectl("auth", "can-i", "create", f"pods/{what}", "--as=jane", space, check=False)
    assert asked.stdout.split()[0] == may


def test_no_way_into_a_pod_is_left_out():
    """All that reaches into something that runs needs it; of what is streamed only a log does not."""
    assert {what for what in STREAMED if what != "log"} == CONNECTING
    assert {what for what, verbs in SUBRESOURCE_VERBS.items() if {"create", "get"} <= {*verbs}} == CONNECTING

"""Who may only read runs nothing: exec, attach, port-forward and an upgrade through a proxy need ``create``.

The attack: a role with ``get`` on ``pods/exec`` (or on everything, as roles for monitoring have it) sufficed over
WebSocket, which begins with GET. As Kubernetes since 1.35 (AuthorizePodWebsocketUpgradeCreatePermission). Rights are
decided before the pod is looked at, so a pod without a node shows who gets through: it has no host to reach.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minik8s_modules.api.kind import CONNECTING, PROXY, SUBRESOURCE_VERBS
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
    """All that reaches into something that runs needs it; of what is streamed only a log does not, and plain HTTP."""
    assert {what for what in STREAMED if what != "log"} == CONNECTING
    assert {what for what, verbs in SUBRESOURCE_VERBS.items() if {"create", "get"} <= {*verbs}} == {*CONNECTING, PROXY}


METHODS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@pytest.mark.parametrize("method", [*METHODS, "OPTIONS"])
def test_a_proxy_needs_the_verb_of_the_method(connect: Connect, method: str):
    """Whatever the query says; OPTIONS has none, so only "*" grants it."""
    others = ",".join({"get", "list", "watch", "create", "update", "patch", "delete"} - {METHODS.get(method, "")})
    assert connect(method, "proxy/x", "no upgrade", others, "pods/proxy").code == 403
    for granted in {METHODS.get(method, "*"), "*"}:
        assert connect(method, "proxy/x", "no upgrade", granted, "pods/proxy").code == 400  # it has no node


@pytest.mark.parametrize("upgrade", ["WebSocket", "SPDY"])
def test_an_upgrade_through_a_proxy_is_no_reading(connect: Connect, upgrade: str):
    answer = connect("GET", "proxy/x", upgrade, "get,list,watch", "pods/proxy")
    assert (answer.code, 'cannot create resource "pods/proxy"' in answer.json["message"]) == (403, True)
    assert connect("GET", "proxy/x", upgrade, "get,create", "pods/proxy").code == 400


def test_a_name_with_a_port_is_the_name_that_is_granted(server: ApiServerProcess, namespace: Namespace):
    """As in Kubernetes: resourceNames are what stands in the path, so one port may be granted without the others."""
    pod = {"metadata": {"name": "idle"}, "spec": {"containers": [{"name": "app", "image": "a"}]}}
    assert server.request("POST", namespace.path("pods"), pod).code == 201
    space, user = f"--namespace={namespace.name}", f"{namespace.name}-port"
    rule = ("--verb=get", "--resource=pods/proxy", "--resource-name=idle:80")
    server.kubectl("create", "role", user, *rule, space)
    server.kubectl("create", "rolebinding", user, f"--role={user}", f"--user={user}", space)
    for name, code in (("idle:80", 400), ("idle%3A80", 400), ("idle", 403), ("idle:81", 403), ("https:idle:80", 403)):
        path = f"{namespace.path('pods', name)}/proxy/x"
        assert server.request("GET", path, client=server.identity(user)).code == code, name

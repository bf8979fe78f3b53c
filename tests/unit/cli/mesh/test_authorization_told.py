"""``trace`` names the AuthorizationPolicy that decides, and ``why`` says where one is not enforced."""

from __future__ import annotations

from typing import Any, cast

import pytest

from minik8s_modules.api.errors import Forbidden, NotFound
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import ENDPOINT_SLICE, POD
from minik8s_modules.api.network.authorization import AUTHORIZATION_POLICY, Caller
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.sidecars import with_sidecar
from minik8s_modules.cli.causes.checks import judge
from minik8s_modules.cli.causes.surroundings import Around
from minik8s_modules.cli.mesh.authorizing import authorized, caller_of
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.client.interface import ObjectList
from tests.support.authorization import policy

SERVICE: JsonObject = {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"selector": {"app": "web"}}}
CLIENT = Caller("shop", "client")
OWN = policy("own", {"from": [{"source": {"principals": ["*/sa/client"]}}], "to": [{"operation": {"paths": ["/x"]}}]})


def cluster(*policies: JsonObject, api: FakeApi | None = None) -> FakeApi:
    api = api or FakeApi()
    for name, mutual in (("new", True), ("old", False)):
        meta = {"name": name, "namespace": "shop", "labels": {"app": "web"}}
        spec = with_sidecar({"serviceAccountName": "client", "containers": []}, mutual=mutual)
        api.create(POD, {"metadata": meta, "spec": spec})
    points = [{"addresses": ["10.0.0.1"], "targetRef": {"kind": "Pod", "name": name}} for name in ("new", "old")]
    meta = {"name": "web-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}}
    ports = [{"name": "http", "port": 8080}]
    api.create(ENDPOINT_SLICE, {"metadata": meta, "addressType": "IPv4", "ports": ports, "endpoints": points})
    for each in policies:
        api.create(AUTHORIZATION_POLICY, each)
    return api


def said(api: FakeApi, path: str = "/x", caller: Caller = CLIENT) -> list[tuple[str, bool]]:
    return [(each.text, each.broken) for each in authorized(api, SERVICE, path, caller)]


UNASKED = (
    "not asked for at old: no sidecar that takes mutual TLS enforces AuthorizationPolicies there",
    False,
)


def test_the_policy_that_decides_is_named():
    assert said(cluster()) == []
    assert said(cluster(OWN)) == [UNASKED, ("passes at new: AuthorizationPolicy own (ALLOW) (shop/client)", False)]
    for path, caller, name in (("/y?/x", CLIENT, "shop/client"), ("/x", Caller(), "callers without mutual TLS")):
        refused = f"refused by new: no AuthorizationPolicy allows it ({name})"
        assert (refused, True) in said(cluster(OWN), path, caller)
    deny = policy("never", {}, action="DENY")
    assert ("refused by new: AuthorizationPolicy never denies it (shop/client)", True) in said(cluster(OWN, deny))
    only = policy("never", {"to": [{"operation": {"ports": ["1"]}}]}, action="DENY")
    assert ("passes at new: no policy denies it (shop/client)", False) in said(cluster(only))


def test_a_policy_that_cannot_be_read_denies_everything_as_pilots_have_it():
    api = cluster(policy("own", {"from": []}), policy("all", {}))
    why = "AuthorizationPolicy own denies everything, as it cannot be read (spec.rules[0].from has 0 items)"
    assert said(api) == [(f"refused by new: {why} (shop/client)", True), UNASKED]


def asked(api: FakeApi, path: str = "/", port: int = 80, host: str = "web:80") -> list[str]:
    both = [{"name": "http", "port": 80}, {"name": "more", "port": 90}]
    service = {**SERVICE, "spec": {**SERVICE["spec"], "ports": both}}
    return [each.text for each in authorized(api, service, path, CLIENT, port, host) if each.text != UNASKED[0]]


PASSES, NOBODY = (
    "passes at new: AuthorizationPolicy own (ALLOW) (shop/client)",
    "refused by new: no AuthorizationPolicy",
)


def test_the_port_and_the_host_of_the_url_are_asked_and_no_others():
    api = cluster(policy("own", {"to": [{"operation": {"ports": ["8080"], "hosts": ["web"]}}]}))
    (old,) = api.list(ENDPOINT_SLICE, "shop").items
    api.update(ENDPOINT_SLICE, {**old, "ports": [*old["ports"], {"name": "more", "port": 9090}]})
    assert asked(api) == [PASSES]
    assert asked(api, host="other") == [f"{NOBODY} allows it (shop/client)"]
    assert asked(api, port=90) == [f"{NOBODY} allows it (shop/client)"]


def test_the_path_is_asked_as_envoys_see_it():
    api = cluster(policy("own", {"to": [{"operation": {"paths": ["/pub/*"]}}]}))
    for path in ("/pub/x", "//pub/./x?/..", "/a/%2E%2e/pub/x"):
        assert asked(api, path) == [PASSES]
    assert asked(api, "/pub/../admin") == [f"{NOBODY} allows it (shop/client)"]
    for path in ("/pub/%41", "/pub/..%2Fadmin", "/pub/%00", "/pub/..;/admin"):
        (text,) = asked(api, path)
        assert "refused in this spelling" in text


def test_a_pod_calls_as_its_account():
    (pod, _old) = cluster().list(POD).items
    assert caller_of(pod) == CLIENT


class Without(FakeApi):
    """Has no such kind, or does not show it."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def list(self, kind: Kind, *given: Any, **named: Any) -> ObjectList:
        """Return the objects of other kinds."""
        if kind == AUTHORIZATION_POLICY:
            raise self._error
        return super().list(kind, *given, **named)


@pytest.mark.parametrize(
    "error", [NotFound(AUTHORIZATION_POLICY, ""), Forbidden(AUTHORIZATION_POLICY, "", "you may not")]
)
def test_nothing_is_said_of_policies_that_are_not_there_or_not_shown(error: Exception):
    assert said(cluster(api=Without(error))) == []


def test_why_says_where_a_policy_is_not_enforced():
    around = cast("Around", _Around())
    assert "no pilot has decided on it" in judge(OWN, around).cause
    condition = {"type": "Enforced", "status": "False", "reason": "PodsWithoutSidecar", "message": "let all in: old"}
    assert judge({**OWN, "status": {"conditions": [condition]}}, around).cause == "PodsWithoutSidecar: let all in: old"
    assert judge({**OWN, "status": {"conditions": [{**condition, "status": "True"}]}}, around).cause == ""


class _Around:
    """Nothing else is there."""

    unread: frozenset[str] = frozenset()
    now = None

    def events(self, _obj: JsonObject) -> list[JsonObject]:
        """Return none."""
        return []

    def __getattr__(self, _name: str) -> Any:
        return lambda *_given, **_named: []

"""What AuthorizationPolicies mean, and which of them may be stored."""

from __future__ import annotations

from typing import Any

import pytest
import re2

from minik8s_modules.api.custom.kinds import kinds_of
from minik8s_modules.api.kinds import CUSTOM_RESOURCE_DEFINITION
from minik8s_modules.api.network.authorization import (
    ALL,
    NONE,
    SOME,
    Access,
    Caller,
    Request,
    access,
    selecting,
    speaks_http,
)
from minik8s_modules.api.network.path_patterns import path_expression
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.validation import validate_create
from tests.support.authorization import definition, policy
from tests.unit.api import samples

CLIENT, OTHER, NOBODY = Caller("shop", "client"), Caller("bank", "other"), Caller()
OF_CLIENT: JsonObject = {"from": [{"source": {"principals": ["cluster.local/ns/shop/sa/client"]}}]}


def of(**source: Any) -> JsonObject:
    return {"from": [{"source": source}]}


def to(**operation: Any) -> JsonObject:
    return {"to": [{"operation": operation}]}


def passes(*policies: JsonObject, http: bool = False, request: Request | None = None, port: int = 80) -> list[int]:
    return [access(policies, each, port, http=http, request=request).passes for each in (CLIENT, OTHER, NOBODY)]


def test_denial_comes_first_then_one_must_allow_if_there_is_any():
    own, theirs = policy("own", OF_CLIENT), policy("theirs", of(namespaces=["ba*"]))
    deny = policy("deny", of(principals=["*/sa/client"]), action="DENY")
    assert passes() == [ALL, ALL, ALL]
    assert passes(own) == [ALL, NONE, NONE]
    assert passes(own, theirs) == [ALL, ALL, NONE]
    assert passes(deny) == [NONE, ALL, ALL]
    assert passes(own, theirs, deny) == [NONE, ALL, NONE]
    assert passes(policy("nothing")) == [NONE] * 3
    assert passes(policy("everything", {})) == [ALL] * 3
    assert access([own, deny], CLIENT, 80, http=False) == Access(NONE, "deny")
    assert access([own, theirs], OTHER, 80, http=False) == Access(ALL, "theirs")
    assert access([own], OTHER, 80, http=False) == Access(NONE, "")


def test_who_has_no_identity_is_allowed_nothing_by_it_and_denied_by_who_he_is_not():
    for source in ({"principals": ["*"]}, {"notPrincipals": ["x"]}, {"namespaces": ["*"]}, {"notNamespaces": ["x"]}):
        assert passes(policy("a", of(**source))) == [ALL, ALL, NONE]
    assert passes(policy("a", of(notNamespaces=["shop"]), action="DENY")) == [ALL, NONE, NONE]


def test_a_connection_has_nothing_of_a_request_which_counts_against_it():
    paths = to(paths=["/x"])
    assert passes(policy("a", paths)) == [NONE] * 3
    assert passes(policy("a", paths, action="DENY")) == [NONE] * 3
    assert passes(policy("a", paths), http=True) == [SOME] * 3
    assert passes(policy("a", paths, action="DENY"), http=True) == [SOME] * 3
    assert passes(policy("a", to(ports=["81"]), action="DENY")) == [ALL] * 3


@pytest.mark.parametrize(
    ("operation", "request_", "allowed", "denied"),
    [
        ({"paths": ["/x"]}, Request("GET", "/x", "web"), True, True),
        ({"paths": ["/x"]}, Request("GET", "/X", "web"), False, True),
        ({"paths": ["/x*"]}, Request("GET", "/xy/z", "web"), True, True),
        ({"paths": ["*.php"]}, Request("GET", "/a.php", "web"), True, True),
        ({"notPaths": ["/x"]}, Request("GET", "/X", "web"), False, True),
        ({"methods": ["GET"], "paths": ["*"]}, Request("POST", "/", "web"), False, False),
        ({"paths": ["/users/@me"]}, Request("GET", "/users/@me", "web"), True, True),
        ({"paths": ["/users/@me"]}, Request("GET", "/users/%40me", "web"), False, True),
        ({"paths": ["/v1/models:delete*"]}, Request("GET", "/v1/models%3aDelete/x", "web"), False, True),
        ({"paths": ["*%3Bx"]}, Request("GET", "/a;x", "web"), False, True),
        ({"paths": ["*%3Bx"]}, Request("GET", "/a%3bx", "web"), True, True),
        ({"notPaths": ["/a+b"]}, Request("GET", "/a%2Bb", "web"), False, True),
        ({"paths": ["/caf\u00e9"]}, Request("GET", "/caf%c3%A9", "web"), True, True),
        ({"paths": ["/caf\u00e9"]}, Request("GET", "/CAF%C3%89", "web"), False, True),
        ({"paths": ["/a b"]}, Request("GET", "/a%20b", "web"), True, True),
        ({"paths": ["/%61"]}, Request("GET", "/a", "web"), True, True),
        ({"paths": ["/100%25"]}, Request("GET", "/100%25", "web"), True, True),
        ({"paths": ["/a.b"]}, Request("GET", "/axb", "web"), False, False),
        ({"hosts": ["Web.example"]}, Request("GET", "/", "web.EXAMPLE.:80"), True, True),
        ({"hosts": ["web.example:81"]}, Request("GET", "/", "web.example:80"), False, False),
        ({"hosts": ["*.example"]}, Request("GET", "/", "a.example"), True, True),
    ],
)
def test_requests_are_matched_so_that_doubts_go_against_them(
    operation: JsonObject, request_: Request, *, allowed: bool, denied: bool
):
    for action, matched in (("ALLOW", allowed), ("DENY", denied)):
        found = passes(policy("a", to(**operation), action=action), http=True, request=request_)
        assert found == [ALL if matched is (action == "ALLOW") else NONE] * 3


def test_the_largest_path_is_a_pattern_that_envoys_take():
    """Sidecars refuse none below 10,000 instructions (roles/envoy/files/bootstrap.yaml)."""
    for char in ("\u0390", "\U00010400", '"', "@"):
        assert re2.compile(path_expression(f"/{char * 199}", wide=True)).programsize < 5000


def test_policies_are_of_their_own_namespace_and_of_pods_with_their_labels():
    policies = [policy("b", app="web"), policy("a"), policy("c", namespace="bank"), policy("d", app="db")]
    names = [each["metadata"]["name"] for each in selecting(policies, "shop", {"app": "web", "more": "x"})]
    assert names == ["a", "b"]


def test_ports_of_http_say_so():
    yes = ({"name": "http"}, {"name": "HTTP-web"}, {"name": "grpc"}, {"appProtocol": "http"}, {"name": "http2"})
    no: tuple[JsonObject, ...] = (
        {},
        {"name": "web"},
        {"name": "https"},
        {"name": "httpx"},
        {"appProtocol": "tcp", "name": "http"},
    )
    assert all(map(speaks_http, yes))
    assert not any(map(speaks_http, no))


def faults(declared: JsonObject) -> list[str]:
    meta = {**declared["metadata"], "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return [str(each) for each in validate_create(KIND, {**declared, "metadata": meta})]


HELD = [{"type": kind, "status": "True"} for kind in ("NamesAccepted", "Established")]
STATUS = {"acceptedNames": definition()["spec"]["names"], "conditions": HELD}
KIND = kinds_of({**samples.created(definition()), "status": STATUS})[0]


def test_its_definition_is_one_and_what_istio_has_is_stored():
    assert [*map(str, validate_create(CUSTOM_RESOURCE_DEFINITION, samples.created(definition())))] == []
    rule = {**of(principals=["*"], notNamespaces=["a-*"]), **to(ports=["80"], methods=["GET"], paths=["/a", "/b/*"])}
    assert faults(policy("a", rule, app="web", action="DENY")) == []
    assert faults({**policy("a"), "spec": {}}) == []
    assert faults(policy("a", {})) == []
    assert faults(policy("a", to(paths=["/100%25", "/users/@me", "/caf\u00e9", "/a b", "/..a/*"]))) == []


@pytest.mark.parametrize(
    ("declared", "named"),
    [
        (policy("a", {"when": [{"key": "source.ip"}]}), "when is not supported"),
        (policy("a", of(ipBlocks=["10.0.0.0/8"])), "ipBlocks and notIpBlocks are not supported"),
        (policy("a", of(requestPrincipals=["*"])), "requestPrincipals and notRequestPrincipals are not supported"),
        (policy("a", of(serviceAccounts=["x"])), "serviceAccounts and notServiceAccounts are not supported"),
        (policy("a", of(remoteIpBlocks=["10.0.0.1"])), "remoteIpBlocks and notRemoteIpBlocks are not supported"),
        (policy("a", targetRefs=[{"kind": "Service"}]), "targetRef and targetRefs are not supported"),
        (policy("a", provider={"name": "x"}), "provider is not supported"),
        (policy("a", action="CUSTOM"), 'supported values: "ALLOW", "DENY"'),
        (policy("a", action="AUDIT"), 'supported values: "ALLOW", "DENY"'),
        (policy("a", selector={"matchExpressions": [{"key": "a"}]}), "matchExpressions is not supported"),
        (policy("a", of(principals=["spiffe://cluster.local/ns/a/sa/b"])), "without spiffe://"),
        (policy("a", of(principals=["*x*"])), "principals[0]"),
        (policy("a", of(principals=[])), "principals"),
        (policy("a", of()), "source"),
        (policy("a", {"from": []}), "from"),
        (policy("a", to()), "operation"),
        (policy("a", to(ports=["0"])), "ports[0]"),
        (policy("a", to(ports=["65536"])), "ports[0]"),
        (policy("a", to(ports=["8*"])), "ports[0]"),
        (policy("a", to(methods=["get"])), "methods[0]"),
        (policy("a", to(paths=["/a/{*}"])), "paths[0]"),
        (policy("a", to(paths=["/a?b"])), "paths[0]"),
        (policy("a", to(paths=["/a//b"])), "paths[0]"),
        (policy("a", to(paths=["/a/../b"])), "would match nothing"),
        (policy("a", to(paths=["/a%2Fb"])), "would match nothing"),
        (policy("a", to(paths=["/a/%2e%2E"])), "paths[0]"),
        (policy("a", to(paths=["/a%00"])), "would match nothing"),
        (policy("a", to(paths=["/100%"])), "paths[0]"),
        (policy("a", to(paths=["/100%2x"])), "paths[0]"),
        (policy("a", to(paths=["a"])), "paths[0]"),
        (policy("a", to(hosts=["a b"])), "hosts[0]"),
    ],
)  # fmt: skip
def test_what_is_not_enforced_or_matches_nothing_is_refused_by_name(declared: JsonObject, named: str):
    assert named in "; ".join(faults(declared))

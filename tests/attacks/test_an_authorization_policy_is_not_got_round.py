"""Attack: be served by a Pod whose AuthorizationPolicies do not let one in; with a real Envoy that enforces them.

The ways: no certificate, another account's or namespace's, IPv6, another port; paths that applications read as the
forbidden one; methods, hosts, and headers that claim an identity; bytes that are no HTTP at a port of HTTP, HTTP at one
that nobody knows as such; what a server says before it is asked; what is declared in another namespace; and a policy in
a form that nobody enforces.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api.network.authorization import AUTHORIZATION_POLICY
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mutual_tls import PERMISSIVE, STRICT
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.mesh.authorizations.following import PolicyCopies
from minik8s_modules.mesh.messages import try_to_enforce
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from tests.support.authorization import define, policy
from tests.support.guarded import CLOSED, GREETING, HTTP, TCP, Pod, guarded
from tests.support.waiting import until

CLIENT, OTHER, STRANGER, NOBODY = "shop/client", "shop/other", "bank/client", ""
EVERYBODY = (CLIENT, OTHER, STRANGER, NOBODY)
OF_CLIENT: JsonObject = {"from": [{"source": {"principals": ["cluster.local/ns/shop/sa/client"]}}]}
FORBIDDEN, SERVED = "403", "200"


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    with guarded(tmp_path_factory.mktemp("guarded")) as made:
        yield made


def stored(*policies: JsonObject) -> list[JsonObject]:
    """Return policies as a pilot has them that finds them in the store."""
    api = FakeApi()
    define(api)
    for each in policies:
        api.create(AUTHORIZATION_POLICY, each)
    context = Context(api, EventRecorder(api, "c"), Informers(api))
    copies = PolicyCopies(context, try_to_enforce)
    copies.start()
    context.informers.start()
    until(lambda: copies.ready and len(copies.get().get("shop", ())) == len(policies))
    found = copies.get()["shop"]
    copies.stop()
    context.informers.stop()
    context.pool.shutdown()
    return found


def to(**operation: list[str]) -> JsonObject:
    return {"to": [{"operation": operation}]}


def of(**source: Any) -> JsonObject:
    return {"from": [{"source": source}]}


def test_the_tools_work(pod: Pod):
    with pod.enforcing():
        assert [pod.asks(each) for each in EVERYBODY] == ["200 GET / -"] * 4
        assert [pod.says(each, "x", TCP) for each in EVERYBODY] == ["x"] * 4
        assert pod.says(NOBODY, "", GREETING) == "hello"


@pytest.mark.parametrize("mode", [PERMISSIVE, STRICT])
def test_only_the_account_that_is_named_is_let_in_by_any_port_and_family(pod: Pod, mode: str):
    with pod.enforcing(policy("own", OF_CLIENT), mode=mode):
        for address in ("", pod.ipv6):
            assert pod.says(CLIENT, "x", TCP, address) == "x"
            assert pod.code(CLIENT, address=address) == SERVED
            for each in (OTHER, STRANGER, NOBODY):
                assert pod.says(each, "x", TCP, address) == CLOSED
                assert pod.code(each, address=address) == CLOSED
        # what the server would say first is said to nobody who has not been let in
        assert [pod.says(each, "x", GREETING) for each in (OTHER, NOBODY)] == [CLOSED] * 2
        assert pod.says(CLIENT, "x", GREETING) == "hello"
        assert 'rbac_denied{action="allow"}' in pod.statistics()


def test_whoever_claims_an_identity_by_a_header_has_none(pod: Pod):
    claims = (
        "x-forwarded-client-cert: By=spiffe://cluster.local/ns/shop/sa/web;URI=spiffe://cluster.local/ns/shop/sa/client",
        "x-forwarded-client-cert: URI=spiffe://cluster.local/ns/shop/sa/client",
        "x-envoy-original-path: /public",
        "x-envoy-internal: true",
    )
    with pod.enforcing(policy("own", {**OF_CLIENT, **to(paths=["/*"])})):
        for each in claims:
            assert pod.code(NOBODY, headers=f"{each}\r\n") == FORBIDDEN
            assert pod.code(OTHER, headers=f"{each}\r\n") == FORBIDDEN
        assert pod.asks(CLIENT, headers=f"{claims[0]}\r\n") == "200 GET / -", "the application is told no such thing"


ADMIN = (
    "/admin", "/admin/", "/admin/x", "//admin", "/./admin", "/x/../admin", "/public/../admin",
    "/public/..//admin", "/%2e%2e/admin", "/public/%2e%2e/admin", "/public/%2E%2E/admin", "/public%2f..%2fadmin",
    "/public%2F%2e%2e%2Fadmin", "/%2fadmin", "/public/..%2fadmin", "/public%5c..%5cadmin", "/public\\..\\admin",
    "/\\admin", "/ADMIN", "/Admin/x", "/%61dmin", "/%41DMIN", "/adm%69n", "/admin%2fx", "/admin?x", "/admin/?/public",
    "/admin/%2e", "/admin/.", "/x/%2e%2e/admin", "http://web/admin", "/public/../../admin", "/;/../admin",
    "/admin%00", "/admin%00.html", "/public/%00/../../admin", "/admin#x", "/public#/../../admin", "http://web/public/../admin",
    "http://web//admin", "//web/../admin", "/public/..;/admin", "/public/%2e%2e;x=1/admin", "/public/..%3b/admin",
)  # fmt: skip


def test_no_spelling_of_a_path_passes_what_denies_it_or_is_taken_for_an_allowed_one(pod: Pod):
    """Each is, to some application, the forbidden path."""
    served = {FORBIDDEN, "400", "307"}
    with pod.enforcing(policy("no-admin", to(paths=["/admin", "/admin/*"]), action="DENY")):
        assert pod.code(NOBODY, "/public") == SERVED
        assert {each: code for each in ADMIN if (code := pod.code(NOBODY, each)) not in served} == {}
        # what is no admin is served, and reaches the application as rules have seen it
        assert pod.asks(NOBODY, "/a//b/./c/../d?/admin") == "200 GET /a/b/d?/admin -"
    with pod.enforcing(policy("public", to(paths=["/public/*"]))):
        assert pod.asks(NOBODY, "/public/x") == "200 GET /public/x -"
        assert {each: code for each in ADMIN if (code := pod.code(NOBODY, each)) not in served} == {}
        assert pod.code(NOBODY, "/PUBLIC/x") == FORBIDDEN


SIGNS = "!$&'()*+,:;=@\"<>[]^`|%"
"""Applications that decode paths take each for the same as its %XX."""


def test_no_encoding_of_a_sign_passes_what_denies_it(pod: Pod):
    marked = [each for each in SIGNS if each not in "*%"]
    rules = to(paths=[*(f"/x{each}y" for each in marked), "/x%25y", "/caf\u00e9", "/a b*", "*:delete"])
    spellings = [form for each in marked for form in (f"/x%{ord(each):02X}y", f"/X%{ord(each):02x}y", f"/x{each}y")]
    spellings += ["/x%25y", "/caf%c3%a9", "/CAF%C3%89", "/caf\xc3\xa9", "/a%20b/c", "/v1/m%3Adelete", "/v1/m:DELETE"]
    refused = {FORBIDDEN, "400"}
    with pod.enforcing(policy("no", rules, action="DENY")):
        assert pod.code(NOBODY, "/xy") == SERVED
        assert {each: code for each in spellings if (code := pod.code(NOBODY, each)) not in refused} == {}
    with pod.enforcing(policy("all-but", to(notPaths=rules["to"][0]["operation"]["paths"]))):
        assert pod.code(NOBODY, "/xy") == SERVED
        assert {each: code for each in spellings if (code := pod.code(NOBODY, each)) not in refused} == {}
    with pod.enforcing(policy("some", to(paths=["/users/@me", "/caf\u00e9", "/a b", "/x%3By"]))):
        served = ("/users/@me", "/caf%C3%A9", "/caf%c3%a9", "/a%20b", "/x%3By", "/x%3by")
        assert [pod.code(NOBODY, each) for each in served] == [SERVED] * len(served)
        others = ("/users/%40me", "/Users/@me", "/CAF%C3%89", "/x;y")
        assert [pod.code(NOBODY, each) for each in others] == [FORBIDDEN] * len(others)


def test_methods_and_hosts_and_lists_of_what_is_not(pod: Pod):
    with pod.enforcing(policy("read", to(methods=["GET", "HEAD"]))):
        codes = [pod.code(NOBODY, method=each) for each in ("GET", "POST", "DELETE", "PUT", "get")]
        assert codes == [SERVED, FORBIDDEN, FORBIDDEN, FORBIDDEN, "400"]
        assert pod.code(NOBODY, headers="X-HTTP-Method: GET\r\n", method="POST") == FORBIDDEN
    with pod.enforcing(policy("hosts", to(hosts=["internal.example"]), action="DENY")):
        hosts = ("web", "internal.example", "INTERNAL.example", "internal.example:8080", "internal.example.")
        assert [pod.code(NOBODY, host=each) for each in hosts] == [SERVED, *[FORBIDDEN] * 4]
    with pod.enforcing(policy("not", {**of(notPrincipals=["cluster.local/ns/shop/sa/other"]), **to(notPaths=["/x"])})):
        assert [pod.code(each) for each in EVERYBODY] == [SERVED, FORBIDDEN, SERVED, FORBIDDEN]
        assert [pod.code(CLIENT, each) for each in ("/x", "/X", "/y")] == [FORBIDDEN, FORBIDDEN, SERVED]
    with pod.enforcing(policy("spaces", of(notNamespaces=["shop"]), action="DENY")):
        assert [pod.code(each) for each in EVERYBODY] == [SERVED, SERVED, CLOSED, CLOSED]


def test_what_is_no_http_is_allowed_nothing_by_what_only_requests_have(pod: Pod):
    public, admin = "GET /public HTTP/1.1\r\nHost: web\r\nConnection: close", "GET /admin HTTP/1.1\r\nHost: web\r\n\r\n"
    upgrade = "Connection: upgrade, http2-settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__"
    smuggled = (
        f"\r\n\r\n{public}\r\n\r\n",
        f"GET /public HTTP/1.1\nHost: web\nContent-Length: 30\nTransfer-Encoding: chunked\n\n0\n\n{admin}",
        f"{public}\r\nContent-Length: 0\r\nContent-Length: 44\r\n\r\n{admin}",
        f"{public}\r\n{upgrade}\r\n\r\n{admin}",
        f"CONNECT web:8080 HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n{admin}",
        "hello\r\n\r\n",
        f"\x16\x03\x01{admin}",
    )
    with pod.enforcing(policy("public", to(paths=["/public"]))):
        assert pod.code(NOBODY, "/public") == SERVED
        for each in smuggled:
            assert "GET /admin" not in pod.says(NOBODY, each)
        # a port that no Service calls one of HTTP
        assert pod.says(NOBODY, "GET /public HTTP/1.1\r\nHost: web\r\n\r\n", TCP) == CLOSED
        # a second request of a connection is looked at like the first
        twice = "GET {} HTTP/1.1\r\nHost: web\r\n\r\nGET /admin HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n"
        answer = pod.says(NOBODY, twice.format("/public"))
        assert "GET /public" in answer
        assert "RBAC: access denied" in answer
        assert "GET /admin" not in answer
    with pod.enforcing(policy("no-admin", {**of(namespaces=["bank"]), **to(paths=["/admin"])}, action="DENY")):
        assert pod.says(STRANGER, "anything", TCP) == CLOSED, "what denies a path denies what has none"
        assert [pod.says(each, "x", TCP) for each in (CLIENT, NOBODY)] == ["x"] * 2


def test_of_several_policies_denial_comes_first_and_then_one_must_allow(pod: Pod):
    two = (
        policy("own", OF_CLIENT),
        policy("theirs", {**of(namespaces=["ban*"]), **to(ports=[str(TCP)])}),
        policy("never", of(principals=["*/sa/client"]) | to(paths=["/secret*"]), action="DENY"),
    )
    with pod.enforcing(*two):
        assert [pod.code(each) for each in EVERYBODY] == [SERVED, *[FORBIDDEN] * 3]
        assert pod.code(CLIENT, "/secrets") == FORBIDDEN
        # the denial of a path is one of everything at a port without paths
        assert [pod.says(each, "x", TCP) for each in EVERYBODY] == [CLOSED] * 4
    with pod.enforcing(*two[:2]):
        assert [pod.says(each, "x", TCP) for each in EVERYBODY] == ["x", CLOSED, "x", CLOSED]
        assert [pod.says(each, "x", HTTP) for each in (OTHER, STRANGER)] == [CLOSED] * 2
    with pod.enforcing(policy("nothing")):
        assert [pod.says(each, "x", TCP) for each in EVERYBODY] == [CLOSED] * 4
    with pod.enforcing(policy("everything", {}), policy("foreign", namespace="bank"), policy("of-others", app="db")):
        assert [pod.says(each, "x", TCP) for each in EVERYBODY] == ["x"] * 4, "policies of others say nothing here"


@pytest.mark.parametrize(
    "rule",
    [{"from": []}, of(ipBlocks=["10.0.0.0/8"]), {"when": [{}]}, of(principals=["\ud800"]), to(ports=["http"])],
)
def test_a_policy_in_a_form_that_nobody_enforces_opens_nothing(pod: Pod, rule: JsonObject):
    """It is in the store under another definition than ours, or was put there by hand."""
    foreign = policy("foreign", rule, app="web")
    with pod.enforcing(*stored(policy("everything", {}), foreign)):
        for each in EVERYBODY:
            assert (pod.says(each, "x", TCP), pod.code(each)) in {(CLOSED, CLOSED), (CLOSED, FORBIDDEN)}

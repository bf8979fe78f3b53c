"""A token is good for one certificate, a name for one living node; tokens that are over are taken away."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from minik8s_modules.api.access import bootstrap_tokens
from minik8s_modules.api.access.bootstrap_tokens import BootstrapToken
from minik8s_modules.api.access.certificate_requests import RequestedCertificate
from minik8s_modules.controllers.access.bootstrap_tokens import Keep, Remove, decide_token
from minik8s_modules.controllers.access.newcomers import Admit, Claim, Refuse, decide_newcomer, token_id
from minik8s_modules.controllers.access.signing_requests import Approve, Deny, decide_request

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOKEN = BootstrapToken("abcdef", "0123456789abcdef")
SECRET = bootstrap_tokens.secret_of(TOKEN, NOW + timedelta(hours=1))


def request(uid: str = "u1", **spec: Any) -> dict[str, Any]:
    asker = {"username": "system:bootstrap:abcdef", "groups": ["system:bootstrappers"], **spec}
    return {"metadata": {"name": "r", "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": asker}


def ready(status: str) -> dict[str, Any]:
    return {"metadata": {"name": "n1"}, "status": {"conditions": [{"type": "Ready", "status": status}]}}


def test_who_did_not_come_with_a_token_needs_none():
    assert token_id(request()) == "abcdef"
    assert token_id(request(username="system:node:n1", groups=["system:nodes"])) == ""
    assert token_id(request(groups=[])) == ""


def test_the_first_request_claims_the_token_and_is_admitted_whoever_dies_in_between():
    claim = decide_newcomer(request(), SECRET, None, None, NOW)
    assert isinstance(claim, Claim)
    assert bootstrap_tokens.text_of(claim.secret, "used-by") == "u1"
    assert decide_newcomer(request(), claim.secret, None, None, NOW) == Admit()
    second = decide_newcomer(request("u2"), claim.secret, None, None, NOW)
    assert isinstance(second, Refuse)
    assert second.reason == "TokenUsed"


def test_a_token_that_is_gone_or_over_admits_nobody():
    for secret, now in ((None, NOW), (SECRET, NOW + timedelta(hours=2))):
        step = decide_newcomer(request(), secret, None, None, now)
        assert isinstance(step, Refuse)
        assert step.reason == "TokenExpired"


def test_a_name_is_taken_while_its_node_is_ready():
    taken = decide_newcomer(request(), SECRET, ready("True"), None, NOW)
    assert isinstance(taken, Refuse)
    assert "node n1 is in the cluster and alive" in taken.message
    assert isinstance(decide_newcomer(request(), SECRET, ready("Unknown"), None, NOW), Claim)


def test_a_name_is_taken_while_its_lease_is_renewed():
    lease = {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 40}}
    for node in (ready("False"), ready("Unknown"), {"metadata": {"name": "n1"}}):
        for later_s, refused in ((39, True), (40, False)):
            step = decide_newcomer(request(), SECRET, node, lease, NOW + timedelta(seconds=later_s))
            assert isinstance(step, Refuse) == refused
    unheld: list[dict[str, Any] | None] = [{"spec": {}}, {"spec": {"renewTime": None}}, None]
    for nobodys in unheld:
        assert isinstance(decide_newcomer(request(), SECRET, ready("False"), nobodys, NOW), Claim)
    assert isinstance(decide_newcomer(request(), SECRET, None, lease, NOW), Claim), "its Node was removed"


def test_tokens_go_when_they_have_expired_or_their_certificate_was_fetched():
    assert decide_token(SECRET, NOW) == Keep(3600.0)
    assert decide_token(SECRET, NOW + timedelta(hours=1)) == Remove("it has expired")
    claim = decide_newcomer(request(), SECRET, None, None, NOW)
    assert isinstance(claim, Claim)
    assert decide_token(claim.secret, NOW + timedelta(minutes=4)) == Keep(60.0)
    assert decide_token(claim.secret, NOW + timedelta(minutes=5)) == Remove("it was used")
    assert decide_token(bootstrap_tokens.secret_of(TOKEN, None), NOW) == Keep(None)


def test_a_node_serves_under_its_own_name_and_under_no_other():
    spec: dict[str, Any] = {
        "signerName": "kubernetes.io/kubelet-serving",
        "usages": ["digital signature", "server auth"],
    }
    asker: dict[str, Any] = {"username": "system:node:n1", "groups": ["system:nodes"]}

    def decided(*names: str, **more: Any) -> Any:
        found = RequestedCertificate("system:node:n1", ("system:nodes",), dns_names=names, **more)
        return decide_request(request(**spec, **asker), found, NOW)

    assert isinstance(decided("n1.node.minik8s.internal"), Approve)
    assert isinstance(decided("n2.node.minik8s.internal"), Deny)
    assert isinstance(decided("n1.node.minik8s.internal", "kubernetes"), Deny)
    assert isinstance(decided("n1.node.minik8s.internal", addresses=("192.0.2.1",)), Deny)

"""Reviews: what goes out, and which answers count."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from minik8s_modules.api.kinds import DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, HORIZONTAL_POD_AUTOSCALER_V1, Kind
from minik8s_modules.apiserver.admission.scales import SCALE
from minik8s_modules.apiserver.webhooks.reviews import (
    BadAnswer,
    ReviewedWrite,
    Verdict,
    refusal,
    review,
    verdict,
    version_of,
)
from minik8s_modules.apiserver.webhooks.rules import Operation

PATCH = base64.b64encode(b'[{"op": "add", "path": "/a", "value": 1}]').decode()


def answered(response: Any, *, mutating: bool = False, version: str = "v1", **fields: Any) -> Verdict:
    body = {"apiVersion": f"admission.k8s.io/{version}", "kind": "AdmissionReview", "response": response, **fields}
    return verdict(json.dumps(body).encode(), "a.b.c", version, "u", mutating=mutating)


def test_the_first_version_that_is_known_is_asked() -> None:
    assert version_of(("v2", "v1beta1", "v1")) == "v1beta1"
    with pytest.raises(BadAnswer, match="does not accept known AdmissionReview versions"):
        version_of(("v2",))


def test_an_answer_that_allows_has_its_patch_warnings_and_annotations() -> None:
    response = {"uid": "u", "allowed": True, "patch": PATCH, "patchType": "JSONPatch", "warnings": ["w"]}
    found = answered({**response, "auditAnnotations": {"k": "v"}}, mutating=True)
    assert found == Verdict(None, [{"op": "add", "path": "/a", "value": 1}], ("w",), {"k": "v"})


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (None, "webhook response was absent"),
        ({"uid": "other", "allowed": True}, 'expected response.uid="u", got "other"'),
        ({"allowed": True}, 'expected response.uid="u", got ""'),
        ({"uid": "u"}, "response.allowed must be true or false"),
        ({"uid": "u", "allowed": "true"}, "response.allowed must be true or false"),
        ({"uid": "u", "allowed": 1}, "response.allowed must be true or false"),
        ({"uid": "u", "allowed": True, "patch": PATCH}, "response.patch but not response.patchType"),
        ({"uid": "u", "allowed": True, "patchType": "JSONPatch"}, "response.patchType but not response.patch"),
        ({"uid": "u", "allowed": True, "patch": PATCH, "patchType": "Merge"}, "invalid response.patchType"),
        ({"uid": "u", "allowed": True, "patch": "?", "patchType": "JSONPatch"}, "JSON patch in base64"),
        ({"uid": "u", "allowed": True, "patch": 7, "patchType": "JSONPatch"}, "JSON patch in base64"),
        ({"uid": "u", "allowed": True, "patch": "e30=", "patchType": "JSONPatch"}, "JSON patch in base64"),
        ({"uid": "u", "allowed": True, "warnings": "w"}, "list of strings"),
        ({"uid": "u", "allowed": True, "auditAnnotations": {"a": 1}}, "object of strings"),
        ({"uid": "u", "allowed": False, "status": "no"}, "response.status must be an object"),
        ({"uid": "u", "allowed": False, "status": {"code": "403"}}, "of a wrong type"),
    ],
)
def test_what_is_wrong_is_no_answer(response: Any, message: str) -> None:
    with pytest.raises(BadAnswer) as error:
        answered(response, mutating=True)
    assert message in str(error.value)


def test_a_validating_webhook_returns_no_patch() -> None:
    for field, value in (("patch", PATCH), ("patchType", "JSONPatch")):
        with pytest.raises(BadAnswer, match=f"validating webhook may not return response.{field}"):
            answered({"uid": "u", "allowed": True, field: value})


def test_an_answer_is_of_the_version_that_was_asked() -> None:
    with pytest.raises(BadAnswer, match="expected webhook response of"):
        answered({"uid": "u", "allowed": True}, apiVersion="admission.k8s.io/v1beta1")
    older = answered({"allowed": True, "patch": PATCH}, mutating=True, version="v1beta1")
    assert older.patch is not None  # neither uid nor patchType was looked at then


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [  # apiserver pkg/admission/plugin/webhook/errors/statuserror_test.go
        (None, 400, " without explanation"),
        ({"message": "you shall not pass"}, 400, ": you shall not pass"),
        ({"reason": "Forbidden"}, 400, ": Forbidden"),
        ({"message": "you shall not pass", "reason": "Forbidden"}, 400, ": you shall not pass"),
        ({}, 400, " without explanation"),
        ({"code": 401}, 401, " without explanation"),
        ({"code": 500}, 500, " without explanation"),
        ({"code": 200}, 400, " without explanation"),
        ({"code": 399}, 400, " without explanation"),
        ({"code": 99999}, 599, " without explanation"),
    ],
)
def test_a_refusal_has_the_webhooks_name_and_a_code_of_refusals(status: Any, code: int, message: str) -> None:
    error = refusal("foo", status)
    assert (error.code, error.message) == (code, f'admission webhook "foo" denied the request{message}')


def test_details_of_a_refusal_are_of_their_types() -> None:
    details = {"name": "a", "kind": 7, "causes": [{"field": "spec.x", "message": "bad", "more": {}}, 5]}
    error = refusal("foo", {"details": {**details, "retryAfterSeconds": "soon", "secret": "s"}})
    assert error.details == {"name": "a", "causes": [{"reason": "", "message": "bad", "field": "spec.x"}]}


def asking(kind: Kind, subresource: str, operation: Operation, shown: Kind) -> ReviewedWrite:
    return ReviewedWrite(
        kind, subresource, operation, "n", "a", {"username": "x"}, dry_run=False, options=None, shown=shown
    )


def test_a_review_names_what_was_asked_and_what_the_rule_means() -> None:
    asked = asking(HORIZONTAL_POD_AUTOSCALER_V1, "", "CREATE", HORIZONTAL_POD_AUTOSCALER_V1)
    request = review(asked, HORIZONTAL_POD_AUTOSCALER, "v1", "u", {"a": 1}, None)["request"]
    assert (request["kind"]["version"], request["requestKind"]["version"]) == ("v2", "v1")
    assert (request["resource"]["version"], request["requestResource"]["version"]) == ("v2", "v1")
    assert "subResource" not in request


def test_a_subresource_is_shown_as_the_object_it_takes() -> None:
    asked = asking(DEPLOYMENT, "scale", "UPDATE", SCALE)
    request = review(asked, DEPLOYMENT, "v1", "u", {}, {})["request"]
    assert request["kind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert request["resource"] == {"group": "apps", "version": "v1", "resource": "deployments"}
    assert (request["subResource"], request["requestSubResource"]) == ("scale", "scale")

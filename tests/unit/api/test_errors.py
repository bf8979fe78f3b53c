"""Failures: Kubernetes' wording, and the way through a Status and back."""

from __future__ import annotations

import pytest

from minik8s_modules.api import errors
from minik8s_modules.api.errors import Cause, StatusError, from_status
from minik8s_modules.api.kinds import LEASE, POD

ALL = [
    (errors.BadRequest("no"), 400, "BadRequest", "no"),
    (errors.Unauthorized(), 401, "Unauthorized", "Unauthorized"),
    (errors.Forbidden(POD, "x", "why"), 403, "Forbidden", 'pods "x" is forbidden: why'),
    (errors.Forbidden(POD, "", "why"), 403, "Forbidden", "pods is forbidden: why"),
    (errors.NotFound(POD, "x"), 404, "NotFound", 'pods "x" not found'),
    (errors.NotFound(LEASE, "x"), 404, "NotFound", 'leases.coordination.k8s.io "x" not found'),
    (errors.NotFound.path(), 404, "NotFound", "the server could not find the requested resource"),
    (
        errors.MethodNotAllowed(POD, "patch"),
        405,
        "MethodNotAllowed",
        'patch is not supported on resources of kind "pods"',
    ),
    (
        errors.NotAcceptable(["application/json"]),
        406,
        "NotAcceptable",
        "only the following media types are accepted: application/json",
    ),
    (errors.AlreadyExists(POD, "x"), 409, "AlreadyExists", 'pods "x" already exists'),
    (
        errors.Conflict(POD, "x"),
        409,
        "Conflict",
        f'Operation cannot be fulfilled on pods "x": {errors.OPTIMISTIC_LOCK}',
    ),
    (errors.Expired.version(3, 9), 410, "Expired", "too old resource version: 3 (9)"),
    (
        errors.RequestEntityTooLarge(3145728),
        413,
        "RequestEntityTooLarge",
        "Request entity too large: limit is 3145728",
    ),
    (
        errors.UnsupportedMediaType(["application/json"]),
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: application/json",
    ),
    (
        errors.Invalid(POD, "x", [Cause("FieldValueRequired", "Required value", "spec.containers[0].name")]),
        422,
        "Invalid",
        'Pod "x" is invalid: spec.containers[0].name: Required value',
    ),
    (errors.TooManyRequests(), 429, "TooManyRequests", "Too many requests, please try again later."),
    (errors.InternalError("boom"), 500, "InternalError", "Internal error occurred: boom"),
    (errors.ServiceUnavailable("etcd"), 503, "ServiceUnavailable", "etcd"),
    (errors.Timeout("slow"), 504, "Timeout", "Timeout: slow"),
]


@pytest.mark.parametrize(("error", "code", "reason", "message"), ALL, ids=lambda value: type(value).__name__)
def test_a_failure_reads_as_kubernetes_words_it(error, code, reason, message):
    status = error.status()
    assert (status["code"], status["reason"], status["message"]) == (code, reason, message)
    assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure")


@pytest.mark.parametrize(("error", "code", "reason", "message"), ALL, ids=lambda value: type(value).__name__)
def test_a_failure_survives_the_wire(error, code, reason, message):
    back = from_status(error.status())
    assert type(back) is type(error)
    assert back.status() == error.status()


def test_several_causes_stand_in_brackets_and_once():
    cause = Cause("FieldValueRequired", "Required value", "a")
    other = Cause("FieldValueInvalid", "Invalid value: 1: no", "b")
    error = errors.Invalid(LEASE, "x", [cause, other, cause])
    assert error.message == ('Lease.coordination.k8s.io "x" is invalid: [a: Required value, b: Invalid value: 1: no]')
    assert error.causes == [cause, other, cause]
    assert error.details["kind"] == "Lease"


def test_an_unknown_reason_falls_back_to_its_code():
    assert isinstance(from_status({"code": 404, "reason": "Gone fishing"}), errors.NotFound)
    assert from_status({"code": 404, "reason": "Gone fishing"}).reason == "Gone fishing"


@pytest.mark.parametrize("body", [{}, {"code": "x"}, {"details": 3, "code": 502, "message": None}])
def test_a_broken_status_is_still_a_failure(body):
    error = from_status(body)
    assert isinstance(error, StatusError)
    assert error.message


def test_a_generated_name_says_so():
    error = errors.AlreadyExists(POD, "x-1", generated=True)
    assert error.message.endswith("the server was not able to generate a unique name for the object")
    assert error.retry_after_s == 1

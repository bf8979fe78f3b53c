"""An AdmissionReview: what a webhook is told of a write, and what its answer means; pure.

Whatever a webhook answers is read strictly: a value of a wrong type is a wrong answer, and never an allowed write.
Source: apiserver ``pkg/admission/plugin/webhook/request/admissionreview.go``, ``webhook/errors/statuserror.go``.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from minik8s_modules.api import size_limits
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.webhooks.rules import Operation

GROUP = "admission.k8s.io"
VERSIONS = ("v1", "v1beta1")
_REFUSED, _MOST_CODE = 400, 599
_MOST_ENTRIES = 100
_LONGEST_TEXT = 4096


class ReviewedWrite(NamedTuple):
    """A write as webhooks see it.

    Attributes:
        kind: of the path; its plural is the resource.
        subresource: "" for the object itself.
        operation: what is done.
        namespace: of the object, of a Namespace its own name; "" at the cluster scope.
        name: of the object.
        user: authentication.k8s.io UserInfo of who asks.
        dry_run: whether nothing will be stored.
        options: metav1 CreateOptions, UpdateOptions, PatchOptions or DeleteOptions, with apiVersion and kind.
        shown: the kind of the object itself: of a subresource it may be another (a Scale, a Binding).
    """

    kind: Kind
    subresource: str
    operation: Operation
    namespace: str
    name: str
    user: JsonObject
    dry_run: bool
    options: JsonObject | None
    shown: Kind


class Verdict(NamedTuple):
    """What a webhook answered; ``refusal`` is None when it allows the write, ``patch`` a JSON patch."""

    refusal: StatusError | None
    patch: list[Any] | None
    warnings: tuple[str, ...]
    annotations: Mapping[str, str]


class BadAnswer(Exception):
    """The answer is no AdmissionReview that counts; the message says why."""


def version_of(versions: tuple[str, ...]) -> str:
    """Return the first version of reviews that both sides know. Raises BadAnswer when there is none."""
    for version in versions:
        if version in VERSIONS:
            return version
    raise BadAnswer("webhook does not accept known AdmissionReview versions (v1, v1beta1)")


def review(
    asked: ReviewedWrite, meant: Kind, version: str, uid: str, obj: JsonObject | None, old: JsonObject | None
) -> JsonObject:
    """Return the AdmissionReview; ``meant`` is the kind by which the webhook's rule speaks of the resource."""
    request = {"uid": uid, **request_of(asked, meant), "object": obj, "oldObject": old}
    return {"kind": "AdmissionReview", "apiVersion": f"{GROUP}/{version}", "request": request}


def request_of(asked: ReviewedWrite, meant: Kind) -> JsonObject:
    """Return the AdmissionRequest without its objects, as expressions see it."""
    kind, requested = (meant, asked.kind) if asked.shown is asked.kind else (asked.shown, asked.shown)
    request: JsonObject = {
        "kind": _gvk(kind),
        "resource": _gvr(meant),
        "requestKind": _gvk(requested),
        "requestResource": _gvr(asked.kind),
        "operation": asked.operation,
        "userInfo": asked.user,
        "dryRun": asked.dry_run,
        "options": asked.options,
    }
    parts = {"name": asked.name, "namespace": asked.namespace}
    parts |= {"subResource": asked.subresource, "requestSubResource": asked.subresource}
    return request | {field: value for field, value in parts.items() if value}


def _gvk(kind: Kind) -> JsonObject:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _gvr(kind: Kind) -> JsonObject:
    return {"group": kind.group, "version": kind.version, "resource": kind.plural}


def verdict(body: bytes, hook: str, version: str, uid: str, *, mutating: bool) -> Verdict:
    """Return what the answer ``body`` means.

    Raises:
        BadAnswer: it is none.
    """
    response = _response(_parsed(body), version, uid)
    allowed = response.get("allowed")
    if not isinstance(allowed, bool):
        raise BadAnswer("response.allowed must be true or false")
    patch = _patch(response, version, mutating=mutating)
    return Verdict(
        None if allowed else refusal(hook, response.get("status")),
        patch,
        tuple(_texts(response.get("warnings"))),
        _annotations(response.get("auditAnnotations")),
    )


def _parsed(body: bytes) -> JsonObject:
    try:
        found = orjson.loads(body)
        size_limits.check(found)
    except orjson.JSONDecodeError as error:
        raise BadAnswer("the answer is not valid JSON") from error
    except StatusError as error:
        raise BadAnswer(error.message) from error
    if not isinstance(found, dict):
        raise BadAnswer("the answer is not an AdmissionReview object")
    return found


def _response(answer: JsonObject, version: str, uid: str) -> JsonObject:
    response = answer.get("response")
    if not isinstance(response, dict):
        raise BadAnswer("webhook response was absent")
    if version == "v1" and response.get("uid") != uid:
        raise BadAnswer(f'expected response.uid="{uid}", got {_shown(response.get("uid"))}')
    found = f"{answer.get('apiVersion')}, Kind={answer.get('kind')}"
    if version == "v1" and found != f"{GROUP}/v1, Kind=AdmissionReview":
        raise BadAnswer(f"expected webhook response of {GROUP}/v1, Kind=AdmissionReview, got {found[:200]}")
    return response


def _shown(value: Any) -> str:
    return f'"{value[:64]}"' if isinstance(value, str) else '""'


def _patch(response: JsonObject, version: str, *, mutating: bool) -> list[Any] | None:
    patch, kind = response.get("patch"), response.get("patchType")
    if not mutating and version == "v1":
        for field, value in (("patch", patch), ("patchType", kind)):
            if value is not None and value != "":
                raise BadAnswer(f"validating webhook may not return response.{field}")
    if not patch and kind and version == "v1":
        raise BadAnswer("webhook returned response.patchType but not response.patch")
    if not patch or not mutating:
        return None
    if kind is None and version == "v1":
        raise BadAnswer("webhook returned response.patch but not response.patchType")
    if version == "v1" and kind != "JSONPatch":
        raise BadAnswer(f"webhook returned invalid response.patchType of {_shown(kind)}")
    return _operations(patch)


def _operations(patch: Any) -> list[Any]:
    try:
        found = orjson.loads(base64.b64decode(patch, validate=True))
        size_limits.check(found)
    except (TypeError, binascii.Error, ValueError) as error:
        raise BadAnswer("response.patch must be a JSON patch in base64") from error
    except StatusError as error:
        raise BadAnswer(error.message) from error
    if not isinstance(found, list):
        raise BadAnswer("response.patch must be a JSON patch in base64")
    return found


def _texts(values: Any) -> list[str]:
    if values is None:
        return []
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        raise BadAnswer("response.warnings must be a list of strings")
    return values[:_MOST_ENTRIES]


def _annotations(values: Any) -> dict[str, str]:
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(each, str) for each in values.values()):
        raise BadAnswer("response.auditAnnotations must be an object of strings")
    return {key[:_LONGEST_TEXT]: text[:_LONGEST_TEXT] for key, text in list(values.items())[:_MOST_ENTRIES]}


def refusal(hook: str, status: Any) -> StatusError:
    """Return the failure that a webhook's ``response.status`` asks for. Raises BadAnswer."""
    found = {} if status is None else status
    if not isinstance(found, dict):
        raise BadAnswer("response.status must be an object")
    code, reason, message = found.get("code") or 0, found.get("reason") or "", found.get("message") or ""
    if not isinstance(code, int) or not isinstance(reason, str) or not isinstance(message, str):
        raise BadAnswer("response.status has a code, reason or message of a wrong type")
    denied = f'admission webhook "{hook}" denied the request'
    text = f"{denied}: {message or reason}" if message or reason else f"{denied} without explanation"
    details = found.get("details")
    kept = _details(details) if isinstance(details, dict) else {}
    return StatusError(min(max(code, _REFUSED), _MOST_CODE), reason[:_LONGEST_TEXT], text, kept)


def _details(details: JsonObject) -> JsonObject:
    """Return the metav1.StatusDetails that are of the right types."""
    kept: JsonObject = {f: v for f in ("name", "group", "kind", "uid") if isinstance(v := details.get(f), str)}
    after = details.get("retryAfterSeconds")
    if isinstance(after, int) and after > 0:
        kept["retryAfterSeconds"] = min(after, 3600)
    causes = details.get("causes")
    if isinstance(causes, list):
        fields = ("reason", "message", "field")
        kept["causes"] = [
            {field: str(each.get(field) or "") for field in fields}
            for each in causes[:_MOST_ENTRIES]
            if isinstance(each, dict)
        ]
    return kept

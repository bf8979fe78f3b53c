"""Admission: defaults (``/admission/mutate``), refusals (``/admission/validate``), evictions (``/admission/evict``).

The first two look at nothing but the review. The last one reads the pod and its instance: an instance whose
evictionStrategy is LiveMigrate or External may not be ended by a drain (KubeVirt's pod eviction admitter).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.errors import BadRequest, Cause, NotFound
from minik8s_modules.api.kinds import POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.interface import Getter
from minik8s_virtual_machines.api.defaults import patch, with_defaults
from minik8s_virtual_machines.api.definitions import warnings
from minik8s_virtual_machines.api.kinds import FINAL, KINDS, MIGRATION, VMI
from minik8s_virtual_machines.api.validation import MIGRATION_REFUSED, Policy, problems
from minik8s_virtual_machines.pods import refused

_KEPT = {
    "LiveMigrate": f"its evictionStrategy is LiveMigrate, but {MIGRATION_REFUSED}",
    "External": "its evictionStrategy is External: what watches over it must stop it first",
}


def mutated(review: Mapping[str, Any]) -> JsonObject:
    """Return the answer to a review: the patch with the defaults."""
    request = _request(review)
    obj = request.get("object") or {}
    steps = patch(obj, with_defaults(obj))
    told: JsonObject = {"allowed": True}
    if steps:
        told |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(steps).encode()).decode()}
    return _answer(review, told)


def validated(review: Mapping[str, Any], policy: Policy) -> JsonObject:
    """Return the answer to a review: whether the object may be stored, and what of it changes nothing."""
    request = _request(review)
    obj, old = request.get("object") or {}, request.get("oldObject")
    kind = next((each for each in KINDS if each.kind == obj.get("kind")), None)
    if objects.is_deleting(obj):  # only finalizers still change, and these must be free to go
        return _answer(review, {"allowed": True})
    causes = problems(obj, old, policy) or _of_launcher(obj)
    if causes:
        status = {
            "code": HTTPStatus.UNPROCESSABLE_ENTITY,
            "reason": "Invalid",
            "message": "; ".join(map(str, causes)),
            "details": {
                "causes": [{"reason": one.reason, "message": one.message, "field": one.field} for one in causes]
            },
        }
        return _answer(review, {"allowed": False, "status": status})
    told = warnings(kind, objects.spec(obj)) if kind is not None else []
    return _answer(review, {"allowed": True, **({"warnings": told} if told else {})})


def _of_launcher(obj: JsonObject) -> list[Cause]:
    """Return what no launcher can run, in its words, which name the field."""
    if obj.get("kind") == MIGRATION.kind:
        return []
    spec = objects.spec(obj)
    if obj.get("kind") != VMI.kind:
        spec = objects.dig(spec, "template", "spec") or {}
    meta = {"name": objects.name(obj), "namespace": objects.namespace(obj), "uid": "0"}
    found = refused({"apiVersion": VMI.api_version, "kind": VMI.kind, "metadata": meta, "spec": spec})
    parts = [text.partition(": ") for text in found]  # the field, and why
    where = "spec" if obj.get("kind") == VMI.kind else "spec.template.spec"
    return [Cause("FieldValueInvalid", why, where + field.removeprefix("spec")) for field, _, why in parts]


def evicted(review: Mapping[str, Any], api: Getter) -> JsonObject:
    """Return the answer to a review of an eviction: whether the pod may be evicted."""
    request = _request(review)
    reason = _kept(str(request.get("namespace", "")), str(request.get("name", "")), api)
    if not reason:
        return _answer(review, {"allowed": True})
    # what clients of evictions try again later, as for a disruption budget
    status = {"code": HTTPStatus.TOO_MANY_REQUESTS, "reason": "TooManyRequests", "message": reason}
    return _answer(review, {"allowed": False, "status": status})


def _kept(namespace: str, name: str, api: Getter) -> str:
    try:
        pod = api.get(POD, name, namespace)
        reference = objects.controller_of(pod) or {}
        if reference.get("kind") != VMI.kind or reference.get("apiVersion") != VMI.api_version:
            return ""
        instance = api.get(VMI, str(reference.get("name", "")), namespace)
    except NotFound:
        return ""
    if objects.is_deleting(instance) or objects.status(instance).get("phase") in FINAL:
        return ""
    strategy = str(objects.spec(instance).get("evictionStrategy") or "None")
    text = _KEPT.get(strategy, "")
    return f"VirtualMachineInstance {objects.name(instance)} may not be evicted: {text}" if text else ""


def _request(review: Mapping[str, Any]) -> JsonObject:
    request = review.get("request")
    if review.get("kind") != "AdmissionReview" or not isinstance(request, dict) or not request.get("uid"):
        raise BadRequest("this is no AdmissionReview")
    return request


def _answer(review: Mapping[str, Any], told: JsonObject) -> JsonObject:
    response = {"uid": review["request"]["uid"], **told}
    return {"apiVersion": review.get("apiVersion"), "kind": "AdmissionReview", "response": response}

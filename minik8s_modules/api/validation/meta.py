"""What metadata of every object must keep, and selectors of labels.

Source: k8s.io/apimachinery ``api/validation/objectmeta.go`` and ``pkg/apis/meta/v1/validation``.
"""

from __future__ import annotations

from collections.abc import Callable

from minik8s_modules.api import cause, syntax
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.lifecycle.propagation import FOREGROUND, ORPHAN
from minik8s_modules.api.nodes import drift_policies
from minik8s_modules.api.objects import JsonObject, is_deleting, metadata
from minik8s_modules.api.pods import interception, sidecars
from minik8s_modules.api.validation import check

ANNOTATIONS_LIMIT_BYTES = 256 << 10
_NAME_RULES: dict[tuple[str, str], Callable[[str], list[str]]] = {
    ("", "Namespace"): syntax.dns1123_label,
    ("", "Service"): syntax.dns1035_label,
    ("minik8s.io", "PodAddress"): syntax.canonical_ip,
    ("minik8s.io", "PodCIDR"): syntax.cidr_name,
    ("apiregistration.k8s.io", "APIService"): syntax.path_segment,
    **{
        ("rbac.authorization.k8s.io", kind): syntax.path_segment
        for kind in ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
    },
}
_IMMUTABLE = ("name", "namespace", "uid", "creationTimestamp")


def name_messages(kind: Kind, name: str) -> list[str]:
    """Return what keeps ``name`` from naming an object of the kind; no name has a ``/`` or is ``..``."""
    return _NAME_RULES.get(kind.id, syntax.dns1123_subdomain)(name)


def validate_metadata(kind: Kind, obj: JsonObject) -> list[Cause]:
    """Return what is wrong with the metadata of an object, new or old."""
    meta = metadata(obj)
    causes = _names(kind, meta)
    causes += validate_labels("metadata.labels", meta.get("labels") or {})
    causes += validate_annotations("metadata.annotations", meta.get("annotations") or {})
    causes += drift_policies.causes(kind.id, obj)
    causes += interception.causes(kind.id, obj)
    causes += sidecars.causes(kind.id, obj)
    causes += _owners(meta.get("ownerReferences") or [])
    for finalizer in meta.get("finalizers") or []:
        causes += cause.all_invalid("metadata.finalizers", finalizer, syntax.qualified_name(finalizer))
    if meta.get("finalizers") and {ORPHAN, FOREGROUND} <= {*meta["finalizers"]}:
        detail = f"finalizer {ORPHAN} and {FOREGROUND} cannot be both set"
        causes.append(cause.invalid("metadata.finalizers", meta["finalizers"], detail))
    return causes


def _names(kind: Kind, meta: JsonObject) -> list[Cause]:
    if not kind.stored:
        return []
    causes = []
    prefix = meta.get("generateName") or ""
    if prefix:
        causes += cause.all_invalid("metadata.generateName", prefix, name_messages(kind, prefix.rstrip("-.") or prefix))
    name = meta.get("name") or ""
    if not name:
        causes.append(cause.required("metadata.name", "name or generateName is required"))
    else:
        causes += cause.all_invalid("metadata.name", name, name_messages(kind, name))
    namespace = meta.get("namespace") or ""
    if kind.namespaced and not namespace:
        causes.append(cause.required("metadata.namespace"))
    elif kind.namespaced:
        causes += cause.all_invalid("metadata.namespace", namespace, syntax.dns1123_label(namespace))
    elif namespace:
        causes.append(cause.forbidden("metadata.namespace", "not allowed on this type"))
    return causes


def validate_labels(field: str, labels: dict[str, str] | None) -> list[Cause]:
    """Return what is wrong with a map of labels, or of labels to select by."""
    causes = []
    for key, value in (labels or {}).items():
        causes += cause.all_invalid(field, key, syntax.qualified_name(key))
        causes += cause.all_invalid(field, value, syntax.label_value(value))
    return causes


def validate_annotations(field: str, annotations: dict[str, str]) -> list[Cause]:
    """Return what is wrong with a map of annotations."""
    causes = []
    for key in annotations:
        causes += cause.all_invalid(field, key, syntax.qualified_name(key.lower()))
    total = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if total > ANNOTATIONS_LIMIT_BYTES:
        causes.append(cause.too_long(field, ANNOTATIONS_LIMIT_BYTES))
    return causes


def _owners(references: list[JsonObject]) -> list[Cause]:
    causes = []
    field = "metadata.ownerReferences"
    for reference in references:
        missing = [each for each in ("apiVersion", "kind", "name", "uid") if not reference.get(each)]
        causes += [cause.invalid(f"{field}.{each}", "", f"{each} must not be empty") for each in missing]
    controllers = [r for r in references if r.get("controller")]
    if len(controllers) > 1:
        detail = 'Only one reference can have Controller set to true. Found "true" in references for {} and {}'
        named = [f"{r.get('kind')}/{r.get('name')}" for r in controllers[:2]]
        causes.append(cause.invalid(field, None, detail.format(*named)))
    return causes


def validate_metadata_update(kind: Kind, new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return what is wrong with the new metadata: identity is immutable, a deletion cannot be held up again."""
    after, before = metadata(new), metadata(old)
    causes = [
        cause.immutable(f"metadata.{field}", after.get(field))
        for field in _IMMUTABLE
        if (after.get(field) or "") != (before.get(field) or "")
    ]
    if is_deleting(old):
        causes += _new_finalizers(after, before)
    return causes + validate_metadata(kind, new)


def _new_finalizers(after: JsonObject, before: JsonObject) -> list[Cause]:
    added = {*(after.get("finalizers") or [])} - {*(before.get("finalizers") or [])}
    if not added:
        return []
    named = ", ".join(f'"{finalizer}"' for finalizer in sorted(added))
    detail = f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{named}}}"
    return [cause.forbidden("metadata.finalizers", detail)]


# --- label selectors ------------------------------------------------------------------------------


def _operator(at: str, expression: JsonObject) -> list[Cause]:
    operator, values = expression.get("operator"), expression.get("values")
    if operator in {"In", "NotIn"}:
        detail = "must be specified when `operator` is 'In' or 'NotIn'"
        return [] if values else [cause.required(f"{at}.values", detail)]
    if operator in {"Exists", "DoesNotExist"}:
        detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        return [cause.forbidden(f"{at}.values", detail)] if values else []
    return [cause.invalid(f"{at}.operator", operator or "", "not a valid selector operator")]


_EXPRESSION = check.fields(("", _operator), ("key", check.qualified_name), ("values", check.each(check.label_value)))
label_selector = check.fields(("matchLabels", validate_labels), ("matchExpressions", check.each(_EXPRESSION)))
"""The rule of a metav1.LabelSelector."""

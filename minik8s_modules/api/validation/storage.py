"""Validation of volumes, claims and storage classes. Source: kubernetes ``pkg/apis/{core,storage}/validation``."""

from __future__ import annotations

from typing import Any

from minik8s_modules.api import cause, objects, quantities, syntax
from minik8s_modules.api.defaulting import dialect
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, dig, spec, status
from minik8s_modules.api.schema.shapes import shape
from minik8s_modules.api.storage import claims
from minik8s_modules.api.validation import check, csi
from minik8s_modules.api.validation.meta import label_selector


def _access_modes(at: str, modes: list[str]) -> list[Cause]:
    causes = [one for mode in modes for one in _ACCESS_MODE(at, mode)]
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        causes.append(cause.forbidden(at, "may not use ReadWriteOncePod with other access modes"))
    return causes


def _storage(at: str, amounts: JsonObject | None) -> list[Cause]:
    if not amounts or "storage" not in amounts:
        return [cause.required(f"{at}[storage]")]
    amount = amounts["storage"]
    detail = "must be greater than zero"
    return [] if quantities.parse(amount) > 0 else [cause.invalid(f"{at}[storage]", str(amount), detail)]


def _capacity(at: str, capacity: JsonObject) -> list[Cause]:
    if set(capacity) != {"storage"}:
        return [cause.not_supported(at, min(capacity), ["storage"])]
    return _storage(at, capacity)


_ACCESS_MODE = check.one_of("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODE = check.mandatory(check.one_of("Block", "Filesystem"))
_VOLUME = check.of_spec(
    ("accessModes", check.mandatory(_access_modes)),
    ("capacity", check.mandatory(_capacity)),
    ("persistentVolumeReclaimPolicy", check.mandatory(check.one_of("Delete", "Recycle", "Retain"))),
    ("volumeMode", _VOLUME_MODE),
)


def validate_volume(volume: JsonObject) -> list[Cause]:
    """Return why the persistent volume may not be kept."""
    own = dig(volume, "metadata", "annotations", dialect.ANNOTATION) == dialect.ORIGINAL
    # the original finds the place itself
    return _VOLUME(volume) + (_source(spec(volume)) if _sources(spec(volume)) or not own else [])


def _sources(declared: JsonObject) -> dict[str, Any]:
    known = shape("io.k8s.api.core.v1.PersistentVolumeSpec").fields
    return {field: declared[field] for field in declared if field in known and field not in claims.NO_SOURCES}


def _source(declared: JsonObject) -> list[Cause]:
    sources = _sources(declared)
    if not sources:
        return [cause.required("spec", "must specify a volume type")]
    causes = [
        cause.forbidden(f"spec.{field}", "may not specify more than 1 volume type") for field in list(sources)[1:]
    ]
    return causes + _SOURCES("spec", declared)


def _node_of_local(at: str, declared: JsonObject) -> list[Cause]:
    if "local" not in declared or declared.get("nodeAffinity"):
        return []
    return [cause.required(f"{at}.nodeAffinity", "Local volume requires node affinity")]


_HOST_PATH = check.mandatory(check.held(lambda path: ".." not in path.split("/"), "must not contain '..'"))
_ABSOLUTE = check.if_set(check.held(lambda path: path.startswith("/"), "must be an absolute path"))
_SOURCES = check.fields(
    ("hostPath", check.if_given(check.fields(("path", _HOST_PATH)))),
    ("local", check.if_given(check.fields(("path", check.mandatory())))),
    ("", _node_of_local),
    ("csi", check.if_given(csi.PERSISTENT_SOURCE)),
    ("nfs", check.if_given(check.fields((("server", "path"), check.mandatory()), ("path", _ABSOLUTE)))),
)


def validate_volume_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old volume may not become the new one: what it stands on stays, once that is known."""
    causes = []
    if _sources(spec(old)) and _sources(spec(new)) != _sources(spec(old)):
        detail = "spec.persistentvolumesource is immutable after creation"
        causes.append(cause.forbidden("spec.persistentvolumesource", detail))
    if spec(new).get("volumeMode") != spec(old).get("volumeMode"):
        causes.append(cause.immutable("spec.volumeMode", spec(new).get("volumeMode")))
    return causes


def _data_source(at: str, source: JsonObject | None) -> list[Cause]:
    """Return why it names nothing that a volume could begin with (``validateDataSource``)."""
    if not source:
        return []
    causes = [cause.required(f"{at}.{field}") for field in ("name", "kind") if not source.get(field)]
    if not source.get("apiGroup") and source.get("kind") != "PersistentVolumeClaim":
        detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        causes.append(cause.invalid(f"{at}.kind", str(source.get("kind") or ""), detail))
    if source.get("namespace"):
        detail = "volumes begin with what is in their claim's namespace"
        causes.append(cause.forbidden(f"{at}.namespace", detail))
    return causes


def _both_sources(at: str, declared: JsonObject) -> list[Cause]:
    source, ref = declared.get("dataSource"), declared.get("dataSourceRef")
    if not source or not ref or all(source.get(field) == ref.get(field) for field in ("apiGroup", "kind", "name")):
        return []
    return [cause.invalid(at or "spec", "dataSource", "must match dataSourceRef")]


CLAIM = check.fields(
    (("dataSource", "dataSourceRef"), _data_source),
    ("", _both_sources),
    ("accessModes", check.mandatory(_access_modes, "at least 1 access mode is required")),
    ("resources", lambda at, resources: _storage(at, (resources or {}).get("requests"))),
    ("volumeMode", _VOLUME_MODE),
    ("selector", label_selector),
    (("storageClassName", "volumeName"), check.if_set(check.subdomain)),
)
"""The rule of a claim's spec, also in templates."""


def validate_claim(claim: JsonObject) -> list[Cause]:
    """Return why the claim may not be kept."""
    return CLAIM("spec", spec(claim))


def validate_claim_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old claim may not become the new one: it can be bound, and asked for more when it is."""
    marked, marked_before = (objects.annotations(side).get(claims.OLD_CLASS) for side in (new, old))
    if marked != marked_before:  # it would go before the class by which the claim was bound
        return [cause.immutable(f"metadata.annotations[{claims.OLD_CLASS}]", marked)]
    after, before = dict(spec(new)), dict(spec(old))
    wanted, had = ((side.pop("resources", None) or {}).get("requests", {}).get("storage") for side in (after, before))
    if not before.get("volumeName"):
        before.pop("volumeName", None)
        after.pop("volumeName", None)
        if not claims.names_class(old):  # the default class may have come after the claim
            after.pop("storageClassName", None)
            before.pop("storageClassName", None)
    for side in (after, before):
        side.pop("volumeAttributesClassName", None)
        if side.get("dataSource"):  # claims of before say it once
            side["dataSourceRef"] = side.get("dataSourceRef") or side["dataSource"]
    bound = status(old).get("phase") == "Bound"
    detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
    if after != before or (wanted != had and not bound):
        return [cause.forbidden("spec", detail)]
    if wanted is not None and had is not None and quantities.parse(wanted) < quantities.parse(had):
        return [cause.forbidden("spec.resources.requests.storage", "field can not be less than previous value")]
    return []


_STORAGE_CLASS = check.fields(
    ("provisioner", check.mandatory(lambda at, name: cause.all_invalid(at, name, syntax.qualified_name(name.lower())))),
    ("reclaimPolicy", check.mandatory(check.one_of("Delete", "Retain"))),
    ("volumeBindingMode", check.mandatory(check.one_of("Immediate", "WaitForFirstConsumer"))),
)


def validate_storage_class(storage_class: JsonObject) -> list[Cause]:
    """Return why the storage class may not be kept."""
    provisioner = str(storage_class.get("provisioner") or "")
    return _STORAGE_CLASS("", storage_class) + (_own_class(storage_class) if provisioner.startswith(_OURS) else [])


_OURS = "minik8s.io/"
_PARAMETERS = {claims.HOSTPATH: ("node", "path", "quota"), claims.NFS: ("quota", "server", "share")}


def _own_class(storage_class: JsonObject) -> list[Cause]:
    """Return what a provisioner of ours would not do as the class says."""
    provisioner = storage_class["provisioner"]
    if provisioner not in _PARAMETERS:
        return [cause.not_supported("provisioner", provisioner, [*_PARAMETERS])]
    parameters = storage_class.get("parameters") or {}
    unknown = [name for name in parameters if name not in _PARAMETERS[provisioner]]
    causes = [cause.not_supported(f"parameters[{name}]", name, _PARAMETERS[provisioner]) for name in unknown]
    causes += _FOLDER("parameters", parameters)
    causes += _QUOTA("parameters", parameters)
    return causes + (_SHARE("parameters", parameters) if provisioner == claims.NFS else [])


_STAYS_BELOW = check.if_set(check.held(lambda path: ".." not in path.split("/"), "must not contain '..'"))
_NOT_ROOT = check.if_set(check.held(lambda path: bool(set(path.split("/")) - {"", "."}), "must be more than '/'"))
_OF_FOLDERS = check.every(_ABSOLUTE, _STAYS_BELOW, _NOT_ROOT)  # as nodes make them (volumes/folders.py)
_FOLDER = check.fields(("path", _OF_FOLDERS))
_QUOTA = check.fields(("quota", check.if_set(check.one_of(claims.PROJECT))))
_SHARE = check.fields(("server", check.mandatory()), ("share", check.mandatory(_OF_FOLDERS)))


def validate_storage_class_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old class may not become the new one."""
    causes = [
        cause.forbidden(field, f"updates to {field} are forbidden.")
        for field in ("parameters", "provisioner", "reclaimPolicy")
        if (new.get(field) or None) != (old.get(field) or None)
    ]
    if new.get("volumeBindingMode") != old.get("volumeBindingMode"):
        causes.append(cause.immutable("volumeBindingMode", new.get("volumeBindingMode")))
    return causes

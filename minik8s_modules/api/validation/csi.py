"""Validation of what CSI drivers and their sidecars write. Source: kubernetes ``pkg/apis/storage/validation``."""

from __future__ import annotations

from typing import Any

from minik8s_modules.api import cause, objects, quantities, syntax
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, spec
from minik8s_modules.api.validation import check
from minik8s_modules.api.validation.meta import label_selector

_NAME_LENGTH, _NODE_ID_LENGTH, _MESSAGE_LENGTH = 63, 192, 1024
_METADATA_BYTES = 256 << 10


def driver_name(at: str, name: str) -> list[Cause]:
    """Return why that is not the name of a CSI driver."""
    if len(name) > _NAME_LENGTH:
        return [cause.too_long(at, _NAME_LENGTH)]
    return cause.all_invalid(at, name, syntax.dns1123_subdomain(name.lower()))


_DRIVER_NAME = check.mandatory(driver_name)


def _modes(at: str, modes: list[str] | None) -> list[Cause]:
    allowed = ("Ephemeral", "Persistent")
    return [
        cause.not_supported(f"{at}[{index}]", mode, allowed)
        for index, mode in enumerate(modes or ())
        if mode not in allowed
    ]


def _token_requests(at: str, requests: list[JsonObject] | None) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, request in enumerate(requests or ()):
        audience = str(request.get("audience") or "")
        if audience in seen:
            causes.append(cause.duplicate(f"{at}[{index}].audience", audience))
        seen.add(audience)
        causes += _EXPIRATION(f"{at}[{index}]", request)
    return causes


_EXPIRATION = check.fields(
    ("expirationSeconds", check.at_least(600, "may not specify a duration less than 10 minutes")),
    ("expirationSeconds", check.at_most(1 << 32)),
)
_DRIVER = check.of_spec(
    ("attachRequired", lambda at, value: [cause.required(at)] if value is None else []),
    ("podInfoOnMount", lambda at, value: [cause.required(at)] if value is None else []),
    ("storageCapacity", lambda at, value: [cause.required(at)] if value is None else []),
    ("fsGroupPolicy", check.if_set(check.one_of("ReadWriteOnceWithFSType", "File", "None"))),
    ("tokenRequests", _token_requests),
    ("volumeLifecycleModes", _modes),
)


def validate_driver(driver: JsonObject) -> list[Cause]:
    """Return why the CSIDriver may not be kept."""
    long = len(objects.name(driver)) > _NAME_LENGTH  # that it is a name is asked of every object's
    return ([cause.too_long("metadata.name", _NAME_LENGTH)] if long else []) + _DRIVER(driver)


def validate_driver_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old CSIDriver may not become the new one."""
    return [
        cause.immutable(f"spec.{field}", spec(new).get(field))
        for field in ("attachRequired", "volumeLifecycleModes")
        if spec(new).get(field) != spec(old).get(field)
    ]


def _topology_keys(at: str, keys: list[str] | None) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, key in enumerate(keys or ()):
        causes += cause.all_invalid(f"{at}[{index}]", key, syntax.qualified_name(key))
        if key in seen:
            causes.append(cause.duplicate(f"{at}[{index}]", key))
        seen.add(key)
    return causes


def _node_id(at: str, node_id: str) -> list[Cause]:
    return [cause.too_long(at, _NODE_ID_LENGTH)] if len(node_id.encode()) > _NODE_ID_LENGTH else []


_NODE = check.of_spec(
    (
        "drivers",
        check.each(
            check.fields(
                ("nodeID", check.mandatory(_node_id)),
                ("allocatable.count", check.not_negative),
                ("topologyKeys", _topology_keys),
            ),
            key=("name", _DRIVER_NAME),
        ),
    ),
)


def validate_node(node: JsonObject) -> list[Cause]:
    """Return why the CSINode may not be kept."""
    return _NODE(node)


def validate_node_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old CSINode may not become the new one: a driver stays as it is, or goes first."""
    before = {one.get("name"): one for one in spec(old).get("drivers") or []}
    fixed = ("nodeID", "topologyKeys")
    return [
        cause.immutable(f"spec.drivers[{index}].{field}", driver.get(field))
        for index, driver in enumerate(spec(new).get("drivers") or [])
        if driver.get("name") in before
        for field in fixed
        if (driver.get(field) or None) != (before[driver["name"]].get(field) or None)
    ]


def _source(at: str, source: JsonObject | None) -> list[Cause]:
    given = [field for field in ("inlineVolumeSpec", "persistentVolumeName") if (source or {}).get(field)]
    if not given:
        return [cause.required(at, "must specify exactly one of inlineVolumeSpec and persistentVolumeName")]
    if len(given) > 1:
        return [cause.forbidden(at, "must specify exactly one of inlineVolumeSpec and persistentVolumeName")]
    return []


_ATTACHMENT = check.of_spec(
    ("attacher", _DRIVER_NAME), ("source", _source), ("nodeName", check.mandatory(check.subdomain))
)


def _message(at: str, error: JsonObject | None) -> list[Cause]:
    message = str((error or {}).get("message") or "")
    return [cause.too_long(f"{at}.message", _MESSAGE_LENGTH)] if len(message) > _MESSAGE_LENGTH else []


def _metadata(at: str, metadata: dict[str, Any] | None) -> list[Cause]:
    size = sum(len(key.encode()) + len(str(value).encode()) for key, value in (metadata or {}).items())
    return [cause.too_long(at, _METADATA_BYTES)] if size > _METADATA_BYTES else []


_ATTACHMENT_STATUS = check.fields(
    ("attachmentMetadata", _metadata), ("attachError", _message), ("detachError", _message)
)


def validate_attachment(attachment: JsonObject) -> list[Cause]:
    """Return why the VolumeAttachment may not be kept."""
    return _ATTACHMENT(attachment) + _ATTACHMENT_STATUS("status", objects.status(attachment))


def validate_attachment_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old VolumeAttachment may not become the new one: it says one thing for all its life."""
    if spec(new) == spec(old):
        return []
    return [cause.immutable("spec", "VolumeAttachment")]


def _amount(at: str, amount: Any) -> list[Cause]:
    if amount is None or quantities.parse(amount) >= 0:
        return []
    return [cause.invalid(at, str(amount), "must be greater than or equal to 0")]


_CAPACITY = check.fields(
    ("storageClassName", check.mandatory(check.subdomain)),
    ("nodeTopology", check.if_given(label_selector)),
    (("capacity", "maximumVolumeSize"), _amount),
)


def validate_capacity(capacity: JsonObject) -> list[Cause]:
    """Return why the CSIStorageCapacity may not be kept."""
    return _CAPACITY("", capacity)


def validate_capacity_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old CSIStorageCapacity may not become the new one: what it speaks of stays."""
    return [
        cause.immutable(field, new.get(field))
        for field in ("nodeTopology", "storageClassName")
        if (new.get(field) or None) != (old.get(field) or None)
    ]


_SECRET_REFERENCE = check.if_given(check.fields((("name", "namespace"), check.mandatory())))
PERSISTENT_SOURCE = check.fields(
    ("driver", _DRIVER_NAME),
    ("volumeHandle", check.mandatory()),
    (
        (
            "controllerPublishSecretRef",
            "controllerExpandSecretRef",
            "nodePublishSecretRef",
            "nodeStageSecretRef",
            "nodeExpandSecretRef",
        ),
        _SECRET_REFERENCE,
    ),
)
"""``spec.csi`` of a PersistentVolume."""
INLINE_SOURCE = check.fields(
    ("driver", _DRIVER_NAME),
    ("nodePublishSecretRef", check.if_given(check.fields(("name", check.mandatory())))),
)
"""``csi`` of a volume of a pod."""

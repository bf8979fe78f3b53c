"""Validation of a pod's volumes. Source: kubernetes ``pkg/apis/core/validation`` (``ValidateVolumes``)."""

from __future__ import annotations

import re
from typing import Any

from minik8s_modules.api import cause, quantities, syntax
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods import huge_pages
from minik8s_modules.api.validation import check, csi
from minik8s_modules.api.validation.pods import containers
from minik8s_modules.api.validation.pods.ephemeral_claims import ephemeral_source

_HOST_PATH_TYPES = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
# fields of the pod that a file may hold (validVolumeDownwardAPIFieldPathExpressions)
_FIELD_PATHS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


_NAME = check.mandatory(check.label)


def validate_volumes(field: str, volumes: list[JsonObject]) -> tuple[list[Cause], set[str]]:
    """Return what is wrong with the volumes, and the names that mounts may use."""
    causes: list[Cause] = []
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        at = f"{field}[{index}]"
        name = volume.get("name") or ""
        causes += _NAME(f"{at}.name", name)
        if name in names:
            causes.append(cause.duplicate(f"{at}.name", name))
        names.add(name)
        causes += _source(at, volume)
    return causes, names


def _source(at: str, volume: JsonObject) -> list[Cause]:
    sources = [field for field in volume if field != "name"]
    if not sources:
        return [cause.required(at, "must specify a volume type")]
    causes = [cause.forbidden(f"{at}.{each}", "may not specify more than 1 volume type") for each in sources[1:]]
    rule = _CHECKS.get(sources[0], check.no_rule)
    return causes + rule(f"{at}.{sources[0]}", volume[sources[0]])


_HOST_PATH = check.fields(
    ("path", check.if_given(check.held(lambda path: ".." not in path.split("/"), "must not contain '..'"))),
    ("path", check.if_given(check.held(lambda path: path.startswith("/"), "must be an absolute path"))),
    ("type", check.if_given(check.one_of(*_HOST_PATH_TYPES))),
)


def _host_path(at: str, source: JsonObject) -> list[Cause]:
    return _HOST_PATH(at, source) if source.get("path") else [cause.required(f"{at}.path")]


def _size_limit(at: str, limit: Any) -> list[Cause]:
    detail = "SizeLimit field must be a valid resource quantity"
    return [cause.forbidden(at, detail)] if limit is not None and quantities.parse(limit) < 0 else []


_MEDIUM = check.one_of("", *huge_pages.MEDIA, "Memory")
_EMPTY_DIR = check.fields(("sizeLimit", _size_limit), ("medium", check.if_given(_MEDIUM)))


def _paths(at: str, source: JsonObject) -> list[Cause]:
    causes = []
    seen: set[str] = set()
    for index, item in enumerate(source.get("items") or []):
        field, path = f"{at}.items[{index}].path", item.get("path") or ""
        causes += _file_path(field, path)
        if path and path in seen:
            causes.append(cause.duplicate(field, path))
        seen.add(path)
    return causes


def _file_path(field: str, path: str) -> list[Cause]:
    if not path:
        return [cause.required(field)]
    causes = cause.local_path(field, path)
    if path.startswith("..") and not path.startswith("../") and path != "..":
        causes.append(cause.invalid(field, path, "must not start with '..'"))
    return causes


_MODE = check.between(0, 0o777, "must be a number between 0 and 0777 (octal), both inclusive")
_ITEM = check.fields(("key", check.mandatory()), ("mode", _MODE))


def _files(name: str) -> check.Rule:
    """Return the rule of a source whose keys become files; the object stands in its field ``name``."""
    return check.fields(
        (name, check.mandatory()),
        ("defaultMode", _MODE),
        ("items", check.each(_ITEM)),
        ("", _paths),
    )


def _downward_item(at: str, item: JsonObject) -> list[Cause]:
    field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if field is not None and resource is not None:
        detail = "fieldRef and resourceFieldRef can not be specified simultaneously"
        return [cause.invalid(at, "resource", detail)]
    if field is not None:
        return _downward_field(f"{at}.fieldRef", field)
    if resource is None:
        return [cause.required(at, "one of fieldRef and resourceFieldRef is required")]
    return _RESOURCE(f"{at}.resourceFieldRef", resource)


_RESOURCE = check.fields(("containerName", check.mandatory()), ("", containers.resource_reference))
_DOWNWARD_API = check.fields(
    ("defaultMode", _MODE),
    ("items", check.each(check.fields(("mode", _MODE), ("", _downward_item)))),
    ("", _paths),
)


def _downward_field(at: str, reference: JsonObject) -> list[Cause]:
    path = reference.get("fieldPath") or ""
    if not path:
        return [cause.required(f"{at}.fieldPath")]
    if subscript := _SUBSCRIPT.fullmatch(path):
        key = subscript[2].lower() if subscript[1] == "annotations" else subscript[2]
        return cause.all_invalid(at, subscript[2], syntax.qualified_name(key))
    return [] if path in _FIELD_PATHS else [cause.not_supported(f"{at}.fieldPath", path, _FIELD_PATHS)]


# --- projected --------------------------------------------------------------------------------------


def _projected(at: str, source: JsonObject) -> list[Cause]:
    causes = _MODE(f"{at}.defaultMode", source.get("defaultMode"))
    paths: set[str] = set()
    for index, each in enumerate(source.get("sources") or []):
        here = f"{at}.sources[{index}]"
        given = [kind for kind in _PROJECTIONS if each.get(kind) is not None]
        if not given:
            kinds = ", ".join(_PROJECTIONS)
            causes.append(cause.required(here, f"must specify a volume projection type: {kinds}"))
        causes += [cause.forbidden(f"{here}.{kind}", "may not specify more than 1 volume type") for kind in given[1:]]
        for kind in given[:1]:
            causes += _PROJECTIONS[kind](f"{here}.{kind}", each[kind])
            causes += _conflicts(f"{here}.{kind}", kind, each[kind], paths)
    return causes


def _conflicts(at: str, kind: str, source: JsonObject, paths: set[str]) -> list[Cause]:
    """Return the paths that two sources of one volume would write."""
    own = [source] if kind == "serviceAccountToken" else source.get("items") or []
    causes = []
    for path in (str(item.get("path") or "") for item in own):
        if path and path in paths:
            causes.append(cause.invalid(f"{at}.path", path, f"conflicting duplicate paths: {path}"))
        paths.add(path)
    return causes


def _token_path(at: str, path: str | None) -> list[Cause]:
    return _file_path(at, path or "")


_PROJECTIONS: dict[str, check.Rule] = {
    "secret": _files("name"),
    "configMap": _files("name"),
    "downwardAPI": _DOWNWARD_API,
    "serviceAccountToken": check.fields(
        ("expirationSeconds", check.at_least(600, "may not specify a duration less than 10 minutes")),
        (
            "expirationSeconds",
            check.between(-(1 << 63), 1 << 32, "may not specify a duration larger than 2^32 seconds"),
        ),
        ("path", _token_path),
    ),
}
_NFS = check.fields(
    (("server", "path"), check.mandatory()),
    ("path", check.if_set(check.held(lambda path: path.startswith("/"), "must be an absolute path"))),
    ("path", check.if_set(check.held(lambda path: ".." not in path.split("/"), "must not contain '..'"))),
)
_CHECKS: dict[str, check.Rule] = {
    "nfs": _NFS,
    "csi": csi.INLINE_SOURCE,
    "ephemeral": ephemeral_source,
    "persistentVolumeClaim": check.fields(("claimName", check.mandatory())),
    "hostPath": _host_path,
    "emptyDir": _EMPTY_DIR,
    "configMap": _files("name"),
    "secret": _files("secretName"),
    "downwardAPI": _DOWNWARD_API,
    "projected": _projected,
}

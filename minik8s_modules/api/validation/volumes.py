"""Validation of a pod's volumes. Source: kubernetes ``pkg/apis/core/validation`` (``ValidateVolumes``)."""

from __future__ import annotations

import re

from minik8s_modules.api import cause, quantities, syntax
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.validation import containers

_HOST_PATH_TYPES = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
_LARGEST_MODE = 0o777
# fields of the pod that a file may hold (validVolumeDownwardAPIFieldPathExpressions)
_FIELD_PATHS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")
_SHORTEST_TOKEN_S, _LONGEST_TOKEN_S = 600, 1 << 32
_MODE_MESSAGE = "must be a number between 0 and 0777 (octal), both inclusive"


def validate_volumes(field: str, volumes: list[JsonObject]) -> tuple[list[Cause], set[str]]:
    """Return what is wrong with the volumes, and the names that mounts may use."""
    causes: list[Cause] = []
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        at = f"{field}[{index}]"
        name = volume.get("name") or ""
        if not name:
            causes.append(cause.required(f"{at}.name"))
        else:
            causes += cause.all_invalid(f"{at}.name", name, syntax.dns1123_label(name))
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
    check = _CHECKS.get(sources[0])
    return causes + (check(f"{at}.{sources[0]}", volume[sources[0]]) if check else [])


def _host_path(at: str, source: JsonObject) -> list[Cause]:
    path = source.get("path") or ""
    if not path:
        return [cause.required(f"{at}.path")]
    causes = []
    if ".." in path.split("/"):
        causes.append(cause.invalid(f"{at}.path", path, "must not contain '..'"))
    if not path.startswith("/"):
        causes.append(cause.invalid(f"{at}.path", path, "must be an absolute path"))
    if source.get("type", "") not in _HOST_PATH_TYPES:
        causes.append(cause.not_supported(f"{at}.type", source["type"], _HOST_PATH_TYPES))
    return causes


def _empty_dir(at: str, source: JsonObject) -> list[Cause]:
    causes = []
    limit = source.get("sizeLimit")
    if limit is not None and quantities.parse(limit) < 0:
        causes.append(cause.forbidden(f"{at}.sizeLimit", "SizeLimit field must be a valid resource quantity"))
    medium = source.get("medium", "")
    if medium not in {"", "Memory"}:
        causes.append(cause.not_supported(f"{at}.medium", medium, ["", "Memory"]))
    return causes


def _config_map(at: str, source: JsonObject) -> list[Cause]:
    return _files(at, source, "name")


def _secret(at: str, source: JsonObject) -> list[Cause]:
    return _files(at, source, "secretName")


def _files(at: str, source: JsonObject, name_field: str) -> list[Cause]:
    causes = [] if source.get(name_field) else [cause.required(f"{at}.{name_field}")]
    causes += _mode(f"{at}.defaultMode", source.get("defaultMode"))
    for index, item in enumerate(source.get("items") or []):
        causes += [] if item.get("key") else [cause.required(f"{at}.items[{index}].key")]
        causes += _mode(f"{at}.items[{index}].mode", item.get("mode"))
    return causes + _paths(at, source)


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


def _downward_api(at: str, source: JsonObject) -> list[Cause]:
    causes = _mode(f"{at}.defaultMode", source.get("defaultMode"))
    for index, item in enumerate(source.get("items") or []):
        causes += _downward_item(f"{at}.items[{index}]", item)
    return causes + _paths(at, source)


def _downward_item(at: str, item: JsonObject) -> list[Cause]:
    causes = _mode(f"{at}.mode", item.get("mode"))
    field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if field is not None and resource is not None:
        return [
            *causes,
            cause.invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"),
        ]
    if field is not None:
        return causes + _downward_field(f"{at}.fieldRef", field)
    if resource is None:
        return [*causes, cause.required(at, "one of fieldRef and resourceFieldRef is required")]
    if not resource.get("containerName"):
        causes.append(cause.required(f"{at}.resourceFieldRef.containerName"))
    return causes + containers.resource_reference(f"{at}.resourceFieldRef", resource)


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
    causes = _mode(f"{at}.defaultMode", source.get("defaultMode"))
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


def _projected_files(at: str, source: JsonObject) -> list[Cause]:
    return _files(at, source, "name")


def _token(at: str, source: JsonObject) -> list[Cause]:
    lifetime_s = source.get("expirationSeconds", _SHORTEST_TOKEN_S)
    causes = []
    if lifetime_s < _SHORTEST_TOKEN_S:
        causes.append(
            cause.invalid(f"{at}.expirationSeconds", lifetime_s, "may not specify a duration less than 10 minutes")
        )
    if lifetime_s > _LONGEST_TOKEN_S:
        told = "may not specify a duration larger than 2^32 seconds"
        causes.append(cause.invalid(f"{at}.expirationSeconds", lifetime_s, told))
    return causes + _file_path(f"{at}.path", source.get("path") or "")


_PROJECTIONS = {
    "secret": _projected_files,
    "configMap": _projected_files,
    "downwardAPI": _downward_api,
    "serviceAccountToken": _token,
}


def _mode(field: str, mode: int | None) -> list[Cause]:
    return [] if mode is None or 0 <= mode <= _LARGEST_MODE else [cause.invalid(field, mode, _MODE_MESSAGE)]


_CHECKS = {
    "hostPath": _host_path,
    "emptyDir": _empty_dir,
    "configMap": _config_map,
    "secret": _secret,
    "downwardAPI": _downward_api,
    "projected": _projected,
}

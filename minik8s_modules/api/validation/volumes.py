"""Validation of a pod's volumes. Source: kubernetes ``pkg/apis/core/validation`` (``ValidateVolumes``)."""

from __future__ import annotations

from minik8s_modules.api import quantities
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, dig
from minik8s_modules.api.validation import common

_HOST_PATH_TYPES = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
_LARGEST_MODE = 0o777
_MODE_MESSAGE = "must be a number between 0 and 0777 (octal), both inclusive"


def validate_volumes(field: str, volumes: list[JsonObject]) -> tuple[list[Cause], set[str]]:
    """Return what is wrong with the volumes, and the names that mounts may use."""
    causes: list[Cause] = []
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        at = f"{field}[{index}]"
        name = volume.get("name") or ""
        if not name:
            causes.append(common.required(f"{at}.name"))
        else:
            causes += common.all_invalid(f"{at}.name", name, common.dns1123_label(name))
        if name in names:
            causes.append(common.duplicate(f"{at}.name", name))
        names.add(name)
        causes += _source(at, volume)
    return causes, names


def _source(at: str, volume: JsonObject) -> list[Cause]:
    sources = [field for field in volume if field != "name"]
    if not sources:
        return [common.required(at, "must specify a volume type")]
    causes = [common.forbidden(f"{at}.{each}", "may not specify more than 1 volume type") for each in sources[1:]]
    check = _CHECKS.get(sources[0])
    return causes + (check(f"{at}.{sources[0]}", volume[sources[0]]) if check else [])


def _host_path(at: str, source: JsonObject) -> list[Cause]:
    path = source.get("path") or ""
    if not path:
        return [common.required(f"{at}.path")]
    causes = []
    if ".." in path.split("/"):
        causes.append(common.invalid(f"{at}.path", path, "must not contain '..'"))
    if not path.startswith("/"):
        causes.append(common.invalid(f"{at}.path", path, "must be an absolute path"))
    if source.get("type", "") not in _HOST_PATH_TYPES:
        causes.append(common.not_supported(f"{at}.type", source["type"], _HOST_PATH_TYPES))
    return causes


def _empty_dir(at: str, source: JsonObject) -> list[Cause]:
    causes = []
    limit = source.get("sizeLimit")
    if limit is not None and quantities.parse(limit) < 0:
        causes.append(common.forbidden(f"{at}.sizeLimit", "SizeLimit field must be a valid resource quantity"))
    medium = source.get("medium", "")
    if medium not in {"", "Memory"}:
        causes.append(common.not_supported(f"{at}.medium", medium, ["", "Memory"]))
    return causes


def _config_map(at: str, source: JsonObject) -> list[Cause]:
    return _files(at, source, "name")


def _secret(at: str, source: JsonObject) -> list[Cause]:
    return _files(at, source, "secretName")


def _files(at: str, source: JsonObject, name_field: str) -> list[Cause]:
    causes = [] if source.get(name_field) else [common.required(f"{at}.{name_field}")]
    causes += _mode(f"{at}.defaultMode", source.get("defaultMode"))
    paths: set[str] = set()
    for index, item in enumerate(source.get("items") or []):
        causes += _item(f"{at}.items[{index}]", item)
        if item.get("path") in paths:
            causes.append(common.duplicate(f"{at}.items[{index}].path", item["path"]))
        paths.add(item.get("path", ""))
    return causes


def _item(at: str, item: JsonObject) -> list[Cause]:
    causes = [] if item.get("key") else [common.required(f"{at}.key")]
    path = item.get("path") or ""
    if not path:
        causes.append(common.required(f"{at}.path"))
    else:
        causes += common.local_path(f"{at}.path", path)
        if path.startswith("..") and not path.startswith("../") and path != "..":
            causes.append(common.invalid(f"{at}.path", path, "must not start with '..'"))
    return causes + _mode(f"{at}.mode", item.get("mode"))


def _mode(field: str, mode: int | None) -> list[Cause]:
    return [] if mode is None or 0 <= mode <= _LARGEST_MODE else [common.invalid(field, mode, _MODE_MESSAGE)]


_CHECKS = {"hostPath": _host_path, "emptyDir": _empty_dir, "configMap": _config_map, "secret": _secret}


def unbounded(obj: JsonObject) -> list[str]:
    """Return a text for each emptyDir of a pod, or of a template's, whose ``sizeLimit`` nothing enforces."""
    found = []
    for at, spec in (("spec", dig(obj, "spec")), ("spec.template.spec", dig(obj, "spec", "template", "spec"))):
        for index, volume in enumerate((spec or {}).get("volumes") or []):
            source = volume.get("emptyDir") or {}
            if source.get("sizeLimit") and source.get("medium") != "Memory":
                found.append(
                    f"{at}.volumes[{index}].emptyDir.sizeLimit: stored, but minik8s does not act on it: "
                    "only a volume in memory (medium: Memory) has a size"
                )
    return found

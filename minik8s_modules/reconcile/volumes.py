"""A pod's volumes as entries of the ``volumes`` section, and its mounts as entries of containers."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.quantities import to_bytes
from minik8s_modules.reconcile.environment import ConfigurationMissing, SecretValue, Value, expand, lookup
from minik8s_modules.reconcile.sealing import secret_hmac, values_of
from minik8s_modules.reconcile.values import PodInputs

JsonObject = dict[str, Any]
_DEFAULT_MODE = 0o644


class Volumes(NamedTuple):
    """``entries`` by volume name, the secrets they need, and why others cannot be made, by volume name."""

    entries: Mapping[str, JsonObject]
    references: frozenset[str]
    errors: Mapping[str, str]


def volumes(pod: JsonObject, inputs: PodInputs) -> Volumes:
    """Return the pod's volumes; errors are worded as kubelet's FailedMount."""
    entries: dict[str, JsonObject] = {}
    errors: dict[str, str] = {}
    for volume in objects.spec(pod).get("volumes") or []:
        try:
            entries[volume["name"]] = _entry(pod, volume, inputs)
        except ConfigurationMissing as error:
            errors[volume["name"]] = failed_mount(volume["name"], str(error))
    references = frozenset(entry["secret"] for entry in entries.values() if entry.get("secret"))
    return Volumes(entries, references, errors)


def failed_mount(volume: str, why: str) -> str:
    """Return kubelet's words for a volume that cannot be made."""
    return f'MountVolume.SetUp failed for volume "{volume}" : {why}'


def _entry(pod: JsonObject, volume: JsonObject, inputs: PodInputs) -> JsonObject:
    for kind, make in _KINDS.items():
        if volume.get(kind) is not None:
            return make(pod, volume[kind], inputs)
    kinds = ", ".join(sorted(set(volume) - {"name"})) or "no source"
    raise ConfigurationMissing(f"volumes of this kind are not supported: {kinds}; use {', '.join(_KINDS)}")


def _empty_dir(_pod: JsonObject, source: JsonObject, _inputs: PodInputs) -> JsonObject:
    limit = source.get("sizeLimit")
    size = to_bytes(limit) if limit is not None else None
    return {"kind": "emptyDir", "medium": source.get("medium") or "", "size_bytes": size}


def _host_path(_pod: JsonObject, source: JsonObject, _inputs: PodInputs) -> JsonObject:
    return {"kind": "hostPath", "path": source.get("path") or "", "type": source.get("type") or ""}


def _config_map(pod: JsonObject, source: JsonObject, inputs: PodInputs) -> JsonObject:
    found = lookup(pod, source, inputs.configmaps, "configmap") or {}
    contents = {key: base64.b64encode(text.encode()).decode() for key, text in (found.get("data") or {}).items()}
    contents |= found.get("binaryData") or {}
    chosen = _chosen(source, contents, "configmap references non-existent config key")
    return {
        "kind": "configMap",
        "files": {path: {"data": contents[key], "mode": mode} for path, key, mode in chosen},
    }


def _secret(pod: JsonObject, source: JsonObject, inputs: PodInputs) -> JsonObject:
    wanted = {"name": source.get("secretName"), "optional": source.get("optional")}
    found = lookup(pod, wanted, inputs.secrets, "secret")
    reference = f"{objects.namespace(pod)}/{source.get('secretName')}"
    values = values_of(found or {})
    chosen = _chosen(source, values, "references non-existent secret key")
    return {
        "kind": "secret",
        "secret": reference if found is not None else "",
        "hmac": secret_hmac(inputs.settings.hmac_key, reference, values),
        "items": {path: {"key": key, "mode": mode} for path, key, mode in chosen},
    }


def _chosen(source: JsonObject, contents: Mapping[str, Any], missing: str) -> list[tuple[str, str, int]]:
    """Return (path, key, mode) of the files; all keys when the source lists none."""
    mode = source.get("defaultMode", _DEFAULT_MODE)
    if not source.get("items"):
        return [(key, key, mode) for key in sorted(contents)]
    chosen = []
    for item in source["items"]:
        if item["key"] in contents:
            chosen.append((item["path"], item["key"], item.get("mode", mode)))
        elif not source.get("optional"):
            raise ConfigurationMissing(f"{missing}: {item['key']}")
    return chosen


_Maker = Callable[[JsonObject, JsonObject, PodInputs], JsonObject]
_KINDS: dict[str, _Maker] = {
    "emptyDir": _empty_dir,
    "hostPath": _host_path,
    "configMap": _config_map,
    "secret": _secret,
}


def mounts(pod: JsonObject, container: JsonObject, variables: Mapping[str, Value]) -> list[JsonObject]:
    """Return the container's mounts as its entry carries them.

    Raises:
        ConfigurationMissing: a mount names a volume the pod does not declare, or a secret in its sub-path.
    """
    declared = {volume["name"]: volume for volume in objects.spec(pod).get("volumes") or []}
    return [_mount(declared, mount, variables) for mount in container.get("volumeMounts") or []]


def _mount(declared: Mapping[str, JsonObject], mount: JsonObject, variables: Mapping[str, Value]) -> JsonObject:
    volume = declared.get(mount["name"])
    if volume is None:
        raise ConfigurationMissing(f'volume mount "{mount["name"]}" names a volume the pod does not declare')
    sub_path = expand(mount["subPathExpr"], variables) if mount.get("subPathExpr") else mount.get("subPath") or ""
    if isinstance(sub_path, SecretValue):
        raise ConfigurationMissing(f'subPathExpr of volume mount "{mount["name"]}" takes in the value of a Secret')
    return {
        "volume": mount["name"],
        "kind": next((kind for kind in _KINDS if volume.get(kind) is not None), ""),
        "target": mount["mountPath"],
        "read_only": bool(mount.get("readOnly")),
        "sub_path": sub_path,
        "host_path": objects.dig(volume, "hostPath", "path") or "",
        **({"host_type": kind} if (kind := objects.dig(volume, "hostPath", "type")) else {}),
    }

"""A pod's volumes as entries of the ``volumes`` section, and its mounts as entries of containers.

What a claim stands for is told by ``claims.py``, which files a volume has by ``projections.py``; here they become
entries: contents in clear for configMap and downwardAPI, names and HMACs for what comes from Secrets and for tokens.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods import huge_pages
from minik8s_modules.api.quantities import to_bytes
from minik8s_modules.module_utils.minik8s.core.paths import CSI_KIND
from minik8s_modules.module_utils.minik8s.entries.containers import MountEntry
from minik8s_modules.module_utils.minik8s.entries.volumes import (
    EmptyDir,
    ProjectedFile,
    ProjectedVolume,
    SecretFile,
    VolumeEntry,
    VolumeFile,
)
from minik8s_modules.reconcile.storage import projections
from minik8s_modules.reconcile.storage.claims import Source, source_of
from minik8s_modules.reconcile.storage.drivers import csi_entry
from minik8s_modules.reconcile.storage.projections import DEFAULT_MODE, Row, Secret
from minik8s_modules.reconcile.values import resources
from minik8s_modules.reconcile.values.environment import ConfigurationMissing, SecretValue, Value, expand
from minik8s_modules.reconcile.values.sealing import secret_hmac, values_of
from minik8s_modules.reconcile.values.values import PodInputs, Sealed


class Volumes(NamedTuple):
    """``entries`` by volume name, the Secrets they need, why others cannot be made, and the values made here."""

    entries: Mapping[str, VolumeEntry]
    references: frozenset[str]
    errors: Mapping[str, str]
    sealed: Sealed = Sealed()


def volumes(pod: JsonObject, inputs: PodInputs) -> Volumes:
    """Return the pod's volumes; errors are worded as kubelet's FailedMount."""
    entries: dict[str, VolumeEntry] = {}
    errors: dict[str, str] = {}
    sealed = Sealed()
    for volume in objects.spec(pod).get("volumes") or []:
        try:
            entry, made = _entry(pod, volume, inputs)
        except ConfigurationMissing as error:
            errors[volume["name"]] = failed_mount(volume["name"], str(error))
        else:
            entries[volume["name"]] = entry
            sealed.update(made)
    named = {reference for entry in entries.values() for reference in _references(entry)}
    return Volumes(entries, frozenset(one for one in named if one and one not in sealed), errors, sealed)


def _references(entry: VolumeEntry) -> Iterable[str]:
    if entry["kind"] == "secret":
        return (entry["secret"],)
    if entry["kind"] == "csi":
        return entry.get("secrets", {}).values()
    return entry["hmacs"] if entry["kind"] == "projected" else ()


def failed_mount(volume: str, why: str) -> str:
    """Return kubelet's words for a volume that cannot be made."""
    return f'MountVolume.SetUp failed for volume "{volume}" : {why}'


def _entry(pod: JsonObject, volume: JsonObject, inputs: PodInputs) -> tuple[VolumeEntry, Sealed]:
    source = source_of(pod, volume, inputs)
    if source.volume.get(CSI_KIND) is not None:
        return csi_entry(pod, volume["name"], source, inputs), Sealed()
    for kind, make in _KINDS.items():
        if source.volume.get(kind) is not None:
            entry, sealed = make(pod, source.volume, inputs)
            _complete(entry, source, objects.dig(pod, "spec", "securityContext", "fsGroup"))
            return entry, sealed
    kinds = ", ".join(sorted(set(volume) - {"name"})) or "no source"
    known = ", ".join([*_POD_KINDS, CSI_KIND, "persistentVolumeClaim"])
    raise ConfigurationMissing(f"volumes of this kind are not supported: {kinds}; use {known}")


def _complete(entry: VolumeEntry, source: Source, group: int | None) -> None:
    """Add what is the same for several kinds; whose files an NFS volume and a hostPath hold is not the pod's affair."""
    if entry["kind"] == "nfs":
        if source.options:
            entry["options"] = list(source.options)
    elif entry["kind"] != "hostPath" and group is not None and not source.read_only:
        entry["fs_group"] = int(group)


_Made = tuple[VolumeEntry, Sealed]


def _empty_dir(pod: JsonObject, volume: JsonObject, _inputs: PodInputs) -> _Made:
    source = volume["emptyDir"]
    limit = source.get("sizeLimit")
    sizes = [] if limit is None else [to_bytes(limit)]
    if huge_pages.is_medium(source.get("medium") or ""):
        return _on_huge_pages(pod, source["medium"], sizes), Sealed()
    medium: Literal["", "Memory"] = source.get("medium") or ""
    if medium == "Memory" and (memory := _memory_limit(pod)):
        sizes.append(memory)  # what is in memory counts against the pod's (SizeMemoryBackedVolumes)
    return {"kind": "emptyDir", "medium": medium, "size_bytes": min(sizes, default=None)}, Sealed()


def _on_huge_pages(pod: JsonObject, medium: str, sizes: list[int]) -> EmptyDir:
    """Return an emptyDir that holds as many huge pages as the pod requests, or fewer."""
    requested = resources.huge_pages_of(pod)
    try:
        page = huge_pages.page_of(medium, requested)
    except ValueError as error:
        raise ConfigurationMissing(str(error)) from error
    room = sum(size for name, size in requested.items() if huge_pages.page_bytes(name) == page)
    return {
        "kind": "emptyDir",
        "medium": "HugePages",
        "page_bytes": page,
        "size_bytes": min([*filter(None, sizes), room]),
    }


def _memory_limit(pod: JsonObject) -> int:
    """Return the memory the pod's containers may use together, 0 where one has no limit."""
    if own := objects.dig(pod, "spec", "resources", "limits", "memory"):
        return to_bytes(str(own))
    limits = [resources.memory_bytes(container) for container in objects.containers(pod)]
    return sum(limits) if all(limits) else 0


def _host_path(_pod: JsonObject, volume: JsonObject, _inputs: PodInputs) -> _Made:
    source = volume["hostPath"]
    return {"kind": "hostPath", "path": source.get("path") or "", "type": source.get("type") or ""}, Sealed()


def _nfs(_pod: JsonObject, volume: JsonObject, _inputs: PodInputs) -> _Made:
    source = volume["nfs"]
    return {"kind": "nfs", "server": source.get("server") or "", "path": source.get("path") or ""}, Sealed()


def _local(_pod: JsonObject, volume: JsonObject, _inputs: PodInputs) -> _Made:
    return {"kind": "local", "path": volume["local"].get("path") or ""}, Sealed()


def _config_map(pod: JsonObject, volume: JsonObject, inputs: PodInputs) -> _Made:
    source = volume["configMap"]
    rows = projections.config_map_rows(pod, source, inputs, _default_mode(source))
    return {"kind": "configMap", "files": _clear(rows)}, Sealed()


def _downward(pod: JsonObject, volume: JsonObject, inputs: PodInputs) -> _Made:
    source = volume["downwardAPI"]
    rows = projections.downward_rows(pod, source, inputs, _default_mode(source))
    return {"kind": "downwardAPI", "files": _clear(rows)}, Sealed()


def _default_mode(source: JsonObject) -> int:
    given = source.get("defaultMode")
    return DEFAULT_MODE if given is None else int(given)


def _clear(rows: Iterable[Row]) -> dict[str, VolumeFile]:
    """Return the files whose content documents may show."""
    return {
        row.path: {"data": base64.b64encode(row.content).decode(), "mode": row.mode}
        for row in rows
        if isinstance(row.content, bytes)
    }


def _secret(pod: JsonObject, volume: JsonObject, inputs: PodInputs) -> _Made:
    source = volume["secret"]
    name = source.get("secretName") or ""
    rows = projections.secret_rows(pod, source, name, inputs, _default_mode(source))
    reference = f"{objects.namespace(pod)}/{name}"
    found = inputs.secrets.get(reference)
    items: dict[str, SecretFile] = {
        row.path: {"key": row.content.key, "mode": row.mode} for row in rows if isinstance(row.content, Secret)
    }
    hmac = secret_hmac(inputs.settings.hmac_key, reference, values_of(found or {}))
    return {"kind": "secret", "secret": "" if found is None else reference, "hmac": hmac, "items": items}, Sealed()


def _projected(pod: JsonObject, volume: JsonObject, inputs: PodInputs) -> _Made:
    rows = {row.path: row for row in _projected_rows(pod, volume, inputs)}  # a later source replaces an earlier one
    secrets = [(row, row.content) for row in rows.values() if isinstance(row.content, Secret)]
    sealed = Sealed()
    for _, content in secrets:
        if content.value is not None:
            sealed.setdefault(content.reference, {})[content.key] = content.value
    values = {one.reference: sealed.get(one.reference) or _values(inputs, one.reference) for _, one in secrets}
    key = inputs.settings.hmac_key
    entry: ProjectedVolume = {
        "kind": "projected",
        "files": _clear(rows.values()),
        "items": {row.path: _item(row, content) for row, content in secrets},
        "hmacs": {reference: secret_hmac(key, reference, found) for reference, found in sorted(values.items())},
    }
    return entry, sealed


def _values(inputs: PodInputs, reference: str) -> dict[str, bytes]:
    return values_of(inputs.secrets.get(reference) or {})


def _item(row: Row, content: Secret) -> ProjectedFile:
    item: ProjectedFile = {"secret": content.reference, "key": content.key, "mode": row.mode}
    return item if row.uid is None else item | {"uid": row.uid}


def _projected_rows(pod: JsonObject, volume: JsonObject, inputs: PodInputs) -> Iterable[Row]:
    mode = _default_mode(volume["projected"])
    for source in projections.projected_sources(volume):
        if (one := source.get("configMap")) is not None:
            yield from projections.config_map_rows(pod, one, inputs, mode)
        if (one := source.get("secret")) is not None:
            yield from projections.secret_rows(pod, one, one.get("name") or "", inputs, mode)
        if (one := source.get("downwardAPI")) is not None:
            yield from projections.downward_rows(pod, one, inputs, mode)
        if (one := source.get("serviceAccountToken")) is not None:
            yield from projections.token_rows(pod, volume["name"], one, inputs, mode)


_Maker = Callable[[JsonObject, JsonObject, PodInputs], _Made]
_POD_KINDS: dict[str, _Maker] = {
    "emptyDir": _empty_dir,
    "hostPath": _host_path,
    "configMap": _config_map,
    "secret": _secret,
    "downwardAPI": _downward,
    "projected": _projected,
    "nfs": _nfs,
}
_KINDS = {**_POD_KINDS, "local": _local}  # PersistentVolumes alone are local


def mounts(
    pod: JsonObject, container: JsonObject, variables: Mapping[str, Value], inputs: PodInputs
) -> list[MountEntry]:
    """Return the container's mounts as its entry carries them.

    Raises:
        ConfigurationMissing: a mount names a volume the pod does not declare, or one whose claim is not bound, or its
            sub-path is none.
    """
    declared = {volume["name"]: volume for volume in objects.spec(pod).get("volumes") or []}
    found = []
    for mount in container.get("volumeMounts") or []:
        if (volume := declared.get(mount["name"])) is None:
            raise ConfigurationMissing(f'volume mount "{mount["name"]}" names a volume the pod does not declare')
        found.append(_mount(source_of(pod, volume, inputs), mount, variables))
    return found


def _sub_path(mount: JsonObject, variables: Mapping[str, Value]) -> str:
    """Return what ``subPathExpr`` comes to; words are the kubelet's (``kubelet_pods.go``, makeMounts)."""
    found = expand(mount["subPathExpr"], variables)
    if isinstance(found, SecretValue):
        raise ConfigurationMissing(f'subPathExpr of volume mount "{mount["name"]}" uses the value of a Secret')
    if found.startswith("/"):
        raise ConfigurationMissing(f"error SubPath `{found}` must not be an absolute path")
    if ".." in found.split("/"):
        raise ConfigurationMissing(f"unable to provision SubPath `{found}`: must not contain '..'")
    return found


def _mount(source: Source, mount: JsonObject, variables: Mapping[str, Value]) -> MountEntry:
    kind = next((kind for kind in (*_KINDS, CSI_KIND) if source.volume.get(kind) is not None), "")
    there = {"path": source.volume["local"].get("path"), "type": "Directory"} if kind == "local" else None
    there = there or source.volume.get("hostPath") or {}
    entry: MountEntry = {
        "volume": mount["name"],
        "kind": "hostPath" if kind == "local" else kind,
        "target": mount["mountPath"],
        "read_only": bool(mount.get("readOnly")) or source.read_only,
        "sub_path": _sub_path(mount, variables) if mount.get("subPathExpr") else mount.get("subPath") or "",
        "host_path": there.get("path") or "",
    }
    if mount.get("mountPropagation", "None") != "None":
        entry["propagation"] = mount["mountPropagation"]
    return entry | {"host_type": str(there["type"])} if there.get("type") else entry

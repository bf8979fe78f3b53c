"""Static pods: from manifests that lie on a node to pods that run there whatever the API holds, and their mirrors.

A static pod's UID is the hash of its source and content, so that a changed manifest is another pod. The API shows it
by a mirror pod with a UID of its own; here each mirror stands for its static pod (``as_static``), so deciding, claiming
addresses and writing status know one pod only. Deleting a mirror ends nothing: it is made again. Source:
pkg/kubelet/config/file.go and common.go, pkg/kubelet/pod/mirror_client.go. Defaults and validation of all kinds, which
take 7 MB, are imported for the first manifest.
"""

from __future__ import annotations

import base64
import binascii
import copy
import hashlib
import threading
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mirror_pods import HASH, MIRROR, SOURCE, static_uid
from minik8s_modules.api.schema import structural
from minik8s_modules.base.clock import rfc3339

_API_SOURCES = ("configMap", "secret", "projected", "persistentVolumeClaim", "ephemeral")


class BadManifest(ValueError):
    """A file that is no pod; the message says why."""


class Parsed(NamedTuple):
    """The pods of a node's manifests, and why other files hold none, by file name."""

    pods: list[JsonObject]
    errors: dict[str, str]


def parse_manifests(node: str, files: Iterable[Mapping[str, Any]]) -> Parsed:
    """Return the static pods in ``files`` (``{"name", "data"}`` as the node sent them: data, not trusted)."""
    pods: dict[tuple[str, str], JsonObject] = {}
    errors: dict[str, str] = {}
    for file in files:
        name = str(file.get("name") or "")
        try:
            pod = static_pod(node, name, base64.b64decode(str(file.get("data") or ""), validate=True))
        except (BadManifest, binascii.Error) as error:
            errors[name] = str(error)
            continue
        if objects.key(pod) in pods:
            errors[name] = f"another file already defines a pod named {objects.name(pod)}"
        pods.setdefault(objects.key(pod), pod)
    return Parsed(list(pods.values()), errors)


def static_pod(node: str, file: str, data: bytes) -> JsonObject:
    """Return the pod in one file, named and placed as kubelet does.

    Raises:
        BadManifest: it is none, or none that can run without the API.
    """
    from minik8s_modules.api.defaulting.defaults import apply_defaults  # noqa: PLC0415 - see the top

    pod = _loaded(data)
    meta = pod.setdefault("metadata", {})
    meta["namespace"] = meta.get("namespace") or "default"
    meta["name"] = f"{meta.get('name') or ''}-{node}"
    digest = hashlib.md5(f"host:{node}\0file:{file}\0".encode(), usedforsecurity=False)
    digest.update(data)
    uid = digest.hexdigest()
    meta["uid"] = uid
    for field in ("resourceVersion", "creationTimestamp", "deletionTimestamp", "generateName", "ownerReferences"):
        meta.pop(field, None)
    own = {HASH: uid, SOURCE: "file"}
    meta["annotations"] = {**(meta.get("annotations") or {}), **own}
    pod.setdefault("spec", {})["nodeName"] = node
    apply_defaults(POD, pod)
    pod["spec"]["tolerations"] = [
        *(pod["spec"].get("tolerations") or []),
        {"operator": "Exists", "effect": "NoExecute"},
    ]
    _check(pod)
    return pod


def _loaded(data: bytes) -> JsonObject:
    try:
        if b"&" in data or b"*" in data:
            _refuse_aliases(data)
        pod = yaml.safe_load(data.decode("utf-8"))
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise BadManifest(f"it cannot be read: {error}") from error
    if not isinstance(pod, dict) or (pod.get("apiVersion"), pod.get("kind")) != ("v1", "Pod"):
        raise BadManifest("it does not hold a v1 Pod")
    if not all(isinstance(pod.get(field) or {}, dict) for field in ("metadata", "spec")):
        raise BadManifest("metadata and spec must be mappings")
    pod.pop("status", None)
    causes = structural.type_errors(POD, pod)
    unknown = structural.unknown_fields(POD, pod)
    if causes or unknown:
        raise BadManifest("; ".join([*(cause.message for cause in causes), *unknown]))
    return pod


def _refuse_aliases(data: bytes) -> None:
    """Refuse aliases, which unfold without bound."""
    for event in yaml.parse(data.decode("utf-8"), Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise BadManifest("aliases (*name) are refused")


def _check(pod: JsonObject) -> None:
    from minik8s_modules.api.validation import validate_create  # noqa: PLC0415 - see the top

    causes = [f"{cause.field}: {cause.message}" for cause in validate_create(POD, pod)]
    volumes = objects.spec(pod).get("volumes") or []
    if any(volume.get(source) for volume in volumes for source in _API_SOURCES):
        causes.append("spec.volumes: static pods cannot use objects of the API")
    for _, _, container in objects.all_containers(pod):
        sources = [one.get("valueFrom") or {} for one in container.get("env") or []]
        if container.get("envFrom") or any(one.get("configMapKeyRef") or one.get("secretKeyRef") for one in sources):
            causes.append(f"container {container['name']}: static pods cannot take variables from the API")
    if objects.spec(pod).get("imagePullSecrets"):
        causes.append("spec.imagePullSecrets: static pods cannot use Secrets of the API")
    if objects.spec(pod).get("serviceAccountName") not in {None, "", "default"}:
        causes.append("spec.serviceAccountName: static pods cannot use service accounts")
    if causes:
        raise BadManifest("; ".join(causes))


def mirror_of(pod: JsonObject) -> JsonObject:
    """Return the mirror to create for a static pod."""
    meta = {key: value for key, value in objects.metadata(pod).items() if key != "uid"}
    meta["annotations"] = {**(meta.get("annotations") or {}), MIRROR: objects.uid(pod)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod["spec"]}


def as_static(pod: JsonObject) -> JsonObject:
    """Return the static pod that a mirror stands for (its deletion is not the pod's); any other pod as it is."""
    uid = static_uid(pod)
    if not uid:
        return pod
    meta = {key: value for key, value in objects.metadata(pod).items() if not key.startswith("deletion")}
    return {**pod, "metadata": {**meta, "uid": uid}}


def mirrors(mirror: JsonObject, static: JsonObject) -> bool:
    """Return whether ``mirror`` stands for ``static``: it bears its namespace, its name and its UID, on its node."""
    if static_uid(mirror) != objects.uid(static) or objects.key(mirror) != objects.key(static):
        return False
    return bool(objects.spec(mirror).get("nodeName") == objects.spec(static).get("nodeName"))


class StaticPods:
    """The static pods of the shard's nodes as last read; thread-safe.

    Until a node's folder was read, what mirrors say holds, so that a restarted reconciler stops nothing.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nodes: dict[str, dict[str, JsonObject]] = {}
        self._ending: dict[str, JsonObject] = {}

    def take(self, node: str, pods: Iterable[JsonObject], known: Iterable[JsonObject], now: Any) -> set[str]:
        """Take over the pods of a node's folder; return the UIDs that came or went.

        ``known`` are the static pods there were by their mirrors: one without a manifest ends as a deleted pod does.
        """
        fresh = {objects.uid(pod): pod for pod in pods}
        with self._lock:
            before = self._nodes.get(node, {})
            elsewhere = {uid for other, pods in self._nodes.items() if other != node for uid in pods}
            for pod in (*before.values(), *known):
                if objects.uid(pod) not in {*fresh, *self._ending, *elsewhere}:
                    self._ending[objects.uid(pod)] = _ended(pod, now)
            for uid in fresh:
                self._ending.pop(uid, None)
            self._nodes[node] = fresh
            return before.keys() ^ fresh.keys() | {objects.uid(pod) for pod in known} - fresh.keys()

    def read(self, node: str) -> bool:
        """Return whether the node's folder was read."""
        with self._lock:
            return node in self._nodes

    def forget(self, uid: str) -> None:
        """Forget a pod that has ended."""
        with self._lock:
            self._ending.pop(uid, None)

    def get(self, uid: str) -> JsonObject | None:
        """Return the static pod of a UID, one that ends too."""
        with self._lock:
            found = (pods.get(uid) for pods in self._nodes.values())
            return next((pod for pod in found if pod is not None), None) or self._ending.get(uid)

    def of(self, node: str) -> list[JsonObject]:
        """Return the node's static pods, those that end too."""
        with self._lock:
            ending = [pod for pod in self._ending.values() if objects.spec(pod).get("nodeName") == node]
            return [*self._nodes.get(node, {}).values(), *ending]

    def ends(self, uid: str) -> bool:
        """Return whether the pod has lost its manifest."""
        with self._lock:
            return uid in self._ending


def _ended(pod: JsonObject, now: Any) -> JsonObject:
    ended = copy.deepcopy(pod)
    grace_s = int(objects.spec(pod).get("terminationGracePeriodSeconds") or 30)
    ended["metadata"] |= {"deletionTimestamp": rfc3339(now), "deletionGracePeriodSeconds": grace_s}
    return ended


def merged(static: JsonObject, mirror: JsonObject | None) -> JsonObject:
    """Return the static pod with the status and the creation time that its mirror tells."""
    if mirror is None or not mirrors(mirror, static):
        return static
    kept = {key: value for key in ("creationTimestamp", "resourceVersion") if (value := mirror["metadata"].get(key))}
    return {**static, "metadata": {**static["metadata"], **kept}, "status": mirror.get("status") or {}}

"""Which other objects of its namespace a pod names: what a node that runs it must be able to read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from minik8s_modules.api.objects import JsonObject, dig, every_container, spec
from minik8s_modules.api.pods.pod_claims import claim_of


class Reference(NamedTuple):
    """One object a pod names; ``plural`` is the core resource."""

    plural: str
    name: str


def references(pod: JsonObject) -> frozenset[Reference]:
    """Return every ConfigMap, Secret, ServiceAccount and PersistentVolumeClaim the pod names."""
    found = [*_of_spec(pod), *_of_containers(pod)]
    return frozenset(each for each in found if each.name)


def _of_spec(pod: JsonObject) -> Iterator[Reference]:
    yield Reference("serviceaccounts", spec(pod).get("serviceAccountName") or "")
    for secret in spec(pod).get("imagePullSecrets") or []:
        yield Reference("secrets", secret.get("name") or "")
    for volume in spec(pod).get("volumes") or []:
        yield from _of_source(volume, "secretName")
        yield Reference("persistentvolumeclaims", claim_of(pod, volume))
        yield Reference("secrets", dig(volume, "csi", "nodePublishSecretRef", "name") or "")
        for source in (volume.get("projected") or {}).get("sources") or []:
            yield from _of_source(source, "name")


def _of_source(source: JsonObject, secret_field: str) -> Iterator[Reference]:
    yield Reference("secrets", (source.get("secret") or {}).get(secret_field) or "")
    yield Reference("configmaps", (source.get("configMap") or {}).get("name") or "")


def _of_containers(pod: JsonObject) -> Iterator[Reference]:
    for _, _, container in every_container(pod):
        for variable in container.get("env") or []:
            source = variable.get("valueFrom") or {}
            yield Reference("secrets", (source.get("secretKeyRef") or {}).get("name") or "")
            yield Reference("configmaps", (source.get("configMapKeyRef") or {}).get("name") or "")
        for source in container.get("envFrom") or []:
            yield Reference("secrets", (source.get("secretRef") or {}).get("name") or "")
            yield Reference("configmaps", (source.get("configMapRef") or {}).get("name") or "")

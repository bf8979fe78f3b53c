"""The launcher's pod of a VirtualMachineInstance. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject


class Settings(NamedTuple):
    """What the administrator says of launchers."""

    image: str = "minik8s/virt-launcher:1"

    @classmethod
    def from_mapping(cls, found: Mapping[str, Any]) -> Settings:
        """Return the settings of a configuration's section ``launcher``."""
        return cls(image=str(found.get("image", cls._field_defaults["image"])))


def launcher_pod(vmi: JsonObject, settings: Settings) -> JsonObject:
    """Return the pod, without its owner."""
    labels = {
        **objects.labels(vmi),
        "kubevirt.io": "virt-launcher",
        "kubevirt.io/created-by": objects.uid(vmi),
        "vm.kubevirt.io/name": objects.name(vmi),
    }
    probe = {"exec": {"command": ["/usr/bin/vmctl", "ready"]}, "periodSeconds": 1}
    compute = {
        "name": "compute", "image": settings.image, "imagePullPolicy": "IfNotPresent", "readinessProbe": probe,
    }  # fmt: skip
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"virt-launcher-{objects.name(vmi)}-",
            "namespace": objects.namespace(vmi),
            "labels": labels,
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [compute],
            "nodeSelector": objects.spec(vmi).get("nodeSelector") or {},
        },
    }


def launcher_secrets(vmi: JsonObject) -> list[JsonObject]:
    """Return the Secrets that the pod mounts, to be made before it."""
    del vmi
    return []

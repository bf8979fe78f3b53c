"""Where things stand on a node; the only file that joins user-given names into paths.

``state_dir`` survives a boot, ``run_dir`` does not. Names from objects are path components and nothing else: a slash,
a NUL, ``.`` or ``..`` is refused here, so no caller has to think of it.

    <state_dir>/token.json lock node.key secrets.sealed documents/<section>.json pods/<uid>/volumes/<volume>
                pods/<uid>/mounts/<volume>
                attachments/<uid>.json folders/<uid of a PersistentVolume>.json
                csi/<uid>/<volume>.json
    <run_dir>/stopping/<container id> sub-paths/<digest>/<number>
              secrets/<namespace>/<name>/<key> secrets/.volumes/<uid>/<volume> attended sources.json
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

from .faults import KeyFault

# Where a module finds what is kept, as part of its argument spec (doc fragments minik8s_node.state, .run and .docker).
STATE_DIR: dict[str, Any] = {"state_dir": {"type": "path", "default": "/var/lib/minik8s"}}
RUN_DIR: dict[str, Any] = {"run_dir": {"type": "path", "default": "/run/minik8s"}}
DOCKER_SOCKET: dict[str, Any] = {"docker_socket": {"type": "path", "default": "/var/run/docker.sock"}}
PLACES: dict[str, Any] = {**STATE_DIR, **RUN_DIR, **DOCKER_SOCKET}
WATCH_MARK = "MINIK8S_WATCH"  # in the environment of the programs that tell of changes; a reset ends those
NAME_LIMIT = 253  # a DNS subdomain, the longest name Kubernetes allows
MOUNTS = "mounts"  # the folder of a pod's mount points
SECRET_KIND = "secret"  # noqa: S105  (a volume kind, no password)
CSI_KIND = "csi"
KUBELET = "/var/lib/kubelet"
"""Where CSI drivers, as they are shipped, look for kubelet's folders; their manifests name it."""
PLUGINS_REGISTRY = f"{KUBELET}/plugins_registry"
KUBELETS_FOLDERS = (f"{KUBELET}/pods", f"{KUBELET}/plugins", PLUGINS_REGISTRY)
MOUNT_KINDS = frozenset({"nfs"})  # somebody else's data: a folder where nothing is ever deleted but mount points
TMPFS_KINDS = frozenset({SECRET_KIND, "projected"})  # kubelet keeps both in memory


def component(name: str) -> str:
    """Return ``name`` if it is one safe path component.

    Raises:
        KeyFault: InvalidName, for an empty name, ``.``, ``..``, a slash, a NUL or more than 253 bytes.
    """
    if name in {"", ".", ".."} or "/" in name or "\0" in name or len(name.encode("utf-8", "replace")) > NAME_LIMIT:
        raise KeyFault(
            "InvalidName",
            f"{name!r} cannot be a file name: it is empty, a dot name, too long, or has a slash or NUL",
        )
    return name


def relative(path: str) -> str:
    """Return ``path`` if it is a relative path of safe components (a file inside a volume)."""
    for part in path.split("/"):
        component(part)
    return path


def split_key(key: str) -> tuple[str, str]:
    """Return both halves of ``<first>/<second>``, each a safe component."""
    first, slash, second = key.partition("/")
    if not slash:
        raise KeyFault("InvalidName", f"key {key!r} is not of the form <first>/<second>")
    return component(first), component(second)


def lock_path(state_dir: str) -> str:
    """Return the file whose flock every change of this node is made under."""
    return os.path.join(state_dir, "lock")


def token_path(state_dir: str) -> str:
    """Return the file of the newest fencing token seen."""
    return os.path.join(state_dir, "token.json")


def document_path(state_dir: str, section: str) -> str:
    """Return the file of a section's last declared set."""
    return os.path.join(state_dir, "documents", component(section) + ".json")


def folder_record_path(state_dir: str, owner: str) -> str:
    """Return the record of the folder that was made for a PersistentVolume, by its UID."""
    return os.path.join(state_dir, "folders", component(owner) + ".json")


def attachments_dir(state_dir: str) -> str:
    """Return the directory of what plugins attached, one file a pod."""
    return os.path.join(state_dir, "attachments")


def attachment_path(state_dir: str, uid: str) -> str:
    """Return the file of one pod's attachment by a plugin."""
    return os.path.join(attachments_dir(state_dir), component(uid) + ".json")


def pod_dir(state_dir: str, uid: str) -> str:
    """Return the directory of a pod's files that survive a boot."""
    return os.path.join(state_dir, "pods", component(uid))


def secrets_dir(run_dir: str) -> str:
    """Return the tmpfs that holds every secret value of the node."""
    return os.path.join(run_dir, "secrets")


def secret_dir(run_dir: str, secret: str) -> str:
    """Return the directory of the secret ``<namespace>/<name>``; one file a key."""
    return os.path.join(secrets_dir(run_dir), *split_key(secret))


def stopping_path(run_dir: str, container_id: str) -> str:
    """Return the marker that tells when a container got its stop signal (its mtime)."""
    return os.path.join(run_dir, "stopping", component(container_id))


def volumes_dir(state_dir: str, run_dir: str, uid: str, kind: str) -> str:
    """Return the directory of a pod's volumes: on tmpfs for what may hold secrets, on disk for the rest."""
    if kind in TMPFS_KINDS:
        return os.path.join(secrets_dir(run_dir), ".volumes", component(uid))
    if kind in MOUNT_KINDS:
        return os.path.join(pod_dir(state_dir, uid), MOUNTS)
    return os.path.join(pod_dir(state_dir, uid), "volumes")


def csi_target(uid: str, volume: str) -> str:
    """Return where a driver is to mount a pod's volume: in kubelet's folders, which drivers see."""
    return os.path.join(KUBELET, "pods", component(uid), "volumes", "kubernetes.io~csi", component(volume), "mount")


def csi_staging(driver: str, handle: str) -> str:
    """Return where a driver is to mount a volume once for all pods of the node (kubelet's makeDeviceMountPath)."""
    digest = hashlib.sha256(handle.encode()).hexdigest()
    return os.path.join(KUBELET, "plugins", "kubernetes.io", "csi", component(driver), digest, "globalmount")


def csi_records(state_dir: str) -> str:
    """Return the folder that notes which volume of which pod a driver was asked for."""
    return os.path.join(state_dir, "csi")


def volume_path(state_dir: str, run_dir: str, uid: str, volume: str, kind: str) -> str:
    """Return the directory of one volume (not for hostPath, whose path is its own)."""
    if kind == CSI_KIND:
        return csi_target(uid, volume)
    return os.path.join(volumes_dir(state_dir, run_dir, uid, kind), component(volume))

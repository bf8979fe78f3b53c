"""The volume through which a pod's programs reach the API: token, authority, namespace. Pure.

Kubernetes' ServiceAccount admission (plugin/pkg/admission/serviceaccount) adds it to every pod that does not say
``automountServiceAccountToken: false``, mounted where client libraries look.
"""

from __future__ import annotations

from minik8s_modules.api.objects import JsonObject, all_containers, spec

MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
PREFIX = "kube-api-access-"
ROOT_CA = "kube-root-ca.crt"
# an hour, and seven seconds by which audits tell tokens that were asked for this way
EXPIRATION_S = 3607


def wants_token(pod: JsonObject, account: JsonObject) -> bool:
    """Return whether the pod, or else its account, wants the volume; both silent means yes."""
    for said in (spec(pod).get("automountServiceAccountToken"), account.get("automountServiceAccountToken")):
        if said is not None:
            return bool(said)
    return True


def add(pod: JsonObject, suffix: str) -> None:
    """Mount the volume in every container that mounts nothing there, in place; make it when one does.

    Args:
        pod: a new pod.
        suffix: what sets the volume's name apart; five random letters in Kubernetes.
    """
    without = [container for _, _, container in all_containers(pod) if not _is_mounted(container)]
    if not without:
        return
    name = _existing(pod) or PREFIX + suffix
    if not _existing(pod):
        pod["spec"].setdefault("volumes", []).append(volume(name))
    for container in without:
        mount = {"name": name, "readOnly": True, "mountPath": MOUNT_PATH}
        container.setdefault("volumeMounts", []).append(mount)


def _is_mounted(container: JsonObject) -> bool:
    return any(mount.get("mountPath") == MOUNT_PATH for mount in container.get("volumeMounts") or [])


def _existing(pod: JsonObject) -> str:
    """Return the name of such a volume that the pod brings along, as a copy of another pod does."""
    names = (volume.get("name") or "" for volume in spec(pod).get("volumes") or [])
    return next((name for name in names if name.startswith(PREFIX)), "")


def volume(name: str) -> JsonObject:
    """Return the volume, defaults filled in."""
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    return {
        "name": name,
        "projected": {
            "defaultMode": 0o644,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": EXPIRATION_S, "path": "token"}},
                {"configMap": {"name": ROOT_CA, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [namespace]}},
            ],
        },
    }

"""Prints a pod that Pod Security `restricted` lets in, except for what its argument names."""

from __future__ import annotations

import json
import sys
from typing import Any

RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def pod(kind: str) -> dict[str, Any]:
    """Return the pod of a kind: plain, bare, the name of a field of the host, or of what its container asks for."""
    container: dict[str, Any] = {"name": "app", "image": "minik8s/busybox:1", "securityContext": dict(RESTRICTED)}
    spec: dict[str, Any] = {"containers": [container]}
    if kind == "bare":
        del container["securityContext"]
    elif kind == "privileged":
        container["securityContext"] = {"privileged": True}
    elif kind in {"net_raw", "net_admin"}:
        container["securityContext"]["capabilities"] = {"drop": ["ALL"], "add": [kind.upper()]}
    elif kind == "hostPath":
        spec["volumes"] = [{"name": "host", "hostPath": {"path": "/"}}]
    elif kind == "hostPort":
        container["ports"] = [{"containerPort": 80, "hostPort": 80}]
    elif kind != "plain":
        spec[kind] = True
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "cis"}, "spec": spec}


if __name__ == "__main__":
    json.dump(pod(sys.argv[1]), sys.stdout)

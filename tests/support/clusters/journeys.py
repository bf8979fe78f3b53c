"""Journeys that are made on more than one kind of cluster, by kubectl and what it prints."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Kubectl = Callable[..., str]
"""Runs kubectl in the journey's namespace (arguments, ``stdin``) and returns what it prints."""
Until = Callable[[Callable[[], Any], float], Any]

ORIGINAL_REPLICA_SET = """
apiVersion: v1
kind: ReplicaSet
metadata: {name: nginx-replicaset}
spec:
  replicas: 3
  selector: {matchLabels: {app: nginx}}
  template:
    metadata: {name: nginx-pod, labels: {app: nginx}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - name: nginx
          image: minik8s/busybox:1
          command: [sleep, "3600"]
          ports: [{containerPort: 80, protocol: tcp}]
"""
PATIENCE_S = 90.0


def pods(kubectl: Kubectl) -> list[dict[str, Any]]:
    """Return the pods of the original's set that are not being deleted."""
    found = json.loads(kubectl("get", "pods", "-l", "app=nginx", "-o", "json"))["items"]
    return [each for each in found if "deletionTimestamp" not in each["metadata"]]


def alive(kubectl: Kubectl) -> list[str]:
    """Return the names of its running pods."""
    return [each["metadata"]["name"] for each in pods(kubectl) if each["status"].get("phase") == "Running"]


def replica_set(kubectl: Kubectl, until: Until) -> None:
    """S-09: three pods with the original's names; a deleted one is replaced; a failed one stays and is replaced.

    Containers of a replica set's pods are started again, so a pod fails as an evicted one does: its status says so.
    """
    kubectl("apply", "-f", "-", stdin=ORIGINAL_REPLICA_SET)
    until(lambda: len(alive(kubectl)) == 3, PATIENCE_S)
    first = alive(kubectl)
    assert all(name.startswith("nginx-pod-") and len(name) == len("nginx-pod-") + 36 for name in first)
    kubectl("delete", "pod", first[0], "--grace-period=1")
    until(lambda: len(alive(kubectl)) == 3 and first[0] not in alive(kubectl), PATIENCE_S)
    failed = '{"status": {"phase": "Failed", "reason": "Evicted", "message": "by the journey"}}'
    kubectl("patch", "pod", first[1], "--subresource=status", "--type=merge", "-p", failed)
    until(lambda: len(pods(kubectl)) == 4 and len(alive(kubectl)) == 3, PATIENCE_S)
    assert first[1] not in alive(kubectl)
    kubectl("scale", "rs/nginx-replicaset", "--replicas=0")
    until(lambda: alive(kubectl) == [], PATIENCE_S)
    kubectl("delete", "legacyreplicasets", "nginx-replicaset")

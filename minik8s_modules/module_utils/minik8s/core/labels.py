"""Names and labels of our Docker containers: how ours are told from others, and from other nodes' on one dockerd."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PREFIX = "minik8s.io/"
NODE = PREFIX + "node"
TYPE = PREFIX + "type"
POD_UID = PREFIX + "pod-uid"
POD_NAME = PREFIX + "pod-name"
POD_NAMESPACE = PREFIX + "pod-namespace"
CONTAINER = PREFIX + "container"
ATTEMPT = PREFIX + "attempt"
IP = PREFIX + "ip"
SECRET_ENV = PREFIX + "secret-env"
SECURITY = PREFIX + "security"
DEVICES = PREFIX + "devices"
"""The paths of devices that no other container has, with spaces between them."""
SERVICE_LINKS = PREFIX + "service-links"
MESSAGE = PREFIX + "termination-message"
HOST_PORTS = PREFIX + "host-ports"
NETWORK = PREFIX + "network"
"""The driver cni or weave that a pause container was made for; none: our own bridge."""
SANDBOX = "sandbox"
OF_SOME = (SECRET_ENV, SECURITY, DEVICES, SERVICE_LINKS, MESSAGE, IP)
"""Labels that say something of some containers only: the others have them empty, since Docker takes from the image each
label that a container is not made with."""


def pod_labels(node: str, pod: Mapping[str, Any], kind: str, container: str, attempt: int) -> dict[str, str]:
    """Return the labels every container of ours carries; ``kind`` is sandbox, init or app."""
    return {
        NODE: node,
        TYPE: kind,
        POD_UID: pod["uid"],
        POD_NAME: pod["name"],
        POD_NAMESPACE: pod["namespace"],
        CONTAINER: container,
        ATTEMPT: str(attempt),
    }


def sandbox_name(pod: Mapping[str, Any], attempt: int) -> str:
    """Return the Docker name of a pod's pause container."""
    return f"mk8s_POD_{pod['name']}_{pod['namespace']}_{pod['uid']}_{attempt}"


def container_name(pod: Mapping[str, Any], container: str, attempt: int) -> str:
    """Return the Docker name of a pod's container."""
    return f"mk8s_{container}_{pod['name']}_{pod['namespace']}_{pod['uid']}_{attempt}"


def attempt_of(labels: Mapping[str, Any]) -> int:
    """Return the attempt a container's labels tell; -1 when unreadable, which no declared attempt equals."""
    text = str(labels.get(ATTEMPT, ""))
    return int(text) if text.isdigit() else -1

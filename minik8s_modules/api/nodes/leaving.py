"""How a node leaves: the annotation ``minik8s.io/leaving`` of its Node, written by whoever has it leave.

``asked``: it will be drained; controllers note which bare pods of the original must come back, and answer ``ready``.
``departed``: nobody attends the machine any more. Controllers delete its pods without waiting for it, then the Node;
its range of addresses stays claimed (``pod_cidrs.py``). Without the annotation, or uncordoned, a node stays.
"""

from __future__ import annotations

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mirror_pods import is_mirror

LEAVING = "minik8s.io/leaving"
ASKED, READY, DEPARTED = "asked", "ready", "departed"
_DIALECT, _ORIGINAL = "minik8s.io/dialect", "original"


def leaving(node: JsonObject) -> str:
    """Return how far the node has left, "" when it stays."""
    return str(objects.annotations(node).get(LEAVING) or "")


def comes_back(pod: JsonObject) -> bool:
    """Return whether the pod is to be made again under its name: a bare one of the original that has not ended.

    Source: behaviour of the original, S-19; nobody else would make it again, and Kubernetes' bare pods just go.
    """
    marks = objects.annotations(pod)
    if marks.get(_DIALECT) != _ORIGINAL or is_mirror(pod) or objects.controller_of(pod) is not None:
        return False
    return not objects.is_deleting(pod) and objects.status(pod).get("phase") not in {"Succeeded", "Failed"}

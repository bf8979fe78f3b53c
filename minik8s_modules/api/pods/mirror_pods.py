"""Mirror pods: how the API shows the static pods that run on a node from manifests there.

The annotation ``kubernetes.io/config.mirror`` holds the static pod's UID, under which its containers run. Everything
that goes from the API to a node asks ``node_uid``, and never the annotation: that UID is a hash in hexadecimal, while
the UIDs the API server gives are UUIDs with hyphens, so no mirror can name a pod of the API, however it came to be
stored. Nothing else that this rests on, the pod's name and its node, ever changes. Who may write the annotation stands
in ``steering.py``. Source: kubernetes ``pkg/kubelet/config/common.go``.
"""

from __future__ import annotations

import re

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject, name, spec, uid

MIRROR = "kubernetes.io/config.mirror"
HASH, SOURCE, SEEN = "kubernetes.io/config.hash", "kubernetes.io/config.source", "kubernetes.io/config.seen"
_STATIC_UID = re.compile(r"[0-9a-f]{32}")


def is_mirror(pod: JsonObject) -> bool:
    """Return whether the pod says that it mirrors a static one, truly or not: such a pod is given nothing."""
    return MIRROR in objects.annotations(pod)


def static_uid(pod: JsonObject) -> str:
    """Return the UID of the static pod that ``pod`` mirrors; "" when it mirrors none, whatever it says."""
    return str(objects.annotations(pod)[MIRROR]) if is_mirror(pod) and not faults(pod) else ""


def node_uid(pod: JsonObject) -> str:
    """Return the UID that the pod's containers bear on its node: of a mirror its static pod's."""
    return static_uid(pod) or uid(pod)


def faults(pod: JsonObject) -> list[str]:
    """Return what a pod lacks to be the mirror that it says it is."""
    found, node = str(objects.annotations(pod).get(MIRROR) or ""), str(spec(pod).get("nodeName") or "")
    rules = {
        "must set spec.nodeName if mirror pod annotation is set": bool(node),
        "must be the UID of a static pod: 32 hexadecimal digits": bool(_STATIC_UID.fullmatch(found)),
        f"a static pod's name must end with its node's (-{node})": name(pod).endswith(f"-{node}"),
    }
    return [fault for fault, holds in rules.items() if not holds]

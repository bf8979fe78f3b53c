"""Nodes that have a pod's images already are preferred, less so where few nodes have them.

Source: pkg/scheduler/framework/plugins/imagelocality. Sizes and names come from ``status.images`` of the nodes.
"""

from __future__ import annotations

from minik8s_modules.api import objects
from minik8s_modules.scheduler.framework.infos import NodeInfo, PodInfo
from minik8s_modules.scheduler.framework.points import BEST, CycleState
from minik8s_modules.scheduler.plugins.base import InTree

_MB = 1024 * 1024
_LEAST, _MOST_EACH = 23 * _MB, 1000 * _MB


class ImageLocality(InTree):
    """Prefers nodes that hold the images."""

    name = "ImageLocality"
    local = True  # what other nodes hold counts too: the snapshot works everything out again when that changes

    def score(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return 0 for less than 23 MB of images there, 100 for 1 GB a container."""
        if not node.images:
            return 0
        snapshot = self.handle.snapshot()
        images = [str(one.get("image") or "") for _, _, one in objects.all_containers(pod.pod)]
        total = 0
        for image in map(_tagged, images):
            if image in node.images:
                total += int(node.images[image] * (snapshot.images[image] / len(snapshot.nodes)))
        most = _MOST_EACH * len(images)
        return BEST * (min(max(total, _LEAST), most) - _LEAST) // (most - _LEAST)


def _tagged(image: str) -> str:
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"

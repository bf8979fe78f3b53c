"""What every node comes to for a pod that has none: which plugin objects and why, or the scores with their weights.

The default profile and the original's policies decide here as in the scheduler; a cluster with a configuration of its
own may weigh otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import (
    NAMESPACE,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    STORAGE_CLASS,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli import output
from minik8s_modules.cli.causes.surroundings import Around
from minik8s_modules.scheduler.deciding.cycle import Judged
from minik8s_modules.scheduler.framework.infos import PodInfo
from minik8s_modules.scheduler.framework.snapshot import Snapshot
from minik8s_modules.scheduler.framework.storage import Storage
from minik8s_modules.scheduler.profiles.deciding import explain_nodes

_ONE_SCREEN = 20


def placing(pod: JsonObject, around: Around) -> Iterator[str]:
    """Yield a line for each node, those that fit first; nothing for a pod that has a node or is not to be tried."""
    if objects.spec(pod).get("nodeName") or objects.spec(pod).get("schedulingGates") or objects.is_deleting(pod):
        return
    namespaces = {objects.name(one): objects.labels(one) for one in around.all(NAMESPACE)}
    snapshot = Snapshot.of(around.all(NODE), around.all(POD), namespaces=namespaces, storage=_storage(pod, around))
    judged = explain_nodes(pod, snapshot)
    if not judged:
        return
    rows = [[one.node, _told(one)] for one in judged[:_ONE_SCREEN]]
    yield from output.aligned(["NODE", "FOR THIS POD"], rows, output.Paint()).splitlines()
    if judged[_ONE_SCREEN:]:
        yield f"… and {len(judged) - _ONE_SCREEN} nodes more"


def _storage(pod: JsonObject, around: Around) -> Storage | None:
    """Return what the pod's claims are judged by; None for a pod without claims, and where it may not be read."""
    if not PodInfo.of(pod).claims:
        return None
    kinds = (PERSISTENT_VOLUME_CLAIM, PERSISTENT_VOLUME, STORAGE_CLASS)
    found = [around.all(kind) for kind in kinds]
    return None if any(kind.plural in around.unread for kind in kinds) else Storage.of(*found)


def _told(judged: Judged) -> str:
    if judged.status is not None:
        return f"{judged.status.plugin or 'PreFilter'}: {judged.status.message}"
    scores = (f"{plugin} {score} x {weight}" for plugin, (score, weight) in judged.scores.items())
    return f"fits, {judged.total}: {', '.join(scores)}"

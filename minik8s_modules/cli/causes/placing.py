"""What every node comes to for a pod that has none: which plugin objects and why, or the scores with their weights.

The plugins decide here as in the scheduler, configured as the scheduler says it is itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import (
    CSI_DRIVER,
    CSI_NODE,
    CSI_STORAGE_CAPACITY,
    LEASE,
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
from minik8s_modules.scheduler.framework.storage import Storage
from minik8s_modules.scheduler.profiles.deciding import SPREAD_BY, Profiles, Scene, Unknown
from minik8s_modules.scheduler.profiles.published import NAMESPACE as NAMESPACE_OF_LEASES
from minik8s_modules.scheduler.profiles.published import read_published

_ONE_SCREEN = 20
_STORAGE = (PERSISTENT_VOLUME_CLAIM, PERSISTENT_VOLUME, STORAGE_CLASS, CSI_NODE, CSI_DRIVER, CSI_STORAGE_CAPACITY)


def placing(pod: JsonObject, around: Around) -> Iterator[str]:
    """Yield a line for each node, those that fit first; nothing for a pod that has a node or is not to be tried."""
    if objects.spec(pod).get("nodeName") or objects.spec(pod).get("schedulingGates") or objects.is_deleting(pod):
        return
    scene = _scene(pod, around)
    try:
        judged = scene.profiles.explain(pod, scene.snapshot(pod, around.all(NODE), around.all(POD)))
    except Unknown as why:
        yield str(why)
        return
    if not judged:
        return
    rows = [[one.node, _verdict(one)] for one in judged[:_ONE_SCREEN]]
    yield from output.aligned(["NODE", "FOR THIS POD"], rows, output.Paint()).splitlines()
    if judged[_ONE_SCREEN:]:
        yield f"… and {len(judged) - _ONE_SCREEN} nodes more"
    yield from _left_out(around)


def _scene(pod: JsonObject, around: Around) -> Scene:
    """Return what the scheduler looks at besides pods and nodes, as far as it may be read."""
    profiles = Profiles(read_published(around.all(LEASE, NAMESPACE_OF_LEASES)), around.client)
    workloads = (one for kind in SPREAD_BY for one in around.all(kind, objects.namespace(pod)))
    return Scene(profiles, tuple(around.all(NAMESPACE)), tuple(workloads), storage=_storage(pod, around))


def _left_out(around: Around) -> Iterator[str]:
    """Yield what the lines before do not take into account, since it may not be read."""
    if LEASE.plural in around.unread:
        yield "as a scheduler without a configuration decides: yours may not be read (leases in kube-system)"
    unread = sorted({kind.plural for kind in (NAMESPACE, POD, *SPREAD_BY, *_STORAGE)} & around.unread)
    if unread:
        yield f"without what may not be read: {', '.join(unread)}"


def _storage(pod: JsonObject, around: Around) -> Storage | None:
    """Return what the pod's claims are judged by; None for a pod without claims, and where it may not be read."""
    if not PodInfo.of(pod).claims:
        return None
    found = [around.all(kind) for kind in _STORAGE]
    return None if any(kind.plural in around.unread for kind in _STORAGE) else Storage.of(*found)


def _verdict(judged: Judged) -> str:
    if judged.status is not None:
        return f"{judged.status.plugin or 'PreFilter'}: {judged.status.message}"
    scores = (f"{plugin} {score} x {weight}" for plugin, (score, weight) in judged.scores.items())
    return f"fits, {judged.total}: {', '.join(scores)}"

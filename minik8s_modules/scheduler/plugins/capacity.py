"""How much room drivers have for volumes, by where (CSIStorageCapacity): Kubernetes' rules of what is enough.

Each claim is looked at by itself, and what was chosen a moment ago is not taken off: a driver that then has no room
says so, and the pod is scheduled again. Source: ``hasEnoughCapacity`` of pkg/scheduler/framework/plugins/volumebinding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal

from minik8s_modules.api import objects, quantities, selectors
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.storage import claims
from minik8s_modules.scheduler.framework.infos import PodInfo


def is_enough(known: Iterable[JsonObject] | None, claim: JsonObject, labels: Mapping[str, str]) -> bool:
    """Return whether a node with these labels has room for a claim's volume; ``known`` is None where nobody says."""
    wanted = claims.requested(claim)
    return known is None or not wanted or any(_limit(one) >= wanted and _reaches(one, labels) for one in known)


def _limit(capacity: JsonObject) -> Decimal:
    """Return how large a volume can be; less than nothing where that is not said."""
    most = capacity.get("maximumVolumeSize") or capacity.get("capacity")
    return quantities.parse(most) if most is not None else Decimal(-1)


def _reaches(capacity: JsonObject, labels: Mapping[str, str]) -> bool:
    """Return whether a node with these labels is meant; a capacity without ``nodeTopology`` is meant for none."""
    topology = capacity.get("nodeTopology")
    return topology is not None and selectors.from_label_selector(topology).matches(labels)


def has_more(_pod: PodInfo, old: JsonObject | None, new: JsonObject) -> bool:
    """Return whether there is room for larger volumes than before: a hint for the queue."""
    return old is None or _limit(new) > _limit(old)


def asks_less(_pod: PodInfo, old: JsonObject | None, new: JsonObject) -> bool:
    """Return whether a driver stopped saying how much room it has: a hint for the queue."""
    return bool(old and objects.spec(old).get("storageCapacity")) and not objects.spec(new).get("storageCapacity")

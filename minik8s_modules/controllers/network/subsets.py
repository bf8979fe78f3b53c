"""Names the Pods that have the labels of a Subset, in its status: pilots read Subsets, and no Pods."""

from __future__ import annotations

from collections.abc import Iterable

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict, NotFound
from minik8s_modules.api.kinds import POD, SUBSET
from minik8s_modules.api.network.subsets import has_labels_of, with_pods
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.runtime.controller import Context, Loop, Looping, own_keys
from minik8s_modules.runtime.informers import BY_NAMESPACE


def decide_subset(subset: JsonObject, pods: Iterable[JsonObject]) -> JsonObject | None:
    """Return a Subset with the status that it is to have; None if it has that. ``pods`` are its namespace's."""
    wanted = with_pods(subset, pods)
    return wanted if objects.status(wanted) != objects.status(subset) else None


class SubsetController(Looping):
    """Keeps the status of Subsets."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._loop = Loop(context, SUBSET.singular_name, self.sync, workers=1)
        self._subsets = self._loop.watch(SUBSET, own_keys, BY_NAMESPACE)
        self._pods = self._loop.watch(POD, self._of_pod, BY_NAMESPACE)

    def sync(self, key: Key) -> None:
        """Write what differs.

        Raises:
            StatusError: the API refused; it is tried again.
        """
        subset = self._subsets.get(*key)
        wanted = None
        if subset is not None and not objects.is_deleting(subset):
            wanted = decide_subset(subset, self._pods.by_index(BY_NAMESPACE, key.namespace))
        if wanted is not None:
            try:
                self._client.update(SUBSET, wanted, subresource="status")
            except (Conflict, NotFound):
                return  # our copy is older than the object; its change brings the key back

    def _of_pod(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        """Return the Subsets that a Pod comes to or leaves."""
        both = [each for each in (old, new) if each is not None]
        if len(both) > 1 and _counts(both[0]) == _counts(both[1]):
            return []
        return [
            objects.key(each)
            for each in self._subsets.by_index(BY_NAMESPACE, objects.namespace(both[0]))
            if any(has_labels_of(pod, each) for pod in both)
        ]


def _counts(pod: JsonObject) -> tuple[object, bool]:
    return objects.labels(pod), objects.is_deleting(pod)

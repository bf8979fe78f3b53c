"""What ResourceQuotas count of the objects that extension API servers keep.

Nobody tells of these objects, so they are listed every ``LOOK_S`` seconds, for the quotas that name them. That is done
in a queue of its own: an extension that hangs delays no other count. Of one that cannot be asked the last count stays.
The quota refuses nothing there: objects of an extension are not written here, as in Kubernetes, whose controller counts
what discovery names (``pkg/controller/resourcequota``, ``SyncMonitors``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound, StatusError
from minik8s_modules.api.kinds import RESOURCE_QUOTA, Kind
from minik8s_modules.api.objects import Key
from minik8s_modules.api.pods import quotas
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.silences import Silences
from minik8s_modules.controllers.cleanup.collector import collected_kinds
from minik8s_modules.controllers.cleanup.extensions import ODD, Extended, checked
from minik8s_modules.controllers.policy.quotas import to_count
from minik8s_modules.runtime.controller import Context, Loop, Looping

log = logging.getLogger(__name__)

LOOK_S = 10.0


def decide_counts(names: AbstractSet[str], extended: Extended, listed: dict[Kind, int]) -> dict[str, str]:
    """Return how many objects stand behind each name, without those of which that is not known.

    Args:
        names: ``count/PLURAL.GROUP``, of groups that are not the server's own.
        extended: who keeps what.
        listed: how many objects there are of each kind that could be listed.
    """
    counts = {f"count/{kind.resource}": str(number) for kind, number in listed.items()}
    served = {f"count/{kind.resource}" for kind in extended.kinds}
    silent = {api_version.partition("/")[0] for api_version in extended.unknown}
    nobody = {name for name in names - served if name.partition(".")[2] not in silent}
    return {name: counts.get(name, "0") for name in names if name in counts or name in nobody}


class ExtensionQuotaController(Looping):
    """Keeps these counts; ``extensions`` tells who keeps what."""

    def __init__(self, context: Context, extensions: Callable[[], Extended]) -> None:
        self._context, self._client, self._extensions = context, context.client, extensions
        self._silences = Silences(context.clock)
        self._loop = Loop(context, f"{RESOURCE_QUOTA.singular_name}-extensions", self.sync)
        self._quotas = self._loop.watch(RESOURCE_QUOTA, to_count)
        context.informers.custom.follow(self._on_custom)

    def sync(self, key: Key) -> None:
        """Count for one quota.

        Raises:
            StatusError: the API refused; Conflict when the quota has changed meanwhile.
            TemporaryError: it did not answer.
        """
        try:
            quota = self._client.get(RESOURCE_QUOTA, key.name, key.namespace)
        except NotFound:
            return
        names = quotas.of_others(quota, (*collected_kinds(), *self._context.informers.custom.all()))
        if not names:
            return
        self._loop.add_after(key, LOOK_S)
        status = objects.status(quota)
        before = status.get("used") or {}
        used = {**before, **self._counts(names, key.namespace)}
        if used != before:
            self._client.update(RESOURCE_QUOTA, {**quota, "status": {**status, "used": used}}, subresource="status")

    def _counts(self, names: AbstractSet[str], namespace: str) -> dict[str, str]:
        extended = self._extensions()
        wanted = [kind for kind in extended.kinds if kind.namespaced and f"count/{kind.resource}" in names]
        listed = {}
        for kind in {each.resource: each for each in reversed(wanted)}.values():  # of versions, the first
            try:
                with self._silences.asking(kind.api_version, kind.resource):
                    listed[kind] = len(checked(self._client.list(kind, namespace).items))
            except (StatusError, TemporaryError, *ODD) as error:
                log.warning("%s of namespace %s cannot be counted: %s", kind.resource, namespace, error)
        return decide_counts(names, extended, listed)

    def _on_custom(self, kind: Kind, present: bool) -> None:  # noqa: ARG002, FBT001 - a follower's signature
        """Look again at who counts a custom kind, which comes or goes."""
        for quota in self._quotas.list():
            if quotas.counted_kinds(quota, [kind]):
                self._loop.add(objects.key(quota))

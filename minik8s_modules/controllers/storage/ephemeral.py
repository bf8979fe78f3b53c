"""Claims that are made for pods, one for each volume with ``ephemeral.volumeClaimTemplate``: ``decide_ephemeral``.

The pod owns them, so that they go with it. Source: kubernetes ``pkg/controller/volume/ephemeral``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import PERSISTENT_VOLUME_CLAIM, POD
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.pods.pod_claims import claim_of, not_its_own
from minik8s_modules.controllers.core.steps import Create, RecordEvent, Step, Words, controller_reference
from minik8s_modules.controllers.core.workload import WorkloadController
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.informers import BY_CLAIM, by_claim

_REASON = "FailedBinding"


def decide_ephemeral(pod: JsonObject, claims: Mapping[str, JsonObject]) -> list[Step]:
    """Return the creation of the claims that a pod lacks; ``claims`` are those of their names, of whomever."""
    steps: list[Step] = []
    if objects.is_deleting(pod):
        return steps
    for volume in _volumes(pod):
        claim = claims.get(claim_of(pod, volume))
        if claim is None:
            steps.append(_made(pod, volume))
        elif why := not_its_own(pod, claim):
            steps.append(RecordEvent(pod, "Warning", _REASON, f"ephemeral volume {volume['name']}: {why}"))
    return steps


def _volumes(pod: JsonObject) -> list[JsonObject]:
    return [each for each in objects.spec(pod).get("volumes") or [] if each.get("ephemeral") is not None]


def _made(pod: JsonObject, volume: JsonObject) -> Create:
    template, name = volume["ephemeral"].get("volumeClaimTemplate") or {}, claim_of(pod, volume)
    meta = {
        "name": name,
        "namespace": objects.namespace(pod),
        "labels": objects.labels(template),
        "annotations": objects.annotations(template),
        "ownerReferences": [controller_reference(POD, pod)],
    }
    kind = PERSISTENT_VOLUME_CLAIM
    claim = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": objects.spec(template)}
    return Create(kind, claim, Words("", "", _REASON, f"ephemeral volume {volume['name']}: create PVC {name}: "))


class EphemeralController(WorkloadController):
    """Makes the claims of pods' ephemeral volumes."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, POD, (), keys_of=_with_claims_to_make)
        self.own.add_index(BY_CLAIM, by_claim)
        self._claims = self.loop.watch(PERSISTENT_VOLUME_CLAIM, self._claim_gone)

    def decide(self, obj: JsonObject) -> Sequence[Step]:
        """Return the next steps of one pod."""
        space, names = objects.namespace(obj), [claim_of(obj, each) for each in _volumes(obj)]
        found = {name: self._claim(Key(space, name)) for name in names}
        return decide_ephemeral(obj, {name: claim for name, claim in found.items() if claim is not None})

    def _claim(self, key: Key) -> JsonObject | None:
        known = self._claims.get(*key)
        if known is not None:
            return known
        try:  # its copy may lag
            return self.context.client.get(PERSISTENT_VOLUME_CLAIM, key.name, key.namespace)
        except NotFound:
            return None

    def _claim_gone(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        """Return the pods that have a claim of the name of one that is gone: it may have been somebody else's."""
        if old is None or new is not None:
            return []
        return [objects.key(pod) for pod in self.own.by_index(BY_CLAIM, str(objects.key(old))) if _volumes(pod)]


def _with_claims_to_make(old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
    """Return the key of a pod that is new, and has such volumes: they never change."""
    return [objects.key(new)] if old is None and new is not None and _volumes(new) else []

"""What the decisions about a pod's containers are made from, and what one of them is made of."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.entries.containers import ContainerEntry
from minik8s_modules.module_utils.minik8s.pods.devices import Device
from minik8s_modules.reconcile.pods.observed import ObservedContainer, ObservedPod
from minik8s_modules.reconcile.values.values import Health, PodEvent, PodInputs, Sealed, Waiting

DIALECT = "minik8s.io/dialect"
DEFAULT_GRACE_S = 30
CREATING = Waiting("ContainerCreating")
SANDBOX_MISSING = "SandboxMissing"
"""A node's reason for a container whose sandbox is not up; why that is so is told of the sandbox."""
RULES_MISSING = "RulesMissing"
"""A node's reason for a container whose pod's rules are not there; why is told of the sandbox."""
VOLUME_MISSING = "VolumeMissing"
"""A node's reason for a container that mounts a volume which is not made yet; why is told of the volume."""
FAILED_MOUNT = "FailedMount"
"""A node's reason for a volume it could not make, and for a container that mounts one."""
SIDECAR = "sidecar"
"""The kind of an init container that runs beside the others (``restartPolicy: Always``)."""
EPHEMERAL = "ephemeral"
"""The kind of a container that ``kubectl debug`` adds: started once, never again."""


class PodContext(NamedTuple):
    """What the decisions about one pod's containers share."""

    pod: JsonObject
    seen: ObservedPod
    inputs: PodInputs
    now: datetime
    sandbox_attempt: int = 0
    sandbox_usable: bool = True
    sandbox_since: datetime | None = None
    restarting: frozenset[str] = frozenset()
    """The containers that must start again for the resources they were given."""

    @property
    def devices(self) -> tuple[Device, ...]:
        """What is declared of the node's devices."""
        declared = self.inputs.settings.declared.get(objects.name(self.inputs.node))
        return declared.devices if declared is not None else ()

    def fresh(self, one: ObservedContainer) -> bool:
        """Return whether the container lives in the pod's current sandbox."""
        since = self.sandbox_since
        return since is not None and (one.created_at is None or one.created_at >= since)


class ContainerDecision(NamedTuple):
    """What one container wants; ``finished`` means that it will not run again."""

    entry: ContainerEntry | None = None
    waiting: Waiting | None = None
    wake_at: datetime | None = None
    pull: str = ""
    events: tuple[PodEvent, ...] = ()
    finished: bool = False
    exit_code: int = 0
    references: frozenset[str] = frozenset()
    sealed: Sealed = Sealed()
    checks: tuple[JsonObject, ...] = ()
    health: Health = Health()


def recorded_status(pod: JsonObject, name: str) -> JsonObject:
    """Return the status the API has of a container, or an empty map."""
    status = objects.status(pod)
    fields = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
    known = [one for field in fields for one in status.get(field) or []]
    return next((one for one in known if one.get("name") == name), {})


def kind_of(field: str, container: JsonObject) -> str:
    """Return the kind of a container that stands in ``field`` of a pod's spec."""
    if field == "initContainers" and container.get("restartPolicy") == "Always":
        return SIDECAR
    return _KINDS[field]


_KINDS = {"initContainers": "init", "containers": "app", "ephemeralContainers": EPHEMERAL}


def kinds(pod: JsonObject) -> Iterable[tuple[str, JsonObject]]:
    """Yield (kind, container) of init containers, then app and ephemeral containers."""
    for field, _, container in objects.every_container(pod):
        yield kind_of(field, container), container

"""The shells of the deciders: copies, handlers that queue keys, and what has to be read before a decision."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from minik8s_modules.api import objects
from minik8s_modules.api.errors import AlreadyExists, StatusError
from minik8s_modules.api.kinds import NODE, PERSISTENT_VOLUME_CLAIM, POD, SECRET
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.controllers.core.acting import Failure, Owner
from minik8s_modules.controllers.core.steps import Again, Create, Step, WriteStatus, controller_reference
from minik8s_modules.controllers.core.workload import WorkloadController
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.informers import BY_NAMESPACE
from minik8s_virtual_machines.api.kinds import FINAL, REPLICA_SET, VM, VMI
from minik8s_virtual_machines.controllers.asking import Reports
from minik8s_virtual_machines.controllers.claims import claims_of, missing, size_of
from minik8s_virtual_machines.controllers.conditions import told, with_told
from minik8s_virtual_machines.controllers.instances import chosen, decide_instance, launchers
from minik8s_virtual_machines.controllers.machines import decide_machine
from minik8s_virtual_machines.controllers.replicas import decide_replicas

PodOf = Callable[[JsonObject, Mapping[str, str], Iterable[JsonObject]], JsonObject]
"""Returns the launcher's pod of an instance, given the sizes of its claims, and the nodes."""
SecretsOf = Callable[[JsonObject], list[JsonObject]]
"""Returns the Secrets that the pod mounts: what of the instance's spec stands in no environment."""


class MachineController(WorkloadController):
    """VirtualMachine → VirtualMachineInstance."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, VM, owns=(VMI,))

    def decide(self, obj: JsonObject) -> Sequence[Step]:
        """Return the steps for a VirtualMachine."""
        found = self.owned[VMI].get(objects.namespace(obj), objects.name(obj))
        ours = found is not None and (objects.controller_of(found) or {}).get("uid") == objects.uid(obj)
        return decide_machine(obj, found if ours else None, self.context.clock.now())

    def failed(self, owner: Owner, failures: Sequence[Failure]) -> None:
        """Say in the status that no instance could be made. Raises as the base."""
        step, error = failures[0]
        if isinstance(step, Create):
            status = objects.status(owner.obj)
            failure = told("Failure", "True", "FailedCreate", str(error)[:1024], self.context.clock.now())
            ready = told("Ready", "False", "FailedCreate", str(error)[:1024], self.context.clock.now())
            conditions = with_told(with_told(status.get("conditions") or [], failure), ready)
            after = {**status, "conditions": conditions, "printableStatus": status.get("printableStatus") or "Starting"}
            if after != status:
                self.take(owner, [WriteStatus(VM, owner.obj, after)])
        super().failed(owner, failures)


class InstanceController(WorkloadController):
    """VirtualMachineInstance → the launcher's pod."""

    def __init__(self, context: Context, pod_of: PodOf, secrets_of: SecretsOf, reports: Reports) -> None:
        super().__init__(context, VMI, owns=(POD,), workers=4)  # they wait for launchers' answers
        self._pod_of, self._secrets_of, self._reports = pod_of, secrets_of, reports
        self._claims = self.loop.watch(PERSISTENT_VOLUME_CLAIM, self._with_claim, BY_NAMESPACE)
        self._nodes = self.loop.watch(NODE, _of_none)

    def _with_claim(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        claim = new if new is not None else old
        if claim is None or (old is not None and new is not None):  # only that it comes or goes matters
            return []
        found = self.own.by_index(BY_NAMESPACE, objects.namespace(claim))
        return [objects.key(each) for each in found if objects.name(claim) in claims_of(each)]

    def decide(self, obj: JsonObject) -> Sequence[Step]:
        """Return the steps for an instance."""
        pods = launchers(obj, self.controlled(POD, obj))
        pod = chosen(pods)
        final = objects.status(obj).get("phase") in FINAL or objects.is_deleting(obj)
        report, again_s = self._reports.of(obj, None if final else pod)
        wanted = self._pod_of(obj, self._sizes(obj), self._nodes.list())
        steps = decide_instance(obj, pods, wanted, report, self._missing(obj), self.context.clock.now())
        if any(isinstance(step, Create) for step in steps):
            self._make_secrets(obj)
        return steps if again_s is None else [*steps, Again(again_s)]

    def _make_secrets(self, instance: JsonObject) -> None:
        """Make the Secrets that the pod needs. Their names have the instance's uid: what is there is its own.

        This is no step, since who expects to see a write keeps copies of its kind, and nobody here needs Secrets.
        """
        for secret in self._secrets_of(instance):
            meta = {**secret["metadata"], "ownerReferences": [controller_reference(VMI, instance)]}
            wanted = {**secret, "metadata": meta}
            try:
                self.context.client.create(SECRET, wanted)
            except AlreadyExists:
                continue
            except (StatusError, TemporaryError) as error:
                self.failed(Owner(VMI, instance), [Failure(Create(SECRET, wanted), error)])

    def _sizes(self, instance: JsonObject) -> dict[str, str]:
        space = objects.namespace(instance)
        found = {name: self._claims.get(space, name) for name in claims_of(instance)}
        return {name: size for name, claim in found.items() if claim is not None and (size := size_of(claim))}

    def _missing(self, instance: JsonObject) -> str:
        space = objects.namespace(instance)
        return missing(claims_of(instance), lambda name: self._claims.get(space, name))

    def failed(self, owner: Owner, failures: Sequence[Failure]) -> None:
        """Say in the status that no pod could be made. Raises as the base."""
        step, error = failures[0]
        if isinstance(step, Create):
            status, now = objects.status(owner.obj), self.context.clock.now()
            conditions = status.get("conditions") or []
            for kind in ("Ready", "Synchronized"):
                conditions = with_told(conditions, told(kind, "False", "FailedCreate", str(error)[:1024], now))
            after = {**status, "phase": status.get("phase") or "Pending", "conditions": conditions}
            if after != status:
                self.take(owner, [WriteStatus(VMI, owner.obj, after)])
        super().failed(owner, failures)


def _of_none(_old: JsonObject | None, _new: JsonObject | None) -> Iterable[Key]:
    """Return the instances that a change of a Node concerns: a pod is as the nodes were when it was made."""
    return ()


class ReplicaSetController(WorkloadController):
    """VirtualMachineInstanceReplicaSet → VirtualMachineInstances."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, REPLICA_SET, owns=(VMI,))

    def decide(self, obj: JsonObject) -> Sequence[Step]:
        """Return the steps for a replica set."""
        return decide_replicas(obj, self.controlled(VMI, obj), self.context.clock.now())

"""The deciders in an imagined cluster, for ``minik8s plan``: the reconciler finds them by an entry point.

Launchers say nothing there, so a guest runs as soon as its pod has a node. Pods are those of the default settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from minik8s_modules.api import objects
from minik8s_modules.api.defaulting.defaults import apply_defaults
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import NODE, PERSISTENT_VOLUME_CLAIM, POD
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.controllers.core.steps import Step
from minik8s_modules.controllers.simulation.simulated_cluster import Decider, World
from minik8s_virtual_machines.api.kinds import REPLICA_SET, VM, VMI
from minik8s_virtual_machines.controllers.claims import claims_of, missing, size_of
from minik8s_virtual_machines.controllers.conditions import Report
from minik8s_virtual_machines.controllers.instances import decide_instance, launchers
from minik8s_virtual_machines.controllers.machines import decide_machine
from minik8s_virtual_machines.controllers.replicas import decide_replicas
from minik8s_virtual_machines.pods import Settings, launcher_pod


def machine_steps(world: World, machine: JsonObject) -> list[Step]:
    """Return the steps of a VirtualMachine of the world."""
    found = world.get(VMI, objects.key(machine))
    ours = found is not None and (objects.controller_of(found) or {}).get("uid") == objects.uid(machine)
    return decide_machine(machine, found if ours else None, world.now)


def instance_steps(settings: Settings, world: World, instance: JsonObject) -> list[Step]:
    """Return the steps of an instance of the world."""
    space = objects.namespace(instance)
    found = {name: world.get(PERSISTENT_VOLUME_CLAIM, Key(space, name)) for name in claims_of(instance)}
    gone = missing(claims_of(instance), found.get)
    sizes = {name: size for name, claim in found.items() if claim is not None and (size := size_of(claim))}
    wanted = launcher_pod(instance, settings.on_nodes(instance, world.all(NODE)), sizes)
    apply_defaults(POD, wanted)
    pods = launchers(instance, world.controlled(POD, instance))
    return decide_instance(instance, pods, wanted, Report(), gone, world.now)


def replica_set_steps(world: World, owner: JsonObject) -> list[Step]:
    """Return the steps of a replica set of the world."""
    return decide_replicas(owner, world.controlled(VMI, owner), world.now)


def deciders() -> Mapping[Kind, Decider]:
    """Return the deciders by kind."""
    return {VM: machine_steps, VMI: partial(instance_steps, Settings()), REPLICA_SET: replica_set_steps}

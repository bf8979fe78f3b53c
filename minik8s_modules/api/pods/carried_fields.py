"""Which fields mean something of a Pod that no kubelet runs: of a Slurm job, a unit, a run of Ansible. Pure.

Each names the fields that it acts on. What schedulers, controllers and API servers act on holds wherever a Pod runs,
and a value that asks for what happens anyway is passed over. Every other field is refused by name, also one that a
later Kubernetes brings: nothing is accepted and ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.account_volumes import MOUNT_PATH, PREFIX
from minik8s_modules.api.pods.scripts import spec_as_written

OF_THE_CLUSTER = frozenset({
    "nodeName", "nodeSelector", "schedulerName", "affinity", "topologySpreadConstraints", "tolerations", "priority",
    "priorityClassName", "preemptionPolicy", "schedulingGates", "serviceAccountName", "serviceAccount",
    "enableServiceLinks",
})  # fmt: skip
"""Fields of a Pod's spec that are acted on before its node gets it."""
_AS_IT_IS: Mapping[str, tuple[Any, ...]] = {
    "dnsPolicy": ("ClusterFirst", "Default"),  # the first is what the API sets; names are those of the machine
    "hostUsers": (True,),
    "os": ({"name": "linux"},),
    "terminationMessagePath": ("/dev/termination-log",),
    "terminationMessagePolicy": ("File",),
}
"""Values that are no wish: what the API sets itself, and what is so without."""
GRACE_S = 30
"""What the API sets for ``terminationGracePeriodSeconds``."""


class Carrier(NamedTuple):
    """What a Pod becomes, in words, and the fields of its spec and of its container that are acted on."""

    what: str
    pod: frozenset[str]
    container: frozenset[str]


def refusals(pod: JsonObject, carrier: Carrier) -> Iterator[str]:
    """Yield why a Pod with one container cannot be ``carrier``'s: its fields that nobody would act on."""
    spec = {**spec_as_written(pod), "volumes": volumes_of(pod)}
    yield from _refused("spec", spec, carrier.what, {"containers", *OF_THE_CLUSTER, *carrier.pod})
    for container in objects.containers(pod):
        given = {**container, "volumeMounts": mounts_of(container)}
        yield from _refused("spec.containers[0]", given, carrier.what, {"name", "image", *carrier.container})


def _refused(where: str, given: Mapping[str, Any], what: str, acted_on: set[str]) -> Iterator[str]:
    for field in sorted(given.keys() - acted_on):
        value = given[field]
        if value and value not in _AS_IT_IS.get(field, ()):
            yield f"{where}.{field}: {what} has nothing like it; leave it out"


def volumes_of(pod: JsonObject) -> list[JsonObject]:
    """Return a Pod's volumes but for the token of its account, which admission adds and nothing here has."""
    every = objects.spec(pod).get("volumes") or []
    return [each for each in every if not (each["name"].startswith(PREFIX) and "projected" in each)]


def mounts_of(container: JsonObject) -> list[JsonObject]:
    """Return what a container mounts but for that token."""
    every = container.get("volumeMounts") or []
    return [each for each in every if not (each["name"].startswith(PREFIX) and each.get("mountPath") == MOUNT_PATH)]

"""What the loop of one shard works with; each part may be a fake."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.resizes import is_asked
from minik8s_modules.api.storage.attachments import attached, in_use
from minik8s_modules.reconcile.feeds.references import ReferencedObjects
from minik8s_modules.reconcile.feeds.tokens import TokenBook
from minik8s_modules.reconcile.loop.drift_events import DriftEvents
from minik8s_modules.reconcile.loop.gateway_link import Gateway
from minik8s_modules.reconcile.loop.nodestate import NodeState
from minik8s_modules.reconcile.network.services import zone_of
from minik8s_modules.reconcile.nodes.registration import Registrar
from minik8s_modules.reconcile.pods.node_admission import arriving_beside
from minik8s_modules.reconcile.pods.service_links import Links, no_links
from minik8s_modules.reconcile.status.writer import StatusWriter
from minik8s_modules.reconcile.storage.pull_secrets import pulls_of
from minik8s_modules.reconcile.values.addresses import AddressBook
from minik8s_modules.reconcile.values.items import Runner
from minik8s_modules.reconcile.values.sealing import blob, values_of
from minik8s_modules.reconcile.values.values import NOTHING_NAMED, Entries, Named, PodDecision, PodInputs, Settings
from minik8s_modules.runtime.events import EventRecorder


def _nothing(_node: JsonObject) -> Entries:
    return {}


def _nothing_named(_node: str) -> Named:
    return NOTHING_NAMED


def _enforced(_pod: JsonObject) -> str:
    return ""


def _no_claims(_claim: JsonObject, _status: JsonObject, _node: str) -> None:
    return None


class Objects(NamedTuple):
    """Reads of the local copies; none of them waits."""

    pod: Callable[[str], JsonObject | None]
    """The pod of a UID, None when it is gone."""
    pods_of: Callable[[str], list[JsonObject]]
    """The pods bound to a node."""
    node: Callable[[str], JsonObject | None]
    synced: Callable[[], bool]
    services: Callable[[JsonObject], Entries] = _nothing
    """The section ``services`` of a Node."""
    links: Links = no_links
    """The variables that tell the Services of a namespace, if those of some keys (None: gone) were as given."""
    named: Callable[[str], Named] = _nothing_named
    """What a node gets of names and paths; its ``services`` are asked for first."""
    policies: Callable[[JsonObject], Entries] = _nothing
    """The section ``policies`` of a Node."""
    unenforced: Callable[[JsonObject], str] = _enforced
    """The NetworkPolicy that selects a pod of a node which enforces none, "" for none."""


class Shard(NamedTuple):
    """The parts, made in ``main.py``."""

    objects: Objects
    references: ReferencedObjects
    tokens: TokenBook
    addresses: AddressBook
    runner: Runner
    gateway: Gateway
    writer: StatusWriter
    registrar: Registrar
    recorder: EventRecorder
    settings: Settings
    drifts: DriftEvents
    tell_size: Callable[[JsonObject, JsonObject, str], None] = _no_claims
    """Has the status of a claim say how large a node has made its volume."""


def inputs_of(shard: Shard, state: NodeState, node: JsonObject, pod: JsonObject, address_error: str) -> PodInputs:
    """Return what a decision about the pod on the node of ``state`` reads."""
    uid = objects.uid(pod)
    secrets = shard.references.of(uid, "Secret")
    return PodInputs(
        node=node,
        configmaps=shard.references.of(uid, "ConfigMap"),
        secrets=secrets,
        images=state.images,
        pulls=pulls_of(pod, secrets, state.pulls),
        address=shard.addresses.of(uid) or _of_plugin(shard, state, uid),
        errors=state.errors,
        settings=shard.settings,
        address_error=address_error,
        tokens=shard.tokens.of(uid),
        checks=state.checking.results(uid),
        links=shard.objects.links(objects.namespace(pod), {}),
        beside=arriving_beside(pod, lambda: shard.objects.pods_of(state.name), state.has_taken),
        claims=shard.references.of(uid, "PersistentVolumeClaim"),
        volumes=shard.references.of(uid, "PersistentVolume"),
        drivers=shard.references.of(uid, "CSIDriver"),
        attachments=shard.references.of(uid, "VolumeAttachment"),
        neighbours=tuple(shard.objects.pods_of(state.name)) if is_asked(pod) else (),
        unenforced=shard.objects.unenforced(pod),
        confirmed=found.entries if (found := state.confirmed()["containers"]) is not None else {},
    )


def _of_plugin(shard: Shard, state: NodeState, uid: str) -> str | None:
    """Return the address that a plugin gave the pod: nobody but the node knows it."""
    sandbox = state.observed.pod(uid).sandbox if shard.settings.plugin.driver else None
    return sandbox.ip or None if sandbox is not None and sandbox.alive else None


def node_blob(decisions: Mapping[str, PodDecision], known: ReferencedObjects, entries: Mapping[str, Any]) -> str:
    """Return the values of the secrets in ``entries``, as they travel to a node."""
    values: dict[str, Mapping[str, bytes]] = {}
    for uid, decision in decisions.items():
        values |= {key: found for key, found in decision.sealed.items() if key in entries}
        if decision.secrets & entries.keys():
            secrets = known.of(uid, "Secret")
            values |= {key: values_of(obj) for key, obj in secrets.items() if key in entries}
    return blob(values)


OBSERVE = "minik8s.io/observe"


def observation_asked(old: JsonObject | None, new: JsonObject | None) -> bool:
    """Return whether somebody asks for a full observation of the node now (``minik8s drift --heal``)."""
    if old is None or new is None:
        return False
    return objects.annotations(old).get(OBSERVE) != objects.annotations(new).get(OBSERVE)


def read_of(node: JsonObject | None) -> tuple[Any, ...]:
    """Return what decisions read of a Node."""
    status = objects.status(node or {})
    volumes = in_use(node or {}), attached(node or {})
    placed = objects.spec(node or {}).get("podCIDR"), zone_of(node or {})
    return (*placed, status.get("addresses"), status.get("allocatable"), *volumes)

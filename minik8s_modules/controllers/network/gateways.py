"""What a Gateway of a class of ours runs as: a ServiceAccount, a Deployment of Envoys and a Service, which it owns.

    Gateway, GatewayClass ─▶ decide_gateway ─▶ server-side apply of what is new or other
                                                pilots tell the Envoys what to do (mesh/gateways), and say how they are

How many Envoys there are is the Deployment's to say, and which families the Service has is its own: replicas and
``ipFamilyPolicy`` are written once. Other fields that are declared here come back when somebody changes them by hand,
and an Event says so; what others add stays theirs. What is changed again and again is reverted ever later
(``reverting``). An object of that name that is somebody else's is left alone, and an Event says so, too.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.defaulting.defaults import apply_defaults
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import DEPLOYMENT, SERVICE, SERVICE_ACCOUNT
from minik8s_modules.api.merging import fieldsets
from minik8s_modules.api.merging.typed_merge import merge
from minik8s_modules.api.network.gateway_api import (
    GATEWAY_KINDS,
    GATEWAY_NAME,
    PREFIX,
    infrastructure_fault,
    is_ours,
    name_of_parts,
    ports_of,
)
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.pods.sidecars import DISABLED, IMAGE, INJECT, SIDECAR
from minik8s_modules.api.schema.shapes import kind_shape
from minik8s_modules.controllers.core.steps import controller_reference
from minik8s_modules.controllers.network.reverting import Reverting
from minik8s_modules.runtime.controller import Context, Loop, own_keys
from minik8s_modules.runtime.events import EventType

log = logging.getLogger(__name__)

MANAGER = "minik8s-gateways"
DIGEST = "minik8s.io/gateway-digest"
"""Annotation: of what was applied, so that it is applied again when it has become other."""
PARTS = (SERVICE_ACCOUNT, DEPLOYMENT, SERVICE)
LABEL_LENGTH = 63
_DRAIN_S, _NAMED = 5, 5


class Apply(NamedTuple):
    """Bring an object to what is declared of it; ``changed`` are the fields that somebody else set otherwise."""

    kind: Kind
    obj: JsonObject
    changed: tuple[str, ...] = ()


class Clear(NamedTuple):
    """Take away, by a merge patch, what an apply would be refused beside.

    Nothing but removal: what a patch sets is owned apart from what is applied, and no later apply takes it away.
    """

    kind: Kind
    obj: JsonObject
    body: JsonObject
    changed: tuple[str, ...]


class Remove(NamedTuple):
    """Delete an object of the Gateway's."""

    kind: Kind
    obj: JsonObject


class Taken(NamedTuple):
    """Tell that an object of that name is somebody else's."""

    kind: Kind
    name: str


Step = Apply | Clear | Remove | Taken


def decide_gateway(
    gateway: JsonObject, gateway_class: JsonObject | None, found: Mapping[Kind, JsonObject | None]
) -> list[Step]:
    """Return the steps of one Gateway; ``found`` has what there is of its parts' names.

    A class that is not there (any more) changes nothing: it may come back.
    """
    if objects.is_deleting(gateway) or gateway_class is None:
        return []
    owned = {kind: each for kind, each in found.items() if each is not None and _is_of(gateway, each)}
    if not is_ours(gateway_class):
        return [Remove(kind, each) for kind, each in owned.items()]
    if objects.spec(gateway_class).get("parametersRef") or infrastructure_fault(objects.spec(gateway)):
        return []
    steps: list[Step] = []
    for kind, wanted in _parts(gateway):
        old = found.get(kind)
        if old is not None and kind not in owned:
            return [*steps, Taken(kind, objects.name(old))]
        if old is None:
            steps.append(Apply(kind, _counted(wanted) if kind == DEPLOYMENT else wanted))
        else:
            steps += _kept(kind, old, _of_families(old, wanted) if kind == SERVICE else wanted)
    return steps


def _kept(kind: Kind, old: JsonObject, wanted: JsonObject) -> Iterable[Step]:
    """Yield what brings an object that is there to what is wanted of it."""
    is_new = objects.annotations(old).get(DIGEST) != objects.annotations(wanted)[DIGEST]
    changed = () if is_new else _changed(kind, old, wanted)
    if not is_new and not changed:
        return
    found = objects.spec(old).get("ports") or []
    left = _unambiguous(found, wanted) if kind == SERVICE else found
    if len(left) == len(found):
        yield Apply(kind, wanted, changed)
    elif left:
        yield Clear(kind, old, {"spec": {"ports": left}}, changed)
    else:  # a Service has a port at any time: ours come under other names first
        yield Apply(kind, _renamed(wanted), changed)


def _changed(kind: Kind, old: JsonObject, wanted: JsonObject) -> tuple[str, ...]:
    """Return the fields that an apply of what is wanted would change, as messages name them."""
    shape = kind_shape(kind)
    before, after = copy.deepcopy((old, merge(shape, old, wanted)))
    for each in (before, after):
        apply_defaults(kind, each)
    found = fieldsets.compare(shape, before, after)
    paths = [*fieldsets.paths(fieldsets.union(found.written, found.removed))]
    # an item that comes is told as itself, not by each of its fields
    outer = (path for path in paths if not any(path[:length] in paths for length in range(1, len(path))))
    return tuple(fieldsets.brief(path) for path in outer)


def _unambiguous(found: list[JsonObject], wanted: JsonObject) -> list[JsonObject]:
    """Return the ports that a Service has, without those that keep the name of a wanted one under another number.

    Whoever edits a port's number leaves its name, and two ports of one name are refused.
    """
    ours = objects.spec(wanted)["ports"]
    names, places = {each["name"] for each in ours}, {(each["port"], each["protocol"]) for each in ours}
    return [each for each in found if each.get("name") not in names or (each["port"], each.get("protocol")) in places]


def _renamed(service: JsonObject) -> JsonObject:
    ports = [{**each, "name": f"{each['name']}-new"} for each in objects.spec(service)["ports"]]
    return {**service, "spec": {**service["spec"], "ports": ports}}


def _is_of(gateway: JsonObject, obj: JsonObject) -> bool:
    return (objects.controller_of(obj) or {}).get("uid") == objects.uid(gateway)


def _counted(deployment: JsonObject) -> JsonObject:
    return {**deployment, "spec": {**deployment["spec"], "replicas": 1}}


def _parts(gateway: JsonObject) -> Iterable[tuple[Kind, JsonObject]]:
    yield SERVICE_ACCOUNT, _part(SERVICE_ACCOUNT, gateway, {})
    yield DEPLOYMENT, _part(DEPLOYMENT, gateway, {"spec": _deployment(gateway)})
    yield SERVICE, _part(SERVICE, gateway, {"spec": _service(gateway)})


def _part(kind: Kind, gateway: JsonObject, body: JsonObject) -> JsonObject:
    asked = objects.spec(gateway).get("infrastructure") or {}
    meta: JsonObject = {
        "name": name_of_parts(objects.name(gateway)),
        "namespace": objects.namespace(gateway),
        "labels": {**(asked.get("labels") or {}), **_marks(gateway)},
        "ownerReferences": [controller_reference(GATEWAY_KINDS.gateways, gateway)],
    }
    digest = hashlib.sha256(json.dumps([meta, asked, body], sort_keys=True).encode()).hexdigest()[:16]
    meta["annotations"] = {**(asked.get("annotations") or {}), DIGEST: digest}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, **body}


def _marks(gateway: JsonObject) -> dict[str, str]:
    # a label's value has 63 characters, a Gateway's name may have more
    name = objects.name(gateway)
    return {GATEWAY_NAME: name if len(name) <= LABEL_LENGTH else name_of_parts(name)}


def _service(gateway: JsonObject) -> JsonObject:
    ports = [
        {"name": f"port-{port}", "port": port, "targetPort": port, "protocol": "TCP"} for port in ports_of(gateway)
    ]
    policy = {"ipFamilyPolicy": "PreferDualStack"}  # where the cluster has both
    return {"type": "LoadBalancer", "selector": _marks(gateway), "ports": ports, **policy}


def _of_families(old: JsonObject, service: JsonObject) -> JsonObject:
    """Return a Service of the policy that it has: it goes back to one family before the cluster does."""
    policy = objects.spec(old).get("ipFamilyPolicy")
    return {**service, "spec": {**service["spec"], "ipFamilyPolicy": policy}} if policy else service


def _deployment(gateway: JsonObject) -> JsonObject:
    asked = objects.spec(gateway).get("infrastructure") or {}
    labels = {**(asked.get("labels") or {}), **_marks(gateway), INJECT: DISABLED}
    meta = {"labels": labels, "annotations": {**(asked.get("annotations") or {})}}
    return {
        "selector": {"matchLabels": _marks(gateway)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "template": {"metadata": meta, "spec": _pod(gateway)},
    }


def _pod(gateway: JsonObject) -> JsonObject:
    own = {field: value for field, value in SIDECAR.items() if field not in {"restartPolicy", "startupProbe"}}
    ready = {**SIDECAR["startupProbe"], "periodSeconds": 2, "failureThreshold": 3}
    envoy = {
        **own,
        "image": IMAGE,
        # its ports are not named: one that comes is the Service's and the pilot's to know, and replaces no Pod
        # a command of its own: nothing is led to it as to a sidecar
        "command": ["/bin/envoy", "--config-path", "/etc/envoy/bootstrap.yaml"],
        "args": ["--concurrency", "2", "--use-dynamic-base-id", "--log-level", "warning"],
        "readinessProbe": ready,
        "lifecycle": {"preStop": {"sleep": {"seconds": _DRAIN_S}}},
    }
    return {
        "serviceAccountName": name_of_parts(objects.name(gateway)),
        # port 80, as nobody
        "securityContext": {"sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]},
        "containers": [envoy],
    }


class Told(NamedTuple):
    """An Event about a Gateway."""

    type: EventType
    reason: str
    message: str


def event_of(step: Step) -> Told | None:
    """Return the Event that tells of a step: that fields were changed by hand, or a name is somebody else's."""
    if isinstance(step, Taken):
        return Told("Warning", "NameTaken", f"{step.kind.kind} {step.name} is there and is not this Gateway's")
    if isinstance(step, Remove) or not step.changed:
        return None
    fields = ", ".join(step.changed[:_NAMED]) + (", …" if len(step.changed) > _NAMED else "")
    part = f"{step.kind.kind} {objects.name(step.obj)}"
    return Told("Warning", "Reverted", f"{part} differs from what the Gateway declares, and is reverted: {fields}")


def differences(gateway: JsonObject, get: Callable[[Kind, str, str], JsonObject | None]) -> list[str]:
    """Return what stands otherwise than a Gateway declares and is not new; ``get`` finds by kind, name, namespace."""
    name, space = name_of_parts(objects.name(gateway)), objects.namespace(gateway)
    found = {kind: get(kind, name, space) for kind in PARTS}
    gateway_class = get(GATEWAY_KINDS.classes, str(objects.spec(gateway).get("gatewayClassName")), "")
    events = map(event_of, decide_gateway(gateway, gateway_class, found))
    return [each.message for each in events if each is not None]


class _Outcome(NamedTuple):
    """Whether a step has written something, and whether it is to be told of."""

    written: bool
    is_told: bool


def _reverts(step: Step, found: Mapping[Kind, JsonObject | None]) -> bool:
    return isinstance(step, Apply | Clear) and found.get(step.kind) is not None


class GatewayController:
    """Keeps them, from when the definitions of Gateways and their classes are there."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[str, Kind] = {}
        self._loop: Loop | None = None
        self._reverting = Reverting()

    def start(self) -> None:
        """Begin to look for the definitions."""
        self._context.informers.custom.follow(self._changed)

    def stop(self) -> None:
        """End; waits for what is under way."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.stop()

    def _changed(self, kind: Kind, present: bool) -> None:  # noqa: FBT001 - a follower's signature
        wanted = {GATEWAY_KINDS.classes.kind, GATEWAY_KINDS.gateways.kind}
        if kind.group != GATEWAY_KINDS.gateways.group or kind.kind not in wanted:
            return
        self.stop()
        self._known.pop(kind.kind, None)
        if present:
            self._known[kind.kind] = kind
        if self._known.keys() == wanted:
            self._begin(self._known[GATEWAY_KINDS.classes.kind], self._known[GATEWAY_KINDS.gateways.kind])

    def _begin(self, classes: Kind, gateways: Kind) -> None:
        loop = Loop(self._context, "gateways", self._sync, workers=1)
        self._gateways = loop.watch(gateways, own_keys)
        self._classes = loop.watch(classes, self._of_class)
        self._parts = {kind: loop.watch(kind, self._of_part) for kind in PARTS}
        self._loop = loop
        loop.start()

    def _of_class(self, _old: JsonObject | None, _new: JsonObject | None) -> Iterable[Key]:
        return [objects.key(each) for each in self._gateways.list()]

    def _of_part(self, old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        # by its name, not by its owner: somebody else's object may go, and an owner may be edited away
        place = objects.key(new if new is not None else old or {})
        if not place.name.startswith(PREFIX):
            return []
        found = [objects.key(each) for each in self._gateways.list()]
        return [key for key in found if key._replace(name=name_of_parts(key.name)) == place]

    def _sync(self, key: Key) -> None:
        """Take the steps of one Gateway.

        Raises:
            StatusError: the API refused; it is tried again.
        """
        gateway = self._gateways.get(key.namespace, key.name)
        if gateway is None:
            self._reverting.forget(key)
            return
        name = name_of_parts(key.name)
        found = {kind: copies.get(key.namespace, name) for kind, copies in self._parts.items()}
        gateway_class = self._classes.get("", objects.spec(gateway)["gatewayClassName"])
        steps = decide_gateway(gateway, gateway_class, found)
        declared, now_s = (objects.uid(gateway), objects.generation(gateway)), self._context.clock.monotonic()
        if wait_s := self._reverting.wait_s(key, declared, now_s):
            steps, later = [each for each in steps if not _reverts(each, found)], steps
            if len(steps) < len(later) and self._loop is not None:
                self._loop.add_after(key, wait_s)
        for step in steps:
            written, is_told = self._take(step, found)
            if written and _reverts(step, found):
                self._reverting.reverted(key, declared, now_s)
            if is_told and (told := event_of(step)) is not None:
                self._context.recorder.event(gateway, *told)

    def _take(self, step: Step, found: Mapping[Kind, JsonObject | None]) -> _Outcome:
        """Take a step."""
        client = self._context.client
        if isinstance(step, Taken):
            return _Outcome(written=False, is_told=True)
        namespace, name = objects.key(step.obj)
        if isinstance(step, Remove):
            with contextlib.suppress(NotFound):
                client.delete(step.kind, name, namespace, uid=objects.uid(step.obj))
            return _Outcome(written=True, is_told=False)
        if isinstance(step, Clear):
            seen = {"metadata": {"resourceVersion": objects.resource_version(step.obj)}}
            client.patch(step.kind, name, namespace, {**step.body, **seen}, field_manager=MANAGER)
            return _Outcome(written=True, is_told=True)
        old = found.get(step.kind)
        if old is None and self._is_there(step.kind, namespace, name):
            # perhaps somebody else's: the copy of it is about to come, and brings the Gateway back
            return _Outcome(written=False, is_told=False)
        new = client.patch(step.kind, name, namespace, step.obj, patch_type="apply", field_manager=MANAGER, force=True)
        written = objects.resource_version(new) != objects.resource_version(old or {})
        # a webhook may set what it sets again and again: nothing is reverted then
        stays = {*step.changed} <= {*_changed(step.kind, new, step.obj)}
        return _Outcome(written, written and not stays)

    def _is_there(self, kind: Kind, namespace: str, name: str) -> bool:
        try:
            self._context.client.get(kind, name, namespace)
        except NotFound:
            return False
        return True

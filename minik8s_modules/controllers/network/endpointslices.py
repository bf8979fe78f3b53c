"""EndpointSlices: the pods behind each Service, up to 100 a slice, with their state.

An endpoint that is in a slice stays in it, so that a pod's change rewrites one slice; new ones fill the fullest slice
that has room. Pods whose named ports have different numbers are in different slices. Without any endpoint there is one
empty slice. A Service of both families has slices of each. Source: kubernetes
``staging/src/k8s.io/endpointslice/reconciler.go``. The second half makes slices of what a user wrote into Endpoints of
a Service without selector, for each family that it has addresses of (``pkg/controller/endpointslicemirroring``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import AlreadyExists, Conflict, NotFound
from minik8s_modules.api.kinds import ENDPOINT_SLICE, ENDPOINTS, NODE, POD, SERVICE
from minik8s_modules.api.network.surroundings import family_of
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.selectors import from_map
from minik8s_modules.client.informer import Informer
from minik8s_modules.controllers.network.endpoints_of_pods import (
    Offer,
    Port,
    Ports,
    address_of,
    families_of,
    has_endpoints,
    hostname_of,
    is_headless,
    offers,
    reference,
    zone_of_node,
)
from minik8s_modules.runtime.controller import Context, Loop, Looping
from minik8s_modules.runtime.informers import BY_LABEL, BY_NAMESPACE, selected

SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
HEADLESS_LABEL = "service.kubernetes.io/headless"
SKIP_MIRROR = "endpointslice.kubernetes.io/skip-mirror"
LEADER = "control-plane.alpha.kubernetes.io/leader"
SELECTED, MIRRORED = "endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"
MOST_ENDPOINTS = 100
UNKNOWN_TARGET = "TargetPortNotFound"
_LOOK_AGAIN_S = 0.01
_OURS = frozenset({SERVICE_NAME, MANAGED_BY, HEADLESS_LABEL})


class SliceStep(NamedTuple):
    """One write: the slice as it should be, or the one to delete."""

    action: Literal["create", "update", "delete"]
    obj: JsonObject


def decide_families(
    service: JsonObject, pods: Sequence[JsonObject], zone_of: Callable[[str], str], slices: Sequence[JsonObject]
) -> list[SliceStep]:
    """Return the writes that make ``slices`` (this controller's, of this Service) tell what its ``pods`` offer.

    ``zone_of`` returns the zone of a node.
    """
    families, of_family = families_of(service), _by_family(slices)
    gone = [one for family in of_family.keys() - families for one in of_family[family]]
    steps = [SliceStep("delete", one) for one in gone if not objects.is_deleting(one)]
    for family in families:
        steps += decide_slices(service, offers(service, pods, zone_of, family), of_family.get(family, []), family)
    return steps


def _by_family(slices: Sequence[JsonObject]) -> dict[str, list[JsonObject]]:
    found: dict[str, list[JsonObject]] = {}
    for one in slices:
        found.setdefault(str(one.get("addressType") or "IPv4"), []).append(one)
    return found


def decide_slices(
    service: JsonObject, found: Sequence[Offer], slices: Sequence[JsonObject], family: str = "IPv4"
) -> list[SliceStep]:
    """Return the writes that make ``slices`` (those of a family) tell what ``found`` offers."""
    groups: dict[Ports, dict[str, JsonObject]] = {}
    for offer in found:
        groups.setdefault(offer.ports, {})[objects.uid(offer.pod)] = _endpoint(service, offer)
    steps = _reconciled(service, groups, slices, SELECTED, _labels(service, SELECTED))
    return [_of_family(step, family) for step in steps]


def _of_family(step: SliceStep, family: str) -> SliceStep:
    return step._replace(obj={**step.obj, "addressType": family}) if step.action == "create" else step


def unknown_targets(service: JsonObject, found: Sequence[Offer]) -> dict[str, list[str]]:
    """Return the target ports that some pods' containers do not have by that name and protocol, with those pods."""
    lacking: dict[str, list[str]] = {}
    for offer in found:
        known = {(port.name, port.protocol) for port in offer.ports}
        for port in objects.spec(service).get("ports") or []:
            if (port.get("name") or "", port.get("protocol") or "TCP") not in known:
                lacking.setdefault(str(port.get("targetPort")), []).append(objects.name(offer.pod))
    return lacking


def _endpoint(service: JsonObject, offer: Offer) -> JsonObject:
    conditions = {"ready": offer.ready, "serving": offer.serving, "terminating": offer.terminating}
    endpoint: JsonObject = {"addresses": [offer.address], "conditions": conditions}
    if hostname := hostname_of(service, offer.pod):
        endpoint["hostname"] = hostname
    if node := objects.spec(offer.pod).get("nodeName"):
        endpoint["nodeName"] = node
    if offer.zone:
        endpoint["zone"] = offer.zone
        # Kubernetes 1.33: endpoints that are ready are for clients of their own zone
        if offer.ready and objects.spec(service).get("trafficDistribution") == "PreferClose":
            endpoint["hints"] = {"forZones": [{"name": offer.zone}]}
    return {**endpoint, "targetRef": reference(offer.pod)}


def _labels(owner: JsonObject, manager: str) -> dict[str, str]:
    labels = {key: value for key, value in objects.labels(owner).items() if key not in _OURS}
    headless = {HEADLESS_LABEL: ""} if manager == SELECTED and is_headless(owner) else {}
    return {**labels, **headless, SERVICE_NAME: objects.name(owner), MANAGED_BY: manager}


def _reconciled(
    owner: JsonObject,
    groups: Mapping[Ports, Mapping[str, JsonObject]],
    slices: Sequence[JsonObject],
    manager: str,
    labels: Mapping[str, str],
) -> list[SliceStep]:
    """Return the writes; ``groups`` are the endpoints by the ports they offer, each by what it is known again by."""
    if not groups and manager == SELECTED:
        groups = {(): {}}
    steps: list[SliceStep] = []
    left = [one for one in slices if not objects.is_deleting(one)]
    spare = [one for one in left if _ports_of(one) not in groups]
    for ports, endpoints in sorted(groups.items()):
        same = [one for one in left if _ports_of(one) == ports]
        if not same and spare:
            same = [spare.pop()]
        left = [one for one in left if one not in same]
        steps += _filled(owner, ports, endpoints, same, labels)
    return steps + [SliceStep("delete", one) for one in left]


def _ports_of(endpoint_slice: JsonObject) -> Ports:
    return tuple(
        Port(
            each.get("name") or "", each.get("protocol") or "TCP", each.get("port") or 0, each.get("appProtocol") or ""
        )
        for each in endpoint_slice.get("ports") or []
    )


def _filled(
    owner: JsonObject,
    ports: Ports,
    wanted: Mapping[str, JsonObject],
    slices: Sequence[JsonObject],
    labels: Mapping[str, str],
) -> list[SliceStep]:
    """Return the writes for the endpoints of one set of ports."""
    contents, placed = list[dict[str, JsonObject]](), set[str]()
    for one in slices:
        contents.append({key: endpoint for key, endpoint in _kept(one, wanted).items() if key not in placed})
        placed |= contents[-1].keys()
    waiting = [key for key in wanted if key not in placed]
    # the fullest first, so that few slices change and emptied ones go
    for content in sorted(contents, key=len, reverse=True):
        while waiting and (content or len(contents) == 1) and len(content) < MOST_ENDPOINTS:
            key = waiting.pop(0)
            content[key] = wanted[key]
    steps = []
    for number, (one, content) in enumerate(zip(slices, contents, strict=True)):
        last_one = not wanted and number == 0
        steps += _written(one, ports, list(content.values()), labels) if content or last_one else _deleted(one)
    for start in range(0, len(waiting), MOST_ENDPOINTS):
        part = [wanted[key] for key in waiting[start : start + MOST_ENDPOINTS]]
        steps.append(SliceStep("create", _slice(owner, ports, part, labels)))
    if not wanted and not slices:
        steps.append(SliceStep("create", _slice(owner, ports, [], labels)))
    return steps


def _deleted(one: JsonObject) -> list[SliceStep]:
    return [SliceStep("delete", one)]


def _kept(endpoint_slice: JsonObject, wanted: Mapping[str, JsonObject]) -> dict[str, JsonObject]:
    """Return those of ``wanted`` that the slice holds, in its order."""
    keys = [key_of(each) for each in endpoint_slice.get("endpoints") or []]
    return {key: wanted[key] for key in keys if key in wanted}


def key_of(endpoint: JsonObject) -> str:
    """Return what an endpoint is known again by: its pod, or its address."""
    return str((endpoint.get("targetRef") or {}).get("uid") or endpoint["addresses"][0])


def _written(one: JsonObject, ports: Ports, endpoints: list[JsonObject], labels: Mapping[str, str]) -> list[SliceStep]:
    declared = [port.to_json() for port in ports]
    same = (one.get("endpoints") or [], objects.labels(one), _ports_of(one)) == (endpoints, labels, ports)
    if same:
        return []
    metadata = {**one["metadata"], "labels": dict(labels)}
    return [SliceStep("update", {**one, "metadata": metadata, "endpoints": endpoints, "ports": declared})]


def _slice(owner: JsonObject, ports: Ports, endpoints: list[JsonObject], labels: Mapping[str, str]) -> JsonObject:
    owned_by = {
        "apiVersion": "v1",
        "kind": "Endpoints" if labels[MANAGED_BY] == MIRRORED else "Service",
        "name": objects.name(owner),
        "uid": objects.uid(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "metadata": {
            "generateName": f"{objects.name(owner)}-",
            "namespace": objects.namespace(owner),
            "labels": dict(labels),
            "ownerReferences": [owned_by],
        },
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [port.to_json() for port in ports],
    }


# --- what a user wrote


def decide_mirrors(endpoints: JsonObject | None, slices: Sequence[JsonObject]) -> list[SliceStep]:
    """Return the writes that make ``slices`` (mirrored ones of one name) tell what ``endpoints`` says, if any."""
    if endpoints is None:
        return [SliceStep("delete", one) for one in slices if not objects.is_deleting(one)]
    there, labels = _by_family(slices), _labels(endpoints, MIRRORED)
    return [
        _of_family(step, family)
        for family in ("IPv4", "IPv6")
        for step in _reconciled(endpoints, _written_there(endpoints, family), there.get(family, []), MIRRORED, labels)
    ]


def _written_there(endpoints: JsonObject, family: str) -> dict[Ports, dict[str, JsonObject]]:
    """Return the endpoints of a family by the ports they offer, each by what it is known again by."""
    groups: dict[Ports, dict[str, JsonObject]] = {}
    for subset in endpoints.get("subsets") or []:
        ports = tuple(
            Port(each.get("name") or "", each.get("protocol") or "TCP", each["port"], each.get("appProtocol") or "")
            for each in subset.get("ports") or []
        )
        for field, ready in (("addresses", True), ("notReadyAddresses", False)):
            for address in subset.get(field) or []:
                if family_of(str(address["ip"])) == family:
                    endpoint = _mirrored(address, ready=ready)
                    groups.setdefault(ports, {})[key_of(endpoint)] = endpoint
    return groups


def _mirrored(address: JsonObject, *, ready: bool) -> JsonObject:
    optional = {name: address[name] for name in ("hostname", "nodeName", "targetRef") if address.get(name)}
    conditions = {"ready": ready, "serving": ready, "terminating": False}
    return {"addresses": [address["ip"]], "conditions": conditions, **optional}


def is_mirrored(service: JsonObject | None, endpoints: JsonObject | None) -> bool:
    """Return whether slices are made of these Endpoints."""
    if service is None or endpoints is None or objects.spec(service).get("selector"):
        return False
    marks = {**objects.labels(endpoints), **objects.annotations(endpoints)}
    return objects.labels(endpoints).get(SKIP_MIRROR) != "true" and LEADER not in marks


class EndpointSliceController(Looping):
    """Keeps the slices of all Services; one key is one Service (or the Endpoints of its name)."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._loop = Loop(context, "endpointslices", self.sync, workers=4)
        self._services = self._loop.watch_own(SERVICE)
        self._pods = self._loop.watch(POD, self._of_pod, BY_NAMESPACE, BY_LABEL)
        self._endpoints = self._loop.watch_own(ENDPOINTS)
        self._slices = self._loop.watch(ENDPOINT_SLICE, _of_slice, BY_LABEL)
        self._nodes = self._loop.watch(NODE, self._of_node)
        self._written: dict[Key, int] = {}
        self._reported: dict[Key, frozenset[str]] = {}

    def sync(self, key: Key) -> None:
        """Write what one Service lacks.

        Raises:
            StatusError: the API refused a write; it is tried again.
        """
        if int(self._slices.resource_version or 0) < self._written.get(key, 0):
            # the copy does not show yet what was written for this Service; its event is on the way
            self._loop.add_after(key, _LOOK_AGAIN_S)
            return
        self._written.pop(key, None)
        service = self._services.get(key.namespace, key.name)
        slices = self._slices.by_index(BY_LABEL, f"{key.namespace}/{SERVICE_NAME}={key.name}")
        ours = [one for one in slices if objects.labels(one).get(MANAGED_BY) == SELECTED]
        mirrors = [one for one in slices if objects.labels(one).get(MANAGED_BY) == MIRRORED]
        endpoints = self._endpoints.get(key.namespace, key.name)
        steps = decide_mirrors(endpoints if is_mirrored(service, endpoints) else None, mirrors)
        if service is None or not has_endpoints(service) or objects.is_deleting(service):
            self._reported.pop(key, None)
            steps += [SliceStep("delete", one) for one in ours if not objects.is_deleting(one)]
        else:
            pods = list(selected(self._pods, key.namespace, from_map(objects.spec(service)["selector"])))
            steps += decide_families(service, pods, self._zone_of, ours)
            self._tell(key, service, unknown_targets(service, offers(service, pods, family=families_of(service)[0])))
        for step in steps:
            self._take(key, step)

    def _zone_of(self, node: str) -> str:
        return zone_of_node(self._nodes.get("", node))

    def _tell(self, key: Key, service: JsonObject, lacking: Mapping[str, Sequence[str]]) -> None:
        """Make an Event of target ports that pods do not have; of each port once, until they have it."""
        for target in lacking.keys() - self._reported.get(key, frozenset()):
            first, *others = lacking[target]
            more = f" and of {len(others)} others" if others else ""
            why = f"no container of pod {first}{more} has a port named {target}"
            self._context.recorder.event(service, "Warning", UNKNOWN_TARGET, why, component="endpointslice-controller")
        self._reported[key] = frozenset(lacking)
        if not lacking:
            del self._reported[key]

    def _take(self, key: Key, step: SliceStep) -> None:
        client, obj = self._context.client, step.obj
        try:
            if step.action != "delete":
                write = client.create if step.action == "create" else client.update
                self._written[key] = int(objects.resource_version(write(ENDPOINT_SLICE, obj)) or 0)
            else:
                client.delete(ENDPOINT_SLICE, objects.name(obj), objects.namespace(obj), uid=objects.uid(obj))
        except (NotFound, AlreadyExists):
            return
        except Conflict:
            # our copy is older than the slice; its change brings the key back
            return

    def _of_node(self, old: JsonObject | None, new: JsonObject | None) -> set[Key]:
        """Return the Services with Pods on a node that has come to another zone."""
        if zone_of_node(old) == zone_of_node(new):
            return set()
        name = objects.name(new or old or {})
        pods = [pod for pod in self._pods.list() if objects.spec(pod).get("nodeName") == name]
        return {key for pod in pods for key in selecting(self._services, pod)}

    def _of_pod(self, old: JsonObject | None, new: JsonObject | None) -> set[Key]:
        return concerned(self._services, old, new)


def concerned(services: Informer, old: JsonObject | None, new: JsonObject | None) -> set[Key]:
    """Return the Services that select a pod, or did; of a change nobody reads, none."""
    found = {key for pod in (old, new) if pod is not None for key in selecting(services, pod)}
    if found and old is not None and new is not None and read_of(old) == read_of(new):
        return set()
    return found


def selecting(services: Informer, pod: JsonObject) -> set[Key]:
    """Return the keys of those Services (indexed by namespace) whose selector the pod's labels fit."""
    labels = objects.labels(pod).items()
    found = services.by_index(BY_NAMESPACE, objects.namespace(pod))
    chosen = ((objects.key(one), objects.spec(one).get("selector") or {}) for one in found)
    return {key for key, selector in chosen if selector and selector.items() <= labels}


def read_of(pod: JsonObject) -> tuple[object, ...]:
    """Return what slices tell of a pod."""
    ready = (objects.condition(pod, "Ready") or {}).get("status")
    spec, status = objects.spec(pod), objects.status(pod)
    addresses = (address_of(pod, "IPv4"), address_of(pod, "IPv6"))
    placed = (spec.get("nodeName"), spec.get("hostname"), spec.get("subdomain"), *addresses)
    return (*placed, ready, status.get("phase"), objects.is_deleting(pod), objects.labels(pod), objects.uid(pod))


def _of_slice(old: JsonObject | None, new: JsonObject | None) -> set[Key]:
    found = set[Key]()
    for one in (old, new):
        if one is not None and objects.labels(one).get(MANAGED_BY) in (SELECTED, MIRRORED):
            found.add(Key(objects.namespace(one), objects.labels(one).get(SERVICE_NAME, "")))
    return found

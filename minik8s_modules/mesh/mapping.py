"""Decides where requests to the Services of a namespace go: VirtualServices and Subsets over EndpointSlices. Pure.

Each port of a Service is one ``Port``, and each of its ``Branch``es is a way a request may take: all Pods, Pods of
subsets by weight, or one subset by the request's path. A VirtualService that is wrong has no effect and says why
(``Verdict``); it stands in nobody else's way. What has Pods that answer gets the share of what has none.

Pods that a RollingUpdate withholds get no requests of any port, as soon as enough others are ready: the copies of it
and of EndpointSlices are of different times, and what was given back need not be in the latter yet.

Services whose rules the nodes alone can keep (session affinity, the node's own endpoints) are left to them unless a
VirtualService splits them: a sidecar passes on what is no key here.
"""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.network.subsets import pods_of
from minik8s_modules.api.network.url_patterns import pattern_fault
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.mesh.endpoints import Endpoint, endpoints_of, pods_of_slices

SERVICE_NAME = "kubernetes.io/service-name"
ACCEPTED, CONFLICTED, BAD_PATTERN = "Accepted", "Conflicted", "InvalidPattern"
RESOLVED = "ResolvedRefs"
NO_SERVICE, NO_PORT, NO_SUBSET, NO_POD = "ServiceNotFound", "PortNotFound", "SubsetNotFound", "NoReadyPods"
POLICY = ("timeout", "retries", "fault", "mirror")
NO_WEIGHT, OVERLAP = "NoWeight", "SubsetsOverlap"
MOST = 2**31 - 1
"""What the weights of all Pods together may come to: an int32; Envoy adds them up in a uint32."""


class Declared(NamedTuple):
    """The objects of one namespace."""

    services: Sequence[JsonObject] = ()
    slices: Sequence[JsonObject] = ()
    virtual_services: Sequence[JsonObject] = ()
    subsets: Sequence[JsonObject] = ()
    rolling_updates: Sequence[JsonObject] = ()
    led: Mapping[tuple[str, int], str] = MappingProxyType({})
    """The HTTPRoutes that lead a Service's port, which is then theirs to decide on (mesh/gateways)."""


class Branch(NamedTuple):
    """A way a request may take: that of the paths in which ``url`` is found, or every one's if it is None.

    ``headers`` are names and values that it must have besides.
    """

    subset: str
    url: str | None
    endpoints: tuple[Endpoint, ...]
    headers: tuple[tuple[str, str], ...] = ()


class Port(NamedTuple):
    """A TCP port of a Service, and the ways to its Pods in the order in which they are tried."""

    service: str
    address: str
    port: int
    branches: tuple[Branch, ...]
    policy: JsonObject | None = None
    """What a VirtualService says of its requests besides: timeout, retries, fault and mirror."""
    mirror: Branch | None = None


class Verdict(NamedTuple):
    """What became of a VirtualService: reason and message of why it has no effect, and of what it lacks."""

    refused: tuple[str, str] | None = None
    broken: tuple[str, str] | None = None


class Withholding(NamedTuple):
    """A batch of a RollingUpdate."""

    name: str
    uid: str
    batch: int


class Mapped(NamedTuple):
    """The decision on a namespace."""

    ports: Mapping[str, Port]
    """By ADDRESS:PORT."""
    verdicts: Mapping[str, Verdict]
    """By name of VirtualService."""
    split_by: Mapping[str, str]
    """The VirtualService that splits a port, by ADDRESS:PORT."""
    withholdings: frozenset[Withholding] = frozenset()
    """Whose Pods get no requests."""


class Placed(NamedTuple):
    """A port at its ADDRESS:PORT, and the VirtualService that splits it, "" for none."""

    place: str
    port: Port
    split_by: str


class _Kept(NamedTuple):
    """What came of a Service's objects: they themselves, and the Pods among its endpoints that were withheld."""

    came_of: tuple[JsonObject | None, ...]
    pods: frozenset[str]
    withheld: frozenset[str]
    ports: tuple[Placed, ...]


class Memory:
    """What came of each Service of one namespace the last time: a change costs as much as what it touches.

    Objects are never changed in place, so the same object means the same.
    """

    def __init__(self) -> None:
        self.last: Mapping[str, _Kept] = {}


def decide_mapping(declared: Declared, memory: Memory | None = None) -> Mapped:
    """Return where requests to each TCP port of the namespace's Services go; ``memory`` changes the cost alone."""
    return _Namespace(declared).decide(memory or Memory())


def mapping_spec(mapped: Mapped) -> JsonObject:
    """Return the decision as the spec of a SidecarMapping: an entry a Pod by weight, an entry a subset by URL."""
    return {
        place: [entry for branch in port.branches for entry in _entries(branch)] for place, port in mapped.ports.items()
    }


def _entries(branch: Branch) -> list[JsonObject]:
    shown = [({"ip": each.ip, "targetPort": each.port}, each.weight) for each in branch.endpoints]
    if branch.url is not None or branch.headers:
        choice = {"url": branch.url, "headers": dict(branch.headers)}
        return [
            {**{name: value for name, value in choice.items() if value}, "endpoints": [at for at, _weight in shown]}
        ]
    return [{"weight": weight, "endpoints": [place]} for place, weight in shown]


class _Namespace:
    """One decision at work."""

    def __init__(self, declared: Declared) -> None:
        self._declared = declared
        self._services = {objects.name(each): each for each in declared.services if _has_address(each)}
        self._subset_objects = {objects.name(each): each for each in declared.subsets}
        self._subsets = {name: pods_of(each) for name, each in self._subset_objects.items()}
        self._slices: dict[str, list[JsonObject]] = defaultdict(list)
        for each in declared.slices:
            self._slices[objects.labels(each).get(SERVICE_NAME, "")].append(each)
        self._splits: dict[tuple[str, int], JsonObject] = {}
        self._verdicts: dict[str, Verdict] = {}
        self._withheld: set[str] = set()

    def decide(self, memory: Memory) -> Mapped:
        withholdings = frozenset(self._withhold())
        for each in sorted(self._declared.virtual_services, key=_age):
            self._verdicts[objects.name(each)] = self._judge(each)
        splits: dict[str, list[JsonObject]] = defaultdict(list)
        for (service, _port), split in sorted(self._splits.items()):
            splits[service].append(split)
        last = memory.last
        memory.last = kept = {
            name: self._of_service(name, service, splits.get(name, ()), last.get(name))
            for name, service in self._services.items()
        }
        led = self._declared.led
        placed = {
            each.place: each
            for one in kept.values()
            for each in one.ports
            if not led or (each.port.service, each.port.port) not in led
        }
        ports = {place: each.port for place, each in placed.items()}
        split_by = {place: each.split_by for place, each in placed.items() if each.split_by}
        return Mapped(ports, self._verdicts, split_by, withholdings)

    def _of_service(self, name: str, service: JsonObject, splits: Sequence[JsonObject], last: _Kept | None) -> _Kept:
        """Return what comes of a Service: what it was the last time, where that came of the same."""
        came_of = (service, *self._slices.get(name, ()), *self._of_splits(splits))
        if last is not None and _are_the_same(last.came_of, came_of) and last.pods & self._withheld == last.withheld:
            return last
        pods = frozenset(pods_of_slices(self._slices.get(name, ())))
        return _Kept(came_of, pods, pods & self._withheld, tuple(self._placed(name, service)))

    def _of_splits(self, splits: Sequence[JsonObject]) -> Iterator[JsonObject | None]:
        for split in splits:
            yield split
            for subset in _subsets_of(objects.spec(split)):
                yield self._subset_objects.get(subset)

    def _placed(self, name: str, service: JsonObject) -> Iterator[Placed]:
        for port in objects.spec(service).get("ports") or []:
            split = self._splits.get((name, port["port"]))
            if not _is_tcp(port) or (split is None and _kept_by_nodes(service)):
                continue
            found = self._port(service, port, split)
            yield Placed(f"{found.address}:{found.port}", found, "" if split is None else objects.name(split))

    def _withhold(self) -> Iterator[Withholding]:
        """Withhold the Pods that RollingUpdates name, as far as they leave enough; yield those updates."""
        for each in sorted(self._declared.rolling_updates, key=_age):
            status, declared = objects.status(each), objects.spec(each)
            names = set(status.get("withheld") or [])
            if not names or objects.is_deleting(each):
                continue
            ready = set(pods_of_slices(self._slices.get(declared.get("serviceRef", ""), ()), ready=True))
            if len(ready - names - self._withheld) >= (declared.get("minimumAlive") or 0):
                self._withheld |= names
                yield Withholding(objects.name(each), objects.uid(each), status.get("batch") or 0)

    def _judge(self, virtual: JsonObject) -> Verdict:
        """Return what is to be said of a VirtualService, and let it have the port that it splits if it may."""
        declared = objects.spec(virtual)
        name, number = declared["serviceRef"], declared["port"]
        service = self._services.get(name)
        if service is None:
            return Verdict(broken=(NO_SERVICE, f"there is no Service {name} with an address in this namespace"))
        if number not in _tcp_ports(service):
            return Verdict(broken=(NO_PORT, f"Service {name} has no TCP port {number}"))
        leader = self._declared.led.get((name, number))
        if leader is not None:
            return Verdict(refused=(CONFLICTED, f"HTTPRoute {leader} leads the requests of that port"))
        holder = self._splits.get((name, number))
        if holder is not None:
            return Verdict(
                refused=(CONFLICTED, f"VirtualService {objects.name(holder)}, which is older, splits that port")
            )
        for one in declared["subsets"]:
            fault = pattern_fault(one["url"]) if one.get("url") is not None else ""
            if fault:
                return Verdict(refused=(BAD_PATTERN, f"url of subset {one['name']}: {fault}"))
        self._splits[name, number] = virtual
        return Verdict(broken=self._lacking(virtual, service))

    def _lacking(self, virtual: JsonObject, service: JsonObject) -> tuple[str, str] | None:
        """Return what a VirtualService refers to and is not there."""
        declared = objects.spec(virtual)
        names = _subsets_of(declared)
        missing = [name for name in names if name not in self._subsets]
        if missing:
            return (
                NO_SUBSET,
                f"there is no Subset {', '.join(missing)} in this namespace; the others share its requests",
            )
        ports = objects.spec(service)["ports"]
        port = next(one for one in ports if one["port"] == declared["port"] and _is_tcp(one))
        ready = {each.pod for each in self._endpoints(service, port)}
        empty = [name for name in names if not ready & set(self._subsets[name])]
        if empty:
            return NO_POD, f"no Pod of Subset {', '.join(empty)} is ready in Service {objects.name(service)}"
        return self._misleading(declared["subsets"])

    def _misleading(self, shares: Sequence[JsonObject]) -> tuple[str, str] | None:
        """Return what of weights does not come to what one would think."""
        shares = [one for one in shares if one.get("weight") is not None]
        if not shares:
            return None
        if not any(one["weight"] for one in shares):
            return NO_WEIGHT, "all weights are 0: requests are answered 503"
        of_pod: dict[str, list[str]] = defaultdict(list)
        for one in shares:
            for pod in self._subsets[one["name"]]:
                of_pod[pod].append(one["name"])
        several = next((each for each in sorted(of_pod.items()) if len(each[1]) > 1), None)
        if several is None:
            return None
        return OVERLAP, f"Pod {several[0]} is in the Subsets {', '.join(several[1])}, and gets its share of each"

    def _port(self, service: JsonObject, port: JsonObject, split: JsonObject | None) -> Port:
        found = self._endpoints(service, port)
        place = (objects.name(service), objects.spec(service)["clusterIP"], port["port"])
        if split is None:
            return Port(*place, (Branch("", None, found),))
        declared = objects.spec(split)
        policy = {field: declared[field] for field in POLICY if declared.get(field)}
        mirrored = (policy.get("mirror") or {}).get("subset")
        mirror = Branch(mirrored, None, tuple(self._group(mirrored, found))) if mirrored else None
        return Port(*place, self._branches(declared["subsets"], found), policy or None, mirror)

    def _group(self, subset: str, found: Iterable[Endpoint]) -> list[Endpoint]:
        by_pod: dict[str, list[Endpoint]] = defaultdict(list)
        for each in found:
            by_pod[each.pod].append(each)
        return [each for pod in self._subsets.get(subset, ()) for each in by_pod[pod]]

    def _branches(self, shares: Sequence[JsonObject], found: Sequence[Endpoint]) -> tuple[Branch, ...]:
        """Return the ways of requests: those that headers choose come first, then paths, or all by weight."""
        chosen = [
            Branch(one["name"], one.get("url"), tuple(self._group(one["name"], found)), tuple(one["headers"].items()))
            for one in shares
            if one.get("headers")
        ]
        paths = [one for one in shares if one.get("url") is not None and not one.get("headers")]
        chosen += [Branch(one["name"], one["url"], tuple(self._group(one["name"], found))) for one in paths]
        shares = [one for one in shares if one.get("weight") is not None]
        if not shares:
            return tuple(chosen)
        groups = [self._group(one["name"], found) for one in shares]
        weights = pod_weights([one["weight"] for one in shares], [len(group) for group in groups])
        weighted = [
            each._replace(weight=weight) for group, weight in zip(groups, weights, strict=True) for each in group
        ]
        return (*chosen, Branch("", None, tuple(weighted)))

    def _endpoints(self, service: JsonObject, port: JsonObject) -> tuple[Endpoint, ...]:
        family = "IPv6" if ":" in objects.spec(service)["clusterIP"] else "IPv4"
        slices = self._slices.get(objects.name(service), ())
        return endpoints_of(slices, family, port.get("name") or "", self._withheld)


def pod_weights(weights: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Return the weight of each Pod of each subset; 0 for those of a subset that is empty or has no weight.

    Weights [1, 2] of sizes [2, 1] give [1, 4]: Pods have 1, 1 and 4. Where that came to more than ``MOST``, all are
    made smaller alike, and stay above 0.

    Source: the original's pilot: W_i = w_i * product of the sizes n_j of the other subsets that are not empty, so that
    the sum over the Pods of subset i is in the ratio of w_i, whatever the sizes.
    """
    product = math.prod(size for size in sizes if size)
    exact = [weight * product // size if size else 0 for weight, size in zip(weights, sizes, strict=True)]
    total = sum(weight * size for weight, size in zip(exact, sizes, strict=True))
    if total <= MOST:
        return exact
    room = MOST - sum(sizes)
    return [max(weight * room // total, 1) if weight else 0 for weight in exact]


def _subsets_of(declared: JsonObject) -> list[str]:
    """Return the Subsets that a VirtualService names, that of its mirror last."""
    mirrored = (declared.get("mirror") or {}).get("subset")
    names = [one["name"] for one in declared["subsets"]]
    return [*names, mirrored] if mirrored and mirrored not in names else names


def _are_the_same(before: tuple[JsonObject | None, ...], now: tuple[JsonObject | None, ...]) -> bool:
    return len(before) == len(now) and all(map(operator.is_, before, now))


def _tcp_ports(service: JsonObject) -> set[int]:
    return {port["port"] for port in objects.spec(service).get("ports") or [] if _is_tcp(port)}


def _is_tcp(port: JsonObject) -> bool:
    return (port.get("protocol") or "TCP") == "TCP"


def _has_address(service: JsonObject) -> bool:
    declared = objects.spec(service)
    return declared.get("type") != "ExternalName" and (declared.get("clusterIP") or "None") != "None"


def _kept_by_nodes(service: JsonObject) -> bool:
    declared = objects.spec(service)
    return declared.get("sessionAffinity") == "ClientIP" or declared.get("internalTrafficPolicy") == "Local"


def _age(obj: JsonObject) -> tuple[str, str]:
    return str(objects.metadata(obj).get("creationTimestamp") or ""), objects.name(obj)

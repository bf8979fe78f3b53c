"""What Services, names and paths would come to if objects were applied and all new pods became ready. Pure.

``simulation.py`` says which pods would stand; here each new one gets the address that a claim would give it, and counts
as Ready unless something is known to keep it from running. Then the controllers' own deciders make the slices of every
Service that is concerned: one that changes, or whose selector fits a pod that comes, goes or changes its labels, or
whose endpoints a user writes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import SERVICE
from minik8s_modules.api.lifecycle.service_strategy import needs_node_ports
from minik8s_modules.api.network.dual_stack import SINGLE_STACK, DualStack
from minik8s_modules.api.network.load_balancers import Given, decide_addresses, serving_nodes
from minik8s_modules.api.network.load_balancers import by_age as services_by_age
from minik8s_modules.api.network.service_ranges import addresses_of, candidates, port_candidates
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.controllers.network.endpoints_of_pods import has_endpoints
from minik8s_modules.controllers.network.endpointslices import (
    MANAGED_BY,
    MIRRORED,
    SELECTED,
    SliceStep,
    decide_families,
    decide_mirrors,
    is_mirrored,
)
from minik8s_modules.reconcile.feeds.ingress_feed import Overlay, SecretOf, Slices
from minik8s_modules.reconcile.network.dataplane import DATAPLANE
from minik8s_modules.reconcile.network.health_checks import imagined_checks
from minik8s_modules.reconcile.network.services import (
    API_PORT,
    NO_BALANCERS,
    OF_IPV6,
    SERVICE_NAME,
    Balancers,
    service_ports,
    without_ipv6,
    zone_of,
)
from minik8s_modules.reconcile.planning.simulated_autoscalers import SimulatedScaling
from minik8s_modules.reconcile.planning.simulation import PlannedState, never_ran
from minik8s_modules.reconcile.pods.node_admission import by_age
from minik8s_modules.reconcile.values.addresses import usable
from minik8s_modules.reconcile.values.resources import host_ip
from minik8s_modules.reconcile.values.values import NOTHING_NAMED, Entries, Named
from minik8s_modules.scheduler.profiles.deciding import Scene

_ROUNDS = 8


def _none(_key: str) -> list[JsonObject]:
    return []


def _unknown(_uid: str) -> str | None:
    return None


def _nothing(_changes: Overlay, _slices: Slices, _secret_of: SecretOf) -> Named:
    return NOTHING_NAMED


class Cluster(NamedTuple):
    """What a plan is made over: all pods and nodes, workloads where asked for, the shard's nodes, and what is behind.

    Attributes:
        services: all of them; ``slices`` has those of one by ``<namespace>/<name>``.
        taken: the addresses that no new pod gets; ``address_of`` has a pod's own by its UID.
        imagined: names and paths if the objects of an overlay, and the slices of some Services, were as given.
        certificates: the Secrets that Ingresses have as certificates, by ``<namespace>/<name>``.
        endpoints: those that people write, by ``<namespace>/<name>``, where a Service without a selector changes.
        scene: what the scheduler looks at besides, where something changes.
        scaling: what autoscalers would do, and the workloads that are certain to be scaled.
        storage: claims, volumes and classes, where such change.
        policies: all NetworkPolicies, where something changes.
        mesh: all VirtualServices, Subsets and AuthorizationPolicies, where something changes.
        gateways: all objects of Gateway API, where something changes.
        balancers: what addresses from outside are decided by.
    """

    pods: tuple[JsonObject, ...]
    nodes: tuple[JsonObject, ...]
    names: tuple[str, ...]
    workloads: tuple[JsonObject, ...] = ()
    services: tuple[JsonObject, ...] = ()
    slices: Callable[[str], list[JsonObject]] = _none
    taken: frozenset[str] = frozenset()
    address_of: Callable[[str], str | None] = _unknown
    imagined: Callable[[Overlay, Slices, SecretOf], Named] = _nothing
    certificates: frozenset[str] = frozenset()
    endpoints: Mapping[str, JsonObject] = {}
    scene: Scene | None = None
    scaling: SimulatedScaling = SimulatedScaling()
    storage: tuple[JsonObject, ...] = ()
    policies: tuple[JsonObject, ...] = ()
    mesh: tuple[JsonObject, ...] = ()
    gateways: tuple[JsonObject, ...] = ()
    balancers: Balancers = NO_BALANCERS


class PlannedServices(NamedTuple):
    """What Services would be: those concerned by key (None: gone), their slices, and the new pods behind them."""

    services: Mapping[str, JsonObject | None] = {}
    slices: Mapping[str, list[JsonObject]] = {}
    awaited: frozenset[str] = frozenset()


def addresses(pods: Mapping[str, JsonObject | None], cluster: Cluster) -> dict[str, str]:
    """Return the addresses by UID of those of ``pods`` (None: gone) that have or would claim one: the lowest free ones.

    Those that would go keep theirs for now, so that what comes in their place has another.
    """
    ranges = {objects.name(node): str(objects.spec(node).get("podCIDR") or "") for node in cluster.nodes}
    taken, found = set(cluster.taken), dict[str, str]()
    for pod in sorted((pod for pod in pods.values() if pod is not None), key=by_age):
        uid, cidr = objects.uid(pod), ranges.get(str(objects.spec(pod).get("nodeName") or ""), "")
        known = cluster.address_of(uid)
        free = (ip for ip in usable(cidr) if ip not in taken) if cidr and not _of_host(pod) else iter(())
        address = known or next(free, None)
        if address is not None:
            found[uid] = address
            taken.add(address)
    return found


def allocated(found: PlannedState, services: Iterable[JsonObject], cidr: str) -> PlannedState:
    """Return what would be with addresses and node ports for the Services that controllers would make: the next ones.

    Those that somebody applies have theirs from the API server.
    """
    made = [(place, one) for place, one in found.network.items() if one is not None and _lacks(one)]
    if not made:
        return found
    specs = [objects.spec(one) for one in (*services, *filter(None, found.services.values()))]
    used = {address for spec in specs for address in addresses_of(spec)}
    ports = {port.get("nodePort") for spec in specs for port in spec.get("ports") or []}
    free = (each for each in candidates(ipaddress.ip_network(cidr)) if each not in used)
    free_ports = (each for each in port_candidates() if each not in ports)
    network = dict(found.network)
    for place, one in made:
        spec = {"clusterIP": next(free, "None"), **objects.spec(one)}
        spec["ports"] = [
            {**port, "nodePort": port.get("nodePort") or next(free_ports, 0)} if needs_node_ports(spec) else port
            for port in spec.get("ports") or []
        ]
        network[place] = {**one, "spec": spec}
    return found._replace(network=network)


def _lacks(service: JsonObject) -> bool:
    spec = objects.spec(service)
    if service.get("kind") != SERVICE.kind or objects.controller_of(service) is None:
        return False
    unnumbered = any(not port.get("nodePort") for port in spec.get("ports") or []) and needs_node_ports(spec)
    return not spec.get("clusterIP") or unnumbered


def _of_host(pod: JsonObject) -> bool:
    return bool(objects.spec(pod).get("hostNetwork"))


def planned_services(
    found: PlannedState,
    cluster: Cluster,
    given: Mapping[str, str],
    stuck: AbstractSet[str],
    dual_stack: DualStack = SINGLE_STACK,
) -> PlannedServices:
    """Return what Services would be.

    Args:
        found: what would stand.
        cluster: what stands.
        given: addresses of pods by UID.
        stuck: UIDs of the pods that would not come to run.
        dual_stack: has their IPv6 addresses.
    """
    before = {objects.uid(pod): pod for pod in cluster.pods}
    hosts = {objects.name(node): host_ip(node) for node in cluster.nodes}
    new = {
        uid: _ready(
            pod,
            dual_stack.addresses_of(
                hosts.get(objects.spec(pod)["nodeName"], "") if _of_host(pod) else given.get(uid, "")
            ),
        )
        for uid, pod in found.pods.items()
        if pod is not None and never_ran(pod) and uid not in stuck and objects.spec(pod).get("nodeName")
    }
    after = {uid: pod for uid, pod in {**before, **found.pods, **new}.items() if pod is not None}
    services = {str(objects.key(one)): one for one in cluster.services}
    services |= {key: one for key, one in found.services.items() if one is not None}
    changed = [pod for uid in found.pods for pod in (before.get(uid), after.get(uid)) if pod is not None]
    concerned = set(found.services) | _with_endpoints(found.network, cluster)
    concerned |= {key for key, one in services.items() if any(_selects(one, pod) for pod in changed)}
    kept = {key: found.services[key] if key in found.services else services.get(key) for key in sorted(concerned)}
    slices = {key: _slices(key, one, after.values(), found.network, cluster) for key, one in kept.items()}
    awaited = {uid for uid, pod in new.items() if any(one is not None and _selects(one, pod) for one in kept.values())}
    for key, one in _balanced(found, cluster, slices):
        kept[key] = one
        slices.setdefault(key, cluster.slices(key))
    return PlannedServices(kept, slices, frozenset(awaited))


def _balanced(
    found: PlannedState, cluster: Cluster, slices: Mapping[str, list[JsonObject]]
) -> Iterator[tuple[str, JsonObject]]:
    """Yield the Services of load balancers whose addresses would be others, as the controller would write them."""
    before = {str(objects.key(one)): one for one in cluster.services}
    stays = [one for one in services_by_age(cluster.services) if str(objects.key(one)) not in found.services]
    after = {
        str(objects.key(one)): one for one in [*stays, *(one for one in found.services.values() if one is not None)]
    }

    def serving(service: JsonObject) -> frozenset[str]:
        key = str(objects.key(service))
        return serving_nodes(slices[key] if key in slices else cluster.slices(key))

    balancing, world = cluster.balancers
    for _ in range(_ROUNDS):  # what one lets go of, another gets
        given = decide_addresses([*after.values()], world, serving, balancing)
        others = {key: _at(after[key], one) for key, one in given.items() if _points(after[key]) != [*one.points]}
        after |= others
        if not others:
            break
    for key, one in after.items():
        had = before.get(key)
        if _points(one) != (_points(had) if had is not None else []):
            yield key, one


def _points(service: JsonObject) -> list[JsonObject]:
    return list(objects.dig(service, "status", "loadBalancer", "ingress") or [])


def _at(service: JsonObject, given: Given) -> JsonObject:
    balancer = {"ingress": [*given.points]} if given.points else {}
    return {**service, "status": {**objects.status(service), "loadBalancer": balancer}}


def _ready(pod: JsonObject, addresses: Sequence[str]) -> JsonObject:
    if not addresses:
        return pod
    ready = {"type": "Ready", "status": "True"}
    own = {"podIP": addresses[0], "podIPs": [{"ip": each} for each in addresses]}
    return {**pod, "status": {"phase": "Running", **own, "conditions": [ready]}}


def _selects(service: JsonObject, pod: JsonObject) -> bool:
    wanted = objects.spec(service).get("selector") or {}
    same = objects.namespace(pod) == objects.namespace(service)
    return same and has_endpoints(service) and wanted.items() <= objects.labels(pod).items()


def _service_of(endpoint_slice: JsonObject) -> str:
    return f"{objects.namespace(endpoint_slice)}/{objects.labels(endpoint_slice).get(SERVICE_NAME, '')}"


def _with_endpoints(network: Overlay, cluster: Cluster) -> set[str]:
    """Return the Services whose endpoints somebody writes."""
    found = {key for kind, key in network if kind == "Endpoints"}
    written = {key: one for (kind, key), one in network.items() if kind == "EndpointSlice"}
    found |= {_service_of(one) for one in written.values() if one is not None}
    if written:
        every = (str(objects.key(one)) for one in cluster.services)
        found |= {key for key in every if any(str(objects.key(one)) in written for one in cluster.slices(key))}
    return found


def _slices(
    key: str, service: JsonObject | None, pods: Iterable[JsonObject], network: Overlay, cluster: Cluster
) -> list[JsonObject]:
    if service is None:
        return []
    written = {name: one for (kind, name), one in network.items() if kind == "EndpointSlice"}
    standing = {str(objects.key(one)): one for one in cluster.slices(key)}
    standing |= {name: one for name, one in written.items() if one is not None and _service_of(one) == key}
    others = [one for name, one in standing.items() if name not in written or written[name] is not None]
    selected = [one for one in others if objects.labels(one).get(MANAGED_BY) == SELECTED]
    others = [one for one in others if objects.labels(one).get(MANAGED_BY) != SELECTED]
    if ("Endpoints", key) in network or key in cluster.endpoints:
        endpoints = network.get(("Endpoints", key), cluster.endpoints.get(key))
        mirrored = [one for one in others if objects.labels(one).get(MANAGED_BY) == MIRRORED]
        others = [one for one in others if objects.labels(one).get(MANAGED_BY) != MIRRORED]
        others += _taken(decide_mirrors(endpoints if is_mirrored(service, endpoints) else None, mirrored), mirrored)
    return imagined_slices(service, pods, selected, cluster.nodes) + others


def imagined_slices(
    service: JsonObject,
    pods: Iterable[JsonObject],
    standing: Sequence[JsonObject] = (),
    nodes: Iterable[JsonObject] = (),
) -> list[JsonObject]:
    """Return the slices that the controller would make for a Service of these pods, of those that stand."""
    if not has_endpoints(service):
        return []
    zones = {objects.name(node): zone_of(node) for node in nodes}
    chosen = [pod for pod in pods if _selects(service, pod)]
    return _taken(decide_families(service, chosen, lambda node: zones.get(node, ""), standing), standing)


def _taken(steps: Iterable[SliceStep], standing: Iterable[JsonObject]) -> list[JsonObject]:
    """Return the slices once the steps are done."""
    new, after = list[JsonObject](), {objects.name(one): one for one in standing}
    for step in steps:
        if step.action == "create":
            new.append(step.obj)
        elif step.action == "update":
            after[objects.name(step.obj)] = step.obj
        else:
            after.pop(objects.name(step.obj), None)
    return [*after.values(), *new]


def named_after(
    before: Named, imagined: Named | None, folders: Mapping[str, Entries], seen: PlannedServices, node: str
) -> Named:
    """Return what a node would get of names and paths; ``imagined`` is None where those of the cluster stay."""
    named = imagined or before
    ingress = imagined_checks(named.ingress, before.ingress, seen.services, seen.slices, node)
    return named._replace(machines=before.machines, folders=folders, ingress=ingress)


def with_services(
    entries: Entries, seen: PlannedServices, node: str, balancers: Balancers = NO_BALANCERS, zone: str = ""
) -> Entries:
    """Return a node's section ``services`` with the Services of ``seen`` as they would be."""
    if not seen.services or DATAPLANE not in entries:
        return entries
    imagined = {key: entry for key, entry in entries.items() if key.rpartition(":")[0] not in seen.services}
    known = (entries.get(key, {}).get("node_port") for key in (API_PORT, API_PORT + OF_IPV6))
    kubelet_port = int(next(filter(None, known), 0))
    for key, service in seen.services.items():
        if service is not None:
            ports = service_ports(service, seen.slices.get(key, []), (), kubelet_port, balancers)
            imagined |= {name: port.on(node, zone) for name, port in ports.items()}
    return imagined if "ipv6" in entries[DATAPLANE] else without_ipv6(imagined)

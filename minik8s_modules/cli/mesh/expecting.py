"""What sidecars are to have, decided as pilots decide it, from the same objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Forbidden, NotFound
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import (
    ENDPOINT_SLICE,
    NAMESPACE,
    POD,
    ROLLING_UPDATE,
    SERVICE,
    SUBSET,
    VIRTUAL_SERVICE,
)
from minik8s_modules.api.network.gateway_api import GATEWAY_KINDS
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mutual_tls import MODES, MTLS
from minik8s_modules.cli import output
from minik8s_modules.cli.mesh.sidecars import Expected
from minik8s_modules.client.interface import Lister
from minik8s_modules.mesh.crowds import Led, told
from minik8s_modules.mesh.gateways.meshing import decide_led, routes_of
from minik8s_modules.mesh.identities.securing import NOBODY, Peers, peers_of, secured
from minik8s_modules.mesh.mapping import Declared, Port, decide_mapping
from minik8s_modules.mesh.resources import CLUSTER, ENDPOINTS, LISTENER, ROUTES, Resource, version_of
from minik8s_modules.mesh.wording import Address, weights_of

_KINDS = {CLUSTER: "cluster", LISTENER: "listener", ROUTES: "route"}


def declared_of(client: Lister, namespace: str) -> Declared:
    """Return the objects of a namespace that the mesh is made of; raises as the API does."""

    def of(kind: Kind) -> list[JsonObject]:
        return list(client.list(kind, namespace).items)

    return Declared(of(SERVICE), of(ENDPOINT_SLICE), of(VIRTUAL_SERVICE), of(SUBSET), of(ROLLING_UPDATE))


def expected(client: Lister, namespace: str) -> Expected:
    """Return what sidecars of a namespace are to have; raises as the API does."""
    ports, peers = _ports(client, namespace), peers_in(client, namespace)
    modes = {name: each.mode for name, each in peers.pods.get(namespace, {}).items()}

    def having(numbers: frozenset[int]) -> Expected:
        return _expected(secured(told(namespace, ports, numbers), peers, namespace))._replace(modes=modes)

    return having(frozenset())._replace(sharing=cache(having))


def peers_in(client: Lister, namespace: str) -> Peers:
    """Return who speaks TLS, as far as it may be seen: Pods of a namespace, and of others that have it.

    Those of the namespace also where none has it (any more): what their sidecars were told before is to be taken back.
    """
    try:
        labels = {objects.name(each): objects.labels(each) for each in client.list(NAMESPACE).items}
    except Forbidden:
        output.warn("you may not list Namespaces: whether they have mutual TLS is not known")
        return NOBODY
    having = {name: of for name, of in labels.items() if of.get(MTLS) in MODES}
    return peers_of(having, (pod for each in {*having, namespace} for pod in _of(client, POD, each)))


def _expected(resources: Iterable[Resource]) -> Expected:
    versions: dict[tuple[str, str], str] = {}
    endpoints: dict[str, Mapping[Address, int]] = {}
    on_demand: set[str] = set()
    for one in resources:
        if one.type_url == ENDPOINTS:
            endpoints[one.name] = weights_of(one.body)
        else:
            # of listeners, Envoy does not tell the version that it has (sidecars.py)
            version = "" if one.type_url == LISTENER else version_of(one.body)
            versions[_KINDS[one.type_url], one.name] = version
            if one.on_demand:
                on_demand.add(one.name)
    return Expected(versions, endpoints, frozenset(on_demand))


def _ports(client: Lister, namespace: str) -> dict[str, Port | Led]:
    routes = routes_of(*(_of_cluster(client, each, namespace) for each in (GATEWAY_KINDS.routes, GATEWAY_KINDS.grants)))
    declared = {each: declared_of(client, each) for each in sorted(routes.namespaces(namespace))}
    own = declared[namespace]._replace(led=routes.producers(declared[namespace], namespace))
    led = {each.place: each for each in decide_led(routes, namespace, [*declared.values()])}
    return {**decide_mapping(own).ports, **led}


def _of(client: Lister, kind: Kind, namespace: str) -> list[JsonObject]:
    try:
        return list(client.list(kind, namespace).items)
    except Forbidden:
        return []


def _of_cluster(client: Lister, kind: Kind, namespace: str) -> list[JsonObject]:
    """Return the objects of all namespaces; of one alone for whom no more are shown to; none where there is no kind."""
    try:
        return list(client.list(kind).items)
    except NotFound:
        return []
    except Forbidden:
        output.warn(f"you may not list {kind.plural} of other namespaces: their routes are not shown")
        return list(client.list(kind, namespace).items)

"""Port numbers that many Services of a namespace share: one listener for all, clusters as they are asked for. Pure.

A listener that serves HTTP takes a sidecar 60 kB and a cluster 35 kB: a thousand Services would be 100 MB in each Pod,
which calls a few of them. In a crowd, a Service costs an address in a list until the sidecar has a request for it:

    outbound ─▶ listener *.shop:80 ─ a Service's, HTTP ─▶ routes *.shop:80 ─▶ what splits or leads its requests
                        │                                        └─ else ─▶ cluster ADDRESS:80, told when asked for
                        ├─ a Service's, no HTTP ─▶ likewise, by connection
                        └─ any other address ─▶ passthrough

                                                                   or, without a pilot, passthrough

What picks a route is the address that was called, in a header that the caller cannot set and no Pod sees. Ports that
VirtualServices or HTTPRoutes lead by more than weights have clusters of their own, told at once; their routes are one
resource with those of the others, so that connections that are open already follow a change.

A request waits a second for its cluster. Then `late` says so in a second header and has the route chosen again, and
`called` names passthrough where there is no such cluster: the node leads the request by the rules of the Service, as it
does for Pods without a sidecar. What speaks HTTP/2 from its first byte (gRPC), or no HTTP, is not reached like that.

Only a namespace's own Services make a crowd, and are in it. Ports of other namespaces' Services that HTTPRoutes lead
are told alone: nobody else decides how a namespace's Services are told, and no table has routes of two namespaces.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.mesh.mapping import Port
from minik8s_modules.mesh.policies import FAULT, by_method, retry_policy
from minik8s_modules.mesh.resources import (
    API,
    AS_ASKED,
    CLUSTER,
    ENDPOINTS,
    FROM_PILOT,
    LISTENER,
    PASSTHROUGH,
    ROUTES,
    Resource,
    address_of,
    assignment,
    cluster,
    plain_http,
    resources,
    sniffing,
    tcp_proxy,
)

CROWD = 50
"""Services with a port of one number; with so many and fewer, each is told at once. Then a sidecar has 5 MB of them."""
FEW = 40
"""With so many and fewer a crowd ends: well below, so that one Service that comes and goes does not change it all."""
_ANY = "0.0.0.0"  # noqa: S104 - opens no socket
_HEADER = "x-minik8s-destination"
_CALLED = "%DOWNSTREAM_LOCAL_ADDRESS%"
_LATE = "x-minik8s-late"
_REQUEST_S, _CONNECTION_S = "1s", "5s"
"""How long a first request waits for a pilot before the node leads it, and a first connection before it ends."""
_MARK_LATE = f"""
function envoy_on_request(handle)
  handle:headers():replace("{_LATE}", "1")
  handle:clearRouteCache()
end
"""
_CHOOSE = f"""
local missed = {{}}
function envoy_on_route(handle)
  local called = handle:headers():get("{_HEADER}")
  if handle:getCluster(called) ~= nil then
    return called
  end
  if handle:headers():get("{_LATE}") then
    missed[called] = os.time()
    return "{PASSTHROUGH}"
  end
  -- who has just waited in vain does not again for a while; a cluster that comes is asked for already
  if os.time() - (missed[called] or 0) < 10 then
    return "{PASSTHROUGH}"
  end
  return called
end
"""
_HTTP, _TCP = "http", "tcp"
_INPUTS = f"{API}extensions.matching.common_inputs.network.v3."


class Led(Protocol):
    """A port that is told of otherwise than a Service's own; equal to one that gives the same resources."""

    @property
    def place(self) -> str:
        """Return ADDRESS:PORT."""

    @property
    def namespace(self) -> str:
        """Return whose Service it is."""

    def resources(self) -> list[Resource]:
        """Return what sidecars are told of it."""


class Member(NamedTuple):
    """A port of a Service in a crowd: what is told of it besides the crowd's own.

    ``host`` and ``chain`` are its routes, and the way of what is no HTTP, where these are not everybody's.
    """

    address: str
    resources: Sequence[Resource]
    host: JsonObject | None = None
    chain: JsonObject | None = None


def own_places(namespace: str, ports: Mapping[str, Port | Led]) -> list[str]:
    """Return the places (ADDRESS:PORT) of a namespace's own Services."""
    return [place for place, port in ports.items() if isinstance(port, Port) or port.namespace == namespace]


def by_number(places: Iterable[str]) -> dict[int, list[str]]:
    """Return places (ADDRESS:PORT) by the number of the port, in order. IPv4 alone."""
    found: dict[int, list[str]] = defaultdict(list)
    for place in places:
        address, _, number = place.rpartition(":")
        if ":" not in address:
            found[int(number)].append(place)
    return {number: sorted(of) for number, of in sorted(found.items())}


def crowds_of(places: Iterable[str], kept: Collection[int] = ()) -> dict[int, list[str]]:
    """Return the port numbers that many places have, each with these; those that are ``kept`` may have fewer."""
    return {number: of for number, of in by_number(places).items() if len(of) > CROWD or number in kept}


def told(namespace: str, ports: Mapping[str, Port | Led], kept: Collection[int] = ()) -> Iterator[Resource]:
    """Yield all that the sidecars of a namespace are told, by ADDRESS:PORT given; ``kept`` as in ``crowds_of``."""
    crowds = crowds_of(own_places(namespace, ports), kept)
    members: dict[str, Member] = {}
    for place in (place for of in crowds.values() for place in of):
        members[place] = member(namespace, place, ports[place])
        yield from members[place].resources
    for number, of in crowds.items():
        of_crowd = [members[place] for place in of]
        yield crowd_listener(namespace, number, of_crowd)
        yield crowd_routes(namespace, number, of_crowd)
    for place, port in ports.items():
        if place not in members:
            yield from alone(namespace, place, port)


def alone(namespace: str, place: str, port: Port | Led) -> list[Resource]:
    """Return what is told of a port that is in no crowd."""
    return resources(namespace, place, port) if isinstance(port, Port) else port.resources()


def member(namespace: str, place: str, port: Port | Led) -> Member:
    """Return what is told of a port in a crowd."""
    if isinstance(port, Port) and _is_plain(port):
        name = f"{port.service}.{namespace}:{port.port}"
        # Endpoints bear no name that those of a cluster told at once have: where one follows the other, Envoy would
        # not ask for what it has already, and wait for it.
        body = {**cluster(place, AS_ASKED), "alt_stat_name": name}
        endpoints = Resource(ENDPOINTS, place, assignment(place, port.branches[0]), place)
        return Member(port.address, [Resource(CLUSTER, place, body, place, on_demand=True), endpoints])
    made = alone(namespace, place, port)
    listener, routes = (next(each for each in made if each.type_url == kind) for kind in (LISTENER, ROUTES))
    filters = listener.body["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"][:-1]
    host = {**routes.body["virtual_hosts"][0], "name": routes.name, "domains": [place]}
    if filters:
        host["typed_per_filter_config"] = {each["name"]: each["typed_config"] for each in filters}
    chain = {**listener.body["filter_chains"][-1], "name": listener.name}
    of_clusters = [each for each in made if each.type_url in {CLUSTER, ENDPOINTS}]
    return Member(place.rpartition(":")[0], of_clusters, host, chain)


def owners(
    crowds: Mapping[int, Sequence[str]], ports: Mapping[str, Port | Led], behind: Mapping[str, str]
) -> dict[str, str]:
    """Return who is behind the routes of each crowd, by its place: one of them has what a sidecar refuses."""
    found: dict[str, str] = {}
    for number, places in crowds.items() if behind else ():
        told_apart = [place for place in places if not (isinstance(port := ports[place], Port) and _is_plain(port))]
        found[f"{_ANY}:{number}"] = ",".join(sorted({behind[place] for place in told_apart if place in behind}))
    return {place: names for place, names in found.items() if names}


def _is_plain(port: Port) -> bool:
    """Return whether all requests go to one group of Pods, by weight at most."""
    return [each[:2] for each in port.branches] == [("", None)] and port.policy is None


def crowd_listener(namespace: str, number: int, members: Sequence[Member]) -> Resource:
    """Return the listener of a port number that many Services share."""
    name = f"*.{namespace}:{number}"
    return Resource(LISTENER, name, _listener(name, number, members), f"{_ANY}:{number}")


def crowd_routes(namespace: str, number: int, members: Sequence[Member]) -> Resource:
    """Return the routes of a port number that many Services share."""
    name = f"*.{namespace}:{number}"
    return Resource(ROUTES, name, _routes(name, members), f"{_ANY}:{number}")


def is_urgent(old: Sequence[Member], new: Sequence[Member]) -> bool:
    """Return whether a listener says of a Service what is wrong by now; not of one that it does not know yet."""
    chains = {each.address: each.chain for each in new}
    return any(each.address not in chains or chains[each.address] != each.chain for each in old)


def _listener(name: str, number: int, members: Sequence[Member]) -> JsonObject:
    chosen = {
        "@type": f"{API}extensions.filters.network.set_filter_state.v3.Config",
        "on_new_connection": [
            {
                "object_key": "envoy.tcp_proxy.cluster",
                "format_string": {"text_format_source": {"inline_string": _CALLED}},
            }
        ],
    }
    asking = {"on_demand": {"odcds_config": FROM_PILOT, "timeout": _CONNECTION_S}}
    connections = {"name": "tcp", "typed_config": {**tcp_proxy(name, PASSTHROUGH), **asking}}
    return {
        "name": name,
        "address": address_of(_ANY, number),
        "bind_to_port": False,
        **sniffing(),
        "filter_chain_matcher": _matcher(members),
        "filter_chains": [
            {"name": _HTTP, "filters": [{"name": "http", "typed_config": _manager(name)}]},
            {"name": _TCP, "filters": [{"name": "chosen", "typed_config": chosen}, connections]},
            {"name": PASSTHROUGH, "filters": [{"name": "tcp", "typed_config": tcp_proxy(name, PASSTHROUGH)}]},
            *(each.chain for each in members if each.chain is not None),
        ],
    }


def _matcher(members: Sequence[Member]) -> JsonObject:
    """Return what chooses a chain; a change of it alone ends no connection, which one of chains' own matches would."""
    http = _by_address({each.address: _HTTP for each in members})
    rest = _by_address({each.address: _TCP if each.chain is None else str(each.chain["name"]) for each in members})
    protocols = {"name": "protocol", "typed_config": {"@type": f"{_INPUTS}ApplicationProtocolInput"}}
    # 'http/1.0', 'http/1.1' and 'h2c', in quotes, are what the inspector finds
    spoken = {"map": {each: {"matcher": http} for each in ("'h",)}}
    return {"matcher_tree": {"input": protocols, "prefix_match_map": spoken}, "on_no_match": {"matcher": rest}}


def _by_address(chains: Mapping[str, str]) -> JsonObject:
    addresses = {"name": "address", "typed_config": {"@type": f"{_INPUTS}DestinationIPInput"}}
    found = {address: _chain(name) for address, name in chains.items()}
    tree = {"input": addresses, "exact_match_map": {"map": found}}
    return {"matcher_tree": tree, "on_no_match": _chain(PASSTHROUGH)}


def _chain(name: str) -> JsonObject:
    kind = "type.googleapis.com/google.protobuf.StringValue"
    return {"action": {"name": "chain", "typed_config": {"@type": kind, "value": name}}}


def _manager(name: str) -> JsonObject:
    called = {
        "append": {"header": {"key": _HEADER, "value": _CALLED}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"},
    }
    mutation = {
        "@type": f"{API}extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation",
        "mutations": [{"remove": _LATE}, called],
    }
    asking = {
        "@type": f"{API}extensions.filters.http.on_demand.v3.OnDemand",
        "odcds": {"source": FROM_PILOT, "timeout": _REQUEST_S},
    }
    late = {
        "@type": f"{API}extensions.filters.http.lua.v3.Lua",
        "default_source_code": {"inline_string": _MARK_LATE},
    }
    # a virtual host that has faults turns the first on
    filters: list[JsonObject] = [
        {"name": "fault", "disabled": True, "typed_config": {"@type": FAULT}},
        {"name": "on_demand", "typed_config": asking},
        {"name": "late", "typed_config": late},
    ]
    return {
        **plain_http(name, filters),
        "early_header_mutation_extensions": [{"name": "destination", "typed_config": mutation}],
    }


def _routes(name: str, members: Sequence[Member]) -> JsonObject:
    chosen = {"cluster_specifier_plugin": "called", "timeout": "0s"}
    route = {"name": name, "match": {"prefix": "/"}, "route": chosen}
    choosing = {
        "@type": f"{API}extensions.router.cluster_specifiers.lua.v3.LuaConfig",
        "source_code": {"inline_string": _CHOOSE},
        "default_cluster": PASSTHROUGH,
    }
    everybody = {"name": "*", "domains": ["*"], "routes": by_method(route, {}), "retry_policy": retry_policy({})}
    return {
        "name": name,
        "vhost_header": _HEADER,
        "cluster_specifier_plugins": [{"extension": {"name": "called", "typed_config": choosing}}],
        "request_headers_to_remove": [_HEADER, _LATE],
        "virtual_hosts": [*(each.host for each in members if each.host is not None), everybody],
    }

"""What sidecars have and have done, as they say themselves: Envoy's administration, asked by ``kubectl exec``.

Whoever asks needs ``create`` on ``pods/exec`` of the Pods, and learns nothing that he could not read there; no pilot is
asked, of which there may be several, and none may be there. What is read here is data: a Pod may answer anything.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mutual_tls import PERMISSIVE, STRICT
from minik8s_modules.api.pods.sidecar_images import sidecar_of
from minik8s_modules.cli import kubectl
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.mesh.crowds import Known, addresses_of, asked_for, is_of_crowd, told_apart
from minik8s_modules.client.interface import Lister
from minik8s_modules.mesh.identities.securing import IDENTITY, INBOUND, INBOUND_IPV6, PLAIN
from minik8s_modules.mesh.policies import is_for_get
from minik8s_modules.mesh.wording import Address

DUMP, HOSTS, PILOT = "/config_dump?include_eds", "/clusters?format=json", "/stats?format=json&filter=connected_state"
_AT_ONCE = 8
_PATIENCE_S = 30.0
_ADMINISTRATION = "http://127.0.0.1:15000"

Ask = Callable[[JsonObject, str], Any]
"""Returns what the sidecar of a Pod answers to a path, read as JSON; raises Unanswered."""


class Unanswered(UsageError):
    """A sidecar could not be asked, or its answer not be read."""


class Counts(NamedTuple):
    """What a sidecar has sent to an address since it began."""

    requests: int
    errors: int


class Listener(NamedTuple):
    """An address that a sidecar takes connections of."""

    name: str
    address: Address


class Configuration(NamedTuple):
    """What a sidecar has been told and has taken.

    Attributes:
        versions: by type and name, of what has a version.
        routes: by name, in the order in which they are tried: Envoy's own objects. What is said twice, because GET
            may be tried again, is there once.
        endpoints: weights by cluster and address.
        updated: when it has last taken something, RFC 3339; "" for never.
        refused: what it last refused, in its words.
        crowds: the addresses of Services of which it asks for the Pods with its first request, by number of the port.
        mutual: how it takes connections, ``permissive`` or ``strict``; "" where its node leads none to TLS.
        certified: since when it has its certificate, RFC 3339; "" for none.
    """

    versions: Mapping[tuple[str, str], str]
    listeners: Sequence[Listener]
    routes: Mapping[str, Sequence[JsonObject]]
    endpoints: Mapping[str, Mapping[Address, int]]
    updated: str
    refused: str
    crowds: Mapping[int, frozenset[str]] = MappingProxyType({})
    mutual: str = ""
    certified: str = ""

    @property
    def version(self) -> str:
        """A digest of all of it: sidecars with the same one have the same."""
        endpoints = {name: {str(at): weight for at, weight in of.items()} for name, of in self.endpoints.items()}
        content = [sorted((*key, version) for key, version in self.versions.items()), endpoints]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


class Expected(NamedTuple):
    """What sidecars of a namespace are to have, as in ``Configuration``.

    ``on_demand`` are clusters that one has when it has asked for them; their endpoints have the same names. ``sharing``
    returns what one is to have whose Services with these port numbers share a listener, as they do for a time when
    they have become fewer. ``modes`` are how Pods that can speak TLS are to take connections, by name.
    """

    versions: Mapping[tuple[str, str], str]
    endpoints: Mapping[str, Mapping[Address, int]]
    on_demand: frozenset[str] = frozenset()
    sharing: Callable[[frozenset[int]], Expected] | None = None
    modes: Mapping[str, str] = MappingProxyType({})


def container_of(pod: JsonObject) -> str:
    """Return the name of a Pod's container that is its sidecar, "" if none is."""
    return sidecar_of(objects.spec(pod))


def with_sidecars(client: Lister, namespace: str) -> list[JsonObject]:
    """Return the Pods of a namespace that run and have a sidecar; raises as the API does."""
    pods = client.list(POD, namespace).items
    running = [pod for pod in pods if objects.status(pod).get("phase") == "Running" and not objects.is_deleting(pod)]
    return sorted((pod for pod in running if container_of(pod)), key=objects.name)


def asking(given: argparse.Namespace) -> Ask:
    """Return what asks by kubectl, over the connection that the options name."""
    connection = [word for option in ("kubeconfig", "context") if (value := getattr(given, option, ""))
                  for word in (f"--{option}", value)]  # fmt: skip

    def ask(pod: JsonObject, path: str) -> Any:
        key = objects.key(pod)
        words = ["exec", "-n", key.namespace, key.name, "-c", container_of(pod), "--"]
        wget = ["/bin/wget", "-q", "-O", "-", f"{_ADMINISTRATION}{path}"]
        try:
            text = kubectl.output_of([*connection, *words, *wget], _PATIENCE_S)
            return json.loads(text)
        except ValueError as error:
            raise Unanswered(f"the sidecar of Pod {key.name} cannot be asked: {error}") from error

    return ask


def ask_all(ask: Ask, pods: Sequence[JsonObject], path: str) -> Iterator[tuple[JsonObject, Any]]:
    """Yield what each sidecar answers, or why it did not, in the order of ``pods``."""

    def one(pod: JsonObject) -> Any:
        try:
            return ask(pod, path)
        except Unanswered as unanswered:
            return unanswered

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from zip(pods, pool.map(one, pods), strict=True)


def read_configuration(dump: Any) -> Configuration:
    """Return what a configuration dump says of what a pilot has told.

    Raises:
        Unanswered: it is none.
    """
    try:
        return _configuration({_kind(each): each for each in dump["configs"]})
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise Unanswered(f"what a sidecar says of its configuration cannot be read: {error!r}") from error


def read_counts(answer: Any) -> dict[Address, Counts]:
    """Return what was sent to each address, as the list of clusters has it.

    Raises:
        Unanswered: it is none.
    """
    found: dict[Address, Counts] = {}
    try:
        for cluster in answer["cluster_statuses"]:
            for host in cluster.get("host_statuses") or ():
                at = _address(host["address"])
                counters = {each["name"]: int(each.get("value") or 0) for each in host["stats"]}
                before = found.get(at, Counts(0, 0))
                found[at] = Counts(
                    before.requests + counters.get("rq_total", 0), before.errors + counters.get("rq_error", 0)
                )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unanswered(f"what a sidecar says of its clusters cannot be read: {error!r}") from error
    return found


def has_pilot(answer: Any) -> bool:
    """Return whether statistics say that a pilot is connected."""
    stats = answer.get("stats") if isinstance(answer, dict) else None
    found = [each for each in stats or () if isinstance(each, dict)]
    return any(each.get("name") == "control_plane.connected_state" and each.get("value") == 1 for each in found)


def _kind(config: Any) -> str:
    return str(config["@type"]).rpartition(".")[2]


def _configuration(dumps: Mapping[str, JsonObject]) -> Configuration:
    clusters = dumps["ClustersConfigDump"].get("dynamic_active_clusters") or []
    listeners = dumps["ListenersConfigDump"].get("dynamic_listeners") or []
    routes = dumps["RoutesConfigDump"].get("dynamic_route_configs") or []
    endpoints = dumps["EndpointsConfigDump"].get("dynamic_endpoint_configs") or []
    active = [each["active_state"] for each in listeners if "active_state" in each]
    inbound = [each["listener"] for each in active if each["listener"]["name"] == INBOUND]
    active = [each for each in active if each["listener"]["name"] not in {INBOUND, INBOUND_IPV6}]
    named = [*(("cluster", each["cluster"]["name"], each) for each in clusters),
             *(("listener", each["listener"]["name"], each) for each in active),
             *(("route", each["route_config"]["name"], each) for each in routes)]  # fmt: skip
    failed = [each["error_state"] for each in (*listeners, *clusters, *routes) if "error_state" in each]
    failed.sort(key=lambda each: str(each.get("last_update_attempt")))
    crowds = [each["listener"] for each in active if is_of_crowd(each["listener"])]
    of_crowds = {each["name"] for each in crowds}
    tables = [each["route_config"] for each in routes]
    known = [*(one for each in tables if each["name"] in of_crowds for one in told_apart(each)),
             *(one for each in clusters for one in asked_for(each["cluster"]))]  # fmt: skip
    alone = [each["listener"] for each in active if each["listener"]["name"] not in of_crowds]
    return Configuration(
        # where filters alone change, Envoy takes the new listener and goes on to tell the old one's version
        {(kind, name): "" if kind == "listener" else str(each["version_info"]) for kind, name, each in named},
        [*(Listener(each["name"], _address(each["address"])) for each in alone), *map(_listener, known)],
        {
            **{
                each["name"]: _told_once(each["virtual_hosts"][0]["routes"])
                for each in tables
                if each["name"] not in of_crowds
            },
            **{each.name: _told_once(each.routes) for each in known},
        },
        dict(_endpoints(each["endpoint_config"]) for each in endpoints),
        max((str(each.get("last_updated") or "") for _kind, _name, each in named), default=""),
        str(failed[-1].get("details", "")) if failed else "",
        {_address(each["address"]).port: addresses_of(each) for each in crowds},
        _mode(inbound[0]) if inbound else "",
        _certified(dumps.get("SecretsConfigDump") or {}),
    )


def _mode(listener: JsonObject) -> str:
    return PERMISSIVE if any(each.get("name") == PLAIN for each in listener["filter_chains"]) else STRICT


def _certified(secrets: JsonObject) -> str:
    found = (each for each in secrets.get("dynamic_active_secrets") or () if each.get("name") == IDENTITY)
    return next((str(each.get("last_updated") or "") for each in found), "")


def _listener(known: Known) -> Listener:
    ip, _, port = known.place.rpartition(":")
    return Listener(known.name, Address(ip, int(port)))


def _told_once(routes: Iterable[JsonObject]) -> list[JsonObject]:
    return [route for route in routes if not is_for_get(route)]


def _endpoints(assignment: JsonObject) -> tuple[str, dict[Address, int]]:
    found = [each for group in assignment.get("endpoints") or () for each in group.get("lb_endpoints") or ()]
    weights = {_address(each["endpoint"]["address"]): int(each.get("load_balancing_weight") or 0) for each in found}
    return str(assignment["cluster_name"]), weights


def _address(address: JsonObject) -> Address:
    socket = address["socket_address"]
    return Address(str(socket["address"]), int(socket["port_value"]))

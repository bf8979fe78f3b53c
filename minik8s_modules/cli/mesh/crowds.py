"""What a sidecar says of port numbers that many Services share (``mesh.crowds``): read out of Envoy's objects. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from minik8s_modules.api.objects import JsonObject


class Known(NamedTuple):
    """A port of a Service in a crowd, ADDRESS:PORT, and its routes."""

    name: str
    place: str
    routes: list[JsonObject]


def is_of_crowd(listener: JsonObject) -> bool:
    """Return whether a listener is that of many Services."""
    return "filter_chain_matcher" in listener


def addresses_of(listener: JsonObject) -> frozenset[str]:
    """Return the addresses of a crowd's Services."""
    by_address = listener["filter_chain_matcher"]["on_no_match"]["matcher"]["matcher_tree"]
    return frozenset(by_address["exact_match_map"]["map"])


def told_apart(table: JsonObject) -> Iterator[Known]:
    """Yield the Services of a crowd whose requests are told apart, or led."""
    for host in table["virtual_hosts"]:
        if host["name"] != "*":
            yield Known(str(host["name"]), str(host["domains"][0]), list(host["routes"]))


def asked_for(cluster: JsonObject) -> Iterator[Known]:
    """Yield the Service of a crowd that a cluster is of, if it is of one: what was asked for."""
    name: Any = cluster.get("alt_stat_name")
    if name:
        route: JsonObject = {"match": {"prefix": "/"}, "route": {"cluster": cluster["name"]}}
        yield Known(str(name), str(cluster["name"]), [route])

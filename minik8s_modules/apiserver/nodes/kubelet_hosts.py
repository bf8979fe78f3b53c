"""A node's address and the kubelet's port as a host of this server: its kubelet, as programs ask one directly.

metrics-server and Prometheus ask ``https://NODE:10250/metrics/resource``. No agent listens on nodes: they send that
port on to API servers (reconcile/network/services.py), and the header Host says which node was meant. Such a request
goes on as one for nodes/proxy, and is authorized as by a kubelet: for ``nodes/metrics``, ``nodes/stats`` or
``nodes/proxy``. Host only chooses the node, as a path does; whoever asks is authenticated and authorized as everywhere.
Source: kubernetes ``pkg/kubelet/server/auth.go``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import NODE
from minik8s_modules.api.nodes.virtual_nodes import is_virtual
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.places import parse_place
from minik8s_modules.store.cache import WatchCache

KUBELET = "minik8s.kubelet"
"""The key of a WSGI environment under which stands the subresource of nodes that a kubelet would ask about."""
_RIGHTS = {"metrics": "metrics", "stats": "stats", "logs": "log", "spec": "spec"}
_OTHERS = "proxy"
Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Any]


def nodes_at(nodes: Iterable[JsonObject]) -> dict[str, str]:
    """Return the names of nodes by their addresses, in lower case; an address that two nodes claim is nobody's.

    Virtual nodes are left out: they answer there themselves, and may be carried by a machine that is a node, too.
    """
    claims = [
        (str(each["address"]).lower(), objects.name(node))
        for node in nodes
        if not is_virtual(node)
        for each in objects.dig(node, "status", "addresses") or []
        if isinstance(each, dict) and "address" in each
    ]
    claimants = Counter(address for address, _ in set(claims))
    return {address: name for address, name in claims if claimants[address] == 1}


def needed(path: str) -> str:
    """Return the subresource of nodes that a kubelet's path needs."""
    return _RIGHTS.get(path.split("/")[1], _OTHERS)


class KubeletHosts:
    """The WSGI application ``app`` with nodes' addresses at ``port`` as further hosts; 0: with none."""

    def __init__(self, app: Wsgi, cache: WatchCache, port: int) -> None:
        self._app, self._cache, self._port = app, cache, str(port or "")
        self._made: tuple[int, Mapping[str, str]] = (-1, {})

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        """Answer a request."""
        host, port = parse_place(str(environ.get("HTTP_HOST", "")))
        if self._port and port == self._port and (name := self._nodes().get(host.lower())):
            proxy = f"/api/v1/nodes/{name}/proxy"
            path = f"/{environ['PATH_INFO'].lstrip('/')}"
            environ[KUBELET] = needed(path)
            environ["PATH_INFO"] = f"{proxy}{path}"
            environ["RAW_URI"] = f"{proxy}/{environ['RAW_URI'].lstrip('/')}"
        return self._app(environ, start_response)

    def _nodes(self) -> Mapping[str, str]:
        changes, made = self._cache.changes(NODE.prefix), self._made
        if changes != made[0]:
            found = nodes_at(item.object for item in self._cache.list(NODE.prefix).items)
            made = self._made = (changes, found)
        return made[1]

"""``minik8s-gateway``: watches the nodes of one shard and serves what it sees on a Unix socket."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.inventory import DEFAULT_SHARD, Inventory
from minik8s_modules.base.process import raise_file_limit, run_daemon
from minik8s_modules.client.configured import client_of
from minik8s_modules.client.interface import Api
from minik8s_modules.gateway import messages
from minik8s_modules.gateway.heart import Heart
from minik8s_modules.gateway.inventory import RUN_DIR, NodeAddress, nodes_of
from minik8s_modules.gateway.leases import FRESH_S, NodeLeases
from minik8s_modules.gateway.links import link_to
from minik8s_modules.gateway.messages import Cancel, Listen, Probe, PullRequest, Relist, Request
from minik8s_modules.gateway.node import NodeWatcher
from minik8s_modules.gateway.probing.service import Probing
from minik8s_modules.gateway.pulls import Pulls
from minik8s_modules.gateway.sampling import Sampler
from minik8s_modules.gateway.server import SocketServer
from minik8s_modules.gateway.ssh import reach_argv, shell_argv
from minik8s_modules.gateway.standby import Standby
from minik8s_modules.gateway.streams.handing import HandingServer, uid_of
from minik8s_modules.gateway.streams.reaching import NodeRoute
from minik8s_modules.gateway.streams.signatures import Signatures

log = logging.getLogger(__name__)

_INVENTORY_CHECK_S = 3.0
STREAMS_USER = "minik8s-streams"


class Gateway:
    """Nodes, clients and pulls of one shard, tied together."""

    def __init__(
        self, client: Api, socket_path: Path, directory: Path, endpoint: str = "", standby: Standby | None = None
    ) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._lock = threading.Lock()
        self._using = threading.RLock()
        self._standby = standby or Standby(led_only=False)
        self._addresses: tuple[NodeAddress, ...] = ()
        self._nodes: dict[str, tuple[NodeAddress, NodeWatcher]] = {}
        self._samplers: dict[str, Sampler] = {}
        self._hearts: dict[str, Heart] = {}
        self._server = SocketServer(socket_path, self.handle, self._greet)
        self._pulls = Pulls(self._server.publish)
        self._probing = Probing(self.route, self._server.publish)
        self._leases = NodeLeases(client, self._living, endpoint=endpoint, ahead_s=self._ahead_s)

    def start(self) -> None:
        """Serve clients and renew Leases; nodes come with ``use``."""
        self._probing.start()
        self._server.start()
        self._leases.start()

    def stop(self) -> None:
        """End everything that was started, ssh masters too."""
        self._pulls.stop()
        self._probing.stop()
        self.use(())
        self._leases.stop()
        self._server.stop()

    def use(self, addresses: Sequence[NodeAddress]) -> None:
        """Watch exactly the nodes of ``addresses``, while this gateway is to attend any."""
        with self._using:
            self._addresses = tuple(addresses)
            self.attend()

    def attend(self) -> None:
        """Take up or leave the nodes as clients have come and gone."""
        with self._using:
            attends = self._standby.attends(self._server.count())
            self._watch(self._addresses if attends else ())

    def _watch(self, addresses: Sequence[NodeAddress]) -> None:
        """Watch exactly these nodes; one that is watched already with the same address goes on."""
        wanted = {address.name: address for address in addresses}
        with self._lock:
            gone = [name for name, (address, _) in self._nodes.items() if wanted.get(name) != address]
            hearts = [self._hearts.pop(name) for name in gone if name in self._hearts]
            stopped: list[NodeWatcher | Sampler | Heart] = [*hearts, *(self._nodes.pop(name)[1] for name in gone)]
            stopped += [self._samplers.pop(name) for name in gone]
            new = [address for name, address in wanted.items() if name not in self._nodes]
        if not gone and not new:
            return
        _stop_all(stopped)
        self._probing.keep(wanted)
        for address in new:
            watcher = NodeWatcher(address.name, link_to(address, self._directory), self._publish)
            sampler = Sampler(address.name, watcher.source, self._publish)
            with self._lock:
                self._nodes[address.name] = (address, watcher)
                self._samplers[address.name] = sampler
            self._tell_way(address.name, self._publish)
            watcher.start()
            sampler.start()

    def route(self, node: str) -> NodeRoute | None:
        """Return the way to a node for streams, None when it is not connected; from any thread."""
        with self._lock:
            found = self._nodes.get(node)
        if found is None or not found[1].socket_path:
            return None
        address, watcher = found
        if address.connection != "warm_ssh":
            return NodeRoute(watcher.socket_path, None)
        return NodeRoute(watcher.socket_path, lambda host, port: reach_argv(address, self._directory, host, port))

    def answered_over(self, connected: socket.socket) -> None:
        """Have answers to probes read by the process behind this connection; from any thread."""
        self._probing.answered_over(connected)

    def metrics(self, *, history: bool = False) -> dict[str, Any]:
        """Return what the nodes and their containers use, by node; from any thread."""
        with self._lock:
            samplers = [*self._samplers.values()]
        return {sampler.name: sampler.metrics.shown(history=history) for sampler in samplers}

    def handle(self, request: Request) -> None:
        """Do what a client asks; returns at once."""
        match request:
            case Relist(node):
                watcher = self._watcher(node)
                if watcher is not None:
                    self._tell_way(node, self._publish)
                    watcher.tell(self._publish)
                    watcher.relist()
            case Cancel(pull_id):
                self._pulls.cancel(pull_id)
            case PullRequest():
                self._pull(request)
            case Probe(node, pod, sandbox, checks):
                self._probing.declare(node, pod, sandbox, checks)
            case Listen(node, on):
                self._listen(node, on=on)

    def _listen(self, node: str, *, on: bool) -> None:
        """Listen closely to a node, or no more; another machine than this one."""
        with self._lock:
            found, heart = self._nodes.get(node), self._hearts.get(node)
            if heart is not None and on:
                heart.tell(self._publish)
            elif on and found is not None and found[0].connection == "warm_ssh":
                self._hearts[node] = new = Heart(node, found[1].link, self._publish)
                new.start()
            if not on:
                self._hearts.pop(node, None)
        if heart is not None and not on:
            heart.stop()

    def _pull(self, request: PullRequest) -> None:
        watcher = self._watcher(request.node)
        path = watcher.socket_path if watcher else ""
        if path:
            self._pulls.start(request, path)
            return
        why = f"node {request.node} is not connected" if watcher else f"there is no node {request.node} here"
        self._publish(messages.not_pulled(request, "ErrImagePull", why))

    def _publish(self, message: dict[str, Any]) -> None:
        self._server.publish(message)
        if message["op"] == "event" and message["action"] == "destroy":
            self._probing.gone(message["node"], message["id"])
        if message["op"] == "alive" and message["alive"]:
            self._leases.renew_soon()

    def _greet(self, publish: Callable[[dict[str, Any]], None]) -> None:
        with self._lock:
            known: list[NodeWatcher | Sampler | Heart] = [watcher for _, watcher in self._nodes.values()]
            known += [*self._samplers.values(), *self._hearts.values()]
            names = [*self._nodes]
        for name in names:
            self._tell_way(name, publish)
        for each in known:
            each.tell(publish)
        if self._standby.led_only:
            threading.Thread(target=self.attend, name="attend", daemon=True).start()

    def _tell_way(self, node: str, publish: Callable[[dict[str, Any]], None]) -> None:
        """Tell how commands reach the node, whose connection other processes of this user may share."""
        with self._lock:
            found = self._nodes.get(node)
        if found is not None:
            address = found[0]
            argv = shell_argv(address, self._directory) if address.connection == "warm_ssh" else []
            publish(messages.way(node, argv, address.state_dir, address.run_dir))

    def _watcher(self, node: str) -> NodeWatcher | None:
        with self._lock:
            found = self._nodes.get(node)
        return found[1] if found else None

    def _ahead_s(self, node: str) -> float:
        watcher = self._watcher(node)
        return watcher.clock_ahead_s if watcher is not None else 0.0

    def _living(self) -> list[str]:
        with self._lock:
            watchers = [watcher for _, watcher in self._nodes.values()]
        return [watcher.name for watcher in watchers if watcher.answered_within(FRESH_S)]


def _stop_all(watchers: Sequence[NodeWatcher | Sampler | Heart]) -> None:
    """Stop all at the same time: a dead node's threads take seconds to end."""
    threads = [threading.Thread(target=watcher.stop) for watcher in watchers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class InventoryFile:
    """The nodes an inventory file tells, read again when the file has changed."""

    def __init__(self, path: Path, shard: str, run_dir: Path) -> None:
        self._inventory = Inventory(path, shard)
        self._run_dir = str(run_dir)

    def changed_nodes(self) -> tuple[NodeAddress, ...] | None:
        """Return the nodes when the file is not what it was at the last call, else None.

        Raises:
            ConfigurationError: it cannot be used; it is not read again before it changes.
        """
        hosts = self._inventory.changed_hosts()
        return None if hosts is None else nodes_of(hosts, str(self._inventory.path), self._run_dir)


class Streams(NamedTuple):
    """What ``streams`` in the configuration says; ``advertise`` is where API servers find the process that has them.

    ``server_name`` is what its certificate is for, where that is not the address.
    """

    socket: Path
    user: str
    advertise: str
    client_ca: Path
    server_name: str = ""

    def endpoint(self) -> str:
        """Return that place as the nodes' Leases tell it."""
        return f"https://{self.advertise}" + (f"#{self.server_name}" if self.server_name else "")

    def server(self, gateway: Gateway) -> HandingServer:
        """Return what hands connections over, not started."""
        return HandingServer(
            self.socket,
            uid_of(self.user),
            Signatures(self.client_ca),
            gateway.route,
            lambda history: gateway.metrics(history=history),
            gateway.answered_over,
        )


def streams_of(configuration: Configuration) -> Streams | None:
    """Return the settings of streams; None where there are none."""
    if not configuration.has("streams"):
        return None
    configuration.host_and_port("streams.advertise")
    return Streams(
        Path(configuration.text("streams.socket", str(Path(configuration.text("run_dir", RUN_DIR)) / "streams.sock"))),
        configuration.text("streams.user", STREAMS_USER),
        configuration.text("streams.advertise"),
        Path(configuration.text("streams.client_ca")),
        configuration.text("streams.server_name", ""),
    )


def serve(configuration: Configuration, stop: threading.Event) -> None:
    """Run until ``stop`` is set.

    Raises:
        ConfigurationError: the configuration, the kubeconfig or the inventory cannot be used.
    """
    raise_file_limit()
    client = client_of(configuration, "minik8s-gateway")
    run_dir = Path(configuration.text("run_dir", RUN_DIR))
    shard = configuration.text("shard", DEFAULT_SHARD)
    inventory = InventoryFile(Path(configuration.text("inventory")), shard, run_dir)
    nodes = inventory.changed_nodes() or ()
    socket_path = Path(configuration.text("socket", str(run_dir / "gateway.sock")))
    streams = streams_of(configuration)
    endpoint = streams.endpoint() if streams else ""
    standby = Standby(led_only=configuration.flag("standby", default=False))
    gateway = Gateway(client, socket_path, run_dir / "gateway", endpoint, standby)
    handing = streams.server(gateway) if streams else None
    gateway.start()
    if handing is not None:
        handing.start()
    try:
        gateway.use(nodes)
        log.info("watching %d nodes, serving %s", len(nodes), socket_path)
        while not stop.wait(_INVENTORY_CHECK_S):
            _follow_inventory(gateway, inventory)
            gateway.attend()
    finally:
        if handing is not None:
            handing.stop()
        gateway.stop()


def _follow_inventory(gateway: Gateway, inventory: InventoryFile) -> None:
    try:
        changed = inventory.changed_nodes()
    except ConfigurationError as error:
        log.warning("%s; continuing with the known nodes", error)
        return
    if changed is not None:
        gateway.use(changed)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon; return its exit code."""
    return run_daemon("minik8s-gateway", "Watches nodes and their Docker for the reconciler.", serve, argv)


if __name__ == "__main__":
    raise SystemExit(main())

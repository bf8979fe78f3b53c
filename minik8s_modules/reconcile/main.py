"""``minik8s-reconciler --config FILE``: leads one shard while it holds the shard's Lease, and answers plans.

Every election makes a new ``ShardService`` with a new fencing token. A node that knows a newer token ends
the service; the Lease is given back and fought for again. Next step: ``service.py``.
"""

from __future__ import annotations

import ipaddress
import logging
import random
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import LEASE
from minik8s_modules.api.network.balancing import read_balancing
from minik8s_modules.api.network.dual_stack import DualStack, read_dual_stack, same_family
from minik8s_modules.api.nodes.standalone import PREFIX, served_alone
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.base.config import Configuration, read_services_ipv6
from minik8s_modules.base.errors import ConfigurationError, TemporaryError
from minik8s_modules.base.inventory import DEFAULT_SHARD, Hosts, Inventory
from minik8s_modules.base.places import parse_place, place
from minik8s_modules.base.process import run_daemon
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.configured import client_of, election_client
from minik8s_modules.reconcile.executor.live_run import Executor, executor_named
from minik8s_modules.reconcile.executor.runner import AnsibleRunner
from minik8s_modules.reconcile.executor.standing_runner import StandingRunner
from minik8s_modules.reconcile.housekeeping.policies import Policies, read_policies
from minik8s_modules.reconcile.loop.gateway_link import GatewayLink
from minik8s_modules.reconcile.network.network_settings import network_settings
from minik8s_modules.reconcile.network.services import PROXY_MODES, kubernetes_address
from minik8s_modules.reconcile.planning.planserver import PlanFiles, PlanServer, Vacancy
from minik8s_modules.reconcile.planning.questions import Question
from minik8s_modules.reconcile.service import Link, OnMessage, OnUp, Outside, ShardService
from minik8s_modules.reconcile.standalone.shared_settings import publish, shared_of
from minik8s_modules.reconcile.values.loop_metrics import LoopMetrics
from minik8s_modules.reconcile.values.node_file import declared_of
from minik8s_modules.reconcile.values.values import POD_PIDS_LIMIT, DnsSettings, IngressSettings, Settings
from minik8s_modules.runtime.leader import LeaderElector, Token

log = logging.getLogger(__name__)
PLAN_ENDPOINT = "minik8s.io/plan-endpoint"
OWN_SHARD = "node."
"""What the shard of a node's own reconciler begins with (daemon_configs.py)."""
OBSERVE_EVERY_S = {"normal": 300.0, "fast": 30.0}
"""Seconds between two full observations of a node, by ``drift``."""
_JITTER = 0.2
_FENCED_PAUSE_S = 5.0
_INVENTORY_CHECK_S = 2.0
"""One stat each; the gateway looks at the same pace."""
_LOOKS_BETWEEN = 15
"""So many looks at the inventory for one at who has a reconciler of its own."""


class Options(NamedTuple):
    """The configuration file, read and checked."""

    kubeconfig: Path
    inventory: Path
    gateway_socket: Path
    shard: str
    private_data_dir: Path
    project_dir: Path
    settings: Settings
    observe_every_s: float
    drift_watch: bool
    executor: Executor
    plan: PlanOptions | None
    policies: Policies
    shared: JsonObject
    """What reconcilers of nodes have in common with this one."""


class PlanOptions(NamedTuple):
    """Where plans are answered; None in ``Options`` where ``plan`` is left out."""

    host: str
    port: int
    files: PlanFiles


def read_options(configuration: Configuration) -> Options:
    """Return what the configuration file says.

    Raises:
        ConfigurationError: a key is missing or cannot be used.
    """
    drift = configuration.choice("drift", OBSERVE_EVERY_S, "normal")
    mode = configuration.choice("proxy_mode", PROXY_MODES, "auto")
    service_cidr = configuration.network("service_cidr", Settings().service_cidr, may_be_ipv6=True)
    cluster_cidr = configuration.network("cluster_cidr", Settings().cluster_cidr, may_be_empty=True, may_be_ipv6=True)
    project_dir = Path(configuration.text("project_dir"))
    dual = read_dual_stack(configuration, cluster_cidr)
    services_ipv6 = _services_ipv6(configuration, dual, cluster_cidr, service_cidr)
    dns, ingress = _dns_settings(configuration), _ingress_settings(configuration, project_dir)
    settings = Settings(
        cluster_cidr=cluster_cidr,
        pause_image=configuration.text("pause_image", Settings().pause_image),
        bridge=configuration.text("bridge", Settings().bridge),
        hmac_key=_key(Path(configuration.text("hmac_key_file"))),
        cluster_dns=tuple(configuration.texts("cluster_dns", [dns.listen] if dns.listen else [])),
        api_address=_address(configuration.text("api_address", "")) or kubernetes_address(service_cidr),
        service_cidr=service_cidr,
        proxy_mode=mode,
        dns=dns,
        ingress=ingress._replace(ipv6=":" in dns.listen or dual.alone),
        pod_pids_limit=max(0, configuration.number("pod_pids_limit", POD_PIDS_LIMIT)),
        pod_stop_delay_s=max(0, configuration.number("pod_stop_delay_s", 0)),
        kubelet_port=_port(configuration, "kubelet_port"),
        balancing=read_balancing(
            configuration, dict.fromkeys((cluster_cidr, service_cidr, dual.cluster_cidr, services_ipv6))
        ),
        mesh=configuration.flag("mesh", default=False),
        own_node=configuration.text("shard", DEFAULT_SHARD).startswith(OWN_SHARD),
        declared=declared_of(configuration.mapping("nodes"), "reconciler.yml") if configuration.has("nodes") else {},
        dual_stack=dual,
        service_cidr_ipv6=services_ipv6,
    )
    return Options(
        kubeconfig=Path(configuration.text("kubeconfig")),
        inventory=Path(configuration.text("inventory")),
        gateway_socket=Path(configuration.text("gateway_socket", "/run/minik8s/gateway.sock")),
        shard=configuration.text("shard", DEFAULT_SHARD),
        private_data_dir=Path(configuration.text("private_data_dir")),
        project_dir=project_dir,
        settings=network_settings(configuration, settings),
        observe_every_s=OBSERVE_EVERY_S[drift],
        drift_watch=configuration.flag("drift_watch", default=True),
        executor=executor_named(configuration.text("executor", "python_api")),
        plan=_plan_options(configuration) if configuration.has("plan") else None,
        policies=read_policies(configuration),
        shared=shared_of(configuration),
    )


def _services_ipv6(configuration: Configuration, dual: DualStack, cluster_cidr: str, service_cidr: str) -> str:
    """Return the range of Services' IPv6 addresses; where Pods have these alone, it is that of all Services."""
    same_family(cluster_cidr, service_cidr)
    if not dual.alone:
        return str(read_services_ipv6(configuration, dual_stack=bool(dual)) or "")
    without = {
        "service_cidr_ipv6": configuration.text("service_cidr_ipv6", ""),
        "proxy_mode ipvs": configuration.text("proxy_mode", "") == "ipvs",
        "mesh": configuration.flag("mesh", default=False),
    }
    if given := next((name for name, found in without.items() if found), ""):
        raise ConfigurationError(f"{given} is not for a cluster of IPv6 alone (cluster_cidr {cluster_cidr})")
    return service_cidr


def _dns_settings(configuration: Configuration) -> DnsSettings:
    """Return how names are served; left out, or without ``listen``: not at all."""
    return DnsSettings(
        listen=_name_server(configuration.text("dns.listen", "")),
        port=configuration.number("dns.port", DnsSettings().port),
        forward=tuple(_upstream(each) for each in configuration.texts("dns.forward", [])),
        host_resolver=configuration.flag("dns.host_resolver", default=False),
    )


def _ingress_settings(configuration: Configuration, project_dir: Path) -> IngressSettings:
    """Return the ports of path routing; left out, or without ``http_port``: none."""
    ports = (configuration.number("ingress.http_port", 0), configuration.number("ingress.https_port", 0))
    if any(ports) and not all(0 < port < 1 << 16 for port in ports):
        raise ConfigurationError(f"ingress.http_port and https_port must both be ports (1 to 65535), not {ports}")
    return IngressSettings(*ports, templates=str(project_dir / "templates"))


def _port(configuration: Configuration, key: str) -> int:
    port = configuration.number(key, 0)
    if not 0 <= port < 1 << 16:
        raise ConfigurationError(f"{key} must be 0 (none) to 65535, not {port}")
    return port


def _name_server(text: str) -> str:
    """Return the address at which nodes serve names, of either family."""
    try:
        found = ipaddress.ip_address(text) if text else ""
    except ValueError as error:
        raise ConfigurationError(f"dns.listen must be an IP address: {error}") from error
    if isinstance(found, ipaddress.IPv6Address) and (found.is_link_local or found.scope_id):
        raise ConfigurationError(f"dns.listen {text} must be no link-local address of IPv6: Pods do not reach it")
    return str(found)


def _ipv4(key: str, text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(text)) if text else ""
    except ValueError as error:
        raise ConfigurationError(f"{key} must be an IPv4 address: {error}") from error


def _upstream(text: str) -> str:
    """Return a name server that nodes ask for other names, of either family."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError as error:
        raise ConfigurationError(f"dns.forward must have IP addresses: {error}") from error
    if isinstance(found, ipaddress.IPv6Address) and found.scope_id:
        raise ConfigurationError(
            f"dns.forward {text} names a device, which each node calls otherwise: write an address"
        )
    return str(found)


def _plan_options(configuration: Configuration) -> PlanOptions:
    listen = configuration.text("plan.listen")
    host, port = parse_place(listen)
    if not host or not port.isdecimal():
        raise ConfigurationError(f"plan.listen must be HOST:PORT, not {listen!r}")
    paths = (Path(configuration.text(f"plan.{name}")) for name in ("cert", "key", "client_ca"))
    return PlanOptions(host, int(port), PlanFiles(*paths))


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if text and (not host or not port.isdecimal()):
        raise ConfigurationError(f"api_address must be HOST:PORT, not {text!r}")
    return text


def _key(path: Path) -> bytes:
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise ConfigurationError(f"cannot read hmac_key_file {path}: {error.strerror}") from error
    if not key:
        raise ConfigurationError(f"hmac_key_file {path} is empty; write 32 random bytes in hex to it")
    return key


def jittered(every_s: float) -> Callable[[], float]:
    """Return a function that gives ``every_s`` give or take a fifth, so that nodes do not answer in step."""
    return lambda: every_s * (1 - _JITTER + 2 * _JITTER * random.random())  # noqa: S311 - no secret


def standing_runner(options: Options) -> StandingRunner:
    """Return Ansible for all elections."""
    return StandingRunner(
        lambda on_outcome: AnsibleRunner(
            inventory=options.inventory,
            private_data_dir=options.private_data_dir,
            project_dir=options.project_dir,
            on_outcome=on_outcome,
            executor=options.executor,
        )
    )


def outside(options: Options, client: ApiClient, runner: StandingRunner) -> Outside:
    """Return the real world: Ansible, the gateway's socket, the clock."""
    clock = SystemClock()

    def make_link(on_message: OnMessage, on_up: OnUp) -> Link:
        return GatewayLink(options.gateway_socket, on_message, on_up, clock)

    return Outside(client, runner.turn, make_link, clock, options.drift_watch)


class Leader:
    """What happens between two elections."""

    def __init__(self, options: Options, client: ApiClient, runner: StandingRunner) -> None:
        self._options = options
        self._client = client
        self._runner = runner
        self._inventory = Inventory(options.inventory, options.shard)
        self._hosts: Hosts = self._inventory.changed_hosts() or {}
        self._names = tuple(self._hosts)
        self._settings = self._led = options.settings.with_hosts(self._hosts)
        self._alone: frozenset[str] = frozenset()
        self._looks = 0
        self._service: ShardService | None = None
        self._vacancy: Vacancy | None = None
        """While the shard is led and has no nodes."""
        self._metrics = LoopMetrics()
        if self._hosts:  # Ansible has nothing to run on before
            runner.warm_up()

    def _has_new_hosts(self) -> bool:
        """Return whether there are other hosts to run than before; an unusable inventory is told and waited out."""
        try:
            if (hosts := self._inventory.changed_hosts()) is not None:
                self._settings = self._options.settings.with_hosts(hosts)
                self._hosts = hosts
        except ConfigurationError as error:
            log.warning("%s; going on with the hosts known", error)
        self._looks += 1
        if self._looks % _LOOKS_BETWEEN == 0:
            self._look_who_is_alone()
        names = self._mine()
        changed, self._names = names != self._names or self._settings != self._led, names
        return changed

    def _mine(self) -> tuple[str, ...]:
        return tuple(name for name in self._hosts if name not in self._alone)

    def _look_who_is_alone(self) -> None:
        """Find out which nodes have a reconciler of their own; that of such a node has just its own."""
        if self._options.settings.own_node:
            return
        try:
            found = served_alone(self._client.list(LEASE, "kube-system").items)
        except (TemporaryError, StatusError) as error:
            log.info("it is not known which nodes have a reconciler of their own: %s", error)
            return
        for name in sorted((found - self._alone).intersection(self._hosts)):
            log.warning(
                "node %s has a reconciler of its own (Lease kube-system/%s%s): that one attends it", name, PREFIX, name
            )
        self._alone = found

    def _share(self) -> None:
        """Tell the reconcilers of nodes what they have in common with this one; tried again at the next election."""
        if self._options.settings.own_node:
            return
        try:
            publish(self._client, self._options.shared)
        except (TemporaryError, StatusError) as error:
            log.warning("settings for reconcilers of nodes were not published: %s", error)

    def _go_on_with(self, service: ShardService) -> bool:
        """Have the service run the new hosts, and nothing happen to the others; return whether it can."""
        log.info("the inventory has changed: nodes are now %s", ", ".join(self._names) or "none")
        return self._settings == self._led and service.use(self._names)

    def _wait_for_nodes(self, done: threading.Event) -> None:
        """Wait until there are any, since Ansible has nothing to run on before, or until ``done``."""
        self._vacancy = Vacancy(self._client, self._options.settings, SystemClock())
        self._vacancy.start()
        try:
            while not self._names and not done.wait(_INVENTORY_CHECK_S):
                self._has_new_hosts()
        finally:
            vacancy, self._vacancy = self._vacancy, None
            vacancy.stop()

    def plan(self, question: Question) -> JsonObject | None:
        """Return the answer to a plan, None while the shard is not led."""
        service = self._service
        if service is not None:
            return service.plan(question)
        vacancy = self._vacancy
        return vacancy.plan(question) if vacancy is not None else None

    def metrics(self, node: str) -> str | None:
        """Return what was counted of a node, None of one that is not led here."""
        return self._metrics.text(node) if self._service is not None else None

    def lead(self, token: Token, lost: threading.Event) -> None:
        """Run the shard until ``lost``, or until a node knows a newer token."""
        options = self._options
        done, fenced = threading.Event(), threading.Event()

        def on_fenced() -> None:
            fenced.set()
            done.set()

        threading.Thread(target=_pass_on, args=(lost, done), name="lease-lost", daemon=True).start()
        self._share()
        self._look_who_is_alone()
        self._names = self._mine()
        if not self._names:
            log.info("shard %s has no nodes yet", options.shard)
            self._wait_for_nodes(done)
        if done.is_set():
            return
        self._led = self._settings
        service = ShardService(
            outside(options, self._client, self._runner),
            self._names,
            (token.epoch, token.revision),
            self._led,
            jittered(options.observe_every_s),
            on_fenced,
            options.policies,
            self._metrics,
        )
        log.info("leading shard %s with nodes %s", options.shard, ", ".join(self._names) or "none")
        service.start()
        self._service = service
        try:
            while not done.wait(_INVENTORY_CHECK_S):
                if self._has_new_hosts() and not self._go_on_with(service):
                    break
        finally:
            self._service = None
            service.stop()
        if fenced.is_set():
            # whoever has the newer token may need the shard; and a node ahead for good must not make elections spin
            lost.wait(_FENCED_PAUSE_S)


def _pass_on(source: threading.Event, target: threading.Event) -> None:
    source.wait()
    target.set()


def serve(configuration: Configuration, stop: threading.Event) -> None:
    """Run until ``stop``.

    Raises:
        ConfigurationError: a file or option cannot be used.
    """
    options = read_options(configuration)
    client = client_of(configuration, "minik8s-reconciler")
    runner = standing_runner(options)
    leader = Leader(options, client, runner)
    annotations, server = {}, None
    if options.plan is not None:
        server = PlanServer(*options.plan, leader.plan, leader.metrics)
        server.start()
        annotations = {PLAN_ENDPOINT: f"https://{place(options.plan.host, server.port)}"}
    lease = f"minik8s-reconciler-{options.shard}"
    elector = LeaderElector(
        election_client(configuration, "minik8s-reconciler"), lease, annotations=annotations, fenced=True
    )
    try:
        elector.run(stop, leader.lead)
    finally:
        runner.stop()
        if server is not None:
            server.stop()
        client.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code of the daemon."""
    return run_daemon("minik8s-reconciler", "Realizes the pods of a shard's nodes through Ansible.", serve, argv)


if __name__ == "__main__":
    sys.exit(main())

"""What ``minik8s-reconciler`` reads from its configuration file: each key is checked, or refused by name."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from minik8s_modules.api.network.balancing import read_balancing
from minik8s_modules.api.network.dual_stack import DualStack, read_dual_stack, same_family
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.config import Configuration, read_services_ipv6
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.inventory import DEFAULT_SHARD
from minik8s_modules.base.places import parse_place
from minik8s_modules.module_utils.minik8s.install.name_server import name_server_problem
from minik8s_modules.reconcile.executor.live_run import Executor, executor_named
from minik8s_modules.reconcile.housekeeping.policies import Policies, read_policies
from minik8s_modules.reconcile.network.dataplane import PROXY_MODES
from minik8s_modules.reconcile.network.network_settings import network_settings
from minik8s_modules.reconcile.network.services import kubernetes_address
from minik8s_modules.reconcile.planning.planserver import PlanFiles
from minik8s_modules.reconcile.standalone.shared_settings import shared_of
from minik8s_modules.reconcile.values.node_file import declared_of
from minik8s_modules.reconcile.values.values import POD_PIDS_LIMIT, DnsSettings, IngressSettings, Settings

OWN_SHARD = "node."
"""What the shard of a node's own reconciler begins with (daemon_configs.py)."""
OBSERVE_EVERY_S = {"normal": 300.0, "fast": 30.0}
"""Seconds between two full observations of a node, by ``drift``."""


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
    dns = _dns_settings(configuration, (cluster_cidr, dual.cluster_cidr), (service_cidr, services_ipv6))
    ingress = _ingress_settings(configuration, project_dir)
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
        ingress=ingress._replace(ipv6=":" in dns.listen or bool(dual)),
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
        "mesh": configuration.flag("mesh", default=False),
    }
    if given := next((name for name, found in without.items() if found), ""):
        raise ConfigurationError(f"{given} is not for a cluster of IPv6 alone (cluster_cidr {cluster_cidr})")
    return service_cidr


def _dns_settings(configuration: Configuration, pods: Iterable[str], services: Iterable[str]) -> DnsSettings:
    """Return how names are served, outside these ranges; left out, or without ``listen``: not at all."""
    listen = configuration.text("dns.listen", "")
    if why := name_server_problem(listen, pods, services):
        raise ConfigurationError(f"dns.listen {listen} {why}")
    return DnsSettings(
        listen=str(ipaddress.ip_address(listen)) if listen else "",
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
    host, port = parse_place(text)
    if text and (not host or not port.isdecimal()):
        raise ConfigurationError(f"api_address must be HOST:PORT, an IPv6 address in brackets, not {text!r}")
    return text


def _key(path: Path) -> bytes:
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise ConfigurationError(f"cannot read hmac_key_file {path}: {error.strerror}") from error
    if not key:
        raise ConfigurationError(f"hmac_key_file {path} is empty; write 32 random bytes in hex to it")
    return key

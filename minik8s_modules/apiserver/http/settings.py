"""The API server's configuration file as a frozen value (docs/reference/configuration.md has the keys)."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass, fields, replace
from pathlib import Path

from minik8s_modules.apiserver.http.addressing import UNKNOWN, Addressing, read_addressing
from minik8s_modules.base.config import LONGEST_OF_SERVICES, Configuration, read_services_ipv6
from minik8s_modules.base.errors import ConfigurationError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# a request has a thread only when all of it is there, so threads wait for etcd, nodes and seats, never for clients;
# they start only when they are needed
DEFAULT_THREADS = 128
MOST_WORKERS = 8
# a second worker costs some 50 MB and a second copy of all objects: what a machine must have to get one by itself
TWO_WORKERS_CORES, TWO_WORKERS_BYTES = 2, 4_000_000_000
# of a worker: one user gets a sixteenth (turns.py), and with a single thread a slow call of his, such as one whose
# webhook asks this server as the same user, would hold up all his others
LEAST_THREADS = 64
# what leaks is of use for a day; pods' tokens are renewed at 80 % of their life anyway (reconcile/feeds/tokens.py).
# Amazon's service has this limit for all its clusters, so programs that use tokens are known to live with it
LONGEST_S = 24 * 3600
LONGEST_WISH_S = 1 << 32
# Kubernetes' bound of --service-account-max-token-expiration: pods ask for an hour by default
LEAST_MAX_TOKEN_S = 3600
# a limit of bytes below this would refuse the largest body there may be (bodies.MAX_BODY_BYTES)
LEAST_LIMIT_BYTES = 4 * 1024 * 1024
# an event with the largest body it may have (audit.BODY_BYTES) must fit
LEAST_AUDIT_BYTES = 100_000
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


@dataclass(frozen=True)
class TlsFiles:
    """Paths of a certificate, its key, and the authority that signs the peers' certificates."""

    cert: Path
    key: Path
    ca: Path


@dataclass(frozen=True)
class ServiceAccounts:
    """The issuer of service-account tokens, the key that signs, others that verify, and the longest life of a token."""

    issuer: str
    signing_key: Path
    verification_keys: tuple[Path, ...]
    max_token_s: int


@dataclass(frozen=True)
class Audit:
    """The audit log: its file, the size and age at which it is rotated, how many former files are kept and how long.

    ``max_age_days`` is 0 where age does not count.
    """

    path: Path
    max_bytes: int
    backups: int
    max_age_days: int


@dataclass(frozen=True)
class Limits:
    """How much may be held, in all and by one (limits.py): numbers, and bytes.

    The defaults leave room for large legitimate users: a node's reconciler or a kopf operator holds some 20 watches,
    Argo CD 150; one address may be that of a whole lab, or of all pods of a node.
    """

    connections: int = 4096
    connections_per_user: int = 400
    connections_per_address: int = 1000
    watches_per_user: int = 200
    watches_per_address: int = 1000
    streams_per_user: int = 100
    streams_per_address: int = 500
    bytes: int = 256 * 1024 * 1024
    bytes_per_user: int = 64 * 1024 * 1024
    bytes_per_address: int = 64 * 1024 * 1024


@dataclass(frozen=True)
class Settings:
    """What ``apiserver.yml`` says; ``reconciler_client`` is None where no reconciler is asked for plans.

    Without ``service_accounts`` no tokens are made or accepted; without ``audit`` no
    audit log is kept, and without ``key_ring`` secrets are stored plain. Without ``front_proxy`` no extension is asked.
    ``kubelet_port`` is 0 where no node's kubelet is answered for.
    """

    listen_address: str
    port: int
    advertise_address: str
    tls: TlsFiles
    etcd_endpoints: tuple[str, ...]
    etcd_tls: TlsFiles | None
    service_cidr: Network
    reconciler_client: TlsFiles | None
    threads: int
    service_accounts: ServiceAccounts | None = None
    audit: Audit | None = None
    key_ring: Path | None = None
    limits: Limits = Limits()
    mesh: bool = False
    dual_stack: bool = False
    service_cidr_ipv6: ipaddress.IPv6Network | None = None
    external_ips: bool = False
    name_server: str = ""
    addressing: Addressing = UNKNOWN
    refuse_taken_hosts: bool = False
    front_proxy: TlsFiles | None = None
    kubelet_port: int = 0
    workers: int = 1

    def of_worker(self) -> Settings:
        """Return the settings of one worker, whose share of the threads and limits is a part of the server's."""
        if self.workers == 1:
            return self
        parts: dict[str, int] = {}
        for field in fields(Limits):
            least = LEAST_LIMIT_BYTES if field.name.startswith("bytes") else 1
            parts[field.name] = max(least, getattr(self.limits, field.name) // self.workers)
        threads = max(min(LEAST_THREADS, self.threads), self.threads // self.workers)
        return replace(self, threads=threads, limits=Limits(**parts))


def read(configuration: Configuration) -> Settings:
    """Return the settings in ``configuration``.

    Raises:
        ConfigurationError: a key is missing or cannot be used, or a file it names cannot be read.
    """
    port = configuration.number("port", 6443)
    if not 0 < port < 65536:  # noqa: PLR2004 - the range of TCP ports
        raise ConfigurationError(f"apiserver: port must be 1 to 65535, not {port}")
    services = _network(configuration.network("service_cidr", "100.0.0.0/24", may_be_ipv6=True))
    return Settings(
        listen_address=_listen(configuration.text("listen_address", "0.0.0.0")),  # noqa: S104 - clients are remote
        port=port,
        advertise_address=_address(configuration.text("advertise_address"), services),
        tls=_files(configuration, "tls", "client_ca"),
        etcd_endpoints=tuple(configuration.texts("etcd.endpoints")),
        etcd_tls=_files(configuration, "etcd", "ca") if configuration.has("etcd.ca") else None,
        service_cidr=services,
        reconciler_client=(
            _files(configuration, "reconciler_client", "ca") if configuration.has("reconciler_client") else None
        ),
        threads=configuration.number("threads", DEFAULT_THREADS),
        service_accounts=_service_accounts(configuration) if configuration.has("service_accounts") else None,
        key_ring=_key_ring(configuration) if configuration.has("encryption") else None,
        audit=_audit(configuration) if configuration.has("audit") else None,
        limits=_limits(configuration),
        mesh=configuration.flag("mesh", default=False),
        dual_stack=configuration.flag("dual_stack", default=False),
        service_cidr_ipv6=read_services_ipv6(configuration, dual_stack=configuration.flag("dual_stack", default=False)),
        external_ips=configuration.flag("external_ips", default=False),
        name_server=_name_server(configuration.text("dns.listen", "")),
        addressing=read_addressing(configuration),
        refuse_taken_hosts=configuration.flag("refuse_taken_hosts", default=False),
        front_proxy=_files(configuration, "front_proxy", "ca") if configuration.has("front_proxy") else None,
        kubelet_port=_kubelet_port(configuration, port),
        workers=workers_of(configuration),
    )


def _name_server(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text)) if text else ""
    except ValueError as error:
        raise ConfigurationError(f"apiserver: dns.listen must be an IP address: {error}") from error


def workers_of(configuration: Configuration) -> int:
    """Return how many workers an API server with this configuration has on this machine; raises ConfigurationError."""
    workers = configuration.number("workers", 1)
    if not 0 <= workers <= MOST_WORKERS:
        raise ConfigurationError(
            f"apiserver: workers must be 1 to {MOST_WORKERS}, or 0 for as many as suit the machine, not {workers}"
        )
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return workers or suitable_workers(len(os.sched_getaffinity(0)), memory_bytes)


def suitable_workers(cores: int, memory_bytes: int) -> int:
    """Return how many workers suit a machine whose administrator has not said it."""
    return 2 if cores >= TWO_WORKERS_CORES and memory_bytes >= TWO_WORKERS_BYTES else 1


def _kubelet_port(configuration: Configuration, own: int) -> int:
    port = configuration.number("kubelet_port", 0)
    if not 0 <= port < 65536 or port == own:  # noqa: PLR2004 - the range of TCP ports
        raise ConfigurationError(f"apiserver: kubelet_port must be 0 (off) to 65535, and not port ({own}): {port}")
    return port


def _limits(configuration: Configuration) -> Limits:
    read: dict[str, int] = {}
    for field in fields(Limits):
        least = LEAST_LIMIT_BYTES if field.name.startswith("bytes") else 1
        read[field.name] = number = configuration.number(f"limits.{field.name}", getattr(Limits(), field.name))
        if number < least:
            raise ConfigurationError(f"apiserver: limits.{field.name} must be at least {least}, not {number}")
    return Limits(**read)


def _service_accounts(configuration: Configuration) -> ServiceAccounts:
    key = "service_accounts.verification_keys"
    longest_s = configuration.number("service_accounts.max_token_seconds", LONGEST_S)
    if not LEAST_MAX_TOKEN_S <= longest_s <= LONGEST_WISH_S:
        message = f"must be {LEAST_MAX_TOKEN_S} (an hour) to {LONGEST_WISH_S}, not {longest_s}"
        raise ConfigurationError(f"apiserver: service_accounts.max_token_seconds {message}")
    return ServiceAccounts(
        configuration.text("service_accounts.issuer", "https://kubernetes.default.svc"),
        _readable(configuration.text("service_accounts.signing_key"), "service_accounts.signing_key"),
        tuple(_readable(each, key) for each in configuration.texts(key, [])),
        longest_s,
    )


def _key_ring(configuration: Configuration) -> Path:
    return _readable(configuration.text("encryption.key_ring"), "encryption.key_ring")


def _audit(configuration: Configuration) -> Audit:
    max_bytes, backups = configuration.number("audit.max_bytes", 100_000_000), configuration.number("audit.backups", 5)
    max_age_days = configuration.number("audit.max_age_days", 30)
    if max_bytes < LEAST_AUDIT_BYTES or backups < 0 or max_age_days < 0:
        raise ConfigurationError(
            f"apiserver: audit.max_bytes must be at least {LEAST_AUDIT_BYTES}, audit.backups and audit.max_age_days at "
            f"least 0, not {max_bytes}, {backups} and {max_age_days}"
        )
    return Audit(Path(configuration.text("audit.path")), max_bytes, backups, max_age_days)


def _files(configuration: Configuration, section: str, authority: str) -> TlsFiles:
    return TlsFiles(
        cert=_readable(configuration.text(f"{section}.cert"), f"{section}.cert"),
        key=_readable(configuration.text(f"{section}.key"), f"{section}.key"),
        ca=_readable(configuration.text(f"{section}.{authority}"), f"{section}.{authority}"),
    )


def _readable(text: str, key: str) -> Path:
    path = Path(text)
    try:
        path.open("rb").close()
    except OSError as error:
        raise ConfigurationError(f"apiserver: {key}: cannot read {path}: {error.strerror}") from error
    return path


def _address(text: str, services: Network) -> str:
    """Return the address that default/kubernetes leads to, whose own address is the first of ``services``."""
    ipv6 = isinstance(services, ipaddress.IPv6Network)
    try:
        found = (ipaddress.IPv6Address if ipv6 else ipaddress.IPv4Address)(text)
    except ValueError as error:
        family = "IPv6" if ipv6 else "IPv4"
        why = f"as service_cidr {services} is, so that default/kubernetes can lead there"
        raise ConfigurationError(f"apiserver: advertise_address must be an {family} address, {why}: {error}") from error
    if isinstance(found, ipaddress.IPv6Address) and (found.scope_id or found.is_link_local or found.ipv4_mapped):
        raise ConfigurationError(f"apiserver: advertise_address {text} is no address that others can reach: write one")
    return str(found)


def _listen(text: str) -> str:
    if _HOST.fullmatch(text):  # such as localhost, which is looked up; an IPv4 address, too
        return text
    try:
        return str(ipaddress.ip_address(text))
    except ValueError as error:
        raise ConfigurationError(f"apiserver: listen_address must be an IP address, or a name: {error}") from error


def _network(text: str) -> Network:
    network = ipaddress.ip_network(text)
    if isinstance(network, ipaddress.IPv6Network) and network.prefixlen > LONGEST_OF_SERVICES:
        raise ConfigurationError(
            f"apiserver: service_cidr {network} is too small; give at least a /{LONGEST_OF_SERVICES}"
        )
    if network.num_addresses < 4:  # noqa: PLR2004 - .1 is default/kubernetes; a smaller range serves nobody
        raise ConfigurationError(f"apiserver: service_cidr {network} is too small; give at least a /30")
    return network

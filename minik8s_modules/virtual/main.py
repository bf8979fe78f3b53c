"""``minik8s-virtual``: carries the virtual nodes of its configuration; ``minik8s virtual-node`` does so for one."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from cryptography import x509

from minik8s_modules.base.config import Configuration
from minik8s_modules.base.metrics import Registry
from minik8s_modules.base.process import raise_file_limit, run_daemon
from minik8s_modules.base.sockets import way_out
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.configured import access_of
from minik8s_modules.client.kubeconfig import Access
from minik8s_modules.runtime.metrics_readers import configured_server
from minik8s_modules.streams.listener import CALLER
from minik8s_modules.virtual.carrying import Carrier, Options
from minik8s_modules.virtual.joining import USER_AGENT
from minik8s_modules.virtual.nodes.controller import LEASE_S, PING_S, STATUS_S, Timing
from minik8s_modules.virtual.serving.server import Files, KubeletServer
from minik8s_modules.virtual.wishes import wishes_of

_CONNECTIONS = 48  # threads that write statuses and Leases and take Pods away; more would open others each time
_NODE_USER = "system:node:"


class Part(Protocol):
    """What runs while this process does."""

    def start(self) -> None:
        """Begin; returns at once."""

    def stop(self) -> None:
        """End."""


def serve(configuration: Configuration, stop: threading.Event) -> None:
    """Run until ``stop`` is set.

    Raises:
        ConfigurationError: the configuration, a provider or the kubeconfig cannot be used.
    """
    raise_file_limit()
    access = access_of(configuration)
    client = ApiClient.of(access, user_agent=USER_AGENT, connections=_CONNECTIONS)
    wishes = wishes_of(configuration.rows("nodes"), configuration.file)
    registry = Registry()
    metrics = configured_server(configuration, registry, client)
    parts: list[Part] = [metrics] if metrics is not None else []
    carrier = Carrier(client, wishes, options_of(configuration, access), registry)
    parts += [carrier, *([served] if (served := server_of(configuration, carrier)) is not None else [])]
    for part in parts:
        part.start()
    try:
        stop.wait()
    finally:
        for part in reversed(parts):
            part.stop()


def options_of(configuration: Configuration, access: Access) -> Options:
    """Return what the configuration says of all nodes. Raises ConfigurationError."""
    serves = configuration.has("serving")
    return Options(
        api_address=configuration.text("api_address", urlsplit(access.server).netloc),
        cluster_domain=configuration.text("cluster_domain", "cluster.local"),
        state_dir=configuration.text("state_dir", ""),
        port=configuration.host_and_port("serving.listen")[1] if serves else 0,
        internal_ip=configuration.text("internal_ip", "") or (_own_address(access.server) if serves else ""),
        timing=Timing(
            ping_s=configuration.number("ping_seconds", int(PING_S)),
            status_s=configuration.number("status_seconds", int(STATUS_S)),
            lease_s=configuration.number("lease_seconds", LEASE_S),
        ),
        role_label=not is_a_node(access),
    )


def server_of(configuration: Configuration, carrier: Carrier) -> KubeletServer | None:
    """Return what serves the kubelet's API by the section ``serving``, None without one. Raises ConfigurationError."""
    if not configuration.has("serving"):
        return None
    cert, key, client_ca = (Path(configuration.text(f"serving.{name}")) for name in ("cert", "key", "client_ca"))
    clients = frozenset(configuration.texts("serving.clients", [CALLER]))
    return KubeletServer(*configuration.host_and_port("serving.listen"), Files(cert, key, client_ca, clients), carrier)


def _own_address(server: str) -> str:
    """Return the address from which this machine reaches the API server, "" where it has no way there."""
    parts = urlsplit(server)
    try:
        return way_out(parts.hostname or "", parts.port or 443)
    except OSError:
        return ""


def is_a_node(access: Access) -> bool:
    """Return whether the client certificate is a node's own: nodes may not give themselves every label."""
    if not access.cert_pem:
        return False
    subject = x509.load_pem_x509_certificate(access.cert_pem).subject
    names = subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return any(str(each.value).startswith(_NODE_USER) for each in names)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon; return its exit code."""
    return run_daemon(USER_AGENT, "Runs virtual nodes: nodes that are no machines.", serve, argv)


if __name__ == "__main__":
    raise SystemExit(main())

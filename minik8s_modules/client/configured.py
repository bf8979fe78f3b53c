"""The API client that a daemon's configuration file asks for: ``kubeconfig``, and ``servers`` beside its one server.

``servers`` are URLs of API servers in the order they are asked in, the own machine's first; a kubeconfig, which is
everybody's format, holds only one. Left out, the kubeconfig's is the only one.
"""

from __future__ import annotations

from pathlib import Path

from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.kubeconfig import Access, load_kubeconfig
from minik8s_modules.client.transport import CONNECTIONS

# an answer to an election that comes later than this is no use: the Lease is lost after 8 or 12 s (runtime/leader.py)
ELECTION_TIMEOUT_S = 5.0


def access_of(configuration: Configuration) -> Access:
    """Return how the cluster's API servers are reached.

    Raises:
        ConfigurationError: a key cannot be used, or the kubeconfig cannot.
    """
    access = load_kubeconfig(Path(configuration.text("kubeconfig")))
    servers = [url.rstrip("/") for url in configuration.texts("servers", [])]
    for url in servers:
        if not url.startswith(("https://", "http://")):
            raise ConfigurationError(f"servers must be URLs such as https://HOST:6443, not {url!r}")
    return access._replace(server=servers[0], others=tuple(servers[1:])) if servers else access


def client_of(configuration: Configuration, user_agent: str, connections: int = CONNECTIONS) -> ApiClient:
    """Return the daemon's client, which keeps as many ``connections`` as threads use it. Raises as ``access_of``."""
    return ApiClient.of(access_of(configuration), user_agent=user_agent, connections=connections)


def election_client(configuration: Configuration, user_agent: str) -> ApiClient:
    """Return a client for the daemon's election, which waits for no answer longer than a Lease can. Raises likewise."""
    return ApiClient.of(access_of(configuration), user_agent=user_agent, timeout_s=ELECTION_TIMEOUT_S)

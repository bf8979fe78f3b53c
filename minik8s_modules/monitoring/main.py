"""``minik8s-monitoring``: target files, objects as figures, Prometheus' token, custom metrics; see the room's top."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.metrics import Registry
from minik8s_modules.base.metrics_server import MetricsServer
from minik8s_modules.base.process import run_daemon
from minik8s_modules.base.tls import server_context
from minik8s_modules.client.configured import client_of
from minik8s_modules.client.interface import Api
from minik8s_modules.monitoring.adapter.adapter import Adapter
from minik8s_modules.monitoring.adapter.prometheus import Prometheus
from minik8s_modules.monitoring.adapter.server import AdapterFiles, AdapterServer
from minik8s_modules.monitoring.object_metrics import ObjectMetrics
from minik8s_modules.monitoring.target_files import TargetFiles
from minik8s_modules.monitoring.tokens import TokenFile
from minik8s_modules.runtime.informers import Informers
from minik8s_modules.runtime.metrics_readers import MetricsReaders


class Part(Protocol):
    """What runs while this process does."""

    def start(self) -> None:
        """Begin; returns at once."""

    def stop(self) -> None:
        """End."""


def serve(configuration: Configuration, stop: threading.Event) -> None:
    """Run until ``stop`` is set.

    Raises:
        ConfigurationError: the configuration, a certificate or the kubeconfig cannot be used.
    """
    client = client_of(configuration, "minik8s-monitoring")
    directory = Path(configuration.text("directory"))
    if not directory.is_dir():
        raise ConfigurationError(f"directory: {directory} is not there; the role monitoring makes it")
    informers = Informers(client)
    metrics = ObjectMetrics(informers)
    parts: list[Part] = [TargetFiles(informers, directory, metrics)]
    parts += _token_file(configuration, client, directory)
    parts += _metrics_server(configuration, client, metrics)
    parts += _adapter(configuration, informers)
    running = [informers, *parts]
    for part in running:
        part.start()
    try:
        stop.wait()
    finally:
        for part in reversed(running):
            part.stop()


def _token_file(configuration: Configuration, client: Api, directory: Path) -> list[Part]:
    if not configuration.has("token_of"):
        return []
    namespace, _, account = configuration.text("token_of").partition("/")
    if not namespace or not account:
        raise ConfigurationError("token_of must be NAMESPACE/NAME of a service account, such as monitoring/prometheus")
    return [TokenFile(client, namespace, account, directory / "token")]


def _metrics_server(configuration: Configuration, client: Api, registry: Registry) -> list[Part]:
    if not configuration.has("metrics"):
        return []
    files = (Path(configuration.text("metrics.cert")), Path(configuration.text("metrics.key")))
    try:
        context = server_context(*files)
    except OSError as error:
        raise ConfigurationError(f"metrics: certificate or key cannot be used: {error}") from error
    return [MetricsServer(registry, configuration.text("metrics.listen"), context, MetricsReaders(client))]


def _adapter(configuration: Configuration, informers: Informers) -> list[Part]:
    if not configuration.has("adapter"):
        return []
    files = AdapterFiles(*(Path(configuration.text(f"adapter.{name}")) for name in ("cert", "key", "client_ca")))
    adapter = Adapter(informers, Prometheus(configuration.text("adapter.prometheus")))
    return [AdapterServer(*configuration.host_and_port("adapter.listen"), files, adapter)]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon; return its exit code."""
    return run_daemon("minik8s-monitoring", "Writes scrape targets and metrics of objects for Prometheus.", serve, argv)


if __name__ == "__main__":
    raise SystemExit(main())

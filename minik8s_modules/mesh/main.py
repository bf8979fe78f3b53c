"""``minik8s-pilot``: sidecars are told where requests go; one of several pilots writes down what was decided."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

import grpc
from envoy.service.discovery.v3 import ads_pb2_grpc

from minik8s_modules.api.kinds import VIRTUAL_SERVICE
from minik8s_modules.api.network.gateway_api import GATEWAY_KINDS
from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.metrics import Registry
from minik8s_modules.base.metrics_server import MetricsServer
from minik8s_modules.base.process import run_daemon
from minik8s_modules.base.tls import server_context
from minik8s_modules.client.configured import client_of, election_client
from minik8s_modules.mesh.acknowledgements import Acknowledgements
from minik8s_modules.mesh.authorizations.enforcing import Enforcements, Heard, Pods
from minik8s_modules.mesh.figures import Figures
from minik8s_modules.mesh.identities.issuing import Issuer
from minik8s_modules.mesh.identity import Sidecar, known_sidecar
from minik8s_modules.mesh.reading import READERS
from minik8s_modules.mesh.serving import ServingController
from minik8s_modules.mesh.statuses import StatusController
from minik8s_modules.mesh.xds import Discovery
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from minik8s_modules.runtime.leader import LeaderElector, Token
from minik8s_modules.runtime.metrics_readers import MetricsReaders
from minik8s_modules.runtime.queue_metrics import QueueMetrics

log = logging.getLogger(__name__)

NAME = "minik8s-pilot"
_OPTIONS = (
    # a sidecar names what it has of an earlier stream, some 50 bytes each
    ("grpc.max_receive_message_length", 1_000_000),
    ("grpc.max_concurrent_streams", 8),
    # a Pod that is gone says no good-bye; sidecars ask as often whether the pilot is there (roles/envoy)
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 20_000),
)
_GRACE_S = 1.0
_LIFETIME_MINUTES = 12 * 60
_SHORTEST_MINUTES, _LONGEST_MINUTES = 10, 24 * 60
"""What the API server takes at least, and the signer gives at most."""
_ELSEWHERE = "a sidecar of another namespace refused it, and keeps what it had"


def serve(configuration: Configuration, stop: threading.Event) -> None:
    """Run until ``stop`` is set.

    Raises:
        ConfigurationError: the configuration, the kubeconfig, or the certificate cannot be used.
    """
    client = client_of(configuration, NAME)
    files = (Path(configuration.text("tls.cert")), Path(configuration.text("tls.key")))
    listen, credentials = configuration.text("listen"), server_credentials(*files)
    lifetime = lifetime_of(configuration)
    registry = Registry().of_process()
    recorder = EventRecorder(client, NAME)
    context = Context(client, recorder, Informers(client, readers=READERS), metrics=QueueMetrics(registry))
    serving = ServingController(context)
    acknowledgements = Acknowledgements(context)
    enforcements = enforcing(context, serving)
    discovery = Discovery(
        serving.catalogue,
        partial(known_sidecar, client),
        Figures(registry),
        partial(tell_refusal, recorder),
        acknowledgements.settled,
        Issuer(client, lifetime),
        lambda sidecar, guard, refusal: enforcements.heard(sidecar.namespace, sidecar.pod, Heard(guard, refusal)),
    )
    try:
        metrics_tls = server_context(*files)
    except OSError as error:
        raise ConfigurationError(f"tls: certificate or key cannot be used: {error}") from error
    metrics = MetricsServer(registry, configuration.text("metrics.listen"), metrics_tls, MetricsReaders(client))
    elector = LeaderElector(election_client(configuration, NAME), NAME)
    leading = threading.Thread(
        target=elector.run, args=(stop, partial(_lead, context, serving)), name="election", daemon=True
    )
    parts = (recorder, metrics, context.informers, serving, serving.gateways, acknowledgements, enforcements)
    for part in parts:
        part.start()
    leading.start()
    try:
        asyncio.run(answer(discovery, listen, credentials, stop))
    finally:
        stop.set()
        leading.join()
        for part in reversed(parts):
            part.stop()


def enforcing(context: Context, serving: ServingController) -> Enforcements:
    """Return what writes down who enforces AuthorizationPolicies, by the peers that a controller keeps."""

    def pods_of(namespace: str) -> Pods | None:
        peers = serving.peers.get()
        if peers is None:
            return None
        able = {name: dict(each.labels) for name, each in peers.pods.get(namespace, {}).items()}
        return Pods(namespace in peers.namespaces, able, peers.cannot.get(namespace, {}))

    made = Enforcements(context, serving.policies, pods_of)
    serving.peers.follow(made.look)
    return made


def lifetime_of(configuration: Configuration) -> timedelta:
    """Return how long certificates of sidecars are to be valid.

    Raises:
        ConfigurationError: nobody would give such a one.
    """
    key = "certificates.minutes"
    found = configuration.number(key, _LIFETIME_MINUTES)
    if not _SHORTEST_MINUTES <= found <= _LONGEST_MINUTES:
        wanted = f"{_SHORTEST_MINUTES} to {_LONGEST_MINUTES}"
        raise ConfigurationError(f"{configuration.file}: {key} must be {wanted}, not {found}")
    return timedelta(minutes=found)


def tell_refusal(recorder: EventRecorder, sidecar: Sidecar, behind: set[str], message: str) -> None:
    """Record that an Envoy refused what came of VirtualServices and HTTPRoutes, or of its Gateway, on each of them.

    Who reads the Events of a namespace is told no name of a Pod of another one, nor what a sidecar there has said: its
    words quote what it was told.
    """
    own = VIRTUAL_SERVICE if sidecar.scope == sidecar.namespace else GATEWAY_KINDS.gateways
    for each in sorted({name for names in behind for name in names.split(",")}):
        namespace, is_route, name = each.rpartition("/")
        kind = GATEWAY_KINDS.routes if is_route else own
        namespace = namespace or sidecar.namespace
        about = {"apiVersion": kind.api_version, "kind": kind.kind, "name": name, "namespace": namespace}
        is_own = namespace == sidecar.namespace
        said = f"the sidecar of Pod {sidecar.pod} refused it: {message}" if is_own else _ELSEWHERE
        recorder.event(about, "Warning", "RefusedBySidecar", said)


def _lead(context: Context, serving: ServingController, _token: Token, lost: threading.Event) -> None:
    statuses = StatusController(context, serving.routes)
    statuses.start()
    serving.gateways.lead(leads=True)
    lost.wait()
    serving.gateways.lead(leads=False)
    statuses.stop()


async def answer(discovery: Discovery, listen: str, credentials: grpc.ServerCredentials, stop: threading.Event) -> None:
    """Answer sidecars at ``listen`` (HOST:PORT) until ``stop`` is set.

    Raises:
        ConfigurationError: it cannot be listened at.
    """
    server = grpc.aio.server(options=_OPTIONS)
    ads_pb2_grpc.add_AggregatedDiscoveryServiceServicer_to_server(discovery, server)
    try:
        server.add_secure_port(listen, credentials)
    except RuntimeError as error:
        raise ConfigurationError(f"listen: {listen} cannot be listened at: {error}") from error
    await server.start()
    log.info("sidecars are answered at %s", listen)
    await asyncio.to_thread(stop.wait)
    discovery.end()
    await server.stop(_GRACE_S)


def server_credentials(cert: Path, key: Path) -> grpc.ServerCredentials:
    """Return what gRPC serves a certificate with; its suites are those of ``base/tls.py``.

    Raises:
        ConfigurationError: a file cannot be read.
    """
    try:
        return grpc.ssl_server_credentials([(key.read_bytes(), cert.read_bytes())])
    except OSError as error:
        raise ConfigurationError(f"tls: certificate or key cannot be read: {error}") from error


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon; return its exit code."""
    return run_daemon(NAME, "Envoys beside Pods are told where requests to Services go.", serve, argv)


if __name__ == "__main__":
    raise SystemExit(main())

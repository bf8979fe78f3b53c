"""``minik8s-virtual-machines``: the control side of virtual machines, one on each machine of the control plane.

All of them serve; of their controllers one leads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.base.metrics import Registry
from minik8s_modules.base.process import raise_file_limit, run_daemon
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.configured import access_of, election_client
from minik8s_modules.client.kubeconfig import Access
from minik8s_modules.controllers.core.workload import WorkloadController
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from minik8s_modules.runtime.leader import LeaderElector, Token
from minik8s_modules.runtime.metrics_readers import configured_server
from minik8s_modules.runtime.queue_metrics import QueueMetrics
from minik8s_virtual_machines.api.validation import Policy
from minik8s_virtual_machines.controllers.asking import Reports, look_by
from minik8s_virtual_machines.controllers.shells import InstanceController, MachineController, ReplicaSetController
from minik8s_virtual_machines.figures import Figures
from minik8s_virtual_machines.pods import Settings, launcher_pod, launcher_secrets
from minik8s_virtual_machines.server.authorities import front_proxy, names
from minik8s_virtual_machines.server.listener import Listener, Proxy
from minik8s_virtual_machines.server.routes import Routes, Served

log = logging.getLogger(__name__)

NAME = "minik8s-virtual-machines"
_LOOK_S = 60.0
_AGAIN_S = 2.0


def serve(configuration: Configuration, stop: threading.Event) -> None:
    """Run until ``stop`` is set. Raises ConfigurationError."""
    raise_file_limit()
    access = access_of(configuration)
    client = ApiClient.of(access, user_agent=NAME)
    settings = Settings.from_mapping(configuration.mapping("launcher") if configuration.has("launcher") else {})
    registry = Registry()
    figures = Figures(registry)
    recorder = EventRecorder(client, NAME)
    recorder.start()
    metrics = configured_server(configuration, registry, client)
    if metrics is not None:
        metrics.start()
    policy = Policy(tuple(configuration.texts("host_disks", [])))
    routes = Routes(Served(client, access, policy, counted=figures.answered))
    serving = threading.Thread(target=_serving, args=(configuration, client, routes, stop), name="serving", daemon=True)
    serving.start()
    lead = partial(_lead, client, access, recorder, QueueMetrics(registry), settings, figures)
    try:
        LeaderElector(election_client(configuration, NAME), NAME).run(stop, lead)
    finally:
        serving.join(_LOOK_S)
        recorder.stop()
        if metrics is not None:
            metrics.stop()


def _lead(
    client: ApiClient,
    access: Access,
    recorder: EventRecorder,
    queues: QueueMetrics,
    settings: Settings,
    figures: Figures,
    _token: Token,
    lost: threading.Event,
) -> None:
    context = Context(client, recorder, Informers(client), metrics=queues)
    reports = Reports(look_by(access), context.clock)
    instances = InstanceController(context, partial(pod_of, settings), launcher_secrets, reports)
    running: list[WorkloadController] = [MachineController(context), instances, ReplicaSetController(context)]
    figures.counts(instances.own, reports.last)
    context.informers.start()
    for part in running:
        part.start()
    lost.wait()
    figures.counts(None)
    for part in running:
        part.stop()
    context.informers.stop()
    context.pool.shutdown(wait=False, cancel_futures=True)


def pod_of(
    settings: Settings, instance: JsonObject, claims: Mapping[str, str], nodes: Iterable[JsonObject]
) -> JsonObject:
    """Return the launcher's pod of an instance."""
    return launcher_pod(instance, settings.on_nodes(instance, nodes), claims)


def _serving(configuration: Configuration, client: ApiClient, routes: Routes, stop: threading.Event) -> None:
    """Serve, and begin again when the front proxy becomes another: the old authority must not be believed then."""
    host, port = configuration.host_and_port("serving.listen")
    cert, key = Path(configuration.text("serving.cert")), Path(configuration.text("serving.key"))
    listener: Listener | None = None
    believed: tuple[Proxy, float] | None = None
    while not stop.is_set():
        wait_s = _LOOK_S
        try:
            found = front_proxy(client), max(cert.stat().st_mtime, key.stat().st_mtime)
            if found != believed:
                if listener is not None:
                    listener.stop()
                listener = Listener(host, port, cert, key, found[0], routes)
                listener.start()
                believed = found
                log.info("serving on %s:%d for the front proxy (%s)", host, listener.port, names(found[0]))
        except (StatusError, TemporaryError, OSError) as error:
            log.warning("the front proxy's authority is not known: %s", error)
            wait_s = _AGAIN_S
        stop.wait(wait_s)
    if listener is not None:
        listener.stop()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon; return its exit code."""
    return run_daemon(NAME, "Virtual machines: KubeVirt's objects, subresources and webhooks.", serve, argv)


if __name__ == "__main__":
    raise SystemExit(main())

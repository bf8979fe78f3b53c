"""``minik8s-controllers``: all controllers in one process; of several processes, one leads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Protocol

from minik8s_modules.api.kinds import REPLICATION_CONTROLLER
from minik8s_modules.api.network.balancing import NO_BALANCING, Balancing, read_balancing
from minik8s_modules.api.network.dual_stack import SINGLE_STACK, DualStack, read_dual_stack, same_family
from minik8s_modules.base.config import Configuration
from minik8s_modules.base.metrics import Registry
from minik8s_modules.base.process import run_daemon
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.configured import client_of, election_client
from minik8s_modules.client.kubeconfig import Authorities
from minik8s_modules.controllers.access.bootstrap_tokens import TokenController
from minik8s_modules.controllers.access.root_ca import RootCa
from minik8s_modules.controllers.access.service_accounts import service_accounts
from minik8s_modules.controllers.autoscaling.controller import AutoscalerController
from minik8s_modules.controllers.autoscaling.figures import AutoscalerFigures
from minik8s_modules.controllers.autoscaling.original_controller import OriginalAutoscalerController
from minik8s_modules.controllers.autoscaling.readings import Readings
from minik8s_modules.controllers.batch.cronjobs import CronJobController
from minik8s_modules.controllers.batch.job_controller import JobController
from minik8s_modules.controllers.batch.original_jobs import OriginalJobController
from minik8s_modules.controllers.cleanup.collector import GarbageCollector
from minik8s_modules.controllers.cleanup.events import EventController
from minik8s_modules.controllers.cleanup.extensions import extended
from minik8s_modules.controllers.cleanup.namespaces import NamespaceController, watched_kinds
from minik8s_modules.controllers.cleanup.pod_gc import TERMINATED_PODS, PodGc
from minik8s_modules.controllers.network.endpoints import EndpointsController
from minik8s_modules.controllers.network.endpointslices import EndpointSliceController
from minik8s_modules.controllers.network.gateways import GatewayController
from minik8s_modules.controllers.network.ingresses import RouteController
from minik8s_modules.controllers.network.load_balancers import LoadBalancerController
from minik8s_modules.controllers.network.subsets import SubsetController
from minik8s_modules.controllers.nodes.condition_taints import ConditionTaintController
from minik8s_modules.controllers.nodes.departures import DepartureController, ReturnController
from minik8s_modules.controllers.nodes.nodes import NodeController
from minik8s_modules.controllers.nodes.orphans import OrphanController
from minik8s_modules.controllers.nodes.pod_cidrs import PodCidrController
from minik8s_modules.controllers.nodes.silent_nodes import SilentNodeController
from minik8s_modules.controllers.nodes.taint_eviction import TaintEvictionController
from minik8s_modules.controllers.nodes.taints import TaintController
from minik8s_modules.controllers.policy.disruption import DisruptionController
from minik8s_modules.controllers.policy.extension_quotas import ExtensionQuotaController
from minik8s_modules.controllers.policy.quotas import QuotaController
from minik8s_modules.controllers.storage.attachments import AttachmentController
from minik8s_modules.controllers.storage.controllers import ClaimController, VolumeController
from minik8s_modules.controllers.storage.ephemeral import EphemeralController
from minik8s_modules.controllers.workloads.daemonsets import DaemonSetController
from minik8s_modules.controllers.workloads.deployments import DeploymentController
from minik8s_modules.controllers.workloads.replicasets import ReplicaSetController
from minik8s_modules.controllers.workloads.rollingupdates import RollingUpdateController
from minik8s_modules.controllers.workloads.statefulsets import StatefulSetController
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from minik8s_modules.runtime.leader import LeaderElector, Token
from minik8s_modules.runtime.metrics_readers import configured_server
from minik8s_modules.runtime.queue_metrics import QueueMetrics

log = logging.getLogger(__name__)

LEASE_NAME = "minik8s-controllers"
CONNECTIONS = 64  # two threads of each of thirty controllers write at once when a node comes or goes


class Controller(Protocol):
    """What runs while this process leads."""

    def start(self) -> None:
        """Begin; returns at once."""

    def stop(self) -> None:
        """End."""


def controllers(
    client: ApiClient,
    context: Context,
    authorities: Callable[[], bytes] = lambda: b"",
    terminated_pods: int = TERMINATED_PODS,
    cluster_cidr: str = "",
    figures: AutoscalerFigures | None = None,
    balancing: Balancing = NO_BALANCING,
    dual_stack: DualStack = SINGLE_STACK,
) -> list[Controller]:
    """Return all controllers; a new one is a line here, or in ``_of_workloads``.

    ``authorities`` returns the PEM that pods are to trust; so many ``terminated_pods`` are kept; nodes
    get ranges of ``cluster_cidr``, unless it is empty; autoscalers are counted in ``figures``;
    ``balancing`` has the addresses of load balancers, ``dual_stack`` the pods' of IPv6.
    """
    recorder, readings, kept = context.recorder, Readings(client, context.clock), partial(extended, client)
    return [
        *_of_workloads(context),
        EndpointSliceController(context),
        EndpointsController(context),
        RouteController(context, both=bool(dual_stack)),
        GatewayController(context),
        LoadBalancerController(context, balancing),
        SubsetController(context),
        NodeController(client, recorder),
        SilentNodeController(context),
        TaintController(context),
        ConditionTaintController(context),
        TaintEvictionController(context),
        EventController(client),
        OrphanController(context),
        DepartureController(context),
        ReturnController(context),
        PodCidrController(context, cluster_cidr, dual_stack),
        PodGc(context, terminated_pods),
        service_accounts(client),
        RootCa(client, authorities),
        TokenController(client, authorities),
        EphemeralController(context),
        ClaimController(context),
        VolumeController(context),
        AttachmentController(context),
        QuotaController(context),
        ExtensionQuotaController(context, kept),
        AutoscalerController(context, client, readings, figures or AutoscalerFigures(Registry())),
        OriginalAutoscalerController(context, client, readings),
        # these two last: they share the copies that the others have asked for
        NamespaceController(
            client,
            copies=[context.informers.metadata_of(kind) for kind in watched_kinds()],
            informers=context.informers,
            extensions=kept,
        ),
        GarbageCollector(context, kept),
    ]


def _of_workloads(context: Context) -> list[Controller]:
    return [
        ReplicaSetController(context),
        ReplicaSetController(context, REPLICATION_CONTROLLER),
        DeploymentController(context),
        DisruptionController(context),
        JobController(context),
        CronJobController(context),
        OriginalJobController(context),
        DaemonSetController(context),
        StatefulSetController(context),
        RollingUpdateController(context),
    ]


def serve(configuration: Configuration, stop: threading.Event) -> None:
    """Run until ``stop`` is set.

    Raises:
        ConfigurationError: the configuration or the kubeconfig cannot be used.
    """
    authorities = Authorities(Path(configuration.text("kubeconfig")))
    client = client_of(configuration, "minik8s-controllers", CONNECTIONS)
    terminated_pods = configuration.number("terminated_pods", TERMINATED_PODS)
    cluster_cidr = configuration.network("cluster_cidr", "", may_be_empty=True, may_be_ipv6=True)
    service_cidr = configuration.network("service_cidr", "", may_be_empty=True, may_be_ipv6=True)
    same_family(cluster_cidr, service_cidr)
    dual = read_dual_stack(configuration, cluster_cidr)
    second = (dual.cluster_cidr, configuration.text("service_cidr_ipv6", ""))
    balancing = read_balancing(configuration, (cluster_cidr, service_cidr, *second))
    recorder = EventRecorder(client, "minik8s-controllers")
    recorder.start()
    registry = Registry().of_process()
    metrics = QueueMetrics(registry)
    figures = AutoscalerFigures(registry)
    server = configured_server(configuration, registry, client)
    if server is not None:
        server.start()

    def lead(_token: Token, lost: threading.Event) -> None:
        context = Context(client, recorder, Informers(client), metrics=metrics)
        running = controllers(client, context, authorities, terminated_pods, cluster_cidr, figures, balancing, dual)
        for part in (context.informers, *running):
            part.start()
        lost.wait()
        # together: another may lead in seconds, and a part whose turn has not come would go on writing
        with ThreadPoolExecutor(len(running)) as stopping:
            for ended in [stopping.submit(part.stop) for part in running]:
                ended.result()
        context.informers.stop()
        context.pool.shutdown(wait=False, cancel_futures=True)

    try:
        LeaderElector(election_client(configuration, "minik8s-controllers"), LEASE_NAME).run(stop, lead)
    finally:
        recorder.stop()
        if server is not None:
            server.stop()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon; return its exit code."""
    return run_daemon(
        "minik8s-controllers",
        "Workloads, endpoints, namespaces, node health and more: what is declared is kept.",
        serve,
        argv,
    )


if __name__ == "__main__":
    raise SystemExit(main())

"""``minik8s-scheduler``: gives pending pods a node; of several of one lease, one leads.

``policy`` names one of the original's policies for the cluster; ``configuration`` is a KubeSchedulerConfiguration v1,
which says all then; such a file by itself will do, too, as for kube-scheduler. With a ``leaderElection.resourceName``
of its own, a second scheduler runs beside the first, for the scheduler names of its own profiles.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.metrics import Registry
from minik8s_modules.base.process import run_daemon
from minik8s_modules.client.configured import client_of, election_client
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.leader import LeaderElector, Token
from minik8s_modules.runtime.metrics_readers import configured_server
from minik8s_modules.scheduler.framework.infos import DEFAULT_SCHEDULER
from minik8s_modules.scheduler.profiles.configuration import KIND, POLICIES, Settings, policy_settings, settings
from minik8s_modules.scheduler.profiles.located import read
from minik8s_modules.scheduler.profiles.published import as_annotations
from minik8s_modules.scheduler.running.binding import BINDERS
from minik8s_modules.scheduler.running.metrics import Counts
from minik8s_modules.scheduler.running.scheduler import Scheduler

_ALONE = Token(0, 1)


_OTHERS = 8  # connections kept beside those of bindings: preemption, Events, lists


def serve(configuration: Configuration, stop: threading.Event) -> None:
    """Run until ``stop`` is set.

    Raises:
        ConfigurationError: the configuration or the kubeconfig cannot be used.
    """
    chosen = settings_of(configuration)
    if configuration.text("kind", "") == KIND:
        configuration = Configuration({"kubeconfig": chosen.kubeconfig}, configuration.file)
    client = client_of(configuration, "minik8s-scheduler", BINDERS + _OTHERS)
    recorder, registry = EventRecorder(client, DEFAULT_SCHEDULER), Registry().of_process()
    scheduler = Scheduler(client, recorder, settings=chosen, counts=Counts(registry))
    server = configured_server(configuration, registry, client)
    if server is not None:
        server.start()
    recorder.start()
    scheduler.start()
    try:
        if chosen.elect:
            electing = election_client(configuration, "minik8s-scheduler")
            LeaderElector(electing, chosen.lease, annotations=as_annotations(chosen)).run(stop, scheduler.lead)
        else:
            scheduler.lead(_ALONE, stop)
    finally:
        scheduler.stop()
        recorder.stop()
        if server is not None:
            server.stop()


def settings_of(configuration: Configuration) -> Settings:
    """Return which profiles there are. Raises ConfigurationError."""
    if configuration.text("kind", "") == KIND:
        return settings(read(Path(configuration.file)))
    policy = configuration.text("policy", "")
    if configuration.has("configuration"):
        configuration.mapping("configuration")
        if policy:
            raise ConfigurationError("give either policy or configuration, not both")
        located = read(Path(configuration.file)).at("configuration")
        connection = located.at("clientConnection").at("kubeconfig")
        if connection.value is not None:
            raise connection.wrong("set kubeconfig beside configuration, in the daemon's own configuration file")
        return settings(located)
    if policy and policy not in POLICIES:
        raise ConfigurationError(f"policy must be {', '.join(POLICIES)} or left out, not {policy!r}")
    return policy_settings(policy)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon; return its exit code."""
    return run_daemon("minik8s-scheduler", "Gives pending pods a node.", serve, argv)


if __name__ == "__main__":
    raise SystemExit(main())

"""``minik8s-scheduler``: gives pending pods a node; of several, one leads."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from minik8s_modules.base.config import Configuration
from minik8s_modules.base.process import run_daemon
from minik8s_modules.client.configured import client_of, election_client
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.leader import LeaderElector
from minik8s_modules.scheduler.framework.infos import DEFAULT_SCHEDULER
from minik8s_modules.scheduler.running.scheduler import Scheduler

LEASE_NAME = "minik8s-scheduler"


def serve(configuration: Configuration, stop: threading.Event) -> None:
    """Run until ``stop`` is set.

    Raises:
        ConfigurationError: the configuration or the kubeconfig cannot be used.
    """
    client = client_of(configuration, "minik8s-scheduler")
    recorder = EventRecorder(client, DEFAULT_SCHEDULER)
    scheduler = Scheduler(client, recorder)
    recorder.start()
    scheduler.start()
    try:
        LeaderElector(election_client(configuration, "minik8s-scheduler"), LEASE_NAME).run(stop, scheduler.lead)
    finally:
        scheduler.stop()
        recorder.stop()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon; return its exit code."""
    return run_daemon("minik8s-scheduler", "Gives pending pods a node.", serve, argv)


if __name__ == "__main__":
    raise SystemExit(main())

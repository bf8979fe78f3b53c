"""``minik8s-reconciler --config FILE``: leads one shard while it holds the shard's Lease, and answers plans.

Every election makes a new ``ShardService`` with a new fencing token. A node that knows a newer token ends
the service; the Lease is given back and fought for again. Next step: ``service.py``.
"""

from __future__ import annotations

import logging
import random
import sys
import threading
from collections.abc import Callable, Sequence

from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import LEASE
from minik8s_modules.api.nodes.standalone import PREFIX, served_alone
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError, TemporaryError
from minik8s_modules.base.inventory import Hosts, Inventory
from minik8s_modules.base.places import place
from minik8s_modules.base.process import run_daemon
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.configured import client_of, election_client
from minik8s_modules.reconcile.executor.runner import AnsibleRunner
from minik8s_modules.reconcile.executor.standing_runner import StandingRunner
from minik8s_modules.reconcile.loop.gateway_link import GatewayLink
from minik8s_modules.reconcile.options import Options, read_options
from minik8s_modules.reconcile.planning.planserver import PlanServer, Vacancy
from minik8s_modules.reconcile.planning.questions import Question
from minik8s_modules.reconcile.service import Link, OnMessage, OnUp, Outside, ShardService
from minik8s_modules.reconcile.standalone.shared_settings import publish
from minik8s_modules.reconcile.values.loop_metrics import LoopMetrics
from minik8s_modules.runtime.leader import LeaderElector, Token

log = logging.getLogger(__name__)
PLAN_ENDPOINT = "minik8s.io/plan-endpoint"
_JITTER = 0.2
_FENCED_PAUSE_S = 5.0
_INVENTORY_CHECK_S = 2.0
"""One stat each; the gateway looks at the same pace."""
_LOOKS_BETWEEN = 15
"""So many looks at the inventory for one at who has a reconciler of its own."""


def jittered(every_s: float) -> Callable[[], float]:
    """Return a function that gives ``every_s`` give or take a fifth, so that nodes do not answer in step."""
    return lambda: every_s * (1 - _JITTER + 2 * _JITTER * random.random())  # noqa: S311 - no secret


def standing_runner(options: Options) -> StandingRunner:
    """Return Ansible for all elections."""
    return StandingRunner(
        lambda on_outcome: AnsibleRunner(
            inventory=options.inventory,
            private_data_dir=options.private_data_dir,
            project_dir=options.project_dir,
            on_outcome=on_outcome,
            executor=options.executor,
        )
    )


def outside(options: Options, client: ApiClient, runner: StandingRunner) -> Outside:
    """Return the real world: Ansible, the gateway's socket, the clock."""
    clock = SystemClock()

    def make_link(on_message: OnMessage, on_up: OnUp) -> Link:
        return GatewayLink(options.gateway_socket, on_message, on_up, clock)

    return Outside(client, runner.turn, make_link, clock, options.drift_watch)


class Leader:
    """What happens between two elections."""

    def __init__(self, options: Options, client: ApiClient, runner: StandingRunner) -> None:
        self._options = options
        self._client = client
        self._runner = runner
        self._inventory = Inventory(options.inventory, options.shard)
        self._hosts: Hosts = self._inventory.changed_hosts() or {}
        self._names = tuple(self._hosts)
        self._settings = self._led = options.settings.with_hosts(self._hosts)
        self._alone: frozenset[str] = frozenset()
        self._looks = 0
        self._service: ShardService | None = None
        self._vacancy: Vacancy | None = None
        """While the shard is led and has no nodes."""
        self._metrics = LoopMetrics()
        if self._hosts:  # Ansible has nothing to run on before
            runner.warm_up()

    def _has_new_hosts(self) -> bool:
        """Return whether there are other hosts to run than before; an unusable inventory is told and waited out."""
        try:
            if (hosts := self._inventory.changed_hosts()) is not None:
                self._settings = self._options.settings.with_hosts(hosts)
                self._hosts = hosts
        except ConfigurationError as error:
            log.warning("%s; going on with the hosts known", error)
        self._looks += 1
        if self._looks % _LOOKS_BETWEEN == 0:
            self._look_who_is_alone()
        names = self._mine()
        changed, self._names = names != self._names or self._settings != self._led, names
        return changed

    def _mine(self) -> tuple[str, ...]:
        return tuple(name for name in self._hosts if name not in self._alone)

    def _look_who_is_alone(self) -> None:
        """Find out which nodes have a reconciler of their own; that of such a node has just its own."""
        if self._options.settings.own_node:
            return
        try:
            found = served_alone(self._client.list(LEASE, "kube-system").items)
        except (TemporaryError, StatusError) as error:
            log.info("it is not known which nodes have a reconciler of their own: %s", error)
            return
        for name in sorted((found - self._alone).intersection(self._hosts)):
            log.warning(
                "node %s has a reconciler of its own (Lease kube-system/%s%s): that one attends it", name, PREFIX, name
            )
        self._alone = found

    def _share(self) -> None:
        """Tell the reconcilers of nodes what they have in common with this one; tried again at the next election."""
        if self._options.settings.own_node:
            return
        try:
            publish(self._client, self._options.shared)
        except (TemporaryError, StatusError) as error:
            log.warning("settings for reconcilers of nodes were not published: %s", error)

    def _go_on_with(self, service: ShardService) -> bool:
        """Have the service run the new hosts, and nothing happen to the others; return whether it can."""
        log.info("the inventory has changed: nodes are now %s", ", ".join(self._names) or "none")
        return self._settings == self._led and service.use(self._names)

    def _wait_for_nodes(self, done: threading.Event) -> None:
        """Wait until there are any, since Ansible has nothing to run on before, or until ``done``."""
        self._vacancy = Vacancy(self._client, self._options.settings, SystemClock())
        self._vacancy.start()
        try:
            while not self._names and not done.wait(_INVENTORY_CHECK_S):
                self._has_new_hosts()
        finally:
            vacancy, self._vacancy = self._vacancy, None
            vacancy.stop()

    def plan(self, question: Question) -> JsonObject | None:
        """Return the answer to a plan, None while the shard is not led."""
        service = self._service
        if service is not None:
            return service.plan(question)
        vacancy = self._vacancy
        return vacancy.plan(question) if vacancy is not None else None

    def metrics(self, node: str) -> str | None:
        """Return what was counted of a node, None of one that is not led here."""
        return self._metrics.text(node) if self._service is not None else None

    def lead(self, token: Token, lost: threading.Event) -> None:
        """Run the shard until ``lost``, or until a node knows a newer token."""
        options = self._options
        done, fenced = threading.Event(), threading.Event()

        def on_fenced() -> None:
            fenced.set()
            done.set()

        threading.Thread(target=_pass_on, args=(lost, done), name="lease-lost", daemon=True).start()
        self._share()
        self._look_who_is_alone()
        self._names = self._mine()
        if not self._names:
            log.info("shard %s has no nodes yet", options.shard)
            self._wait_for_nodes(done)
        if done.is_set():
            return
        self._led = self._settings
        service = ShardService(
            outside(options, self._client, self._runner),
            self._names,
            (token.epoch, token.revision),
            self._led,
            jittered(options.observe_every_s),
            on_fenced,
            options.policies,
            self._metrics,
        )
        log.info("leading shard %s with nodes %s", options.shard, ", ".join(self._names) or "none")
        service.start()
        self._service = service
        try:
            while not done.wait(_INVENTORY_CHECK_S):
                if self._has_new_hosts() and not self._go_on_with(service):
                    break
        finally:
            self._service = None
            service.stop()
        if fenced.is_set():
            # whoever has the newer token may need the shard; and a node ahead for good must not make elections spin
            lost.wait(_FENCED_PAUSE_S)


def _pass_on(source: threading.Event, target: threading.Event) -> None:
    source.wait()
    target.set()


def serve(configuration: Configuration, stop: threading.Event) -> None:
    """Run until ``stop``.

    Raises:
        ConfigurationError: a file or option cannot be used.
    """
    options = read_options(configuration)
    client = client_of(configuration, "minik8s-reconciler")
    runner = standing_runner(options)
    leader = Leader(options, client, runner)
    annotations, server = {}, None
    if options.plan is not None:
        server = PlanServer(*options.plan, leader.plan, leader.metrics)
        server.start()
        annotations = {PLAN_ENDPOINT: f"https://{place(options.plan.host, server.port)}"}
    lease = f"minik8s-reconciler-{options.shard}"
    elector = LeaderElector(
        election_client(configuration, "minik8s-reconciler"), lease, annotations=annotations, fenced=True
    )
    try:
        elector.run(stop, leader.lead)
    finally:
        runner.stop()
        if server is not None:
            server.stop()
        client.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code of the daemon."""
    return run_daemon("minik8s-reconciler", "Realizes the pods of a shard's nodes through Ansible.", serve, argv)


if __name__ == "__main__":
    sys.exit(main())

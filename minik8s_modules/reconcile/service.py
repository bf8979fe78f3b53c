"""One shard's parts, put together, started and stopped in order.

A service lives as long as the shard is led with one token; ``main.py`` makes a new one after every election.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from minik8s_modules.api import objects
from minik8s_modules.api.field_selectors import exactly
from minik8s_modules.api.kinds import NODE, POD, POD_ADDRESS, Kind
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.pods.mirror_pods import node_uid, static_uid
from minik8s_modules.base.clock import Clock
from minik8s_modules.client.informer import Informer
from minik8s_modules.client.interface import Getter
from minik8s_modules.reconcile.housekeeping.housekeeping import Housekeeper
from minik8s_modules.reconcile.housekeeping.mirrors import MirrorApi, Mirrors, seen_pod, seen_pods
from minik8s_modules.reconcile.housekeeping.policies import NO_POLICIES, Policies
from minik8s_modules.reconcile.housekeeping.static_pods import StaticPods, as_static
from minik8s_modules.reconcile.loop.gateway_link import Gateway
from minik8s_modules.reconcile.loop.ingress_events import NameTeller
from minik8s_modules.reconcile.loop.ingress_feed import NamesFeed
from minik8s_modules.reconcile.loop.loop import Reconciler
from minik8s_modules.reconcile.loop.references import ReferencedObjects
from minik8s_modules.reconcile.loop.services_events import ServiceTeller
from minik8s_modules.reconcile.loop.services_feed import ServiceFeed
from minik8s_modules.reconcile.loop.shard import Objects, Shard
from minik8s_modules.reconcile.loop.tokens import TokenBook
from minik8s_modules.reconcile.network.networks import machines
from minik8s_modules.reconcile.nodes.household import Household
from minik8s_modules.reconcile.nodes.registration import Registrar
from minik8s_modules.reconcile.planning.plan import Checks, Planner
from minik8s_modules.reconcile.planning.plan_lists import listed, with_content
from minik8s_modules.reconcile.planning.simulated_services import Cluster
from minik8s_modules.reconcile.planning.simulation import Question
from minik8s_modules.reconcile.planning.standalone_plans import Told, read_foretold
from minik8s_modules.reconcile.status.writer import StatusWriter
from minik8s_modules.reconcile.values.addresses import AddressBook
from minik8s_modules.reconcile.values.items import OnOutcome, Outcome, Runner
from minik8s_modules.reconcile.values.values import Named, Settings, is_meshed
from minik8s_modules.runtime.events import EventRecorder

log = logging.getLogger(__name__)


OnMessage = Callable[[JsonObject], None]
OnUp = Callable[[bool], None]


class Link(Gateway, Protocol):
    """A connection to the gateway."""

    def start(self) -> None:
        """Connect from now on."""

    def stop(self) -> None:
        """End."""


class Outside(NamedTuple):
    """What a shard touches beyond this process; each part may be a fake."""

    api: Any
    """An ``ApiClient``."""
    make_runner: Callable[[OnOutcome], Runner]
    make_link: Callable[[OnMessage, OnUp], Link]
    clock: Clock


class ShardService:
    """Runs the nodes ``names`` with ``token``."""

    def __init__(
        self,
        outside: Outside,
        names: Iterable[str],
        token: tuple[int, int],
        settings: Settings,
        full_every_s: Callable[[], float],
        on_fenced: Callable[[], None],
        policies: Policies = NO_POLICIES,
    ) -> None:
        api, clock = outside.api, outside.clock
        self._outside = outside
        self._settings = settings
        self._names = tuple(names)
        self._overlaid = is_meshed(settings)
        self._static = StaticPods()
        self._pods = Informer(api, POD, field_selector=_selector(self._names), indexes=_POD_INDEXES)
        self._nodes = Informer(api, NODE)
        self._addresses = Informer(api, POD_ADDRESS)
        self._services = ServiceFeed(api, settings, self._on_services)
        self._named = NamesFeed(api, self._services, settings, self._on_services, self._cache)
        self._recorder = EventRecorder(api, "minik8s-reconciler", clock=clock)
        self._service_teller = ServiceTeller(self._recorder, self._services.service, self._node)
        self._name_teller = NameTeller(self._recorder, self._services.service, self._named.owners, self._node)
        self._writer = StatusWriter(MirrorApi(api, self._static, self._told), self._view, self._release, clock)
        self._registrar = Registrar(
            api, self._node, self._alive, settings.cluster_cidr, clock, policies.reserved, settings.declared
        )
        self._references = ReferencedObjects(self._cache, self._on_references, by_name=settings.own_node)
        self._tokens = TokenBook(api, self._on_references, clock)
        self.runner = outside.make_runner(self._on_outcome)
        self._link = outside.make_link(self._on_gateway, self._on_gateway_up)
        shard = Shard(
            Objects(
                self._pod,
                self._pods_of,
                self._node,
                self._synced,
                self._services.entries,
                self._services.links,
                self._everywhere,
            ),
            self._references,
            self._tokens,
            AddressBook(api, clock),
            self.runner,
            self._link,
            self._writer,
            self._registrar,
            self._recorder,
            settings,
        )
        self.shard = shard
        self.loop = Reconciler(shard, self._names, token, clock, full_every_s, on_fenced)
        self._checks = Checks(self.runner, token)
        self._mirrors = Mirrors(api, self._static, self._told, self._told_of, self.loop.look_again, clock)
        self._household = self._make_household(token, policies, full_every_s)

    def _make_household(
        self, token: tuple[int, int], policies: Policies, observe_s: Callable[[], float]
    ) -> Housekeeper:
        world = Household(
            self._synced,
            self.loop.containers,
            self._pods_of,
            self._node,
            self._recorder,
            self._writer,
            self._registrar,
            self._mirrors.take,
            self._mirrors.keep,
        )
        clock = self._outside.clock
        return Housekeeper(self._names, world, lambda: self.runner, token, policies, observe_s, clock)

    def plan(self, question: Question) -> JsonObject:
        """Return the answer to a plan; see ``plan.Planner``. Raises as the API does."""
        if self._settings.own_node:
            return self._plan_as_told(question)
        question = with_content(question, self._outside.api)
        cluster = listed(self._outside.api, question, self._names)._replace(
            services=tuple(self._services.services()),
            slices=lambda key: self._services.slices(Key(*key.split("/", 1))),
            taken=self.shard.addresses.taken(),
            address_of=self.shard.addresses.of,
            imagined=self._named.imagined,
        )
        return self._planner(self._outside.api).answer(question, cluster)

    def _plan_as_told(self, question: Question) -> JsonObject:
        """Answer for a node with a reconciler of its own; standalone_plans.py tells what of the cluster it was told."""
        own = Cluster((), (), self._names, imagined=self._named.imagined)
        if question.foretold is not None:
            told = read_foretold(question.foretold)
            return self._planner(Told(told.sources, self._outside.api)).answer(question, own, told)
        if question.operations:
            raise ValueError("a node with a reconciler of its own is told what a plan comes to (foretold)")
        return self._planner(self._outside.api).answer(question, own)

    def _planner(self, reader: Getter) -> Planner:
        hosts = self._named.holders
        return Planner(self.loop, reader, self._checks, self._settings, self._outside.clock, hosts)

    def start(self) -> None:
        """Start everything; returns at once. Decisions begin when the local copies are complete."""
        informers = (
            (self._nodes, self.loop.on_node),
            (self._addresses, self.loop.on_address),
            (self._pods, self._on_pod),
        )
        for informer, handler in informers:
            informer.add_handler(handler)
        self._recorder.start()
        self._writer.start()
        self._registrar.start()
        self._tokens.start()
        self.runner.start()
        for informer, _ in informers:
            informer.start()
        self._named.start()
        self._services.start()
        self.loop.start()
        self._link.start()
        self._household.start()
        threading.Thread(target=self._kick_when_synced, name="synced", daemon=True).start()

    def use(self, names: Iterable[str]) -> bool:
        """Run exactly the nodes ``names`` from now on; return False where that takes a new service.

        One node's pods are another watch than those of many.
        """
        wanted = tuple(names)
        if _selector(wanted) != _selector(self._names):
            return False
        self._names = wanted
        self.loop.use(wanted)
        self._household.use(wanted)
        return True

    def stop(self) -> None:
        """Stop in the order of the data: no new items, no new facts, then write what is known."""
        self._household.stop()
        self.loop.stop()
        self._link.stop()
        self.runner.stop()
        self._registrar.stop()
        self._writer.stop()
        for informer in (self._pods, self._nodes, self._addresses):
            informer.stop()
        self._services.stop()
        self._named.stop()
        self._references.stop()
        self._tokens.stop()
        self._recorder.stop()

    def _kick_when_synced(self) -> None:
        for informer in (self._nodes, self._addresses, self._pods):
            while not informer.wait_synced(1.0):
                log.debug("waiting for the first list")
        while not (self._services.wait_synced(1.0) and self._named.wait_synced(1.0)):
            log.debug("waiting for the first list of services, names and paths")
        self.loop.kick()

    # late binding: the parts refer to each other

    def _view(self, uid: str) -> Any:
        return self.loop.view(uid)

    def _release(self, uid: str) -> None:
        self.loop.release_address(uid)

    def _alive(self, name: str) -> bool | None:
        return self.loop.alive(name)

    def _on_outcome(self, outcome: Outcome) -> None:
        if not self._checks.take(outcome) and not self._household.take(outcome):
            self._service_teller.on_outcome(outcome)
            self._name_teller.on_outcome(outcome)
            self.loop.on_outcome(outcome)

    def _on_gateway(self, message: JsonObject) -> None:
        if not self._household.on_gateway(message):
            self.loop.on_gateway(message)

    def _on_gateway_up(self, up: bool) -> None:  # noqa: FBT001 - the link's callback
        self.loop.on_gateway_up(up)

    def _on_pod(self, old: JsonObject | None, new: JsonObject | None) -> None:
        self._services.on_pod(old, new)
        self.loop.on_pod(as_static(old) if old else None, as_static(new) if new else None)
        mirror = new or old
        if mirror is not None and static_uid(mirror) and (new is None or objects.is_deleting(new)):
            self._household.keep_mirrors(str(objects.spec(mirror).get("nodeName") or ""))

    def _on_references(self, uids: frozenset[str]) -> None:
        self.loop.on_references(uids)

    # reads of the local copies

    def _on_services(self) -> None:
        self.loop.kick()

    def _cache(self, kind: Kind, namespace: str, name: str) -> Informer:
        return Informer(self._outside.api, kind, namespace, exactly(metadata__name=name) if name else "")

    def _pod(self, uid: str) -> JsonObject | None:
        return seen_pod(uid, self._pods.by_index("uid", uid), self._static)

    def _pods_of(self, node: str) -> list[JsonObject]:
        return seen_pods(node, self._told_of(node), self._static)

    def _told(self, namespace: str, name: str) -> JsonObject | None:
        return self._pods.get(namespace, name)

    def _told_of(self, node: str) -> list[JsonObject]:
        return self._pods.by_index("node", node)

    def _node(self, name: str) -> JsonObject | None:
        return self._nodes.get("", name)

    def _everywhere(self) -> Named:
        found = self._named.of()
        return found._replace(machines=machines(self._nodes.list())) if self._overlaid else found

    def _synced(self) -> bool:
        mine = all(informer.wait_synced(0) for informer in (self._pods, self._nodes, self._addresses))
        return mine and self._services.wait_synced(0) and self._named.wait_synced(0)


_POD_INDEXES: dict[str, Callable[[JsonObject], str]] = {
    "uid": node_uid,
    "node": lambda pod: str(objects.spec(pod).get("nodeName") or ""),
}


def _selector(names: tuple[str, ...]) -> str:
    """Return the field selector of the shard's pods; selectors know no sets, so many nodes mean all bound pods."""
    return exactly(spec__nodeName=names[0]) if len(names) == 1 else "spec.nodeName!="

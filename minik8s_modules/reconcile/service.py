"""One shard's parts, put together, started and stopped in order.

A service lives as long as the shard is led with one token; ``main.py`` makes a new one after every election.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, Protocol

from minik8s_modules.api import objects
from minik8s_modules.api.field_selectors import exactly
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mirror_pods import static_uid
from minik8s_modules.base.clock import Clock
from minik8s_modules.client.informer import Informer
from minik8s_modules.reconcile.events.ingress_events import IngressEvents
from minik8s_modules.reconcile.events.pass_events import PassEvents
from minik8s_modules.reconcile.events.policies_events import PolicyEvents
from minik8s_modules.reconcile.events.policies_events import concerned as concerned_by_policies
from minik8s_modules.reconcile.events.services_events import ServiceEvents
from minik8s_modules.reconcile.feeds.copies import Copies, pod_selector
from minik8s_modules.reconcile.feeds.folder_feed import SECTION, FolderFeed
from minik8s_modules.reconcile.feeds.ingress_feed import NamesFeed
from minik8s_modules.reconcile.feeds.policies_feed import PolicyFeed
from minik8s_modules.reconcile.feeds.references import ReferencedObjects
from minik8s_modules.reconcile.feeds.services_feed import ServiceFeed
from minik8s_modules.reconcile.feeds.tokens import TokenBook
from minik8s_modules.reconcile.housekeeping.housekeeper import Housekeeper
from minik8s_modules.reconcile.housekeeping.mirrors import MirrorApi, Mirrors
from minik8s_modules.reconcile.housekeeping.policies import NO_POLICIES, Policies
from minik8s_modules.reconcile.housekeeping.static_pods import StaticPods, as_static
from minik8s_modules.reconcile.loop.drift_events import DriftEvents, concerned
from minik8s_modules.reconcile.loop.gateway_link import Gateway
from minik8s_modules.reconcile.loop.hearts import Hearts
from minik8s_modules.reconcile.loop.loop import Reconciler
from minik8s_modules.reconcile.loop.shard import Objects, Shard
from minik8s_modules.reconcile.network.health_checks import with_checks
from minik8s_modules.reconcile.network.networks import machines
from minik8s_modules.reconcile.nodes.household import Household
from minik8s_modules.reconcile.nodes.registration import Registrar
from minik8s_modules.reconcile.planning.checks import Checks
from minik8s_modules.reconcile.planning.questions import Question
from minik8s_modules.reconcile.status.claim_sizes import ClaimSizes
from minik8s_modules.reconcile.status.writer import StatusWriter
from minik8s_modules.reconcile.values.addresses import AddressBook
from minik8s_modules.reconcile.values.items import OnOutcome, Outcome, Purpose, Runner
from minik8s_modules.reconcile.values.loop_metrics import LoopMetrics
from minik8s_modules.reconcile.values.values import Entries, Named, Settings, is_meshed, tells_ipv6
from minik8s_modules.reconcile.watching.watches import Watches
from minik8s_modules.runtime.events import EventRecorder

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
    watch: bool = True
    """Whether changes that the nodes' kernels tell of are looked at."""


class ShardService:
    """Runs the nodes ``names`` with ``token``.

    The parts refer to each other: copies and feeds tell the loop what changed, the loop decides and writes through the
    writer, and outcomes of the runner go to whoever asked for the item (``Outcome.purpose``).
    """

    def __init__(
        self,
        outside: Outside,
        names: Iterable[str],
        token: tuple[int, int],
        settings: Settings,
        full_every_s: Callable[[], float],
        on_fenced: Callable[[], None],
        policies: Policies = NO_POLICIES,
        metrics: LoopMetrics | None = None,
    ) -> None:
        api, clock = outside.api, outside.clock
        self._metrics = metrics or LoopMetrics()
        self._names = tuple(names)
        static = StaticPods()
        self._copies = Copies(api, self._names, static, lambda: self.loop.kick())  # noqa: PLW0108 - made below
        self._recorder = EventRecorder(api, "minik8s-reconciler", clock=clock)
        addresses = AddressBook(api, clock)
        self._make_feeds(api, settings, clock, addresses)
        self._sizes = ClaimSizes(api, self._recorder, clock)
        self._writer = StatusWriter(
            MirrorApi(api, static, self._copies.stored),
            lambda uid: self.loop.view(uid),  # noqa: PLW0108 - the loop is made below
            lambda uid: self.loop.release_address(uid),  # noqa: PLW0108
            clock,
        )
        self._registrar = Registrar(
            api,
            self._copies.node,
            lambda name: self.loop.alive(name),  # noqa: PLW0108
            settings.cluster_cidr,
            clock,
            policies.reserved,
            settings.declared,
            lambda name: self.loop.silence(name),  # noqa: PLW0108
            settings.kubelet_port,
            settings.dual_stack,
            ipv6=tells_ipv6(settings),
        )
        self.runner = outside.make_runner(self._on_outcome)
        self._watched = outside.watch
        self._watches = Watches(
            settings.bridge,
            settings.overlay.device,
            lambda name, sections, link: self.loop.on_changed(name, sections, link),  # noqa: PLW0108
            lambda name: self.loop.alive(name),  # noqa: PLW0108
            clock,
        )
        self._link = outside.make_link(self._on_gateway, self._on_gateway_up)
        self._hearts = Hearts(self._link.send, self._registrar.on_silent, self._own_nodes)
        self.shard = self._make_shard(addresses, settings)
        self.loop = Reconciler(self.shard, self._names, token, clock, full_every_s, on_fenced, self._metrics)
        mirrors = Mirrors(api, static, self._copies.stored, self._copies.bound_to, self.loop.look_again, clock)
        self._housekeeper = Housekeeper(
            self._names, self._world(mirrors), lambda: self.runner, token, policies, full_every_s, clock
        )
        self._make_outcome_takers(token, clock)
        self._planned = partial(self._answered, api, settings, clock)

    def _make_feeds(self, api: Any, settings: Settings, clock: Clock, addresses: AddressBook) -> None:
        """Make what tells which Services, names, ConfigMaps, Secrets, tokens and folders concern the nodes."""

        def cache(kind: Kind, namespace: str, name: str) -> Informer:
            return Informer(api, kind, namespace, exactly(metadata__name=name) if name else "")

        def on_change() -> None:
            self.loop.kick()

        def on_references(uids: frozenset[str]) -> None:
            self.loop.on_references(uids)

        attend = lambda names: self._hearts.attend(names)  # noqa: E731, PLW0108 - made later
        self._services = ServiceFeed(api, settings, on_change, self._copies.nodes.list, attend)
        self._named = NamesFeed(api, self._services, settings, on_change, cache)
        self._references = ReferencedObjects(cache, on_references, by_name=settings.own_node)
        self._tokens = TokenBook(api, on_references, clock)
        self._policies = PolicyFeed(api, settings, addresses.of, on_change, active=not settings.own_node)
        self._folders = FolderFeed(api, self._own_nodes, self._recorder, on_change, clock, active=not settings.own_node)

    def _make_shard(self, addresses: AddressBook, settings: Settings) -> Shard:
        copies, services, named, folders = self._copies, self._services, self._named, self._folders
        overlaid, by_ipv6 = is_meshed(settings), settings.overlay.ipv6
        cluster = "" if settings.plugin.driver else settings.cluster_cidr

        def named_on(node: str) -> Named:
            found, checks = named.of()._replace(folders=folders.of()), services.checks(node)
            found = found._replace(ingress=with_checks(found.ingress, checks))
            self._metrics.of(node).on_checks(checks)
            if not overlaid:
                return found
            return found._replace(machines=machines(copies.nodes.list(), ipv6=by_ipv6, cluster=cluster))

        return Shard(
            Objects(
                copies.pod,
                copies.pods_of,
                copies.node,
                self._synced,
                self._services_of,
                services.links,
                named_on,
                self._policies_of,
                self._policies.unenforced,
            ),
            self._references,
            self._tokens,
            addresses,
            self.runner,
            self._link,
            self._writer,
            self._registrar,
            self._recorder,
            settings,
            DriftEvents(self._recorder, self._concerned, copies.node),
            self._sizes.tell,
        )

    def _own_nodes(self) -> list[JsonObject]:
        return [node for node in self._copies.nodes.list() if objects.name(node) in self._names]

    def _services_of(self, node: JsonObject) -> Entries:
        found, name = self._services.entries(node), objects.name(node)
        self._metrics.of(name).on_announced(self._services.announced(name))
        return found

    def _policies_of(self, node: JsonObject) -> Entries:
        found = self._policies.entries(node)
        self._metrics.of(objects.name(node)).on_policies(found)
        return found

    def _concerned(self, section: str, key: str) -> list[JsonObject]:
        """Return the objects that a section's key is about."""
        if section == SECTION:
            volume = self._folders.volume(key)
            return [volume] if volume is not None else []
        if section == "policies":
            found = concerned_by_policies(key, self._policies.policy, self._policies.pod)
            return [found] if found is not None else []
        return concerned(section, key, self._copies.pod, self._services.service, self._named.owners)

    def _world(self, mirrors: Mirrors) -> Household:
        return Household(
            self._synced,
            self.loop.containers,
            self._copies.pods_of,
            self._copies.node,
            self._recorder,
            self._writer,
            self._registrar,
            mirrors.take,
            mirrors.keep,
            lambda node, found: self._metrics.of(node).on_rooms(found),
        )

    def _make_outcome_takers(self, token: tuple[int, int], clock: Clock) -> None:
        service, node = self._services.service, self._copies.node
        self._checks = Checks(self.runner, token)
        events = (
            ServiceEvents(self._recorder, service, node),
            PolicyEvents(self._recorder, self._policies.policy, self._policies.pod, self._policies.policies_on, node),
            IngressEvents(self._recorder, service, self._named.owners, node),
            PassEvents(self._recorder, node, clock),
        )
        self._takers: dict[Purpose, tuple[OnOutcome, ...]] = {
            "check": (self._checks.on_outcome,),
            "housekeeping": (self._housekeeper.on_outcome,),
            "reconcile": (
                *(each.on_outcome for each in events),
                self._folders.on_outcome,
                self.loop.on_outcome,
                self._housekeeper.on_item,
            ),
        }

    def plan(self, question: Question) -> JsonObject:
        """Return the answer to a plan; see ``plan.Planner``. Raises as the API does."""
        return self._planned(question)

    def _answered(self, api: Any, settings: Settings, clock: Clock, question: Question) -> JsonObject:
        from minik8s_modules.reconcile.planning.answering import Plans  # noqa: PLC0415 - see there

        addresses, names = self.shard.addresses, lambda: self._names
        plans = Plans(api, self.loop, self._checks, self._services, self._named, addresses, settings, clock, names)
        return plans.answer(question)

    def start(self) -> None:
        """Start everything; returns at once. Decisions begin when the local copies are complete."""
        self._copies.nodes.add_handler(self.loop.on_node)
        self._copies.nodes.add_handler(self._folders.on_nodes)
        self._copies.nodes.add_handler(self._services.on_node)
        self._copies.addresses.add_handler(self.loop.on_address)
        self._copies.addresses.add_handler(self._policies.on_address)
        self._copies.pods.add_handler(self._on_pod)
        for part in (
            self._recorder,
            self._writer,
            self._registrar,
            self._sizes,
            self._tokens,
            self.runner,
            self._copies,
            self._named,
            self._services,
            self._policies,
            self._folders,
            self.loop,
            self._link,
            self._housekeeper,
        ):
            part.start()

    def use(self, names: Iterable[str]) -> bool:
        """Run exactly the nodes ``names`` from now on; return False where that takes a new service.

        One node's pods are another watch than those of many.
        """
        wanted = tuple(names)
        if pod_selector(wanted) != pod_selector(self._names):
            return False
        self._names = wanted
        self._folders.look_again()
        self.loop.use(wanted)
        self._watches.use(wanted)
        self._housekeeper.use(wanted)
        return True

    def stop(self) -> None:
        """Stop in the order of the data: no new items, no new facts, then write what is known."""
        for part in (
            self._housekeeper,
            self.loop,
            self._link,
            self._watches,
            self.runner,
            self._registrar,
            self._sizes,
            self._writer,
            self._copies,
            self._services,
            self._policies,
            self._named,
            self._folders,
            self._references,
            self._tokens,
            self._recorder,
        ):
            part.stop()

    def _synced(self) -> bool:
        """Return whether all first lists are complete; each that comes to be so has the loop look at every node."""
        parts = (self._services, self._policies, self._named, self._folders)
        return self._copies.synced() and all(each.wait_synced(0) for each in parts)

    def _on_outcome(self, outcome: Outcome) -> None:
        for take in self._takers[outcome.purpose]:
            take(outcome)

    def _on_gateway_up(self, up: bool) -> None:  # noqa: FBT001 - the link's callback
        self.loop.on_gateway_up(up)
        self._hearts.on_up(up)

    def _on_gateway(self, message: JsonObject) -> None:
        if self._hearts.on_beat(message):
            return
        watched = self._names if self._watched else ()
        if not (self._watches.on_gateway(message, watched) or self._housekeeper.on_gateway(message)):
            self.loop.on_gateway(message)

    def _on_pod(self, old: JsonObject | None, new: JsonObject | None) -> None:
        self._services.on_pod(old, new)
        self.loop.on_pod(as_static(old) if old else None, as_static(new) if new else None)
        mirror = new or old
        if mirror is not None and static_uid(mirror) and (new is None or objects.is_deleting(new)):
            self._housekeeper.keep_mirrors(str(objects.spec(mirror).get("nodeName") or ""))

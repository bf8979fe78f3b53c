"""Plans of a running shard: the question is completed with what this shard knows, and a ``Planner`` answers it.

What it imports is a quarter of a reconciler's memory, so who needs it for a plan imports it then (service.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import ENDPOINT_SLICE, SERVICE
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.base.clock import Clock
from minik8s_modules.client.interface import Getter
from minik8s_modules.reconcile.feeds.ingress_feed import NamesFeed
from minik8s_modules.reconcile.feeds.services_feed import ServiceFeed
from minik8s_modules.reconcile.loop.section_changes import Request
from minik8s_modules.reconcile.network.services import SERVICE_NAME
from minik8s_modules.reconcile.planning.checks import Checks
from minik8s_modules.reconcile.planning.plan import Planner, Present
from minik8s_modules.reconcile.planning.plan_lists import listed, with_content
from minik8s_modules.reconcile.planning.questions import Question
from minik8s_modules.reconcile.planning.simulated_services import Cluster
from minik8s_modules.reconcile.planning.standalone_plans import SuppliedObjects, read_supplied_plan
from minik8s_modules.reconcile.values.addresses import AddressBook
from minik8s_modules.reconcile.values.values import Settings


class Plans(NamedTuple):
    """The parts of a shard that an answer reads."""

    api: Any
    """An ``ApiClient``."""
    present: Present
    checks: Checks
    services: ServiceFeed
    named: NamesFeed
    addresses: AddressBook
    settings: Settings
    clock: Clock
    names: Callable[[], tuple[str, ...]]
    """The shard's nodes now."""

    def answer(self, question: Question) -> JsonObject:
        """Return the answer to a plan; see ``plan.Planner``. Raises as the API does."""
        if self.settings.own_node:
            return self._answer_supplied(question)
        question = with_content(question, self.api)
        cluster = listed(self.api, question, self.names())._replace(
            services=tuple(self.services.services()),
            slices=lambda key: self.services.slices(Key(*key.split("/", 1))),
            taken=self.addresses.taken(),
            address_of=self.addresses.of,
            imagined=self.named.imagined,
            balancers=self.services.balancers(),
        )
        return self._planner(self.api).answer(question, cluster)

    def _answer_supplied(self, question: Question) -> JsonObject:
        """Answer for a node with a reconciler of its own; standalone_plans.py tells what of the cluster it was told."""
        own = Cluster((), (), self.names(), imagined=self.named.imagined, balancers=self.services.balancers())
        if question.supplied is not None:
            supplied = read_supplied_plan(question.supplied)
            return self._planner(SuppliedObjects(supplied.sources, self.api)).answer(question, own, supplied)
        if question.operations:
            raise ValueError("a plan for a node with its own reconciler must contain the result (foretold)")
        return self._planner(self.api).answer(question, own)

    def _planner(self, reader: Getter) -> Planner:
        return Planner(self.present, reader, self.checks, self.settings, self.clock, self.named.holders)


class _Nobody:
    """No node at all."""

    def basis(self, name: str) -> None:
        """Return that the node cannot be asked."""

    def run(self, node: str, requests: Mapping[str, Request], timeout_s: float) -> NoReturn:  # noqa: ARG002 - Checking
        """Nobody has a basis to be asked by."""
        raise LookupError(node)


def answer_of_nobody(question: Question, api: Any, book: AddressBook, settings: Settings, clock: Clock) -> JsonObject:
    """Return the answer where the shard has no nodes; raises as the API does."""
    nobody, question = _Nobody(), with_content(question, api)
    slices: dict[str, list[JsonObject]] = {}
    for one in api.list(ENDPOINT_SLICE).items:
        key = f"{objects.namespace(one)}/{objects.labels(one).get(SERVICE_NAME, '')}"
        slices.setdefault(key, []).append(one)
    cluster = listed(api, question, ())._replace(
        services=tuple(api.list(SERVICE).items),
        slices=lambda key: slices.get(key, []),
        taken=book.taken(),
        address_of=book.of,
    )
    return Planner(nobody, api, nobody, settings, clock).answer(question, cluster)

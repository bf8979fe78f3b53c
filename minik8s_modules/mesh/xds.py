"""Tells sidecars: Envoy's aggregated discovery service over gRPC, in its delta form. One coroutine a sidecar.

    requests ─▶ queue ─┐
    catalogue ─wake────┴▶ ``_Stream``: ask, compare, answer what differs; nothing is sent while nothing changes

What is new is sent in the order of ``TYPES``, and what is gone in the opposite one and last: no route leads to a
cluster that a sidecar does not have. A sidecar that refuses a response keeps what it had of all that is in it, so it is
sent both halves again, until what is wrong is alone; that is told again when it changes. Until then no cluster is taken
away, as what the sidecar keeps may lead there, and its endpoints go on (``mesh.retained``). A sidecar that has taken
all that it was sent has settled: RollingUpdates wait for that.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import Any

import grpc
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2

from minik8s_modules.api.errors import StatusError
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.mesh.authorizations.guards import Guard
from minik8s_modules.mesh.catalogue import Catalogue, Configuration
from minik8s_modules.mesh.figures import Figures
from minik8s_modules.mesh.identities.holding import Holder
from minik8s_modules.mesh.identities.issuing import Issued, Issuer
from minik8s_modules.mesh.identities.securing import SECRET, secrets, secured
from minik8s_modules.mesh.identity import AGAIN_S, Sidecar
from minik8s_modules.mesh.incoming import NAMES, Guarded, Incoming, nobody
from minik8s_modules.mesh.mapping import Withholding
from minik8s_modules.mesh.messages import Message, endpoints_in, message_of
from minik8s_modules.mesh.resources import CLUSTER, ENDPOINTS, LISTENER, ROUTES, TYPES
from minik8s_modules.mesh.retained import kept_resource
from minik8s_modules.mesh.subscriptions import Difference, Sent, Subscription, TooMuch

log = logging.getLogger(__name__)

Refused = Callable[[Sidecar, set[str], str], None]
"""Told of a sidecar, the VirtualServices behind what it refused, and its message."""
Settled = Callable[[Sidecar, frozenset[Withholding]], None]
"""Told of a sidecar, and of the batches whose Pods it sends no requests to."""
_STREAMS_PER_POD = 4
"""At once: an Envoy has one, and a second one while its successor starts."""
_MOST_PENDING = 1000
"""Responses of a stream whose answers are awaited; that of one before those is not heard."""
_MOST_KEPT = 100
"""Clusters that a sidecar keeps by what it refuses; each is 35 kB in it."""
_MESSAGE_LIMIT = 1024
"""Of a sidecar's words: as long as an Event's."""


class Discovery(ads_pb2_grpc.AggregatedDiscoveryServiceServicer):  # type: ignore[misc]   # generated without types
    """The service.

    Args:
        catalogue: what is to be told.
        identify: returns whose a value of the header ``authorization`` is; blocks, and raises as ``sidecar_of``.
        figures: what is counted.
        refused: called when a sidecar refuses something.
        settled: called when a sidecar has taken all that it was sent.
        issuer: gives sidecars certificates; without it they get none.
        guarded: called with what a sidecar enforces, and with nothing when the last stream of its Pod has ended.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        identify: Callable[[str], Sidecar | None],
        figures: Figures,
        refused: Refused,
        settled: Settled,
        issuer: Issuer | None = None,
        guarded: Guarded = nobody,
    ) -> None:
        self._issuer = issuer
        self._guarded = guarded
        self._catalogue = catalogue
        self._identify = identify
        self._figures = figures
        self._refused = refused
        self._settled = settled
        self._open: dict[tuple[str, str], int] = {}
        self._streams: set[_Stream] = set()

    def end(self) -> None:
        """End all streams; sidecars keep what they have, and look for another pilot."""
        for stream in self._streams:
            stream.end()

    async def DeltaAggregatedResources(  # noqa: N802  (gRPC's name)
        self, requests: AsyncIterator[Any], context: Any
    ) -> AsyncIterator[Any]:
        """Serve one sidecar until it leaves."""
        sidecar = await self._asker(context)
        self._open[sidecar[:2]] = self._open.get(sidecar[:2], 0) + 1
        self._figures.streams += 1
        incoming = Incoming(sidecar, self._guarded)
        stream = _Stream(incoming, self._catalogue, self._figures, self._refused, self._settled)
        if self._issuer is not None:
            stream.certified_by(self._issuer)
        self._streams.add(stream)
        reader = asyncio.create_task(stream.read(requests))
        try:
            async for response in stream.responses():
                yield response
            if stream.refusal:
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, stream.refusal)
        finally:
            reader.cancel()
            stream.close()
            self._streams.discard(stream)
            self._figures.streams -= 1
            self._open[sidecar[:2]] -= 1
            if not self._open[sidecar[:2]]:
                del self._open[sidecar[:2]]
                incoming.ended()

    async def _asker(self, context: Any) -> Sidecar:
        header = dict(context.invocation_metadata() or ()).get("authorization", "")
        try:
            sidecar = await asyncio.to_thread(self._identify, str(header))
        except (StatusError, TemporaryError) as error:
            log.warning("nobody could be asked whose sidecar it is: %s", error)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the API server does not say whose token it is")
            raise
        if sidecar is None:
            self._figures.strangers.inc()
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the request needs the token of a Pod")
            raise PermissionError
        if self._open.get(sidecar[:2], 0) >= _STREAMS_PER_POD:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"Pod {sidecar.pod} has {_STREAMS_PER_POD} streams")
        return sidecar


class _Stream:
    """One sidecar's stream."""

    def __init__(
        self, incoming: Incoming, catalogue: Catalogue, figures: Figures, refused: Refused, settled: Settled
    ) -> None:
        self._incoming, self._sidecar = incoming, incoming.sidecar
        self._catalogue = catalogue
        self._figures = figures
        self._refused = refused
        self._settled = settled
        self._configuration: Configuration | None = None
        self._lost: frozenset[tuple[str, str]] = frozenset()
        self._halves: list[tuple[str, list[str]]] = []
        self._kept: dict[str, Message] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._nonces = itertools.count(1)
        self._pending: dict[str, Sent] = {}
        self._changed = asyncio.Event()
        self._ended = False
        self.refusal = ""
        self._loop = loop = asyncio.get_running_loop()
        self._known_since_s: float | None = None

        def wake() -> None:
            loop.call_soon_threadsafe(self._wake_up)

        self._wake = wake
        self._secrets: dict[str, Message] = {}
        self._holder: Holder | None = None
        self._again = loop.call_later(AGAIN_S, self._ask_again)
        catalogue.wait_for(self._sidecar.scope, wake)

    def _wake_up(self) -> None:
        self._known_since_s = self._loop.time() if self._known_since_s is None else self._known_since_s
        self._changed.set()

    def certified_by(self, issuer: Issuer) -> None:
        """Have a certificate of the sidecar's own service account for it, and no other, as soon as it asks for one."""
        namespace, pod, account = self._sidecar[:3]
        whose = f"{namespace}/{pod} ({self._sidecar.uid})"
        issue = partial(issuer.issue, namespace, pod, account)
        self._holder = Holder(issue, issuer.pool, issuer.turns, self._certified, whose)

    def _look_certified(self, configuration: Configuration) -> None:
        """Begin to have a certificate if the sidecar asks for one and needs it; others cost the signer nothing."""
        needs_it = self._sidecar.speaks_tls or configuration.calls_by_tls
        if self._holder is not None and SECRET in self._subscriptions and needs_it:
            self._holder.begin()

    def _ask_again(self) -> None:
        if self._incoming.is_ahead:
            self.end()

    def _certified(self, issued: Issued) -> None:
        self._secrets = {each.name: message_of(each) for each in secrets(issued.chain, issued.key, issued.roots)}
        self._figures.certificates.inc()
        self._figures.ends[self] = issued.until.timestamp()
        self._wake_up()

    def close(self) -> None:
        """Wait for no changes any more."""
        if self._holder is not None:
            self._holder.end()
        self._again.cancel()
        self._figures.ends.pop(self, None)
        self._catalogue.leave(self._sidecar.scope, self._wake)

    async def read(self, requests: AsyncIterator[Any]) -> None:
        """Take the sidecar's requests until there are none."""
        try:
            async for request in requests:
                self._take(request)
                self._changed.set()
        except TooMuch as too_much:
            self.refusal = str(too_much)
            log.warning("the stream of Pod %s/%s ends: %s", *self._sidecar[:2], too_much)
        finally:
            self.end()

    def end(self) -> None:
        """Send nothing more."""
        self._ended = True
        self._changed.set()

    async def responses(self) -> AsyncIterator[Any]:
        """Yield what the sidecar lacks, whenever that may be something."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._ended:
                return
            before, configuration = self._configuration, self._catalogue.get(self._sidecar.scope)
            if configuration is not None and not self._incoming.knows(configuration.policies):
                continue  # who may call is newer than that
            self._configuration = configuration
            if configuration is not None:
                self._note_kept(before, configuration)
                self._look_certified(configuration)
            lacking, self._known_since_s = self._lacking(configuration) if configuration is not None else [], None
            for response in lacking:
                yield response
            self._look_settled()

    def _take(self, request: Any) -> None:
        kind = request.type_url
        if kind != SECRET and kind not in TYPES:
            return
        sent, guard = self._pending.pop(request.response_nonce, None), self._incoming.answered(request.response_nonce)
        if sent is not None and request.HasField("error_detail"):
            self._lost |= sent.names
            self._nack(kind, sent, guard, request.error_detail.message[:_MESSAGE_LIMIT])
        elif sent is not None:
            self._lost -= sent.names
            self._figures.answers.labels(_short(kind), "ack").inc()
            self._figures.convergence.observe(self._loop.time() - sent.known_since_s)
        known = dict(request.initial_resource_versions)
        if not request.response_nonce or request.resource_names_subscribe or request.resource_names_unsubscribe:
            subscription = self._subscriptions.setdefault(kind, Subscription())
            subscription.ask(request.resource_names_subscribe, request.resource_names_unsubscribe, known)

    def _look_settled(self) -> None:
        """Tell whoever waits for it that the sidecar has the endpoints that there are, all of them taken.

        One that has come from another pilot has older ones until it has asked for each of its clusters here.
        """
        awaited = {each for sent in self._pending.values() for each in sent.names}
        self._incoming.look(self._subscriptions.get(LISTENER), awaited | self._lost)
        clusters = self._subscriptions.get(CLUSTER)
        if self._configuration is None or self._pending or clusters is None:
            return
        unasked = {each for each in self._configuration.on_demand if not clusters.asks_for(each)}
        names = self._configuration.snapshot.get(ENDPOINTS, {}).keys() - unasked
        # an Envoy without clusters asks for no endpoints
        endpoints = self._subscriptions.get(ENDPOINTS, Subscription())
        if endpoints.covers(names) and not any(kind == ENDPOINTS and name in names for kind, name in self._lost):
            self._settled(self._sidecar, self._configuration.withholdings)

    def _nack(self, kind: str, sent: Sent, guard: Guard | None, message: str) -> None:
        log.warning("sidecar of Pod %s/%s refused %s: %s", *self._sidecar[:2], _short(kind), message)
        self._figures.answers.labels(_short(kind), "nack").inc()
        if len(sent.names) > 1:
            names = sorted(name for _kind, name in sent.names)
            middle = len(names) // 2
            self._halves += [(kind, names[:middle]), (kind, names[middle:])]
            return
        if sent.names & NAMES:
            self._incoming.refused(message, guard)
            return
        configuration = self._catalogue.get(self._sidecar.scope)
        behind = configuration.split_by.get(sent.place) if configuration is not None else None
        self._refused(self._sidecar, set() if behind is None else {behind}, message)

    def _lacking(self, configuration: Configuration) -> list[Any]:
        first: list[Any] = [*self._secrets_lacking()]
        gone: list[tuple[str, Subscription, Difference]] = []
        halves, self._halves = self._halves, []
        for kind in TYPES:
            subscription = self._subscriptions.get(kind)
            if subscription is None:
                continue
            messages, versions = configuration.snapshot.get(kind, {}), configuration.versions.get(kind, {})
            for own in self._incoming.messages(configuration) if kind == LISTENER else ():
                messages, versions = {**messages, own.name: own}, {**versions, own.name: own.version}
            difference = subscription.difference(versions, configuration.on_demand if kind == CLUSTER else ())
            for names in (names for of, names in halves if of == kind):
                again = [messages[name] for name in names if subscription.has(name, versions.get(name))]
                if again:
                    first.append(self._response(kind, again, Difference([], [])))
            subscription.sent(versions, difference._replace(removed=[]))
            if difference.changed and kind == CLUSTER and ENDPOINTS in self._subscriptions:
                # who replaces a cluster waits for its endpoints, and does not ask for what it has
                self._subscriptions[ENDPOINTS].forget(difference.changed)
            if difference.changed:
                changed = [messages[name] for name in difference.changed]
                first.append(self._response(kind, changed, difference._replace(removed=[])))
            if difference.removed:
                gone.append((kind, subscription, difference._replace(changed=[])))
        return [*first, *self._removed(gone[::-1], configuration)]

    def _secrets_lacking(self) -> Iterator[Any]:
        """Yield the sidecar's own secrets; names that are none of these are not heard."""
        subscription = self._subscriptions.get(SECRET)
        if subscription is None or not self._secrets:
            return
        versions = {name: each.version for name, each in self._secrets.items()}
        difference = subscription.difference(versions)._replace(removed=[])
        if difference:
            subscription.sent(versions, difference)
            yield self._response(SECRET, [self._secrets[name] for name in difference.changed], difference)

    def _removed(
        self, gone: Sequence[tuple[str, Subscription, Difference]], configuration: Configuration
    ) -> Iterator[Any]:
        """Yield what is to be taken away, but no cluster while routes may lead there yet."""
        leading = {LISTENER, ROUTES}
        is_known = leading <= self._subscriptions.keys()  # one that comes back names its clusters first
        refused = any(kind in leading and name in configuration.versions.get(kind, {}) for kind, name in self._lost)
        awaited = any(kind in leading for sent in self._pending.values() for kind, _name in sent.names)
        over = self._too_many() if is_known and refused and not awaited else set()
        for kind, subscription, difference in gone:
            taken = difference
            if kind not in leading and (refused or awaited or not is_known):
                taken = Difference([], [each for each in difference.removed if each in over])
            if kind == ENDPOINTS and refused:
                yield from self._followed(subscription, set(difference.removed) - set(taken.removed))
            if taken:
                subscription.sent({}, taken)
                yield self._response(kind, [], taken)

    def _note_kept(self, before: Configuration | None, configuration: Configuration) -> None:
        """Note the endpoints that the sidecar has, and is to have, of clusters that are decided on no more."""
        subscription, now = self._subscriptions.get(ENDPOINTS), configuration.versions.get(ENDPOINTS, {})
        former = before.snapshot.get(ENDPOINTS, {}) if before is not None else {}
        names = [*self._kept, *(former.keys() - now.keys() - self._kept.keys())]
        self._kept = {
            name: self._kept[name] if name in self._kept else former[name]
            for name in names
            if subscription is not None and subscription.holds(name) and name not in now
        }

    def _too_many(self) -> set[str]:
        """Return which kept clusters are taken away for all that: the first ones, where there are ever more."""
        return {*[*self._kept][: max(0, len(self._kept) - _MOST_KEPT)]}

    def _followed(self, subscription: Subscription, names: set[str]) -> Iterator[Any]:
        """Yield the endpoints of clusters that the sidecar keeps, where they have become others."""
        configuration = self._configuration or Configuration({}, {})
        services = configuration.services
        changed: list[Message] = []
        for name in sorted(names & self._kept.keys()):
            has = endpoints_in(self._kept[name])
            found = services.weights(name, has)
            if found != has:
                (kept,) = secured([kept_resource(name, found)], configuration.peers, self._sidecar.namespace)
                self._kept[name] = message_of(kept)
                changed.append(self._kept[name])
        if changed:
            difference = Difference([each.name for each in changed], [])
            subscription.sent({each.name: each.version for each in changed}, difference)
            yield self._response(ENDPOINTS, changed, difference)

    def _response(self, kind: str, changed: list[Message], difference: Difference) -> Any:
        nonce = str(next(self._nonces))
        names = frozenset((kind, each.name) for each in changed)
        since = self._loop.time() if self._known_since_s is None else self._known_since_s
        self._pending[nonce] = Sent(names, next((each.place for each in changed), ""), since)
        self._incoming.sent(nonce)
        self._figures.pushes.labels(_short(kind)).inc()
        if len(self._pending) > _MOST_PENDING:
            self._lost |= self._pending.pop(next(iter(self._pending))).names
        packed = [
            discovery_pb2.Resource(name=each.name, version=each.version, resource=each.packed) for each in changed
        ]
        return discovery_pb2.DeltaDiscoveryResponse(
            type_url=kind, nonce=nonce, resources=packed, removed_resources=difference.removed
        )


def _short(kind: str) -> str:
    return kind.rpartition(".")[2]

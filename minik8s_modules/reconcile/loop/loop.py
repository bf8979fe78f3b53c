"""The loop of one shard: watches objects and nodes, decides, has Ansible realize, writes what came of it.

Handlers (informers, gateway, runner) only note what changed and queue the node. ``_sync(node)`` decides about the pods
that changed, claims addresses, asks for pulls, and hands the runner one item at most: the sections that differ from
what the node confirmed. Whatever fails comes back by a timer; nothing polls. After a start each node is observed fully.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable

from minik8s_modules.api import objects
from minik8s_modules.api.nodes.drift_policies import of_node
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock
from minik8s_modules.reconcile.events.pod_events import PodEvents
from minik8s_modules.reconcile.feeds.address_claims import AddressClaims
from minik8s_modules.reconcile.loop import requests as requesting
from minik8s_modules.reconcile.loop.basis import Basis
from minik8s_modules.reconcile.loop.changed_pods import ChangedPods, is_news
from minik8s_modules.reconcile.loop.gateway_events import GatewayEvents, is_urgent
from minik8s_modules.reconcile.loop.image_pulls import Pulls
from minik8s_modules.reconcile.loop.nodestate import NodeState, Sent
from minik8s_modules.reconcile.loop.section_changes import Request
from minik8s_modules.reconcile.loop.shard import Shard, inputs_of, observation_asked, read_of
from minik8s_modules.reconcile.pods.desired import address_comes_first, decide_pod
from minik8s_modules.reconcile.pods.node_admission import by_age
from minik8s_modules.reconcile.pods.observed import ObservedContainer
from minik8s_modules.reconcile.status.writer import View
from minik8s_modules.reconcile.storage.pull_secrets import credentials
from minik8s_modules.reconcile.values.items import Outcome, WorkItem
from minik8s_modules.reconcile.values.loop_metrics import LoopMetrics
from minik8s_modules.reconcile.values.values import is_meshed
from minik8s_modules.runtime.queue import WorkQueue
from minik8s_modules.runtime.workers import Workers

log = logging.getLogger(__name__)
_SYNCERS = 4
_TIMER_FLOOR_S = 0.02
"""No timer is shorter, so that a moment that does not pass cannot become a busy loop."""


class Reconciler:
    """Runs the nodes ``names`` with ``token``; ``on_fenced`` is called when a node knows a newer one."""

    def __init__(
        self,
        shard: Shard,
        names: Iterable[str],
        token: tuple[int, int],
        clock: Clock,
        full_every_s: Callable[[], float],
        on_fenced: Callable[[], None],
        metrics: LoopMetrics | None = None,
    ) -> None:
        self._shard = shard
        self._metrics = metrics or LoopMetrics()
        self._event_writer = PodEvents(shard.recorder, shard.objects.pod)
        self._token = token
        self._clock = clock
        self._on_fenced = on_fenced
        self._full_every_s = full_every_s
        self._lock = threading.RLock()
        # replaced as a whole when nodes come and go, so that readers need no lock
        self._nodes = {name: NodeState(name, full_every_s) for name in names}
        self._metrics.keep(self._nodes)
        self._changed = ChangedPods()
        self._node_of: dict[str, str] = {}
        self._fenced = False
        self._queue: WorkQueue[str] = WorkQueue(clock)
        self._workers = Workers(self._queue, self._sync, "reconcile", _SYNCERS)
        self._claimer = AddressClaims(shard.addresses, self.on_references)
        self._ids = itertools.count(1)
        self._pulls = Pulls(shard.gateway, self._event_writer)
        self._gateway_events = GatewayEvents(clock, self._event_writer, self._pulls, shard.registrar.enqueue)

    def start(self) -> None:
        """Work from now on; every node is observed fully first."""
        self._workers.start()
        self.kick()

    def stop(self) -> None:
        """Begin nothing new; items under way are the runner's to end."""
        self._workers.stop()
        self._claimer.stop()

    def kick(self) -> None:
        """Look at every node soon."""
        for name in self._nodes:
            self._queue.add(name)

    def use(self, names: Iterable[str]) -> None:
        """Run exactly the nodes ``names`` from now on; those that go on notice nothing."""
        with self._lock:
            before = self._nodes
            self._nodes = {name: before.get(name) or NodeState(name, self._full_every_s) for name in names}
            self._metrics.keep(self._nodes)
            for name in before.keys() - self._nodes.keys():
                self._shard.registrar.forget(name)
                self._changed.take(name)
                for uid in [*before[name].decisions]:
                    self._forget(before[name], uid)
        for name in self._nodes.keys() - before.keys():
            # the gateway may have told of it before it was ours
            self._shard.gateway.send({"op": "relist", "node": name})
            self._queue.add(name)

    # what others tell; each only notes it and queues the node

    def on_pod(self, old: JsonObject | None, new: JsonObject | None) -> None:
        """Handle a change of a pod; one of what its status tells is for the status alone, which is ours to write."""
        state = self._nodes.get(objects.spec(new or old or {}).get("nodeName") or "")
        if state is not None and state.known and state.alive and new is not None and not is_news(old, new):
            self._metrics.of(state.name).on_pod(new, self._clock.monotonic())
            self._shard.writer.on_status(new)
            return
        for pod in (old, new):
            if pod is not None and (name := objects.spec(pod).get("nodeName")) in self._nodes:
                self.look_again(name, [objects.uid(pod)])
        if new is not None and objects.spec(new).get("nodeName") in self._nodes:
            self._shard.tokens.follow(new)  # asked for while the pod waits for its turn

    def on_node(self, old: JsonObject | None, new: JsonObject | None) -> None:
        """Handle a change of a Node: only what decisions read of it counts."""
        name = objects.name(new or old or {})
        if is_meshed(self._shard.settings) and read_of(old) != read_of(new):
            self.kick()  # every node has a way to this one's pods
        state = self._nodes.get(name)
        if state is None:
            return
        if new is None:
            # deleted, it is registered again when its machine answers, and not from memory: the machine may have left
            state.facts_wanted = True
            self._shard.registrar.forget(name)
            self._queue.add(name)
        self._shard.registrar.enqueue(name)
        if observation_asked(old, new):
            state.heal()
        if observation_asked(old, new) or of_node(old or {}) != of_node(new or {}):
            self._queue.add(name)
        if read_of(old) != read_of(new):
            self.look_again(name, [objects.uid(pod) for pod in self._shard.objects.pods_of(name)])

    def on_references(self, uids: Iterable[str]) -> None:
        """Handle a change of what pods refer to."""
        for uid in uids:
            if (name := self._node_of.get(uid)) is not None:
                self.look_again(name, [uid])

    def on_address(self, old: JsonObject | None, new: JsonObject | None) -> None:
        """Handle a change of a PodAddress: a released one may serve a pod that waits."""
        self._shard.addresses.on_change(old, new)
        if new is None:
            self._claimer.on_released()

    def on_gateway_up(self, up: bool) -> None:  # noqa: FBT001 - the link's callback
        """Handle a connection to the gateway that came or went."""
        if up:
            return
        with self._lock:
            self._pulls.lost()
            for state in self._nodes.values():
                state.on_gateway_lost()

    def on_gateway(self, message: JsonObject) -> None:
        """Handle a message of the gateway; nodes of other shards are not ours."""
        state = self._nodes.get(str(message.get("node") or ""))
        if state is None or not self._gateway_events.understands(message):
            return
        with self._lock:
            before = state.alive
            touched = self._gateway_events.take(state, message)
            state.dirty |= touched
            urgent = is_urgent(state, message, touched)
            self._metrics.of(state.name).on_told(message)
            back = state.alive and not before
            state.facts_wanted |= back  # after a boot, another kernel may run, with other memory set aside
        if back:
            # nothing is decided on what was seen before it fell silent: it may have lost its power
            self._shard.gateway.send({"op": "relist", "node": state.name})
        if urgent:
            self._queue.add(state.name)

    def on_changed(self, name: str, sections: frozenset[str], link: str) -> None:
        """Handle what a node's kernel told of ``sections``, and of a ``link`` that is gone; a watch's callback."""
        state = self._nodes.get(name)
        with self._lock:
            looks = state is not None and state.on_changed(sections, self._clock.monotonic(), link)
        if looks:
            self._queue.add(name)

    def on_outcome(self, outcome: Outcome) -> None:
        """Handle the end of an item; the runner's callback."""
        state = self._nodes.get(outcome.node)
        if state is None:
            return
        if outcome.status != "ok":
            log.warning("node %s: item %s %s: %s", outcome.node, outcome.id, outcome.status, outcome.message)
        with self._lock:
            # a node that left and came back has a new state, which must not confirm what was sent before
            if state.sent is None or state.sent.id != outcome.id:
                return
            self._metrics.of(outcome.node).on_outcome(outcome, self._clock.monotonic())
            if state.sent.facts:
                self._on_facts(state, outcome)
            else:
                now_s = self._clock.monotonic()
                state.dirty |= state.on_outcome(outcome, self._clock.now(), now_s, self._event_writer.happened)
                # a pod that is over leaves the API once its node has nothing of it, which any outcome may show
                state.dirty |= {uid for uid, decision in state.decisions.items() if decision.gone}
                if state.relist_wanted:
                    state.facts_wanted |= requesting.has_devices(self._shard.settings, state.name)
                    state.relist_wanted = not self._shard.gateway.send({"op": "relist", "node": state.name})
            drift = state.taken_drift()
            fenced = any(result.get("fenced") for result in outcome.sections.values())
            self._fenced = self._fenced or fenced
        if fenced:
            log.warning("node %s knows a newer token than %s; giving the shard up", outcome.node, self._token)
            self._on_fenced()
        for one in drift:
            self._metrics.of(outcome.node).on_drift(one.section, healed=one.healed, held=one.held)
        self._shard.drifts.tell(outcome.node, drift)
        self._queue.add(outcome.node)

    def _on_facts(self, state: NodeState, outcome: Outcome) -> None:
        state.sent = None
        if not requesting.take_facts(self._shard, state, outcome, self._clock.monotonic()):
            self._queue.add_after(state.name, requesting.FACTS_RETRY_S)

    def look_again(self, name: str, uids: Iterable[str]) -> None:
        """Decide again about pods of a node."""
        if name in self._nodes:
            self._changed.add(name, uids)
            self._queue.add(name)

    # deciding

    def _sync(self, name: str) -> None:
        state = self._nodes.get(name)
        if state is None:
            return  # it has left
        # claims are calls of the API: made without the lock, and followed by a decision that has the address
        while claims := self._decide(state):
            self._claim(state, claims)
        if (item := self._next_item(state)) is not None:
            self._shard.runner.submit(item)
        self._set_timer(state)

    def _set_timer(self, state: NodeState) -> None:
        """Come back when time alone changes something; what is not ready is woken by what it waits for."""
        with self._lock:
            if self._is_ready(state):
                requesting.tell_volumes(self._shard, state)
            if state.sent is None and self._can_send(state):
                delay_s = state.next_moment_s(self._clock.now(), self._clock.monotonic())
                self._queue.add_after(state.name, max(delay_s, _TIMER_FLOOR_S))

    def _is_ready(self, state: NodeState) -> bool:
        return state.known and state.alive and self._shard.objects.synced() and not self._fenced

    def _decide(self, state: NodeState) -> list[JsonObject]:
        """Decide about the pods that changed; return those that want an address."""
        node = self._shard.objects.node(state.name)
        with self._lock:
            if node is None or not self._is_ready(state):
                return []
            state.dirty |= self._changed.take(state.name)
            dirty, state.dirty = state.dirty | state.awake(self._clock.now()), set()
            if not state.decisions:
                dirty |= {objects.uid(pod) for pod in self._shard.objects.pods_of(state.name)}
            claims = [pod for uid in dirty if (pod := self._decide_or_leave(state, node, uid)) is not None]
            for uid in requesting.unused_addresses(self._shard, state):
                self._claimer.release_later(uid)
            return sorted(claims, key=by_age)

    def _decide_or_leave(self, state: NodeState, node: JsonObject, uid: str) -> JsonObject | None:
        """Decide about one pod; one that cannot be decided about must not hold up the others of its node."""
        try:
            return self._decide_one(state, node, uid)
        except Exception:
            log.exception("pod %s stays as it is: no decision", objects.key(self._shard.objects.pod(uid) or {}))
            requesting.note_unreadable(self._shard, state, uid)
            return None

    def _decide_one(self, state: NodeState, node: JsonObject, uid: str) -> JsonObject | None:
        """Decide about one pod; return it if it wants an address."""
        if (pod := self._shard.objects.pod(uid)) is None or objects.spec(pod).get("nodeName") != state.name:
            self._forget(state, uid)
            return None
        self._node_of[uid] = state.name
        self._metrics.of(state.name).on_pod(pod, self._clock.monotonic())
        self._shard.references.follow(pod)
        self._shard.tokens.follow(pod)
        if not self._shard.references.ready(uid):
            return None
        inputs = inputs_of(self._shard, state, node, pod, self._claimer.refusal(uid))
        if not self._shard.tokens.ready(pod):
            return pod if address_comes_first(pod, state.observed.pod(uid), inputs, self._clock.now()) else None
        decision = decide_pod(pod, state.observed.pod(uid), inputs, self._clock.now())
        requesting.take_decision(self._shard, state, pod, inputs, decision)
        self._event_writer.decided(pod, decision.events)
        sandbox = state.observed.pod(uid).sandbox
        state.checking.declare(self._shard.gateway, uid, sandbox.id if sandbox else "", decision.checks)
        for image in decision.pulls:
            given = credentials(pod, image, inputs.secrets)
            self._pulls.ask(state, uid, image, f"{state.name}-{self._token[1]}-p{next(self._ids)}", given)
        if decision.address_wanted and not self._claimer.refusal(uid):
            return pod  # the claim follows at once, and with it the next decision and its status
        self._shard.writer.enqueue(uid)
        return None

    def _forget(self, state: NodeState, uid: str) -> None:
        state.checking.forget(self._shard.gateway, uid)
        state.forget(uid)
        self._metrics.of(state.name).forget(uid)
        self._node_of.pop(uid, None)
        if self._pulls.forget(state, uid):
            self._queue.add(state.name)
        self._claimer.forget(uid)
        self._event_writer.forget(uid)
        self._shard.references.forget(uid)
        self._shard.tokens.forget(uid)
        self._shard.writer.enqueue(uid)

    def _claim(self, state: NodeState, pods: list[JsonObject]) -> None:
        cidr = str(objects.spec(self._shard.objects.node(state.name) or {}).get("podCIDR") or "")
        try:
            self._claimer.claim(pods, state.name, cidr)
        finally:
            with self._lock:
                state.dirty.update(objects.uid(pod) for pod in pods)

    def release_address(self, uid: str) -> None:
        """Give the pod's address back; raises as the API does."""
        self._claimer.release(uid)

    # acting

    def _next_item(self, state: NodeState) -> WorkItem | None:
        with self._lock:
            if state.sent is not None or self._fenced:
                return None
            node = self._shard.objects.node(state.name)
            requests: dict[str, Request] = {}
            if node is not None and self._can_send(state):
                requests = requesting.requests_of(self._shard, state, node, self._clock.monotonic())
            facts = state.facts_wanted and state.alive and self._clock.monotonic() >= state.facts_at_s
            if not requests and not facts:
                return None
            item_id = f"{state.name}-{self._token[1]}-{next(self._ids)}"
            self._metrics.of(state.name).on_sent(item_id, self._clock.monotonic())
            if requests:
                state.sent = Sent(item_id, requests)
                return requesting.item_of(item_id, state.name, self._token, requests)
            state.sent = Sent(item_id, {}, facts=True)
            return requesting.facts_item(item_id, state.name, self._shard.settings)

    def _can_send(self, state: NodeState) -> bool:
        known = self._shard.objects.node(state.name) is not None
        return known and self._is_ready(state) and requesting.all_decided(self._shard, state)

    # telling

    def view(self, uid: str) -> View | None:
        """Return what the status writer writes of."""
        if (pod := self._shard.objects.pod(uid)) is None:
            return None
        with self._lock:
            state = self._nodes.get(objects.spec(pod).get("nodeName") or "")
            return requesting.view_of(self._shard, state, pod) if state is not None else None

    def containers(self, name: str) -> list[ObservedContainer] | None:
        """Return all containers of ours that the node is known to have, None while that is not known."""
        state = self._nodes.get(name)
        with self._lock:
            return state.observed.containers() if state is not None and state.known else None

    def alive(self, name: str) -> bool | None:
        """Return whether the node answers, None while nobody has said."""
        state = self._nodes.get(name)
        return None if state is None or not state.known else state.alive

    def silence(self, name: str) -> str:
        """Return why a node does not answer, "" where it does or nobody has said."""
        state = self._nodes.get(name)
        return "" if state is None else state.silence

    def basis(self, name: str) -> Basis | None:
        """Return the node as a plan is made over it, None while it cannot be asked."""
        state, node = self._nodes.get(name), self._shard.objects.node(name)
        pods = tuple(self._shard.objects.pods_of(name))
        with self._lock:
            if state is None or node is None or not self._can_send(state):
                return None
            return requesting.basis_of(self._shard, state, node, pods)

"""Tokens of pods' service accounts: asked of the API server, bound to the pod, renewed in time.

One sync of a pod asks for every token it needs and does not have, or has had for 80 % of its life (24 h at most), as
kubelet does (pkg/kubelet/token). The old one stays until the new one is there, and on a refusal. Memory is a cache: a
restarted reconciler asks again. ``on_change(uids)`` names pods whose tokens changed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import POD, SERVICE_ACCOUNT
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock
from minik8s_modules.client.interface import Api
from minik8s_modules.reconcile.storage.projections import token_needs
from minik8s_modules.reconcile.values.values import TokenNeed, Tokens
from minik8s_modules.runtime.queue import WorkQueue
from minik8s_modules.runtime.workers import Workers

log = logging.getLogger(__name__)
RENEW_AT = 0.8
LONGEST_S = 24 * 3600.0
_WORKERS = 4


class Held(NamedTuple):
    """A token and when, in monotonic seconds, another one is asked for; times of servers do not matter then."""

    value: bytes
    renew_at_s: float

    def __repr__(self) -> str:
        """Return when it is renewed, not what it is."""
        return f"<token until {self.renew_at_s:.0f}>"


class TokenBook:
    """The tokens of the pods that are followed. Thread-safe."""

    def __init__(self, api: Api, on_change: Callable[[frozenset[str]], None], clock: Clock) -> None:
        self._api = api
        self._on_change = on_change
        self._clock = clock
        self._lock = threading.Lock()
        self._pods: dict[str, JsonObject] = {}
        self._held: dict[str, dict[TokenNeed, Held]] = {}
        self._refused: dict[str, dict[TokenNeed, str]] = {}
        self._queue: WorkQueue[str] = WorkQueue(clock)
        self._workers = Workers(self._queue, self.sync, "tokens", _WORKERS)

    def start(self) -> None:
        """Ask from now on."""
        self._workers.start()

    def stop(self) -> None:
        """Ask no more."""
        self._workers.stop()

    def follow(self, pod: JsonObject) -> None:
        """Keep tokens for the pod from now on; call it whenever the pod changes."""
        uid, needs = objects.uid(pod), token_needs(pod)
        with self._lock:
            known = uid in self._pods
            if needs:
                self._pods[uid] = pod
        if needs and not known:
            self._queue.add(uid)

    def forget(self, uid: str) -> None:
        """Keep no tokens for a pod that is gone."""
        with self._lock:
            for table in (self._pods, self._held, self._refused):
                table.pop(uid, None)

    def ready(self, pod: JsonObject) -> bool:
        """Return whether every token the pod needs is there or was refused."""
        tokens = self.of(objects.uid(pod))
        return token_needs(pod) <= tokens.values.keys() | tokens.errors.keys()

    def of(self, uid: str) -> Tokens:
        """Return the pod's tokens, and why others are missing."""
        with self._lock:
            held, refused = self._held.get(uid, {}), self._refused.get(uid, {})
            errors = {need: why for need, why in refused.items() if need not in held}
            return Tokens({need: each.value for need, each in held.items()}, errors)

    def sync(self, uid: str) -> None:
        """Ask for what the pod lacks; raises the last refusal, which brings the pod back later."""
        with self._lock:
            pod = self._pods.get(uid)
            held = dict(self._held.get(uid, {}))
        if pod is None:
            return
        now_s = self._clock.monotonic()
        due = [need for need in sorted(token_needs(pod)) if need not in held or held[need].renew_at_s <= now_s]
        failures = [failure for need in due if (failure := self._ask(uid, pod, need)) is not None]
        if due:
            self._on_change(frozenset({uid}))
        if failures:
            raise failures[-1]
        self._set_timer(uid)

    def _set_timer(self, uid: str) -> None:
        with self._lock:
            moments = [each.renew_at_s for each in self._held.get(uid, {}).values()]
        if moments:
            self._queue.add_after(uid, max(0.0, min(moments) - self._clock.monotonic()))

    def _ask(self, uid: str, pod: JsonObject, need: TokenNeed) -> Exception | None:
        asked_s = self._clock.monotonic()
        try:
            answer = self._api.create(SERVICE_ACCOUNT, _request(pod, need), subresource="token")
            token = str(answer["status"]["token"]).encode()
            lifetime_s = float(answer["spec"]["expirationSeconds"])
        except Exception as error:  # noqa: BLE001 - raised again by sync, once the pod was told
            why = str(error) if isinstance(error, StatusError) else f"{type(error).__name__}: {error}"
            with self._lock:
                self._refused.setdefault(uid, {})[need] = why
            return error
        with self._lock:
            if uid in self._pods:
                held = Held(token, asked_s + min(LONGEST_S, lifetime_s * RENEW_AT))
                self._held.setdefault(uid, {})[need] = held
                self._refused.pop(uid, None)
        return None


def _request(pod: JsonObject, need: TokenNeed) -> JsonObject:
    bound = {"apiVersion": "v1", "kind": POD.kind, "name": objects.name(pod), "uid": objects.uid(pod)}
    account = objects.spec(pod).get("serviceAccountName") or "default"
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {"name": account, "namespace": objects.namespace(pod)},
        "spec": {
            "audiences": [need.audience] if need.audience else [],
            "expirationSeconds": need.expiration_s,
            "boundObjectRef": bound,
        },
    }

"""Leader election on a Lease object, by client-go's rules (``tools/leaderelection/leaderelection.go``).

A candidate writes itself into the Lease when nobody holds it, or when the holder's last renewal, *seen on
our own clock*, is older than the lease's duration; compare-and-swap on resourceVersion decides between
candidates. The holder renews every 4 s, tries again every 2 s when it could not, and gives up leading 8 s after it
began to write its last renewal, also while an attempt is under way. Nobody else may take over before 11 s: in between,
nobody leads. A candidate looks again at the very moment the Lease runs out, so the successor of a machine without power
leads 7 to 14 s after its end.

Renewals were three quarters of an idle cluster's writes, and while nobody waits for the Lease nobody gains by
them: then all of these times but that between attempts are 8 s longer. Who waits says so by an annotation, which the
holder's next renewal runs into; it tries again at once. The annotation stays until the Lease is taken, be it by the
process that had it.

Two additions. A holder whose process is known to be dead (same boot, same pid namespace, no such process)
is replaced at once, so that a killed daemon's successor on the same machine need not wait until the Lease runs out. And
whoever takes the Lease gets a fencing token: the cluster epoch and the resourceVersion of the update that took it.
A holder that sees another epoch (a snapshot was restored) stands for election again, for a token of that epoch.
"""

from __future__ import annotations

import logging
import math
import random as random_module
import threading
from collections.abc import Callable, Mapping
from datetime import UTC
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict, Forbidden, NotFound, StatusError
from minik8s_modules.api.kinds import CONFIG_MAP, LEASE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock, SystemClock, rfc3339_micro
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.interface import Api
from minik8s_modules.runtime.identity import holder_is_dead, process_identity

log = logging.getLogger(__name__)

WAITS = "minik8s.io/waits"
"""Annotation of a Lease: the identity of a candidate, if there is any."""
ASKS_AGAIN_S = 60.0
"""Seconds after a candidate was refused that: API servers that do not know the annotation yet take it from few."""
EPOCH_CONFIG_MAP = ("kube-system", "minik8s-cluster", "epoch")


class Timings(NamedTuple):
    """Seconds; component-base's 15, 10 and 2, a little shorter: the cluster decides nothing while nobody leads."""

    lease_s: int = 11
    renew_deadline_s: float = 8.0
    retry_s: float = 2.0
    unwatched_s: float = 0.0

    @property
    def renew_s(self) -> float:
        """After a renewal; the next attempts would come too late with less than two in ``renew_deadline_s``."""
        return 2 * self.retry_s + self.unwatched_s

    def unwatched(self) -> Timings:
        """Return those of a Lease that nobody waits for."""
        longer_s = 4 * self.retry_s
        lease_s = math.ceil(self.lease_s + longer_s)
        return Timings(lease_s, self.renew_deadline_s + longer_s, self.retry_s, longer_s)


class Token(NamedTuple):
    """Fencing token: the cluster's epoch, then the resourceVersion of the update that took the Lease."""

    epoch: int
    revision: int


class _Observed(NamedTuple):
    spec: JsonObject
    at: float


def lease_is_free(spec: Mapping[str, Any], unchanged_s: float, own_identity: str) -> bool:
    """Return whether a candidate may take a Lease whose spec has not changed for ``unchanged_s`` seconds."""
    holder = spec.get("holderIdentity") or ""
    if not holder or holder == own_identity or holder_is_dead(holder):
        return True
    return unchanged_s >= float(spec.get("leaseDurationSeconds") or 0)


def next_spec(old: Mapping[str, Any], identity: str, now: str, lease_s: int) -> JsonObject:
    """Return the Lease spec with which ``identity`` takes or renews it at ``now`` (RFC 3339)."""
    renewing = old.get("holderIdentity") == identity
    transitions = int(old.get("leaseTransitions") or 0)
    return {
        "holderIdentity": identity,
        "leaseDurationSeconds": lease_s,
        "acquireTime": old.get("acquireTime", now) if renewing else now,
        "renewTime": now,
        "leaseTransitions": transitions if renewing or not old else transitions + 1,
    }


def _released(lease: JsonObject) -> JsonObject:
    # no holder is a missing field: the API refuses an empty one (coordination/validation)
    spec = {key: value for key, value in lease["spec"].items() if key != "holderIdentity"}
    return {**lease, "spec": {**spec, "leaseDurationSeconds": 1}}


class LeaderElector:
    """Holds one Lease while it can.

    Args:
        client: an ``ApiClient``.
        lease_name: the Lease in ``namespace``.
        identity: unique for this process; default ``process_identity()``.
        annotations: put on the Lease while holding it, such as ``minik8s.io/plan-endpoint``.
        fenced: read the cluster epoch for the token; without it the token's epoch is 0.
    """

    def __init__(
        self,
        client: Api,
        lease_name: str,
        *,
        namespace: str = "kube-system",
        identity: str = "",
        annotations: Mapping[str, str] | None = None,
        fenced: bool = False,
        timings: Timings | None = None,
        clock: Clock | None = None,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        self._client = client
        self._name = lease_name
        self._namespace = namespace
        self._identity = identity or process_identity()
        self._annotations = dict(annotations or {})
        self._fenced = fenced
        self._timings = self._in_force = timings or Timings()
        self._clock = clock or SystemClock()
        self._random = random
        self._observed = _Observed({}, self._clock.monotonic())
        self._lease: JsonObject | None = None
        self._refused_until = -math.inf

    def run(self, stop: threading.Event, lead: Callable[[Token, threading.Event], None]) -> None:
        """Wait for the Lease, call ``lead(token, lost)``, and start over, until ``stop`` is set.

        ``lead`` runs in this thread and must return soon after ``lost`` is set: the Lease could not be
        renewed in time, the epoch is another one, or ``stop`` was set. Then the Lease is released.
        """
        while not stop.is_set():
            token = self.acquire(stop)
            if token is None:
                return
            log.info("leading %s with token %s", self._name, tuple(token))
            lost = threading.Event()
            renewer = threading.Thread(
                target=self._renew_until, args=(token, stop, lost), name=f"lease-{self._name}", daemon=True
            )
            renewer.start()
            try:
                lead(token, lost)
            finally:
                lost.set()
                renewer.join()
                self.release()

    def acquire(self, stop: threading.Event) -> Token | None:
        """Return the token once the Lease is ours; None when ``stop`` was set before."""
        while not stop.is_set():
            try:
                if self.try_acquire_or_renew():
                    token = self._token()
                    if self._left_s() > 0:
                        return token
                    log.info("lease %s was taken so slowly that its time to lead is over", self._name)
                    self.release()
            except (TemporaryError, StatusError) as error:
                log.info("cannot take lease %s: %s", self._name, error)
            self._clock.wait(stop, self._pause_s())
        return None

    def _left_s(self) -> float:
        """Return for how long the latest renewal lets its writer lead; what asked for it may have taken longer."""
        return self._observed.at + self._in_force.renew_deadline_s - self._clock.monotonic()

    def _pause_s(self) -> float:
        """Return when to try again: in a while, but not later than the Lease seen last runs out."""
        pause_s = self._timings.retry_s * (1.0 + 0.2 * self._random())
        left_s = float(self._observed.spec.get("leaseDurationSeconds") or 0) - (
            self._clock.monotonic() - self._observed.at
        )
        return min(pause_s, left_s) if left_s > 0 else pause_s

    def try_acquire_or_renew(self, *, waits: bool = True) -> bool:
        """Make one attempt; return whether the Lease is ours. One that ``waits`` says so in somebody else's.

        Raises:
            StatusError: the API refused, for example with a Conflict when another candidate was faster.
            ApiUnreachable: no answer.
        """
        lease = self._read()
        spec = (lease or {}).get("spec") or {}
        if spec != self._observed.spec:
            self._observed = _Observed(spec, self._clock.monotonic())
        if not lease_is_free(spec, self._clock.monotonic() - self._observed.at, self._identity):
            self._lease = None
            if waits:
                self._wait_visibly(lease or {})
            return False
        now = rfc3339_micro(self._clock.now().astimezone(UTC))
        renews = spec.get("holderIdentity") == self._identity
        is_unwatched = renews and WAITS not in objects.annotations(lease or {})
        timings = self._timings.unwatched() if is_unwatched else self._timings
        self._write(lease, next_spec(spec, self._identity, now, timings.lease_s), renews=renews)
        self._in_force = timings
        return True

    def _wait_visibly(self, lease: JsonObject) -> None:
        """Write into somebody else's Lease that it is waited for; if that fails, a later attempt does."""
        annotations = objects.annotations(lease)
        if WAITS in annotations or self._clock.monotonic() < self._refused_until:
            return
        metadata = {**lease["metadata"], "annotations": {**annotations, WAITS: self._identity}}
        try:
            self._client.update(LEASE, {**lease, "metadata": metadata})
        except Forbidden as error:
            log.info("lease %s cannot say that it is waited for: %s", self._name, error)
            self._refused_until = self._clock.monotonic() + ASKS_AGAIN_S
        except (TemporaryError, StatusError) as error:
            log.debug("lease %s does not say yet that it is waited for: %s", self._name, error)

    def release(self) -> None:
        """Give the Lease back if it is ours, so that a successor need not wait; an error is only logged."""
        lease, self._lease = self._lease, None
        try:
            try:
                # after a renewal that failed, nobody knows whose it is
                self._give_back(lease or self._client.get(LEASE, self._name, self._namespace))
            except Conflict:  # a candidate may just have written that it waits
                self._give_back(self._client.get(LEASE, self._name, self._namespace))
        except (TemporaryError, StatusError) as error:
            log.info("lease %s was not released: %s", self._name, error)

    def _give_back(self, lease: JsonObject) -> None:
        if objects.spec(lease).get("holderIdentity") == self._identity:
            self._client.update(LEASE, _released(lease))

    def _read(self) -> JsonObject | None:
        if self._lease is not None:
            # the holder writes on top of what it wrote last; a Conflict tells that somebody else did
            return self._lease
        try:
            return self._client.get(LEASE, self._name, self._namespace)
        except NotFound:
            return None

    def _write(self, lease: JsonObject | None, spec: JsonObject, *, renews: bool) -> None:
        base = lease or {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
        }
        metadata = dict(base["metadata"])
        annotations = {**objects.annotations(base), **self._annotations}
        if not renews:
            annotations.pop(WAITS, None)
        if annotations or "annotations" in metadata:
            metadata["annotations"] = annotations
        self._lease, began = None, self._clock.monotonic()
        call = self._client.create if lease is None else self._client.update
        self._lease = call(LEASE, {**base, "metadata": metadata, "spec": spec})
        # others may have seen it since then, however late the answer comes
        self._observed = _Observed(self._lease.get("spec") or {}, began)

    def _token(self) -> Token:
        if self._lease is None:
            raise TemporaryError(f"lease {self._name} was lost before its token was read")
        revision = int(self._lease["metadata"]["resourceVersion"])
        try:
            return Token(read_epoch(self._client) if self._fenced else 0, revision)
        except (TemporaryError, StatusError):
            self.release()
            raise

    def _renew(self, token: Token) -> bool:
        """Return whether the Lease is still ours, and its token still the cluster's; raises as the API does."""
        try:
            held = self.try_acquire_or_renew(waits=False)
        except Conflict:  # as a rule, a candidate has written that it waits
            held = self.try_acquire_or_renew(waits=False)
        if not held:
            return False
        # read after the renewal: its answer shows that the API server has reached the store we look at
        return not self._fenced or read_epoch(self._client) == token.epoch

    def _renew_until(self, token: Token, stop: threading.Event, lost: threading.Event) -> None:
        renewed = self._observed.at
        next_at = renewed + self._in_force.renew_s
        try:
            while not lost.is_set():
                deadline = renewed + self._in_force.renew_deadline_s
                self._clock.wait(stop, max(0.0, min(next_at, deadline) - self._clock.monotonic()))
                if stop.is_set() or lost.is_set():
                    return
                left_s = deadline - self._clock.monotonic()
                held = self._renew_within(left_s, token, lost) if left_s > 0 else False
                if held:
                    renewed = self._observed.at
                    next_at = renewed + self._in_force.renew_s
                elif held is None:
                    next_at = self._clock.monotonic() + self._in_force.retry_s
                else:
                    self._lose(lost)
        finally:
            lost.set()

    def _renew_within(self, left_s: float, token: Token, lost: threading.Event) -> bool | None:
        """Return whether the Lease is still ours, None if unknown; ``lost`` is set if that takes ``left_s`` seconds."""
        deadline = threading.Timer(left_s, self._lose, (lost,))
        deadline.start()
        try:
            return self._renew(token)
        except (TemporaryError, StatusError) as error:
            log.info("lease %s was not renewed: %s", self._name, error)
            return None
        finally:
            deadline.cancel()

    def _lose(self, lost: threading.Event) -> None:
        if not lost.is_set():
            log.warning("lost lease %s", self._name)
            lost.set()


def read_epoch(client: Api) -> int:
    """Return the cluster epoch.

    Raises:
        NotFound: the API server has not written it yet.
        TemporaryError: it is not a number.
    """
    namespace, name, key = EPOCH_CONFIG_MAP
    data = client.get(CONFIG_MAP, name, namespace).get("data") or {}
    try:
        return int(data.get(key, ""))
    except ValueError as error:
        raise TemporaryError(f"ConfigMap {namespace}/{name}: {key} is not a number: {data.get(key)!r}") from error

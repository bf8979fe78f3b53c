"""What every handler works with: the store, the watch cache, the clock, randomness; and the two ways to read.

Lists and gets are answered by the watch cache. A write waits until the cache shows it, so whoever has had an
answer finds its effect in the next read from this server. With several API servers a read may be behind
another server's latest write by the few milliseconds etcd's watch takes; a client that must not be behind
names a resourceVersion. No worker of a server is behind another one's writes (board.py). Compare-and-swap goes to
the store itself, so no write is ever built on something old.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from minik8s_modules.api.errors import NotFound, ServiceUnavailable, StatusError, Timeout
from minik8s_modules.api.kind import Kinds
from minik8s_modules.api.kinds import KINDS
from minik8s_modules.api.network.service_ranges import Network
from minik8s_modules.apiserver.http.addressing import UNKNOWN, Addressing
from minik8s_modules.apiserver.http.board import Place
from minik8s_modules.apiserver.http.quota_ledger import QuotaLedger
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.policies.calls import Policies
from minik8s_modules.apiserver.webhooks.calls import Webhooks
from minik8s_modules.base.clock import Clock
from minik8s_modules.base.ids import random_uid, random_word
from minik8s_modules.base.metrics import Registry
from minik8s_modules.store.cache import WatchCache
from minik8s_modules.store.cached import CachedObject
from minik8s_modules.store.encoding import with_revision
from minik8s_modules.store.interface import Store

log = logging.getLogger(__name__)

DEFAULT_SERVICE_CIDR = ipaddress.IPv4Network("100.0.0.0/24")

# how long a write's answer waits for the cache; the write itself has happened
SETTLE_S = 5.0
# how long a read waits for a revision the cache has not reached (kube-apiserver's blockTimeout is 3 s)
FRESH_S = 3.0
# Kubernetes' alphabet of generated names: no vowels, nothing that looks like another (util/rand)
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def random_suffix() -> str:
    """Return five random characters for generateName."""
    return random_word(_SUFFIX_ALPHABET, 5)


@dataclass(frozen=True)
class Backend:
    """See the module's docstring."""

    store: Store
    cache: WatchCache
    clock: Clock
    metrics: Registry = field(default_factory=Registry)
    service_cidr: Network = DEFAULT_SERVICE_CIDR
    service_cidr_ipv6: ipaddress.IPv6Network | None = None
    """The range of Services' IPv6 addresses; None: they have none."""
    new_uid: Callable[[], str] = random_uid
    new_suffix: Callable[[], str] = random_suffix
    quotas: QuotaLedger = field(default_factory=QuotaLedger)
    webhooks: Webhooks = field(default_factory=Webhooks)
    kinds: Kinds = field(default_factory=lambda: Kinds(KINDS))
    policies: Policies = field(default_factory=Policies)
    mesh: bool = False
    """Whether nodes have the image of sidecars, and somebody tells them where requests go."""
    dual_stack: bool = False
    """Whether Pods have IPv6 addresses."""
    external_ips: bool = False
    """Whether Services may name addresses of others."""
    name_server: str = ""
    """The address of the cluster's DNS, which no Service may name."""
    addressing: Addressing = UNKNOWN
    """The ranges of Pods and the pool, which nodes' addresses go by."""
    refuse_taken_hosts: bool = False
    """Whether a new Ingress may not ask for a host or path that an Ingress of another namespace has."""
    place: Place | None = None
    """Where this worker's is one of several."""

    def get(self, target: Target) -> CachedObject:
        """Return the object as the cache has it. Raises NotFound."""
        found = self.cache.get(target.kind.key(target.namespace, target.name))
        if found is None:
            raise NotFound(target.kind, target.name)
        return found

    def latest(self, target: Target) -> CachedObject:
        """Return the object as the store has it. Raises NotFound."""
        entry = self.store.get(target.kind.key(target.namespace, target.name))
        if entry is None:
            raise NotFound(target.kind, target.name)
        data, parsed = with_revision(entry.value, entry.revision, entry.key)
        return CachedObject(entry.key, data, entry.revision, parsed["metadata"].get("labels") or {})

    def settle(self, revision: int) -> None:
        """Wait until reads show ``revision``; gives up with a log line, for the write has happened."""
        self._tell(revision)
        if not self.cache.settle(revision, SETTLE_S):
            log.warning("the watch cache has not reached revision %d within %.0f s", revision, SETTLE_S)

    def wrote(self, item: CachedObject, *, removed: bool = False) -> None:
        """Have reads show a write that changed nothing but ``item`` (what it was, if ``removed``); as ``settle``."""
        self._tell(item.revision)
        if not self.cache.wrote(item.key, None if removed else item, item.revision, SETTLE_S):
            log.warning("the watch cache has not reached revision %d within %.0f s", item.revision, SETTLE_S)

    def _tell(self, revision: int) -> None:
        if self.place is not None:
            self.place.tell(revision)

    def catch_up(self) -> None:
        """Wait until reads show what any worker of this server has written and told a client of.

        Raises:
            Timeout: they do not.
        """
        revision = self.place.told() if self.place is not None else 0
        if revision <= self.cache.revision or not self.cache.ready() or self.cache.wait_for(revision, FRESH_S):
            return
        if self.place is not None and self.store.revision() < revision:
            self.place.forget()
            return
        raise Timeout(f"the latest write, revision {revision}, is not known here yet; try again", retry_after_s=1)

    def freshen(self, revision: int) -> None:
        """Wait until the cache shows at least ``revision``.

        Raises:
            Timeout: it does not come; the message and cause are those client-go recognizes.
        """
        if self.cache.wait_for(revision, FRESH_S):
            return
        text = f"Too large resource version: {revision}, current: {self.cache.revision}"
        error = Timeout(text, retry_after_s=1)
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        error.details["causes"] = [cause]
        raise error


def unavailable(error: Exception) -> StatusError:
    """Return the 503 for a store that does not answer."""
    return ServiceUnavailable(
        f"the store cannot be reached, so the outcome is unknown: {error}", {"retryAfterSeconds": 1}
    )

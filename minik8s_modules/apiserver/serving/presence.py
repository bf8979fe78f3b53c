"""Which API servers there are: a Lease each, and the Endpoints of ``default/kubernetes``, made of the Leases.

Every server renews ``kube-system/apiserver-<its address>`` (where it has several workers, each worker one that ends in
``-<its number>``; an IPv6 address stands there in full, with hyphens for the colons that no name has), and each takes
away a Lease that it has not seen renewed for ``LIFE_S`` by its own clock: the rule of kube-apiserver's lease
reconciler, with a Lease object in the place of an etcd lease. The endpoints are the addresses of all Leases, so servers
never disagree for longer than a look. A server that could not look for a while (frozen, etcd away) begins to count
again, else it would take the living away. A lone server of one worker does both half as often: who comes counts from
its own first look, and the lone one's next look sees it.
"""

from __future__ import annotations

import ipaddress
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict, NotFound, StatusError
from minik8s_modules.api.kinds import ENDPOINT_SLICE, ENDPOINTS, LEASE
from minik8s_modules.api.network.surroundings import family_of
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.board import Place
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.settings import Settings
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.serving.startup import RequiredObject, ensure
from minik8s_modules.apiserver.verbs import deleting, writing
from minik8s_modules.base.backoff import Backoff
from minik8s_modules.base.clock import rfc3339_micro
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.store.cached import CachedObject

log = logging.getLogger(__name__)

NAMESPACE = "kube-system"
LABEL = ("apiserver.kubernetes.io/identity", "kube-apiserver")
PREFIX = "apiserver-"
LOOK_S = 2.5
RENEW_S = 5.0
# a lone server of one worker, whose silence nobody counts, does both as much more seldom; of several, each has a Lease,
# and counts the others' silence
ALONE = 2
# masterLeases' TTL in Kubernetes (DefaultEndpointReconcilerTTL)
LIFE_S = 15
# looks further apart than this have missed renewals
GAP_S = 8.0
# of an IPv6 address in full
_GROUPS = 8
RETRY = Backoff(initial_s=0.2, maximum_s=LOOK_S)


class _Seen(NamedTuple):
    renewal: str
    at_s: float


class Roll:
    """What one server has seen of the Leases of all; pure but for its memory."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._looked_s = float("-inf")

    def silent(self, renewals: Mapping[str, str], now_s: float) -> list[str]:
        """Return the names whose renewal has been the same at every look for ``LIFE_S`` seconds."""
        known = self._seen if now_s - self._looked_s <= GAP_S else {}
        self._looked_s = now_s
        self._seen = {}
        for name, renewal in renewals.items():
            before = known.get(name)
            self._seen[name] = before if before and before.renewal == renewal else _Seen(renewal, now_s)
        return sorted(name for name, seen in self._seen.items() if now_s - seen.at_s >= LIFE_S)


def endpoints(addresses: Iterable[str], port: int) -> Iterator[RequiredObject]:
    """Yield the Endpoints and the EndpointSlice of ``default/kubernetes``; all addresses are of one family."""
    found = sorted(set(addresses))
    ports = [{"name": "https", "protocol": "TCP", "port": port}]
    subsets = [{"addresses": [{"ip": address} for address in found], "ports": ports}]
    # its slice stands below and is not to be made a second time
    unmirrored = {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}
    yield RequiredObject(ENDPOINTS, "default", "kubernetes", {"metadata": unmirrored, "subsets": subsets}, keep=True)
    content = {
        "metadata": {"labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": family_of(found[0]),
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}} for address in found],
        "ports": ports,
    }
    yield RequiredObject(ENDPOINT_SLICE, "default", "kubernetes", content, keep=True)


def identity(settings: Settings, place: Place | None) -> str:
    """Return what a server is called among all: its address, with the number of one of several workers."""
    own = ipaddress.ip_address(settings.advertise_address)
    called = own.exploded.replace(":", "-")
    return called + (f"-{place.number}" if place is not None else "")


def address_in(called: str) -> str:
    """Return the address of a server that is called so (``identity``); "" where none is, as in another's Lease."""
    parts = called.split("-")
    try:
        return str(ipaddress.ip_address(":".join(parts[:_GROUPS]) if len(parts) >= _GROUPS else parts[0]))
    except ValueError:
        return ""


class Presence:
    """Tells the cluster of this server until ``stop``, and of another's end."""

    def __init__(self, backend: Backend, settings: Settings) -> None:
        self._backend = backend
        self._port = settings.port
        self._own = PREFIX + identity(settings, backend.place)
        self._roll = Roll()
        self._renewed_s = float("-inf")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="presence", daemon=True)
        self.done = False

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; where other servers go on, this one's address is taken away."""
        self._stop.set()
        self._thread.join(timeout=RENEW_S)
        try:
            if self.done and len(self._leases()) > 1:
                self._take_away(self._own)
                self._tell()
        except (TemporaryError, StatusError) as error:
            log.info("the other servers will have to notice that this server has ended: %s", error)

    def look(self) -> float:
        """Renew the own Lease when it is time, take silent ones away, put the endpoints right.

        Returns:
            After how many seconds to look again.
        """
        now_s = self._backend.clock.monotonic()
        leases = self._leases()
        times = ALONE if [*leases] == [self._own] else 1
        if now_s - self._renewed_s >= times * RENEW_S or self._own not in leases:
            self._renew()
            self._renewed_s = now_s
            leases = self._leases()
        renewals = {name: str(objects.dig(item.object, "spec", "renewTime")) for name, item in leases.items()}
        for name in self._roll.silent(renewals, now_s):
            if name != self._own:
                log.warning("%s has not renewed its Lease for %d s: it is no longer an endpoint", name, LIFE_S)
                self._take_away(name)
        self._tell()
        return times * LOOK_S

    def _leases(self) -> dict[str, CachedObject]:
        found = self._backend.cache.list(f"{LEASE.prefix}{NAMESPACE}/").items
        return {objects.name(item.object): item for item in found if item.labels.get(LABEL[0]) == LABEL[1]}

    def _tell(self) -> None:
        addresses = [*filter(None, (address_in(name.removeprefix(PREFIX)) for name in self._leases()))]
        if not addresses:  # two that end at the same time take both away
            return
        for wanted in endpoints(addresses, self._port):
            ensure(self._backend, wanted)

    def _renew(self) -> None:
        now = rfc3339_micro(self._backend.clock.now())
        spec = {"holderIdentity": self._own, "leaseDurationSeconds": LIFE_S, "renewTime": now}
        target = Target(LEASE, NAMESPACE, self._own)

        def renewed(old: JsonObject) -> JsonObject:
            return {**old, "spec": {**(old.get("spec") or {}), **spec}}

        try:
            writing.change(self._backend, target, renewed, _options())
        except NotFound:
            obj: JsonObject = {
                "metadata": {"name": self._own, "labels": dict([LABEL])},
                "spec": {**spec, "acquireTime": now},
            }
            writing.create(self._backend, Target(LEASE, NAMESPACE), obj, _options())

    def _take_away(self, name: str) -> None:
        item = self._leases().get(name)
        if item is None:
            return
        unchanged = {"preconditions": {"resourceVersion": str(item.revision)}}
        try:
            deleting.delete(self._backend, Target(LEASE, NAMESPACE, name), unchanged, _options())
        except (NotFound, Conflict) as error:
            log.debug("lease %s: %s", name, error)

    def _run(self) -> None:
        failures, wait_s = 0, LOOK_S
        self._backend.cache.wait_ready(LOOK_S)
        while not self._stop.is_set():
            try:
                wait_s = self.look()
                self.done, failures = True, 0
            except (TemporaryError, StatusError) as error:
                failures += 1
                log.log(
                    logging.WARNING if self.done else logging.DEBUG,
                    "the presence Lease cannot be renewed yet: %s",
                    error,
                )
            except Exception:  # a loop's edge: the next round tries again
                failures += 1
                log.exception("the presence Lease could not be written")
            self._stop.wait(RETRY.delay_s(failures) or wait_s)


def _options() -> Options:
    return Options(dry_run=False, validation="Strict", warnings=[])

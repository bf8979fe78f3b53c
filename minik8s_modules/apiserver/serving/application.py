"""The WSGI application: puts the rooms together, and has what runs beside the requests; made in gunicorn's worker."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from minik8s_modules.apiserver.access.bootstrap_tokens import NewcomerAuthorizer, bootstrap_user
from minik8s_modules.apiserver.access.carriers import CarrierAuthorizer
from minik8s_modules.apiserver.access.gateway_secrets import GatewaySecrets
from minik8s_modules.apiserver.access.node_access import NodeAuthorizer
from minik8s_modules.apiserver.access.priority import Priority
from minik8s_modules.apiserver.access.tokens import TokenAuthenticator, Tokens
from minik8s_modules.apiserver.aggregation.directory import Directory
from minik8s_modules.apiserver.aggregation.extensions import Extensions
from minik8s_modules.apiserver.aggregation.forwarding import Aggregation
from minik8s_modules.apiserver.aggregation.keeping import Keeping
from minik8s_modules.apiserver.audit.audit_files import LogFile
from minik8s_modules.apiserver.audit.audit_log import AuditLog
from minik8s_modules.apiserver.audit.auditing import recording
from minik8s_modules.apiserver.authorization.authorization import Access
from minik8s_modules.apiserver.authorization.identity import certificate_user
from minik8s_modules.apiserver.authorization.policy import Rbac
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.board import Place
from minik8s_modules.apiserver.http.keyfiles import KeyFiles
from minik8s_modules.apiserver.http.settings import Settings
from minik8s_modules.apiserver.intake.limits import Admission
from minik8s_modules.apiserver.nodes.gateways import TlsGateways
from minik8s_modules.apiserver.nodes.kubelet_hosts import KubeletHosts
from minik8s_modules.apiserver.nodes.kubelets import Own, TlsKubelets
from minik8s_modules.apiserver.nodes.reconcilers import HttpsReconcilers
from minik8s_modules.apiserver.nodes.streams import Streams
from minik8s_modules.apiserver.nodes.tunnels import Tunnels
from minik8s_modules.apiserver.nodes.webhook_routes import Routes
from minik8s_modules.apiserver.policies.calls import Policies
from minik8s_modules.apiserver.reads.hub import Hub
from minik8s_modules.apiserver.serving.app import make_app
from minik8s_modules.apiserver.serving.definitions import Definitions
from minik8s_modules.apiserver.serving.figures import of_all
from minik8s_modules.apiserver.serving.health import Check
from minik8s_modules.apiserver.serving.metered import MeteredStore
from minik8s_modules.apiserver.serving.policy_status import PolicyStatus
from minik8s_modules.apiserver.serving.presence import Presence, identity
from minik8s_modules.apiserver.serving.quick import Quick
from minik8s_modules.apiserver.serving.resources import Services
from minik8s_modules.apiserver.serving.startup import Startup
from minik8s_modules.apiserver.serving.workers import FIGURES, READY, Workers, failure, readiness
from minik8s_modules.apiserver.verbs.collecting_access import CollectingAuthorizer
from minik8s_modules.apiserver.webhooks.calls import Webhooks
from minik8s_modules.apiserver.webhooks.transport import Transport
from minik8s_modules.base import heap
from minik8s_modules.base.clock import Clock, SystemClock
from minik8s_modules.base.metrics import Registry
from minik8s_modules.base.places import place as place_of
from minik8s_modules.store.at_rest.encryption import EncryptedStore
from minik8s_modules.store.at_rest.keyring import KeyRing
from minik8s_modules.store.cache import HISTORY, WatchCache
from minik8s_modules.store.compaction import Compactor
from minik8s_modules.store.errors import StoreUnavailable
from minik8s_modules.store.etcd import EtcdStore
from minik8s_modules.store.interface import Store
from minik8s_modules.store.wire.connection import Tls

log = logging.getLogger(__name__)
LOADS_S = 5.0  # a cache of 50,000 Pods loads in half of that; longer, or without etcd, requests are told to try again
LOOK_S = 0.02
SETTLED_S = 10.0  # by then what a server holds from its start on is there
BEGINS_S = 60.0  # so long a worker waits for those that never took a connection; gunicorn replaces them then


class Application:
    """The WSGI application with everything that lives beside it in the worker; ``close`` ends it."""

    def __init__(self, configured: Settings, place: Place | None = None) -> None:
        metrics = Registry().of_process()
        self.admission = Admission(configured.limits, metrics)
        files = configured.etcd_tls
        tls = Tls(files.ca, files.cert, files.key) if files else None
        self._store = MeteredStore(_encrypted(EtcdStore(configured.etcd_endpoints, tls), configured), metrics)
        self._cache = WatchCache(self._store, history=HISTORY)
        clock = SystemClock()
        gateways = TlsGateways(configured.reconciler_client) if configured.reconciler_client else None
        routes = Routes(self._cache, gateways)
        self._backend = _backend(self._store, self._cache, clock, metrics, routes, configured, place)
        self._hub = Hub(clock, self._cache, self.admission)
        self._tunnels = Tunnels(clock, self.admission)
        self._startup = Startup(self._backend, configured)
        self._presence = Presence(self._backend, configured)
        self._definitions = Definitions(self._backend, self._hub, identity(configured, place))
        directory = Directory(self._cache)
        self._extensions = Extensions(self._cache, routes.connect, configured.front_proxy)
        self._keeping = Keeping(self._backend, directory, self._extensions, identity(configured, place))
        aggregation = Aggregation(directory, self._keeping, self._extensions, self._tunnels)
        self._policies = PolicyStatus(self._backend)
        self._stop = threading.Event()
        self._compaction = threading.Thread(
            target=Compactor(self._store).run, args=(self._stop,), name="compaction", daemon=True
        )
        metrics.gauge("apiserver_watches", "Open watches.", ("resource",), self._watches)
        metrics.gauge("apiserver_streams", "Open streams.", (), lambda: {(): float(self._tunnels.count())})
        tokens = _tokens(self._backend, configured)
        kubelets = TlsKubelets(configured.reconciler_client, _own(configured)) if configured.reconciler_client else None
        streams = Streams(self._tunnels, gateways, kubelets)
        priority = Priority(configured.threads, metrics, configured.workers)
        self._place, self._expected, self._began_s = place, configured.workers, float("inf")
        self._own_checks = self._ready_checks()
        self._workers = Workers(place, {FIGURES: metrics.families, READY: readiness(self._own_checks)})
        services = Services(
            self._backend,
            self._hub,
            _access(self._cache),
            _reconcilers(configured),
            tokens,
            streams,
            priority,
            aggregation,
            partial(of_all, place, self._workers, metrics),
        )
        authenticate = TokenAuthenticator(certificate_user, tokens, partial(bootstrap_user, self._backend))
        address = f"https://{place_of(configured.advertise_address, configured.port)}"
        self._audit = _audit_log(configured, metrics, clock)
        record = recording(self._audit, clock, self._backend.kinds) if self._audit is not None else None
        app = make_app(services, authenticate, self._checks(), address, record)
        self._answering = KubeletHosts(app, self._cache, configured.kubelet_port)
        quick = Quick(self._backend, directory, services.access, configured.kubelet_port)
        self.is_quick, self.is_short_write = quick.read, quick.write

    def start(self) -> None:
        """Start the threads, and give the cache time to load: until then, who connects waits and is not refused."""
        end_s = time.monotonic() + LOADS_S
        self._cache.start()
        self._hub.start()
        self._tunnels.start()
        self._startup.start()
        self._presence.start()
        self._definitions.start()
        self._extensions.start()
        self._keeping.start()
        self._policies.start()
        self._compaction.start()
        if self._audit is not None:
            self._audit.start()
        self._workers.start()
        self._cache.wait_ready(LOADS_S)
        if self._place is not None:
            self._wait_until_ready(end_s)
            self._place.begin()
        self._began_s = time.monotonic()
        settled = threading.Timer(SETTLED_S, heap.use_huge_pages)
        settled.daemon = True
        settled.start()

    def _wait_until_ready(self, end_s: float) -> None:
        """Leave connections to the other workers until then: those would have said that the server is ready."""
        while time.monotonic() < end_s and any(check() for check in self._own_checks.values()):
            time.sleep(LOOK_S)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        """Answer a request."""
        return self._answering(environ, start_response)

    def close(self) -> None:
        """End all watches and threads."""
        if self._place is not None:
            self._place.end()
        self._stop.set()
        self._keeping.stop()
        self._extensions.stop()
        self._policies.stop()
        self._definitions.stop()
        self._presence.stop()
        self._hub.stop()
        self._tunnels.stop()
        self._startup.stop()
        self._backend.webhooks.close()
        self._cache.stop()
        self._store.close()
        if self._audit is not None:
            self._audit.stop()

    def _watches(self) -> dict[tuple[str, ...], float]:
        return {(resource,): float(count) for resource, count in self._hub.counts().items()}

    def _live_checks(self) -> dict[str, Check]:
        ping: Check = lambda: ""  # noqa: E731 - a check that holds whenever somebody answers
        live: dict[str, Check] = {"ping": ping, "watch-hub": self._hub.failure, "streams": self._tunnels.failure}
        return {**live, "extensions": self._extensions.failure}

    def _ready_checks(self) -> dict[str, Check]:
        """Return what is looked at in this worker; etcd is the same for all."""
        return {
            **self._live_checks(),
            "watch-cache": lambda: "" if self._cache.ready() else "not loaded from etcd yet",
            "startup-objects": lambda: "" if self._startup.done and self._presence.done else "not all made yet",
            "autoregister-completion": lambda: "" if self._keeping.done else "not all made yet",
            "custom-kinds": lambda: "" if self._definitions.done else "not taken over yet",
        }

    def _checks(self) -> dict[str, dict[str, Check]]:
        live = self._live_checks()
        ready = {**live, "etcd": self._etcd_failure, **self._own_checks}
        if self._place is not None:
            ready["workers"] = partial(self._others_failure, self._place)
        return {"livez": live, "readyz": ready, "remarks": {"etcd": self._store.slowness}}

    def _others_failure(self, place: Place) -> str:
        has_waited = time.monotonic() >= self._began_s + BEGINS_S
        return failure(place, self._workers, 0 if has_waited else self._expected)

    def _etcd_failure(self) -> str:
        try:
            self._store.revision()
        except StoreUnavailable as error:
            return str(error)
        return ""


def _access(cache: WatchCache) -> Access:
    """Return who decides what a request may do."""
    rbac = Rbac(cache)
    return Access(
        rbac,
        [NodeAuthorizer(cache), NewcomerAuthorizer(cache), CollectingAuthorizer()],
        [CarrierAuthorizer(cache, rbac), GatewaySecrets(cache, rbac)],
    )


def _reconcilers(configured: Settings) -> HttpsReconcilers | None:
    return HttpsReconcilers(configured.reconciler_client) if configured.reconciler_client else None


def _own(configured: Settings) -> Own:
    ranges = [each for each in (configured.service_cidr, configured.service_cidr_ipv6) if each is not None]
    return Own(configured.advertise_address, configured.port, configured.kubelet_port, tuple(ranges))


def _tokens(backend: Backend, configured: Settings) -> Tokens | None:
    accounts = configured.service_accounts
    if accounts is None:
        return None
    keys = KeyFiles(accounts.signing_key, accounts.verification_keys)
    return Tokens(backend, keys, accounts.issuer, accounts.max_token_s)


def _backend(
    store: Store,
    cache: WatchCache,
    clock: Clock,
    metrics: Registry,
    routes: Routes,
    configured: Settings,
    place: Place | None,
) -> Backend:
    return Backend(
        store,
        cache,
        clock,
        metrics,
        configured.service_cidr,
        mesh=configured.mesh,
        dual_stack=configured.dual_stack,
        service_cidr_ipv6=configured.service_cidr_ipv6,
        external_ips=configured.external_ips,
        name_server=configured.name_server,
        addressing=configured.addressing,
        refuse_taken_hosts=configured.refuse_taken_hosts,
        policies=Policies(metrics),
        webhooks=Webhooks(metrics, Transport(routes.connect)),
        place=place,
    )


def _encrypted(store: Store, configured: Settings) -> Store:
    return EncryptedStore(store, KeyRing(configured.key_ring)) if configured.key_ring else store


def _audit_log(configured: Settings, metrics: Registry, clock: Clock) -> AuditLog | None:
    audit = configured.audit
    if audit is None:
        return None
    shared = configured.workers > 1
    return AuditLog(
        lambda: LogFile(audit.path, audit.max_bytes, audit.backups, audit.max_age_days, clock, shared=shared),
        metrics,
        clock,
    )

"""Objects every cluster has, made when they are missing: namespaces, priorities, default/kubernetes, epoch, roles.

The endpoints of default/kubernetes are made in ``presence.py``.

Level-triggered: a thread looks every ``INTERVAL_S`` and repairs what somebody deleted. The epoch is the
fencing token's first part ; it is written once, at the first start, and
raised only by a restore.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from minik8s_modules.api.access import rbac
from minik8s_modules.api.errors import AlreadyExists, Invalid, NotFound, StatusError
from minik8s_modules.api.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    INGRESS_CLASS,
    NAMESPACE,
    PRIORITY_CLASS,
    ROLE,
    ROLE_BINDING,
    SERVICE,
    Kind,
)
from minik8s_modules.api.network import ingress_routes
from minik8s_modules.api.objects import JsonObject, name
from minik8s_modules.api.pods.priority_classes import SYSTEM_CLASSES
from minik8s_modules.apiserver.admission import service_addresses
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.settings import Settings
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.serving import bootstrap, webhook_events
from minik8s_modules.apiserver.verbs import deleting, writing
from minik8s_modules.base.backoff import Backoff
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.store import readable

log = logging.getLogger(__name__)

INTERVAL_S = 10.0
# claims of addresses, which are not in the cache; Kubernetes looks at its own every three minutes
CLAIMS_S = 60.0
# how long the cache's first load is waited for before "not loaded yet" is worth a line in the log
FIRST_LOAD_S = 2.0
RETRY = Backoff(initial_s=0.2, maximum_s=INTERVAL_S)
# kube-node-lease: the nodes' heartbeats, as in Kubernetes, apart from everybody else's leases
# kube-public: what anybody may know
NAMESPACES = ("default", "kube-system", "kube-node-lease", "kube-public")
_CLUSTER = ("kube-system", "minik8s-cluster")
EXTENSIONS = ("kube-system", "extension-apiserver-authentication")
FRONT_PROXY = "front-proxy-client"
_POLICY = (CLUSTER_ROLE, ROLE, CLUSTER_ROLE_BINDING, ROLE_BINDING)


class RequiredObject(NamedTuple):
    """An object that must exist; with ``keep`` its content is also put right when the configuration changed."""

    kind: Kind
    namespace: str
    name: str
    obj: JsonObject
    keep: bool = False


def wanted(settings: Settings, epoch: int) -> Iterator[RequiredObject]:
    """Yield the objects, in the order they must be made."""
    for namespace in NAMESPACES:
        yield RequiredObject(NAMESPACE, "", namespace, {})
    for priority, obj in SYSTEM_CLASSES.items():
        yield RequiredObject(PRIORITY_CLASS, "", priority, obj)
    yield RequiredObject(CONFIG_MAP, *_CLUSTER, {"data": {"epoch": str(epoch)}})
    if settings.front_proxy is not None:
        believed = _authentication(settings.tls.ca, settings.front_proxy.ca)
        yield RequiredObject(CONFIG_MAP, *EXTENSIONS, {"data": believed}, keep=True)
    labels = {"component": "apiserver", "provider": "kubernetes"}
    first = str(next(settings.service_cidr.hosts()))
    service_port = {"name": "https", "protocol": "TCP", "port": 443, "targetPort": settings.port}
    spec = {"type": "ClusterIP", "clusterIP": first, "clusterIPs": [first], "ports": [service_port]}
    if ":" in first:  # what is left out means IPv4
        spec |= {"ipFamilies": ["IPv6"], "ipFamilyPolicy": "SingleStack"}
    yield RequiredObject(SERVICE, "default", "kubernetes", {"metadata": {"labels": labels}, "spec": spec})


def _authentication(clients: Path, front_proxies: Path) -> dict[str, str]:
    """Return whom extension API servers believe: clients' certificates, and this server's word for who asks."""
    return {
        "client-ca-file": clients.read_text(encoding="utf-8"),
        "requestheader-allowed-names": f'["{FRONT_PROXY}"]',
        "requestheader-client-ca-file": front_proxies.read_text(encoding="utf-8"),
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-username-headers": '["X-Remote-User"]',
    }


def wanted_once() -> Iterator[RequiredObject]:
    """Yield the objects that a cluster is given once: who deletes one does not get it back."""
    spec = {"controller": ingress_routes.CONTROLLER}
    yield RequiredObject(INGRESS_CLASS, "", ingress_routes.NGINX_CLASS, {"spec": spec})


class Startup:
    """Keeps the objects of ``wanted`` in existence until ``stop``."""

    def __init__(self, backend: Backend, settings: Settings) -> None:
        self._backend = backend
        self._settings = settings
        self._policy: list[int] = []
        self._services, self._repaired_s = -1, float("-inf")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="startup-objects", daemon=True)
        self.done = False

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join(timeout=INTERVAL_S)

    def _run(self) -> None:
        failures = 0
        self._backend.cache.wait_ready(FIRST_LOAD_S)
        while not self._stop.is_set():
            try:
                self.ensure()
                self.done, failures = True, 0
            except TemporaryError as error:
                failures += 1
                log.warning("start-up objects cannot be created yet: %s", error)
            except Exception:  # a loop's edge: the next round tries again
                failures += 1
                log.exception("start-up objects could not be created")
            self._stop.wait(RETRY.delay_s(failures) or INTERVAL_S)

    def ensure(self) -> None:
        """Make what is missing, put right what differs."""
        for each in wanted(self._settings, int(self._backend.clock.now().timestamp())):
            ensure(self._backend, each)
        for each in wanted_once():
            ensure_once(self._backend, each)
        self._repair_claims()
        self._ensure_policy()
        webhook_events.record(self._backend)

    def _repair_claims(self) -> None:
        """Look at what Services claim if one has changed since, and each minute: who claimed may have died."""
        changes, now_s = self._backend.cache.changes(SERVICE.prefix), self._backend.clock.monotonic()
        if changes != self._services or now_s - self._repaired_s >= CLAIMS_S:
            service_addresses.repair(self._backend)
            self._services, self._repaired_s = changes, now_s

    def _ensure_policy(self) -> None:
        """Look at roles and bindings if one has changed since: comparing them all is most of what a look costs."""
        changes = [self._backend.cache.changes(kind.prefix) for kind in _POLICY]
        if changes != self._policy:
            ensure_policy(self._backend)
            self._policy = changes


def ensure(backend: Backend, each: RequiredObject) -> None:
    """Make one object if it is missing; with ``keep``, make its content what it should be."""
    target = Target(each.kind, each.namespace, each.name)
    try:
        found = backend.get(target).object
    except NotFound:
        _create(backend, each)
        return
    merged = partial(_merged, content=each.obj)
    if each.keep and merged(found) != found:
        _change(backend, each.kind, each.namespace, each.name, merged)


def ensure_once(backend: Backend, each: RequiredObject) -> None:
    """Make one object unless it was made before, which the cluster's ConfigMap remembers."""
    mark = f"made.{each.kind.plural}.{each.name}"
    remembered = backend.get(Target(CONFIG_MAP, *_CLUSTER)).object
    if mark not in (remembered.get("data") or {}):
        _create(backend, each)

        def marked(old: JsonObject) -> JsonObject:
            return {**old, "data": {**(old.get("data") or {}), mark: "true"}}

        _change(backend, CONFIG_MAP, *_CLUSTER, marked)


def ensure_policy(backend: Backend) -> None:
    """Make the default roles and bindings, put back what they lack, write the rules of aggregated roles."""
    for default in bootstrap.defaults():
        required = RequiredObject(default.kind, default.namespace, default.name, default.obj)
        found = backend.cache.get(default.kind.key(default.namespace, default.name))
        if found is not None and not readable.objects_of(default.kind, [found]):  # a binding's role is for ever
            deleting.delete(backend, Target(default.kind, default.namespace, default.name), {}, _options())
            found = None
        if found is None:
            _create(backend, required)
        elif bootstrap.reconciled(found.object, default) is not found.object:
            _change(
                backend,
                default.kind,
                default.namespace,
                default.name,
                partial(bootstrap.reconciled, default=default),
            )
    found_roles = readable.objects_of(CLUSTER_ROLE, backend.cache.list(CLUSTER_ROLE.prefix).items)
    roles = {name(role): role for role in found_roles}
    for role, rules in rbac.effective_rules(roles).items():
        if "aggregationRule" in roles[role] and (roles[role].get("rules") or []) != rules:
            _change(backend, CLUSTER_ROLE, "", role, partial(_merged, content={"rules": rules}))


def _change(backend: Backend, kind: Kind, namespace: str, name: str, mutate: writing.Mutation) -> None:
    _ignoring(NotFound, lambda: writing.change(backend, Target(kind, namespace, name), mutate, _options()))


def _merged(old: JsonObject, content: JsonObject) -> JsonObject:
    labels = (content.get("metadata") or {}).get("labels") or {}
    metadata = {**old["metadata"], "labels": {**(old["metadata"].get("labels") or {}), **labels}}
    kept = {field: value for field, value in content.items() if field != "metadata"}
    return {**old, **kept, "metadata": metadata if labels else old["metadata"]}


def _create(backend: Backend, each: RequiredObject) -> None:
    meta: JsonObject = {**each.obj.get("metadata", {}), "name": each.name}
    obj: JsonObject = {**each.obj, "metadata": meta}
    target = Target(each.kind, each.namespace)
    try:
        _ignoring(AlreadyExists, lambda: writing.create(backend, target, obj, _options()))
    except Invalid:  # another server has taken the address that it asks for, for just this object
        if backend.store.get(each.kind.key(each.namespace, each.name)) is None:
            raise


def _ignoring(error: type[StatusError], call: Callable[[], object]) -> None:
    try:
        call()
    except error:
        log.debug("another server was first", exc_info=True)


def _options() -> Options:
    return Options(dry_run=False, validation="Strict", warnings=[])

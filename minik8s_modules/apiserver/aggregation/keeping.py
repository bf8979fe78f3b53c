"""The server's own APIServices, who of the others is available, and what they offer; one thread.

Every server of a control plane asks extensions what they offer, because discovery and OpenAPI are answered from that
memory alone: an extension that hangs delays nobody. The server whose Lease has the least name writes conditions, and
requests are passed on as the conditions say. Source: kube-aggregator ``pkg/controllers/status/remote``,
``pkg/controllers/autoregister``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

import orjson

from minik8s_modules.api import objects
from minik8s_modules.api.access import api_services
from minik8s_modules.api.access.api_services import LOCAL, PASSED, Availability, Remote
from minik8s_modules.api.errors import AlreadyExists, Conflict, NotFound
from minik8s_modules.api.kind import Registry
from minik8s_modules.api.kinds import API_SERVICE, ENDPOINT_SLICE, KINDS, LEASE, SERVICE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.aggregation import heads
from minik8s_modules.apiserver.aggregation.directory import Directory, is_reserved
from minik8s_modules.apiserver.aggregation.exchanges import Body, Exchange, Outcome
from minik8s_modules.apiserver.aggregation.extensions import Extensions
from minik8s_modules.apiserver.aggregation.offers import Offer, resources_in
from minik8s_modules.apiserver.aggregation.swagger import Part, part_of
from minik8s_modules.apiserver.authorization.identity import MASTERS, User
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.rounds import Rounds
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.verbs import deleting, writing
from minik8s_modules.apiserver.webhooks.places import SERVICE_NAME
from minik8s_modules.base.backoff import Backoff
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.store import readable
from minik8s_modules.store.cached import CachedObject, CacheEvent

log = logging.getLogger(__name__)

LOOK_S = 30.0
# an extension that is not available is asked again this soon
AGAIN_S = 2.0
ASK_S = 5.0
RETRY = Backoff(initial_s=0.2, maximum_s=10.0)
_LARGEST_BYTES = 4 * 1024 * 1024
_OK = 200
_HASH = 128
_ASKER = User("system:kube-aggregator", (MASTERS,))
_JSON = {"Accept": "application/json"}
_LEASES = f"{LEASE.prefix}kube-system/apiserver-"
_Key = tuple[str, str]


class _Answers(NamedTuple):
    remote: Remote
    listed: Future[tuple[int, bytes]]
    schemas: Future[tuple[int, bytes]]


class _Swagger(NamedTuple):
    """What was asked for in OpenAPI v2: the older form of which document, and its answer until that was taken."""

    schema: str
    answer: Future[tuple[int, bytes]] | None


class Keeping(Rounds):
    """See the top of this file, until ``stop``; ``own`` is the address of this server."""

    def __init__(self, backend: Backend, directory: Directory, extensions: Extensions, own: str) -> None:
        prefixes = (API_SERVICE.prefix, SERVICE.prefix, ENDPOINT_SLICE.prefix)
        super().__init__(backend, "aggregator", "APIServices", prefixes, RETRY)
        self._directory, self._extensions = directory, extensions
        self._registry: Registry | None = None
        self._own = f"{_LEASES}{own}"
        self._offers: dict[_Key, Offer] = {}
        self._swaggers: dict[_Key, _Swagger] = {}
        self._concerned: tuple[str, ...] = ()
        # built-in groups that this release does not have: found when it started, they are deleted, once. One that comes
        # (back) later is that of a server of another release, which has not been replaced yet
        self._leftovers: set[str] | None = None
        text = "Times that an extension became unavailable."
        self._failed = backend.metrics.counter("aggregator_unavailable_apiservice_total", text, ("name", "reason"))
        text = "APIServices whose extension cannot be asked."
        backend.metrics.gauge("aggregator_unavailable_apiservice", text, ("name",), self._unavailable)

    def offers(self) -> list[Offer]:
        """Return what others offer, as it was last heard; of who never answered, nothing."""
        remotes = self._directory.remotes
        known = self._offers
        return [known[key]._replace(remote=other) if key in known else Offer(other) for key, other in remotes.items()]

    def look(self) -> bool:
        """Put the server's own APIServices right, ask the others; return whether those are available and said to be."""
        if self._backend.kinds.complete:
            self._keep_own()
        items = self._backend.cache.list(API_SERVICE.prefix).items
        remotes = [*self._directory.remotes.values()]
        spaces = {each.namespace for each in remotes}
        self._swaggers = {key: each for key, each in self._swaggers.items() if key in self._directory.remotes}
        self._concerned = tuple(f"{kind.prefix}{space}/" for kind in (SERVICE, ENDPOINT_SLICE) for space in spaces)
        asked = self._ask(remotes)
        found = {each.remote.name: self._heard(each) for each in asked}
        if self._is_first():
            for item in items:
                if readable.objects_of(API_SERVICE, [item]):
                    self._tell(item, self._found(item.object, found))
        # what another server wrote may be older than what was found here, and that server gone
        return all(each.available and found[each.name].status == "True" for each in remotes)

    # --- the server's own ---------------------------------------------------------------------------

    def _keep_own(self) -> None:
        kept = self._backend.cache.list(API_SERVICE.prefix).items
        present = {objects.name(item.object): item for item in kept}
        wanted = {objects.name(each): each for each in self._wanted()}
        for name, each in wanted.items():
            if name not in present:
                _ignoring(partial(self._create, each))
            elif not readable.objects_of(API_SERVICE, [present[name]]):
                _ignoring(partial(self._replace, each))
            elif _is_amiss(present[name].object, each):
                self._put_right(name, each)
        unwanted = {name: api_services.managed(item.object) for name, item in present.items() if name not in wanted}
        if self._leftovers is None:
            self._leftovers = {name for name, how in unwanted.items() if how == api_services.ON_START}
        for name, how in unwanted.items():
            if how == api_services.ALWAYS or name in self._leftovers:
                self._leftovers.discard(name)
                _ignoring(partial(self._delete, name))

    def _wanted(self) -> list[JsonObject]:
        own = {(group, version) for group, versions in KINDS.groups().items() for version in versions}
        served = {
            (group, version)
            for group, versions in self._backend.kinds.registry.groups().items()
            for version in versions
        }
        return [api_services.local(group, version, custom=(group, version) not in own) for group, version in served]

    def _create(self, obj: JsonObject) -> None:
        writing.create(self._backend, Target(API_SERVICE), obj, _options())

    def _replace(self, obj: JsonObject) -> None:
        writing.update(self._backend, Target(API_SERVICE, "", objects.name(obj)), obj, _options())

    def _delete(self, name: str) -> None:
        deleting.delete(self._backend, Target(API_SERVICE, "", name), {}, _options())

    def _put_right(self, name: str, wanted: JsonObject) -> None:
        def right(present: JsonObject) -> JsonObject:
            if not _is_amiss(present, wanted):
                return present
            labels = {**(objects.metadata(present).get("labels") or {}), **wanted["metadata"]["labels"]}
            return {**present, "metadata": {**present["metadata"], "labels": labels}, "spec": wanted["spec"]}

        _ignoring(lambda: writing.change(self._backend, Target(API_SERVICE, "", name), right, _options()))

    # --- the others ---------------------------------------------------------------------------------

    def _ask(self, remotes: Sequence[Remote]) -> list[_Answers]:
        return [_Answers(each, self._fetch(each, each.path), self._fetch(each, "/openapi/v3")) for each in remotes]

    def _fetch(self, remote: Remote, path: str) -> Future[tuple[int, bytes]]:
        head = heads.request(_JSON, _ASKER, remote, "127.0.0.1", None)
        return self._extensions.fetch(Exchange(remote, "GET", path, head, Body(), Outcome()), _LARGEST_BYTES, ASK_S)

    def _heard(self, answers: _Answers) -> Availability:
        """Remember what an extension offers; return whether it is available."""
        remote, key = answers.remote, (answers.remote.group, answers.remote.version)
        missing = self._missing(remote)
        if missing is not None:
            answers.listed.cancel()
            answers.schemas.cancel()
        try:
            if missing is None:
                resources = resources_in(*answers.listed.result(), remote.group, remote.version)
                before, schema = self._offers.get(key, Offer(remote)), _schema(answers)
                swagger = self._swagger(before, remote, schema)
                self._offers[key] = Offer(remote, resources, fresh=True, schema=schema, swagger=swagger)
                return PASSED
        except Exception as error:  # noqa: BLE001 - whatever an extension says, it is not available
            shown = f"https://{remote.service}.{remote.namespace}.svc:{remote.port}{remote.path}"
            text = f"failing or missing response from {shown}: {str(error) or type(error).__name__}"
            missing = Availability("False", "FailedDiscoveryCheck", text[:1024])
        if key in self._offers:
            self._offers[key] = self._offers[key]._replace(fresh=False)
        return missing

    def _swagger(self, before: Offer, remote: Remote, schema: str) -> Part:
        """Return what is known of an extension in OpenAPI v2; nobody waits for it, the next look takes what came.

        Asked again once the document of version 3 is another, the extension was away, or did not answer.
        """
        key = (remote.group, remote.version)
        asked = self._swaggers.get(key)
        if asked is None or asked.schema != schema or not before.fresh:
            answer = self._fetch(remote, "/openapi/v2")
            self._swaggers[key] = _Swagger(schema, answer)
            answer.add_done_callback(self._came)
            return before.swagger
        if asked.answer is None or not asked.answer.done():
            return before.swagger
        if asked.answer.cancelled() or asked.answer.exception() is not None:
            del self._swaggers[key]
            return before.swagger
        self._swaggers[key] = asked._replace(answer=None)
        try:
            return part_of(*asked.answer.result(), remote)
        except Exception as error:  # noqa: BLE001 - whatever an extension says: it need not have one
            log.debug("%s has no OpenAPI v2 document: %s", remote.name, error)
            return Part()

    def _came(self, answer: Future[tuple[int, bytes]]) -> None:
        if not answer.cancelled() and answer.exception() is None:  # else the next look is soon enough
            self._wake.set()

    def _missing(self, remote: Remote) -> Availability | None:
        """Return why an extension cannot even be asked."""
        named = f'service/{remote.service} in "{remote.namespace}"'
        item = self._backend.cache.get(SERVICE.key(remote.namespace, remote.service))
        service = next(iter(readable.objects_of(SERVICE, [item] if item is not None else [])), None)
        if service is None:
            return Availability("False", "ServiceNotFound", f"{named} is not present")
        ports = objects.spec(service).get("ports") or []
        port = next((each for each in ports if each.get("port") == remote.port), None)
        if port is None:
            return Availability("False", "ServicePortError", f"{named} is not listening on port {remote.port}")
        listed = self._backend.cache.list(ENDPOINT_SLICE.key(remote.namespace, "")).items
        named_so = [each for each in listed if each.labels.get(SERVICE_NAME) == remote.service]
        slices = readable.objects_of(ENDPOINT_SLICE, named_so)
        if not slices:
            return Availability("False", "EndpointsNotFound", f"cannot find endpoints for {named}")
        if any(_has_endpoint(each, port.get("name") or "") for each in slices):
            return None
        text = f'endpoints for {named} have no addresses with port name "{port.get("name") or ""}"'
        return Availability("False", "MissingEndpoints", text)

    def _found(self, api_service: JsonObject, found: Mapping[str, Availability]) -> Availability | None:
        if not objects.spec(api_service).get("service"):
            return LOCAL
        if is_reserved(str(objects.spec(api_service).get("group") or "")):
            text = "the API server answers this group itself; no extension may take it over"
            return Availability("False", "BuiltInGroup", text)
        return found.get(objects.name(api_service))

    def _tell(self, item: CachedObject, found: Availability | None) -> None:
        before = api_services.available(item.object)
        if found is None or found == (before.get("status"), before.get("reason"), before.get("message")):
            return
        if found.status != before["status"] == "True":
            self._failed.labels(objects.name(item.object), found.reason).inc()
        now = rfc3339(self._backend.clock.now())

        def published(present: JsonObject) -> JsonObject:
            if present.get("spec") != item.object.get("spec"):
                return present  # found out about something older: the next look tells
            status = api_services.with_condition(objects.status(present), found, now)
            return {**present, "status": status}

        target = Target(API_SERVICE, "", objects.name(item.object), "status")
        _ignoring(lambda: writing.change(self._backend, target, published, _options()))

    def _is_first(self) -> bool:
        """Return whether this server writes conditions: the one of all whose Lease has the least name."""
        leases = self._backend.cache.list(f"{LEASE.prefix}kube-system/").items
        names = [each.key for each in leases if each.key.startswith(_LEASES)]
        return not names or min(names) == self._own

    def _unavailable(self) -> dict[tuple[str, ...], float]:
        return {(each.name,): float(not each.available) for each in self._directory.remotes.values()}

    # --- the thread ---------------------------------------------------------------------------------

    def _round(self) -> float:
        self._registry = self._backend.kinds.registry
        return LOOK_S if self.look() and self._backend.kinds.complete else AGAIN_S

    def _rest(self, wait_s: float) -> None:
        """Wait, but not for long once something changes, other kinds among it: they have APIServices, too.

        However much changes, ``AGAIN_S`` lie between two looks: each asks every extension.
        """
        if self._stopping.wait(min(wait_s, AGAIN_S)):
            return
        wait_s -= AGAIN_S
        while (
            wait_s > 0 and not self._wake.wait(min(wait_s, AGAIN_S)) and self._backend.kinds.registry is self._registry
        ):
            wait_s -= AGAIN_S

    def _on_event(self, event: CacheEvent) -> None:
        if event.key.startswith(API_SERVICE.prefix):
            if not _is_status_alone(event):  # which is mostly what was told here
                self._wake.set()
        elif event.key.startswith(self._concerned):
            self._wake.set()


def _is_status_alone(event: CacheEvent) -> bool:
    """Return whether an APIService's spec and labels are as they were."""
    if event.type != "MODIFIED" or event.previous is None:
        return False
    before, now = event.previous, event.current
    return before.labels == now.labels and objects.spec(before.object) == objects.spec(now.object)


def _is_amiss(present: JsonObject, wanted: JsonObject) -> bool:
    """Return whether an APIService of a group that the server answers is to be made what it should be."""
    declared = objects.spec(present)
    given_away = bool(declared.get("service"))
    group = str(wanted["spec"]["group"])
    if group in api_services.REPLACEABLE and given_away:
        return False
    if not api_services.is_managed(present) and not is_reserved(group):
        return False  # an administrator's own: it goes before a CustomResourceDefinition, as in Kubernetes
    managed = (objects.metadata(present).get("labels") or {}).get(api_services.MANAGED)
    return bool(declared != wanted["spec"]) or managed != wanted["metadata"]["labels"][api_services.MANAGED]


def _has_endpoint(endpoint_slice: JsonObject, port_name: str) -> bool:
    named = any((each.get("name") or "") == port_name for each in endpoint_slice.get("ports") or [])
    ready = any(
        each.get("addresses") and (each.get("conditions") or {}).get("ready") is not False
        for each in endpoint_slice.get("endpoints") or []
    )
    return named and ready


def _schema(answers: _Answers) -> str:
    """Return what distinguishes the OpenAPI document of an extension, "" when it has none."""
    remote = answers.remote
    try:
        code, body = answers.schemas.result()
        paths = orjson.loads(body)["paths"] if code == _OK else {}
        url = str(paths[remote.path.lstrip("/")]["serverRelativeURL"])
    except Exception as error:  # noqa: BLE001 - it need not have one
        log.debug("%s has no OpenAPI v3 document: %s", remote.name, error)
        return ""
    return "".join(each for each in url.partition("?hash=")[2] if each.isascii() and each.isalnum())[:_HASH] or "-"


def _ignoring(change: Callable[[], object]) -> None:
    try:
        change()
    except (NotFound, AlreadyExists, Conflict) as error:
        log.debug("somebody else was first: %s", error)


def _options() -> Options:
    return Options(dry_run=False, validation="Strict", warnings=[])

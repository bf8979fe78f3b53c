"""The resource paths: from a request to one of the verbs, for every kind alike."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from flask import Request, Response
from werkzeug.wsgi import ClosingIterator

from minik8s_modules.api.errors import Invalid, ServiceUnavailable
from minik8s_modules.api.kind import PROXY
from minik8s_modules.api.kinds import (
    LOCAL_SUBJECT_ACCESS_REVIEW,
    NODE,
    PLAN,
    POD,
    SELF_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_REVIEW,
    SELF_SUBJECT_RULES_REVIEW,
    SUBJECT_ACCESS_REVIEW,
    TOKEN_REVIEW,
)
from minik8s_modules.api.objects import JsonObject, metadata, name, uid
from minik8s_modules.api.size_limits import MAX_VALUES_TOGETHER, values_allowed
from minik8s_modules.api.validation import validate_create
from minik8s_modules.apiserver.access import reviews
from minik8s_modules.apiserver.access.priority import Priority
from minik8s_modules.apiserver.access.tokens import TOKEN_REQUEST, Tokens
from minik8s_modules.apiserver.admission import chain, webhook_admission
from minik8s_modules.apiserver.admission.scales import check_said, scale_of
from minik8s_modules.apiserver.aggregation.forwarding import Aggregation
from minik8s_modules.apiserver.audit.auditing import NOTES, ORIGINAL
from minik8s_modules.apiserver.authorization.authorization import Access, Requester
from minik8s_modules.apiserver.authorization.identity import User
from minik8s_modules.apiserver.http import bodies, incoming, presenting, responses
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.negotiation import Form, form
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.intake.limits import Holder, account_of
from minik8s_modules.apiserver.nodes import connecting, metrics_api, node_paths, plans, streams
from minik8s_modules.apiserver.nodes.gateways import Gateways
from minik8s_modules.apiserver.nodes.kubelets import Kubelets
from minik8s_modules.apiserver.nodes.pod_streams import STREAMED
from minik8s_modules.apiserver.nodes.reconcilers import Reconcilers
from minik8s_modules.apiserver.reads import reading, watching
from minik8s_modules.apiserver.reads.hub import Hub
from minik8s_modules.apiserver.reads.selection import Selection
from minik8s_modules.apiserver.reads.watchers import HEAD, Join, chunk, take_socket
from minik8s_modules.apiserver.verbs import applying, binding, deleting, eviction, patching, scaling, writing
from minik8s_modules.store import readable
from minik8s_modules.store.cached import CachedObject

log = logging.getLogger(__name__)
WsgiStart = Callable[..., Any]


class Services(NamedTuple):
    """What the verbs work with; without ``reconcilers`` plans say so.

    Without ``figures`` metrics are those of this process alone.
    """

    backend: Backend
    hub: Hub
    access: Access
    reconcilers: Reconcilers | None = None
    tokens: Tokens | None = None
    streams: streams.Streams | None = None
    priority: Priority | None = None
    aggregation: Aggregation | None = None
    figures: Callable[[], str] | None = None


class Call(NamedTuple):
    """One authorized request; ``selection`` is what was authorized of a list, watch or deletecollection."""

    services: Services
    request: Request
    target: Target
    user: User
    selection: Selection

    @property
    def backend(self) -> Backend:
        """Return the store, cache and clock."""
        return self.services.backend

    @property
    def arguments(self) -> Mapping[str, str]:
        """Return the query parameters."""
        return self.request.args

    def form(self) -> Form:
        """Return the representation the client wants."""
        tables = self.target.kind.verbs != ("create",)
        return form(self.request.headers.get("Accept", ""), self.arguments.get("includeObject", ""), tables=tables)

    def options(self) -> incoming.Options:
        """Return the query parameters of a write."""
        options = incoming.options_of(self.arguments, self.request.headers.get("User-Agent", ""))
        return options._replace(requester=self.requester)

    @property
    def requester(self) -> Requester:
        """Return who asks, for admission and reviews."""
        return Requester(self.user, self.services.access, self.request.environ.setdefault(NOTES, {}))

    @property
    def holder(self) -> Holder:
        """Return to whom watches and streams are charged: who authenticated, whomever he impersonates."""
        environ = self.request.environ
        return Holder(account_of(environ[ORIGINAL]), environ.get("REMOTE_ADDR", ""))

    def body(self, options: incoming.Options) -> JsonObject:
        """Return the body, an object."""
        body, media = bodies.read(self.request), bodies.media_type(self.request)
        kind = self.target.kind
        obj = bodies.parse_object(body, media, MAX_VALUES_TOGETHER if kind is PLAN else values_allowed(kind.id))
        if options.validation != "Ignore":
            incoming.refuse_or_warn(self.target.kind, bodies.duplicate_fields(body, media, obj), options)
        return obj

    def show(
        self, item: CachedObject, code: int = 200, warnings: Iterable[str] = (), wanted: Form | None = None
    ) -> Response:
        """Return the answer that shows ``item``."""
        now = self.backend.clock.now()
        return responses.raw(presenting.one(self.target.kind, wanted or self.form(), item, now), code, warnings)


class HandOver(Response):
    """The answer to a watch: the connection goes to the hub, and the thread on to the next request."""

    def __init__(self, hub: Hub, join: Callable[[Any], Join]) -> None:
        super().__init__()
        self._hub = hub
        self._join = join

    def __call__(self, environ: dict[str, Any], start_response: WsgiStart) -> ClosingIterator:  # noqa: ARG002 - WSGI
        """Hand over; StopIteration is how the server is told that there is nothing left to answer."""
        self._hub.join(self._join(take_socket(environ).sock))
        raise StopIteration


def get(call: Call) -> Response:
    """Answer with one object."""
    if call.target.kind.group == metrics_api.GROUP:
        return call.show(metrics_api.one(call.backend, _gateways(call), call.target, _kubelets(call)))
    item = reading.get(call.backend, call.target, call.arguments)
    if call.target.subresource == "scale":
        obj = presenting.json_of(call.target.kind, item)
        check_said(call.target.kind, obj)
        return responses.json(scale_of(call.target.kind, obj))
    return call.show(item)


def list_(call: Call) -> Response:
    """Answer with a list."""
    wanted = call.form()
    if call.target.kind.group == metrics_api.GROUP:
        found = metrics_api.listed(call.backend, _gateways(call), call.selection, _kubelets(call))
        return responses.raw(presenting.many(call.target.kind, wanted, found, {}, call.backend.clock.now()))
    listing = reading.list_objects(call.backend, call.selection, call.arguments)
    now = call.backend.clock.now()
    return responses.raw(presenting.many(call.target.kind, wanted, listing.items, listing.meta, now))


def _gateways(call: Call) -> Gateways | None:
    return call.services.streams.gateways if call.services.streams is not None else None


def _kubelets(call: Call) -> Kubelets | None:
    return call.services.streams.kubelets if call.services.streams is not None else None


def watch(call: Call) -> Response:
    """Hand the connection to the hub, or answer at once that the history is gone."""
    arguments, selection, hub, holder = call.arguments, call.selection, call.services.hub, call.holder
    hub.admit(holder)
    stream = watching.EventStream(selection, call.form(), call.backend.clock)
    timeout_s, bookmarks = watching.timeout_s(arguments), watching.wants_bookmarks(arguments)
    start = watching.begin(call.backend, selection, stream, arguments)
    if start.over:
        return responses.raw(start.events)
    prelude = HEAD % bodies.JSON.encode() + chunk(start.events)
    return HandOver(hub, lambda sock: Join(sock, stream, prelude, start.after, timeout_s, bookmarks, holder))


def create(call: Call) -> Response:
    """Store a new object, bind a pod, or answer a review."""
    if call.target.subresource == "binding":
        return _bind(call)
    if call.target.subresource == "eviction":
        return _evict(call)
    if call.target.subresource == "token":
        return _token(call)
    if not call.target.kind.stored:
        return _reviewed(call)
    wanted, options = call.form(), call.options()
    item = writing.create(call.backend, call.target, call.body(options), options)
    return call.show(item, 201, options.warnings, wanted)


def _bind(call: Call) -> Response:
    options = call.options()
    binding.bind(call.backend, call.target, call.body(options), options)
    return responses.success(call.target.kind, call.target.name, "", 201, options.warnings)


def _token(call: Call) -> Response:
    options, tokens = call.options(), _tokens(call)
    wanted = incoming.readable(TOKEN_REQUEST, call.body(options), options)
    incoming.check_place(call.target, wanted)
    wanted["apiVersion"], wanted["kind"] = TOKEN_REQUEST.api_version, TOKEN_REQUEST.kind
    wanted["metadata"] = {**metadata(wanted), "name": call.target.name, "namespace": call.target.namespace}
    wanted = webhook_admission.request(call.backend, "create", call.target, TOKEN_REQUEST, wanted, options)
    chain.run("validate", call.backend, "create", call.target, wanted, None, options._replace(reviewed=True))
    made = tokens.request(call.target, wanted, dry_run=options.dry_run, warn=options.warn)
    return responses.json(made, 201, options.warnings)


def _tokens(call: Call) -> Tokens:
    if call.services.tokens is None:
        raise ServiceUnavailable(
            "this API server has no key for service-account tokens; set service_accounts in its configuration"
        )
    return call.services.tokens


def _evict(call: Call) -> Response:
    options = call.options()
    eviction.evict(call.backend, call.target, call.body(options), options)
    return responses.success(call.target.kind, call.target.name, "", 201, options.warnings)


def _reviewed(call: Call) -> Response:
    kind, options = call.target.kind, call.options()
    call.form()  # an answer that the client could not read is not given
    obj = incoming.readable(kind, call.body(options), options)
    obj["apiVersion"], obj["kind"] = kind.api_version, kind.kind
    if kind.namespaced:
        metadata(obj).setdefault("namespace", call.target.namespace)
    causes = validate_create(kind, obj)
    if causes:
        raise Invalid(kind, name(obj), causes)
    return responses.json(ANSWERS[kind.kind](call, obj, options), 201, options.warnings)


ANSWERS: Mapping[str, Callable[[Call, JsonObject, incoming.Options], JsonObject]] = {
    SELF_SUBJECT_ACCESS_REVIEW.kind: lambda call, obj, _: reviews.own_access(call.requester, obj),
    SUBJECT_ACCESS_REVIEW.kind: lambda call, obj, _: reviews.access(call.requester, obj),
    LOCAL_SUBJECT_ACCESS_REVIEW.kind: lambda call, obj, _: reviews.access(call.requester, obj),
    SELF_SUBJECT_RULES_REVIEW.kind: lambda call, obj, _: reviews.own_rules(call.requester, obj),
    TOKEN_REVIEW.kind: lambda call, obj, _: _tokens(call).review(obj),
    SELF_SUBJECT_REVIEW.kind: lambda call, obj, _: reviews.identity(call.user, obj),
    PLAN.kind: lambda call, obj, options: plans.answer(call.backend, call.services.reconcilers, obj, options),
}


def update(call: Call) -> Response:
    """Replace an object or its subresource's part."""
    wanted, options = call.form(), call.options()
    if call.target.subresource == "scale":
        scale = scaling.update(call.backend, call.target, call.body(options), options)
        return responses.json(scale, 200, options.warnings)
    item = writing.update(call.backend, call.target, call.body(options), options)
    return call.show(item, 200, options.warnings, wanted)


def patch(call: Call) -> Response:
    """Patch an object or its subresource's part."""
    wanted, options = call.form(), call.options()
    media, body = bodies.media_type(call.request), bodies.read(call.request)
    if call.target.subresource == "scale":
        if media == applying.MEDIA:
            scale = scaling.applied(call.backend, call.target, body, options, call.arguments)
        else:
            applying.refuse_force(call.arguments)
            scale = scaling.patched(call.backend, call.target, body, media, options)
        return responses.json(scale, 200, options.warnings)
    if media == applying.MEDIA:
        command = call.request.headers.get("Kubectl-Command", "")
        item, created = applying.apply(call.backend, call.target, body, options, call.arguments, command)
        return call.show(item, 201 if created else 200, options.warnings, wanted)
    applying.refuse_force(call.arguments)
    mutation = patching.mutation_of(call.target, body, media)
    item = writing.patch(call.backend, call.target, mutation, options)
    return call.show(item, 200, options.warnings, wanted)


def delete(call: Call) -> Response:
    """Delete an object; pods and what is only marked are shown, for the rest a Status says that it is gone."""
    form_wanted, options = call.form(), call.options()
    wanted = _delete_options(call)
    deleted = deleting.delete(call.backend, call.target, wanted, options)
    kind = call.target.kind
    if deleted.gone and kind is not POD:
        return responses.success(kind, call.target.name, uid(deleted.item.object), 200, options.warnings)
    return call.show(deleted.item, 200, options.warnings, form_wanted)


def delete_collection(call: Call) -> Response:
    """Delete all selected objects, or a page of them, and answer with their list."""
    form_wanted, options = call.form(), call.options()
    wanted = _delete_options(call)
    items, meta = deleting.delete_collection(call.backend, call.selection, call.arguments, wanted, options)
    body = presenting.many(call.target.kind, form_wanted, items, meta, call.backend.clock.now())
    return responses.raw(body, 200, options.warnings)


def _delete_options(call: Call) -> JsonObject:
    body = bodies.read(call.request)
    given = bodies.parse_object(body, bodies.media_type(call.request)) if body else {}
    return deleting.delete_options(given, call.arguments)


VERBS: Mapping[str, Callable[[Call], Response]] = {
    "get": get,
    "list": list_,
    "watch": watch,
    "create": create,
    "update": update,
    "patch": patch,
    "delete": delete,
    "deletecollection": delete_collection,
}


def stream(call: Call) -> Response:
    """Begin a stream to a pod, or from it."""
    if call.services.streams is None:
        raise ServiceUnavailable("this API server serves no streams")
    _connect(call)
    if call.target.kind is NODE:
        return node_paths.answer(
            call.services.streams, call.services.reconcilers, call.backend, call.target, call.request, call.holder
        )
    begin = streams.proxied if call.target.subresource == PROXY else streams.answer
    return begin(call.services.streams, call.backend, call.target, call.request, call.holder)


def _connect(call: Call) -> None:
    """Have webhooks see who connects to what runs; of an argument that cannot be read the stream's own check tells."""
    asked = connecting.options_of(call.target, call.request.path, call.request.args)
    if asked is not None:
        options = incoming.Options(dry_run=False, validation="Ignore", warnings=[], requester=call.requester)
        webhook_admission.request(call.backend, "connect", call.target, asked.kind, asked.obj, options)


def answer(verb: str, call: Call) -> Response:
    """Answer an authorized request; where the stored object has values of wrong types, a failure is that object's.

    It may be an error of ours all the same, so the log has it.
    """
    try:
        return _answered(verb, call)
    except readable.MISREAD as error:
        target = call.target
        found = call.backend.cache.get(target.kind.key(target.namespace, target.name)) if target.name else None
        why = readable.why(target.kind, found) if found is not None else None
        if why is None:
            raise
        log.exception("%s of %s %s, which cannot be read as it is stored", verb, target.kind.kind, target.name)
        raise why from error


def _answered(verb: str, call: Call) -> Response:
    if call.target.subresource in {*STREAMED, PROXY}:
        return stream(call)
    response, custom = VERBS[verb](call), call.target.kind.custom
    if custom is not None and custom.warning:
        responses.warn(response, custom.warning)
    return response

"""The Flask application: routes, who asks, errors, headers, counting.

Paths that name resources all go to ``resource`` and from there to a verb of resources.py; the kind comes
from the path, so a new kind needs nothing here. Health and version are open to everyone, and so is what newcomers know
the cluster by (bootstrap_tokens.py); all else needs a client certificate or a token, and a role that allows it
(authorization.py). Whatever goes wrong leaves as a
Kubernetes Status.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from flask import Flask, Request, Response, request
from flask.sessions import SecureCookieSessionInterface
from werkzeug.exceptions import HTTPException

from minik8s_modules.api.errors import (
    BadRequest,
    Expired,
    InternalError,
    MethodNotAllowed,
    NotFound,
    StatusError,
    Unauthorized,
)
from minik8s_modules.api.kinds import KINDS, Kind
from minik8s_modules.apiserver.access.bootstrap_tokens import NOBODY, is_open
from minik8s_modules.apiserver.access.impersonation import acting
from minik8s_modules.apiserver.access.priority import LISTS, level_of
from minik8s_modules.apiserver.access.tokens import Tokens
from minik8s_modules.apiserver.audit.auditing import ACTING, AUDIT_ID, BEGAN, ORIGINAL, VERB, note_decision
from minik8s_modules.apiserver.authorization.attributes import Attributes
from minik8s_modules.apiserver.authorization.authorization import Access, refusal
from minik8s_modules.apiserver.authorization.identity import User
from minik8s_modules.apiserver.discovery import discovery, openapi, openapi_v2
from minik8s_modules.apiserver.http import negotiation, responses
from minik8s_modules.apiserver.http.backend import Backend, unavailable
from minik8s_modules.apiserver.http.target import Target, parse, rights, unserved, verb_of
from minik8s_modules.apiserver.nodes import proxying
from minik8s_modules.apiserver.reads import reading, watching
from minik8s_modules.apiserver.reads.selection import MANY, select, whole
from minik8s_modules.apiserver.serving import health
from minik8s_modules.apiserver.serving.resources import Call, Services, answer
from minik8s_modules.base.ids import random_uid
from minik8s_modules.store.errors import Compacted, StoreUnavailable
from minik8s_modules.store.errors import Expired as HistoryExpired

log = logging.getLogger(__name__)

OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version")
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_NON_RESOURCE_VERBS = {"GET": "get", "HEAD": "get", "POST": "post", "PUT": "put", "PATCH": "patch", "DELETE": "delete"}
_LABELS = "minik8s.labels"

Authenticate = Callable[[Mapping[str, Any]], User | None]
Checks = Mapping[str, Mapping[str, health.Check]]  # by endpoint: livez, readyz; and "remarks" on checks that pass


class _NoSession(SecureCookieSessionInterface):
    """Sessions are cookies for browsers; not looking for them saves their cost on every request."""

    def open_session(self, _app: Flask, _request: Request) -> None:
        """Open nothing."""
        return

    def is_null_session(self, _session: object) -> bool:
        """Say that nothing needs saving."""
        return True


def make_app(services: Services, authenticate: Authenticate, checks: Checks, address: str = "") -> Flask:
    """Return the application.

    Args:
        services: what handlers work with.
        authenticate: tells the user of a WSGI environment, None when nobody is known.
        checks: what ``/livez`` and ``/readyz`` look at, and ``remarks``.
        address: where clients reach this server, for the OpenID document.
    """
    backend = services.backend
    app = Flask("minik8s-apiserver", static_folder=None)
    app.session_interface = _NoSession()
    app.url_map.strict_slashes = False
    app.url_map.merge_slashes = False
    _guard(app, authenticate, services.access)
    _count(app, backend)
    _catch(app)
    _health_routes(app, checks)
    _discovery_routes(app)
    _openapi_routes(app)
    if services.tokens is not None:
        _openid_routes(app, services.tokens, address)
    _resource_routes(app, services)

    @app.get("/metrics")
    def metrics() -> Response:
        return responses.raw(backend.metrics.text().encode(), media="text/plain; version=0.0.4; charset=utf-8")

    return app


def _guard(app: Flask, authenticate: Authenticate, access: Access) -> None:
    @app.before_request
    def guard() -> None:
        environ = request.environ
        environ[BEGAN] = time.perf_counter()
        environ[AUDIT_ID] = random_uid()
        path = request.path
        if path.startswith(OPEN_PATHS) and path.split("/")[1] in {open_path[1:] for open_path in OPEN_PATHS}:
            return
        user = authenticate(environ) or (NOBODY if is_open(environ) else None)
        if user is None:
            raise Unauthorized
        environ[ORIGINAL] = user
        environ[ACTING] = user = acting(user, environ, access)
        if not path.startswith(("/api/", "/apis/")) or parse(path) is None:
            asked = Attributes(_NON_RESOURCE_VERBS.get(request.method, request.method), path=path.rstrip("/") or "/")
            _authorize(access, user, asked, None)


def _authorize(access: Access, user: User, asked: Attributes, kind: Kind | None) -> None:
    why = access.why(user, asked)
    note_decision(request.environ, why)
    if not why:
        raise refusal(user, asked, kind)


def _count(app: Flask, backend: Backend) -> None:
    labels = ("verb", "resource", "code")
    total = backend.metrics.counter("apiserver_request_total", "Requests answered.", labels)
    seconds = backend.metrics.histogram(
        "apiserver_request_duration_seconds", "Time to answer; of a watch, to begin it.", ("verb", "resource")
    )

    @app.after_request
    def count(response: Response) -> Response:
        environ = request.environ
        verb, resource = environ.get(_LABELS) or (_NON_RESOURCE_VERBS.get(request.method, "other"), "")
        total.labels(verb, resource, str(response.status_code)).inc()
        seconds.labels(verb, resource).observe(time.perf_counter() - environ.get(BEGAN, time.perf_counter()))
        response.headers["Audit-Id"] = environ.get(AUDIT_ID, "")
        return response


def _catch(app: Flask) -> None:
    def status(error: StatusError) -> Response:
        return responses.failure(error)

    def store_unavailable(error: StoreUnavailable) -> Response:
        return responses.failure(unavailable(error))

    def history_gone(error: Exception) -> Response:
        return responses.failure(Expired(f"too old resource version: {error}"))

    def too_deep(_error: RecursionError) -> Response:
        return responses.failure(BadRequest("the request's body is nested too deeply"))

    def http(error: HTTPException) -> Response:
        if error.code == 405:  # noqa: PLR2004 - the status
            return responses.failure(MethodNotAllowed(None, request.method))
        if error.code == 404:  # noqa: PLR2004 - the status
            return responses.failure(NotFound.path())
        return responses.failure(StatusError(error.code or 500, error.name.replace(" ", ""), error.description or ""))

    def defect(error: Exception) -> Response:
        log.error("%s %s failed", request.method, request.path, exc_info=error)
        return responses.failure(InternalError(f"{type(error).__name__}; the server's log has the details"))

    app.register_error_handler(StatusError, status)
    app.register_error_handler(StoreUnavailable, store_unavailable)
    app.register_error_handler(HistoryExpired, history_gone)
    app.register_error_handler(Compacted, history_gone)
    app.register_error_handler(RecursionError, too_deep)
    app.register_error_handler(HTTPException, http)
    app.register_error_handler(Exception, defect)


def _health_routes(app: Flask, checks: Checks) -> None:
    sets, remarks = {"healthz": checks["readyz"], **checks}, checks.get("remarks", {})

    @app.get("/<any(healthz, livez, readyz):endpoint>")
    def endpoint_health(endpoint: str) -> Response:
        text, healthy = health.report(endpoint, sets[endpoint], remarks, verbose="verbose" in request.args)
        return responses.raw(text.encode(), 200 if healthy else 503, media="text/plain; charset=utf-8")

    @app.get("/<any(healthz, livez, readyz):endpoint>/<name>")
    def one_check(endpoint: str, name: str) -> Response:
        if name not in sets[endpoint]:
            raise NotFound.path()
        one = {name: sets[endpoint][name]}
        text, healthy = health.report(endpoint, one, remarks, verbose="verbose" in request.args)
        return responses.raw(text.encode(), 200 if healthy else 503, media="text/plain; charset=utf-8")

    @app.get("/version")
    def version() -> Response:
        return responses.json(health.version())


def _discovery_routes(app: Flask) -> None:
    def aggregated(*, core: bool) -> Response | None:
        wanted = negotiation.discovery_version(request.headers.get("Accept", ""))
        if not wanted:
            return None
        response = responses.json(discovery.aggregated(wanted, core=core))
        response.content_type = f"application/json;g=apidiscovery.k8s.io;v={wanted};as=APIGroupDiscoveryList"
        response.headers["Vary"] = "Accept"
        return response

    @app.get("/")
    def paths() -> Response:
        served = {rule.rule for rule in app.url_map.iter_rules() if "<" not in rule.rule}
        groups = {f"/apis/{group}" if group else "/api/v1" for group in KINDS.groups()}
        return responses.json({"paths": sorted(served | groups | set(OPEN_PATHS))})

    @app.get("/api")
    def core() -> Response:
        return aggregated(core=True) or responses.json(discovery.versions(request.host))

    @app.get("/apis")
    def groups() -> Response:
        return aggregated(core=False) or responses.json(discovery.group_list())

    @app.get("/apis/<group>")
    def one_group(group: str) -> Response:
        return responses.json(discovery.group(group))

    @app.get("/api/<version>", defaults={"group": ""})
    @app.get("/apis/<group>/<version>")
    def resource_list(group: str, version: str) -> Response:
        return responses.json(discovery.resource_list(group, version))


def _openapi_routes(app: Flask) -> None:
    @app.get("/openapi/v3")
    def openapi_index() -> Response:
        return responses.json(openapi.index())

    @app.get("/openapi/v2")
    def openapi_2() -> Response:
        if "openapi" in request.headers.get("Accept", "") and "protobuf" in request.headers.get("Accept", ""):
            return responses.raw(openapi_v2.protobuf(), media=openapi_v2.PROTOBUF)
        return responses.raw(openapi_v2.document())

    @app.get("/openapi/v3/api/<version>", defaults={"group": ""})
    @app.get("/openapi/v3/apis/<group>/<version>")
    def openapi_document(group: str, version: str) -> Response:
        body, digest = openapi.document(group, version)
        response = responses.raw(body)
        response.headers["Etag"] = f'"{digest}"'
        response.headers["Cache-Control"] = "public, immutable" if request.args.get("hash") else "no-cache, private"
        return response


def _openid_routes(app: Flask, tokens: Tokens, address: str) -> None:
    @app.get("/.well-known/openid-configuration")
    def openid_configuration() -> Response:
        return responses.json(tokens.documents(address)[0])

    @app.get("/openid/v1/jwks")
    def openid_keys() -> Response:
        return responses.raw(orjson.dumps(tokens.documents(address)[1]), media="application/jwk-set+json")


def _level(user: User, verb: str, target: Target) -> str:
    arguments = request.args
    lists_first = arguments.get("resourceVersion", "") in {"", "0"} or arguments.get("sendInitialEvents") == "true"
    return level_of(user, verb, target, lists_first=lists_first)


def _await_revision(backend: Backend) -> None:
    """Wait for the revision a list asks for, so that nobody waits in the one seat that lists have."""
    arguments = request.args
    if not arguments.get("continue") and arguments.get("resourceVersionMatch") != "Exact":
        revision = reading.revision_of(arguments)
        if revision:
            backend.freshen(revision)


def _resource_routes(app: Flask, services: Services) -> None:
    def resource(**_parts: str) -> Response:
        target = parse(request.path)
        if target is None:
            raise unserved(request.path)
        watch = request.method == "GET" and watching.is_watch(request.args)
        verb = verb_of(request.method, target, watch=watch)
        if request.method == "OPTIONS" and verb is None:
            return app.make_default_options_response()
        environ = request.environ
        user: User = environ[ACTING]
        asked = target.attributes(verb or _NON_RESOURCE_VERBS.get(request.method, request.method))
        environ[_LABELS], environ[VERB] = (asked.verb, asked.resource), asked.verb
        try:
            selection = select(target, request.args) if verb in MANY else whole(target)
        except BadRequest:
            _authorize(services.access, user, asked, target.kind)  # a selector nobody can read gives nobody rights
            raise
        for needed in rights(target, asked.verb, upgrade=proxying.is_upgrade(request.headers)):
            _authorize(services.access, user, selection.asked(asked._replace(verb=needed)), target.kind)
        if verb is None:
            raise MethodNotAllowed(target.kind, asked.verb)
        call = Call(services, request, target, user, selection)
        if services.priority is None:
            return answer(verb, call)
        level = _level(user, verb, target)
        if level == LISTS:
            _await_revision(services.backend)
        with services.priority.seat(level, user):
            return answer(verb, call)

    for rule in ("/api/<version>/<path:rest>", "/apis/<group>/<version>/<path:rest>"):
        app.add_url_rule(rule, "resource", resource, methods=(*_METHODS, "OPTIONS"))
        # werkzeug keeps upgrades to WebSocket from all other rules
        app.add_url_rule(rule, "stream", resource, methods=("GET",), websocket=True)

"""The Flask application: routes.

Paths that name resources all go to ``Answering`` (answering.py), most of them without coming through here; the kind
comes from the path, so a new kind needs nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from flask import Flask, Request, Response, request
from flask.sessions import SecureCookieSessionInterface

from minik8s_modules.api.errors import BadRequest, NotFound
from minik8s_modules.api.kind import Kinds, Registry
from minik8s_modules.apiserver.access.tokens import Tokens
from minik8s_modules.apiserver.aggregation import offers
from minik8s_modules.apiserver.aggregation.forwarding import Aggregation
from minik8s_modules.apiserver.aggregation.offers import Offer
from minik8s_modules.apiserver.aggregation.swagger import Part, merged
from minik8s_modules.apiserver.discovery import discovery, openapi, openapi_patches, openapi_protobuf, openapi_v2
from minik8s_modules.apiserver.http import negotiation, responses
from minik8s_modules.apiserver.http.target import parse, verb_of
from minik8s_modules.apiserver.nodes import proxying
from minik8s_modules.apiserver.reads import watching
from minik8s_modules.apiserver.serving import health
from minik8s_modules.apiserver.serving.answering import METHODS, OPEN_PATHS, Answering, Authenticate, Record
from minik8s_modules.apiserver.serving.resources import Services

Checks = Mapping[str, Mapping[str, health.Check]]  # by endpoint: livez, readyz; and "remarks" on checks that pass


class _Joined:
    """OpenAPI v2 of this server and of extensions, made again when one of them is another; from any thread."""

    def __init__(self) -> None:
        self._made: tuple[bytes, list[Part], bytes] = (b"", [], b"")

    def document(self, kinds: Registry, parts: list[Part]) -> bytes:
        """Return the document."""
        own = openapi_v2.document(kinds)
        if not parts:
            return own
        of, before, made = self._made
        if own is not of or len(parts) != len(before) or any(a is not b for a, b in zip(parts, before, strict=True)):
            made = merged(own, parts)
            self._made = (own, parts, made)
        return made


class _NoSession(SecureCookieSessionInterface):
    """Sessions are cookies for browsers; not looking for them saves their cost on every request."""

    def open_session(self, _app: Flask, _request: Request) -> None:
        """Open nothing."""
        return

    def is_null_session(self, _session: object) -> bool:
        """Say that nothing needs saving."""
        return True


def make_app(
    services: Services, authenticate: Authenticate, checks: Checks, address: str = "", record: Record | None = None
) -> Answering:
    """Return the application.

    Args:
        services: what handlers work with.
        authenticate: tells the user of a WSGI environment, None when nobody is known.
        checks: what ``/livez`` and ``/readyz`` look at, and ``remarks``.
        address: where clients reach this server, for the OpenID document.
        record: takes each answer, for the audit log.
    """
    app = Flask("minik8s-apiserver", static_folder=None)
    app.session_interface = _NoSession()
    app.url_map.strict_slashes = False
    app.url_map.merge_slashes = False
    answering = Answering(services, authenticate, record, app)
    _steps(app, answering)
    _health_routes(app, checks)
    _discovery_routes(app, services.backend.kinds, services.aggregation)
    _openapi_routes(app, services.backend.kinds, services.aggregation)
    if services.tokens is not None:
        _openid_routes(app, services.tokens, address)

    @app.get("/metrics")
    def metrics() -> Response:
        text = (services.figures or services.backend.metrics.text)()
        return responses.raw(text.encode(), media="text/plain; version=0.0.4; charset=utf-8")

    return answering


def _steps(app: Flask, answering: Answering) -> None:
    """Have every request take the steps of answering.py."""

    @app.before_request
    def guard() -> None:
        answering.guard(request)

    @app.after_request
    def ended(response: Response) -> Response:
        return answering.ended(request, response)

    @app.errorhandler(Exception)
    def failed(error: Exception) -> Response:
        return answering.failed(request, error)

    def resource(**_parts: str) -> Response:
        target = parse(request.path, answering.kinds.registry)
        watch = request.method == "GET" and watching.is_watch(request.args)
        if request.method == "OPTIONS" and target is not None and verb_of("OPTIONS", target, watch=watch) is None:
            return app.make_default_options_response()
        return answering.resource(request)

    for rule in ("/api/<version>/<path:rest>", "/apis/<group>/<version>/<path:rest>"):
        app.add_url_rule(rule, "resource", resource, methods=(*METHODS, "OPTIONS"))
        # werkzeug keeps upgrades to WebSocket from all other rules
        app.add_url_rule(rule, "stream", resource, methods=("GET",), websocket=True)


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


def _elsewhere(aggregation: Aggregation | None, group: str, version: str) -> Response | None:
    """Return the answer of whoever answers a group and version in this server's stead."""
    remote = aggregation.directory.remotes.get((group, version)) if aggregation is not None else None
    if aggregation is None or remote is None:
        return None
    if proxying.is_upgrade(request.headers):
        raise BadRequest("discovery and OpenAPI documents are read without an upgrade")
    return Answering.forwarded(request, aggregation, remote)


def _discovery_routes(app: Flask, kinds: Kinds, aggregation: Aggregation | None) -> None:
    def others() -> list[Offer]:
        return aggregation.offers() if aggregation is not None else []

    def aggregated(*, core: bool) -> Response | None:
        wanted = negotiation.discovery_version(request.headers.get("Accept", ""))
        if not wanted:
            return None
        found = discovery.aggregated(wanted, kinds.registry, core=core)
        offered = [] if core else others()
        response = responses.json(offers.with_discovery(found, offered) if offered else found)
        response.content_type = f"application/json;g=apidiscovery.k8s.io;v={wanted};as=APIGroupDiscoveryList"
        response.headers["Vary"] = "Accept"
        return response

    @app.get("/")
    def paths() -> Response:
        served = {rule.rule for rule in app.url_map.iter_rules() if "<" not in rule.rule}
        groups = {f"/apis/{group}" if group else "/api/v1" for group in kinds.registry.groups()}
        return responses.json({"paths": sorted(served | groups | set(OPEN_PATHS))})

    @app.get("/api")
    def core() -> Response:
        return aggregated(core=True) or responses.json(discovery.versions(request.host, kinds.registry))

    @app.get("/apis")
    def groups() -> Response:
        found = aggregated(core=False)
        return found or responses.json(offers.with_groups(discovery.group_list(kinds.registry), others()))

    @app.get("/apis/<group>")
    def one_group(group: str) -> Response:
        return responses.json(
            offers.group_in(offers.with_groups(discovery.group_list(kinds.registry), others()), group)
        )

    @app.get("/api/<version>", defaults={"group": ""})
    @app.get("/apis/<group>/<version>")
    def resource_list(group: str, version: str) -> Response:
        return _elsewhere(aggregation, group, version) or responses.json(
            discovery.resource_list(group, version, kinds.registry)
        )


def _openapi_routes(app: Flask, kinds: Kinds, aggregation: Aggregation | None) -> None:
    joined = _Joined()

    @app.get("/openapi/v3")
    def openapi_index() -> Response:
        many = request.headers.get("Kubectl-Command") in openapi_patches.COMMANDS
        offered = aggregation.offers() if aggregation is not None else []
        index = (openapi_patches if many else openapi).index(kinds.registry)
        response = responses.json(offers.with_schemas(index, offered))
        response.headers["Vary"] = "Kubectl-Command"
        return response

    @app.get("/openapi/v2")
    def openapi_2() -> Response:
        if "openapi" in request.headers.get("Accept", "") and "protobuf" in request.headers.get("Accept", ""):
            return responses.raw(openapi_protobuf.document(), media=openapi_protobuf.MEDIA)
        offered = offers.ordered(aggregation.offers()) if aggregation is not None else []
        return responses.raw(joined.document(kinds.registry, [each.swagger for each in offered if each.swagger.paths]))

    @app.get("/openapi/v3/api/<version>", defaults={"group": ""})
    @app.get("/openapi/v3/apis/<group>/<version>")
    def openapi_document(group: str, version: str) -> Response:
        found = _elsewhere(aggregation, group, version)
        if found is not None:
            return found
        source = openapi_patches if request.args.get("only") == "patch" else openapi
        body, digest = source.document(group, version, kinds.registry)
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

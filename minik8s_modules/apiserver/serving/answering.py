"""From a request to its answer: who asks, what he may, which verb, how errors leave, what is counted and recorded.

Resources are most of what is asked, so ``Answering`` is a WSGI application of its own for them: Flask's contexts and
its routing cost more than a GET's own work. Everything else comes from Flask (app.py) through the same steps. Health
and version are open to everyone, and so is what newcomers know the cluster by (bootstrap_tokens.py); all else needs a
client certificate or a token, and a role that allows it (authorization.py). Whatever goes wrong leaves as a Kubernetes
Status.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from flask import Request, Response
from werkzeug.exceptions import HTTPException

from minik8s_modules.api.access.api_services import Remote
from minik8s_modules.api.errors import (
    BadRequest,
    Expired,
    InternalError,
    MethodNotAllowed,
    NotFound,
    ServiceUnavailable,
    StatusError,
    Timeout,
    Unauthorized,
)
from minik8s_modules.api.kinds import Kind
from minik8s_modules.apiserver.access.bootstrap_tokens import NOBODY, is_open
from minik8s_modules.apiserver.access.impersonation import acting
from minik8s_modules.apiserver.access.priority import AT_ONCE, LISTS, level_of
from minik8s_modules.apiserver.aggregation import directory
from minik8s_modules.apiserver.aggregation.directory import ForwardedRequest
from minik8s_modules.apiserver.aggregation.forwarding import Aggregation, Carried
from minik8s_modules.apiserver.audit.auditing import ACTING, AUDIT_ID, BEGAN, ORIGINAL, TARGET, VERB, note_decision
from minik8s_modules.apiserver.authorization.attributes import Attributes
from minik8s_modules.apiserver.authorization.authorization import Access, refusal
from minik8s_modules.apiserver.authorization.identity import User
from minik8s_modules.apiserver.http import responses
from minik8s_modules.apiserver.http.backend import Backend, unavailable
from minik8s_modules.apiserver.http.parameters import ResourceRequest
from minik8s_modules.apiserver.http.target import Target, parse, rights, unserved, verb_of
from minik8s_modules.apiserver.intake.limits import Holder, account_of
from minik8s_modules.apiserver.nodes import proxying
from minik8s_modules.apiserver.nodes.kubelet_hosts import KUBELET
from minik8s_modules.apiserver.reads import reading, watching
from minik8s_modules.apiserver.reads.selection import MANY, select, whole
from minik8s_modules.apiserver.serving.resources import Call, Services, answer
from minik8s_modules.base import errands
from minik8s_modules.base.ids import random_uid
from minik8s_modules.store.errors import Compacted, StoreUnavailable
from minik8s_modules.store.errors import Expired as HistoryExpired

log = logging.getLogger(__name__)

OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_NON_RESOURCE_VERBS = {"GET": "get", "HEAD": "get", "POST": "post", "PUT": "put", "PATCH": "patch", "DELETE": "delete"}
_RESOURCES = ("/api/", "/apis/")
_LABELS = "minik8s.labels"

Authenticate = Callable[[Mapping[str, Any]], User | None]
Record = Callable[[Request, Response], None]


class _Counted(NamedTuple):
    total: Any
    seconds: Any


class Answering:
    """The steps of an answer; called as a WSGI application, all of them.

    Args:
        services: what handlers work with.
        authenticate: tells the user of a WSGI environment, None when nobody is known.
        record: takes each answer, for the audit log.
        others: the WSGI application for everything that is no resource.
    """

    def __init__(
        self, services: Services, authenticate: Authenticate, record: Record | None, others: Callable[..., Any]
    ) -> None:
        self._services = services
        self._authenticate = authenticate
        self._record = record
        self._others = others
        self._counted_as = _counted(services.backend)
        self.kinds = services.backend.kinds
        self._aggregation = services.aggregation

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request."""
        request = ResourceRequest(environ, populate_request=False)  # a cycle would keep the answer until a collection
        try:
            response = self._of_resource(request)
        except Exception as error:  # noqa: BLE001 - whatever it is, it leaves as a Status
            response = self.failed(request, error)
        if response is None:
            body: Iterable[bytes] = self._others(environ, start_response)
            return body
        return responses.begun(self.ended(request, response), environ, start_response)

    def _of_resource(self, request: Request) -> Response | None:
        """Answer a request for a resource; None where it is for something else."""
        if request.method not in METHODS or "HTTP_UPGRADE" in request.environ:
            return None
        if not self._names_resource(request.path):
            return None
        self.guard(request, of_resource=True)
        return self.resource(request)

    def guard(self, request: Request, *, of_resource: bool = False) -> None:
        """Note who asks; refuse strangers, and what is no resource and not allowed.

        ``of_resource``: the path is known to name one, which ``resource`` decides on.
        """
        environ, path = request.environ, request.path
        environ[BEGAN] = time.perf_counter()
        environ[AUDIT_ID] = random_uid()
        if path.startswith(OPEN_PATHS) and path.split("/")[1] in {open_path[1:] for open_path in OPEN_PATHS}:
            return
        if AT_ONCE not in environ:  # else this was so when it was read
            self._services.backend.catch_up()
        user = self._authenticate(environ) or (NOBODY if is_open(environ) else None)
        if user is None:
            raise Unauthorized
        environ[ORIGINAL] = user
        environ[ACTING] = user = acting(user, environ, self._services.access)
        if not (of_resource or self._names_resource(path)):
            asked = Attributes(_NON_RESOURCE_VERBS.get(request.method, request.method), path=path.rstrip("/") or "/")
            _authorize(request, self._services.access, user, asked, None)

    def resource(self, request: Request) -> Response:
        """Answer one of resources.py's verbs, if the user may."""
        services, environ = self._services, request.environ
        if self._aggregation is not None and AT_ONCE not in environ:
            watches = directory.is_watch(request.args)
            elsewhere = self._aggregation.directory.asked(request.method, request.path, watch=watches)
            if elsewhere is not None:
                return self._elsewhere(request, self._aggregation, elsewhere)
        target = parse(request.path, self.kinds.registry)
        if target is None and not self.kinds.complete:  # a 404 would tell a garbage collector that owners are gone
            raise ServiceUnavailable("custom kinds are not known yet; try again", {"retryAfterSeconds": 1})
        if target is None:
            raise unserved(request.path)
        watch = request.method == "GET" and watching.is_watch(request.args)
        verb = verb_of(request.method, target, watch=watch)
        user: User = environ[ACTING]
        asked = _attributes(environ, target, verb or _NON_RESOURCE_VERBS.get(request.method, request.method))
        environ[_LABELS], environ[VERB] = (asked.verb, asked.resource), asked.verb
        try:
            selection = select(target, request.args) if verb in MANY else whole(target)
        except BadRequest:
            _authorize(request, services.access, user, asked, target.kind)  # a selector nobody can read gives no rights
            raise
        upgrade = bool(target.subresource) and proxying.is_upgrade(request.headers)
        for needed in rights(target, asked.verb, upgrade=upgrade):
            meant = asked if needed == asked.verb else asked._replace(verb=needed)
            _authorize(request, services.access, user, selection.asked(meant), target.kind)
        if verb is None:
            raise MethodNotAllowed(target.kind, asked.verb)
        call = Call(services, request, target, user, selection)
        if services.priority is None or AT_ONCE in environ:
            return answer(verb, call)
        level = _level(request, user, verb, target)
        if level == LISTS:
            _await_revision(request, services.backend)
        with services.priority.seat(level, user):
            return answer(verb, call)

    def _elsewhere(self, request: Request, aggregation: Aggregation, asked: ForwardedRequest) -> Response:
        """Have an extension answer, if the user may ask for that."""
        environ, wanted = request.environ, asked.target.attributes(asked.verb)
        environ[_LABELS], environ[VERB] = (asked.verb, asked.remote.name), asked.verb
        environ[TARGET] = asked.target
        _authorize(request, self._services.access, environ[ACTING], wanted, None)
        return self.forwarded(request, aggregation, asked.remote, endless=asked.endless)

    @staticmethod
    def forwarded(request: Request, aggregation: Aggregation, remote: Remote, *, endless: bool = False) -> Response:
        """Return the answer of somebody else to an authorized request."""
        environ = request.environ
        holder = Holder(account_of(environ[ORIGINAL]), environ.get("REMOTE_ADDR", ""))
        audit_id = environ.get(AUDIT_ID, "")
        return aggregation.answer(remote, request, environ[ACTING], holder, audit_id, endless=endless)

    def _names_resource(self, path: str) -> bool:
        if not path.startswith(_RESOURCES):
            return False
        if self._aggregation is not None and self._aggregation.directory.names_resource(path):
            return True
        return parse(path, self.kinds.registry) is not None

    def ended(self, request: Request, response: Response) -> Response:
        """Count and record an answer, once its code is known, and give it the id that it has in the audit log."""
        response.headers["Audit-Id"] = request.environ.get(AUDIT_ID, "")
        if isinstance(response, Carried):
            response.on_end = lambda code: self._note(request, code, response)
        else:
            self._note(request, response.status_code, response)
        return response

    def _note(self, request: Request, code: int, response: Response) -> None:
        environ = request.environ
        if code != response.status_code:  # somebody else's; setting it would write an answer's words in capitals
            response.status_code = code
        verb, resource = environ.get(_LABELS) or (_NON_RESOURCE_VERBS.get(request.method, "other"), "")
        counted = self._counted_as(verb, resource, code)
        counted.total.inc()
        now = time.perf_counter()
        counted.seconds.observe(now - environ.get(BEGAN, now))
        if self._record is not None:
            self._record(request, response)

    def failed(self, request: Request, error: Exception) -> Response:
        """Return the Status of what went wrong."""
        match error:
            case StatusError():
                found = error
            case StoreUnavailable():
                found = unavailable(error)
            case errands.Late():
                found = Timeout(f"{error}; try again", retry_after_s=1)
            case HistoryExpired() | Compacted():
                found = Expired(f"too old resource version: {error}")
            case RecursionError():
                found = BadRequest("the request's body is nested too deeply")
            case HTTPException():
                found = _status_error(request, error)
            case _:
                log.error("%s %s failed", request.method, request.path, exc_info=error)
                found = InternalError(f"{type(error).__name__}; the server's log has the details")
        return responses.failure(found)


def _counted(backend: Backend) -> Callable[[str, str, int], _Counted]:
    """Return what tells where an answer is counted, by verb, resource and code."""
    labels = ("verb", "resource", "code")
    total = backend.metrics.counter("apiserver_request_total", "Requests answered.", labels)
    seconds = backend.metrics.histogram(
        "apiserver_request_duration_seconds", "Time to answer; of a watch, to begin it.", ("verb", "resource")
    )

    @cache  # there are no more of them than the metrics keep
    def counted_as(verb: str, resource: str, code: int) -> _Counted:
        return _Counted(total.labels(verb, resource, str(code)), seconds.labels(verb, resource))

    return counted_as


def _attributes(environ: Mapping[str, Any], target: Target, verb: str) -> Attributes:
    """Return what authorization asks about; of a node that is asked as a kubelet, what its kubelet would ask about."""
    asked = target.attributes(verb)
    return asked._replace(resource=f"nodes/{environ[KUBELET]}") if KUBELET in environ else asked


def _authorize(request: Request, access: Access, user: User, asked: Attributes, kind: Kind | None) -> None:
    why = access.why(user, asked)
    note_decision(request.environ, why)
    if not why:
        raise refusal(user, asked, kind)


def _status_error(request: Request, error: HTTPException) -> StatusError:
    match error.code:
        case 405:
            return MethodNotAllowed(None, request.method)
        case 404:
            return NotFound.path()
    return StatusError(error.code or 500, error.name.replace(" ", ""), error.description or "")


def _level(request: Request, user: User, verb: str, target: Target) -> str:
    arguments = request.args
    lists_first = arguments.get("resourceVersion", "") in {"", "0"} or arguments.get("sendInitialEvents") == "true"
    return level_of(user, verb, target, lists_first=lists_first)


def _await_revision(request: Request, backend: Backend) -> None:
    """Wait for the revision a list asks for, so that nobody waits in the one seat that lists have."""
    arguments = request.args
    if not arguments.get("continue") and arguments.get("resourceVersionMatch") != "Exact":
        revision = reading.revision_of(arguments)
        if revision:
            backend.freshen(revision)

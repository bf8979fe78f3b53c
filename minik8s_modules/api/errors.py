"""What a client of the API can be told: Kubernetes' Status failures as exceptions, worded as kube-apiserver words them.

The API server raises them and writes ``error.status()``; the client reads a Status with ``from_status`` and raises the
same class, so a caller catches ``NotFound`` on either side. ``Cause`` is one reason below an ``Invalid``: validation
returns lists of them. Source of the wording: k8s.io/apimachinery ``api/errors`` and ``util/validation/field``.

StatusError
├── BadRequest 400 · Unauthorized 401 · Forbidden 403 · NotFound 404 · MethodNotAllowed 405 · NotAcceptable 406
├── AlreadyExists, Conflict 409 · Expired 410 · RequestEntityTooLarge 413 · UnsupportedMediaType 415 · Invalid 422
└── TooManyRequests 429 · InternalError 500 · ServiceUnavailable 503 · Timeout 504     (all four: retry later)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import Minik8sError

OPTIMISTIC_LOCK = "the object has been modified; please apply your changes to the latest version and try again"


# more causes, unknown fields or warnings help nobody (sigs.k8s.io/json stops collecting at as many)
MOST_TOLD = 100


class Resource(Protocol):
    """What an error needs to know of a kind (``kinds.Kind`` is one)."""

    @property
    def group(self) -> str:
        """Return the API group, "" for core."""

    @property
    def kind(self) -> str:
        """Return the kind, for example ``Pod``."""

    @property
    def plural(self) -> str:
        """Return the resource, for example ``pods``."""


class Cause(NamedTuple):
    """One reason of a refusal: a metav1.CauseType, a message without the field, and the field's path."""

    reason: str
    message: str
    field: str

    def __str__(self) -> str:
        """Return ``field: message`` as Kubernetes prints it."""
        return f"{self.field}: {self.message}" if self.field else self.message


def _qualified(name: str, group: str) -> str:
    return f"{name}.{group}" if group else name


def _details(name: str, group: str, kind: str, **more: Any) -> JsonObject:
    details = {"name": name, "group": group, "kind": kind, **more}
    return {field: value for field, value in details.items() if value}


class StatusError(Minik8sError):
    """A failure that reaches a client as a v1 Status.

    Attributes:
        code: HTTP status.
        reason: metav1.StatusReason, for programs.
        message: for people; says what, where and why.
        details: metav1.StatusDetails (name, group, kind, causes, retryAfterSeconds), {} when there are none.
    """

    code: int
    reason: str
    default_code: ClassVar[int] = 500
    default_reason: ClassVar[str] = ""

    def __init__(self, code: int, reason: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details: JsonObject = dict(details or {})

    def _fill(self, message: str, details: Mapping[str, Any] | None = None) -> None:
        StatusError.__init__(self, self.default_code, self.default_reason, message, details)

    def status(self) -> JsonObject:
        """Return the v1 Status object (JSON) of this failure."""
        body: JsonObject = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.details:
            body["details"] = self.details
        return body

    @property
    def causes(self) -> list[Cause]:
        """Return the causes in the details, [] when there are none."""
        entries = self.details.get("causes") or []
        return [Cause(e.get("reason", ""), e.get("message", ""), e.get("field", "")) for e in entries]

    @property
    def retry_after_s(self) -> int:
        """Return after how many seconds the server asks to try again; 0 when it does not."""
        return int(self.details.get("retryAfterSeconds") or 0)


class _WithMessage(StatusError):
    """A failure whose whole wording is the caller's."""

    def __init__(self, message: str, details: Mapping[str, Any] | None = None) -> None:
        self._fill(message, details)


class BadRequest(_WithMessage):
    """400: the request could not be read."""

    default_code = 400
    default_reason = "BadRequest"


class Unauthorized(StatusError):
    """401: who asks is not known."""

    default_code = 401
    default_reason = "Unauthorized"

    def __init__(self, message: str = "Unauthorized") -> None:
        self._fill(message)


class Forbidden(StatusError):
    """403: who asks may not do that, or admission refuses it; ``why`` is the reason in words."""

    default_code = 403
    default_reason = "Forbidden"

    def __init__(self, resource: Resource | None, name: str, why: str) -> None:
        if resource is None:
            self._fill(f"forbidden: {why}")
            return
        what = _qualified(resource.plural, resource.group)
        subject = f'{what} "{name}"' if name else what
        self._fill(f"{subject} is forbidden: {why}", _details(name, resource.group, resource.plural))


class NotFound(StatusError):
    """404: there is no such object; ``NotFound.path()`` for a path that serves nothing."""

    default_code = 404
    default_reason = "NotFound"

    def __init__(self, resource: Resource, name: str) -> None:
        what = _qualified(resource.plural, resource.group)
        self._fill(f'{what} "{name}" not found', _details(name, resource.group, resource.plural))

    @classmethod
    def path(cls, detail: str = "the server could not find the requested resource") -> NotFound:
        """Return the failure for a path where no resource is served; ``detail`` may say what to do instead."""
        error = cls.__new__(cls)
        # with details, though empty: `kubectl debug` reads them unasked and crashes where there are none
        StatusError.__init__(error, cls.default_code, cls.default_reason, detail, {"name": ""})
        return error


class MethodNotAllowed(StatusError):
    """405: the resource does not have this verb."""

    default_code = 405
    default_reason = "MethodNotAllowed"

    def __init__(self, resource: Resource | None, verb: str) -> None:
        if resource is None:
            self._fill("the server does not allow this method on the requested resource")
            return
        what = _qualified(resource.plural, resource.group)
        message = f'{verb} is not supported on resources of kind "{what}"'
        self._fill(message, _details("", resource.group, resource.plural))


class NotAcceptable(StatusError):
    """406: none of the media types the client accepts can be written."""

    default_code = 406
    default_reason = "NotAcceptable"

    def __init__(self, supported: Iterable[str]) -> None:
        self._fill(f"only the following media types are accepted: {', '.join(supported)}")


class AlreadyExists(StatusError):
    """409: an object of that name exists; ``generated`` says that the name was made from generateName."""

    default_code = 409
    default_reason = "AlreadyExists"

    def __init__(self, resource: Resource, name: str, *, generated: bool = False) -> None:
        what = _qualified(resource.plural, resource.group)
        message = f'{what} "{name}" already exists'
        more = {}
        if generated:
            message += ", the server was not able to generate a unique name for the object"
            more = {"retryAfterSeconds": 1}
        self._fill(message, _details(name, resource.group, resource.plural, **more))


class Conflict(StatusError):
    """409: the object is not what the client thought; read it again and decide again."""

    default_code = 409
    default_reason = "Conflict"

    def __init__(self, resource: Resource, name: str, why: str = OPTIMISTIC_LOCK, causes: Sequence[Cause] = ()) -> None:
        what = _qualified(resource.plural, resource.group)
        details = _details(name, resource.group, resource.plural, causes=[c._asdict() for c in causes])
        self._fill(f'Operation cannot be fulfilled on {what} "{name}": {why}', details)


class Expired(_WithMessage):
    """410: the resourceVersion or continue token is too old; list again."""

    default_code = 410
    default_reason = "Expired"

    @classmethod
    def version(cls, asked: int, oldest: int) -> Expired:
        """Return the failure of a watch from ``asked`` when history begins at ``oldest``."""
        return cls(f"too old resource version: {asked} ({oldest})")


class RequestEntityTooLarge(StatusError):
    """413: the body is longer than ``limit_bytes``."""

    default_code = 413
    default_reason = "RequestEntityTooLarge"

    def __init__(self, limit_bytes: int) -> None:
        self._fill(f"Request entity too large: limit is {limit_bytes}")


class UnsupportedMediaType(StatusError):
    """415: the body is of a media type that cannot be read."""

    default_code = 415
    default_reason = "UnsupportedMediaType"

    def __init__(self, accepted: Iterable[str]) -> None:
        types = ", ".join(accepted)
        self._fill(f"the body of the request was in an unknown format - accepted media types include: {types}")


class Invalid(StatusError):
    """422: the object breaks rules; each cause names a field.

    Args of the constructor: the kind, the object's name ("" when it has none), the causes in order. Equal causes are
    told once; of more than MOST_TOLD the first ones, and how many more there are.
    """

    default_code = 422
    default_reason = "Invalid"

    def __init__(self, resource: Resource, name: str, causes: Sequence[Cause]) -> None:
        more = len(causes) - MOST_TOLD
        causes = causes[:MOST_TOLD]
        texts = list(dict.fromkeys(map(str, causes)))
        if more > 0:
            texts.append(f"and {more} more")
        detail = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        what = _qualified(resource.kind, resource.group)
        details = _details(name, resource.group, resource.kind, causes=[c._asdict() for c in causes])
        self._fill(f'{what} "{name}" is invalid: {detail}', details)


class TooManyRequests(StatusError):
    """429: come back after ``retry_after_s`` seconds."""

    default_code = 429
    default_reason = "TooManyRequests"

    def __init__(self, message: str = "Too many requests, please try again later.", retry_after_s: int = 1) -> None:
        self._fill(message, {"retryAfterSeconds": retry_after_s})


class InternalError(StatusError):
    """500: a defect of the server, or of a part it depends on."""

    default_code = 500
    default_reason = "InternalError"

    def __init__(self, why: str) -> None:
        self._fill(f"Internal error occurred: {why}", {"causes": [{"message": why}]})


class ServiceUnavailable(_WithMessage):
    """503: the store, or another part the answer needs, is not reachable."""

    default_code = 503
    default_reason = "ServiceUnavailable"


class Timeout(StatusError):
    """504: the request could not be completed in time."""

    default_code = 504
    default_reason = "Timeout"

    def __init__(self, message: str, retry_after_s: int = 0) -> None:
        self._fill(f"Timeout: {message}", {"retryAfterSeconds": retry_after_s} if retry_after_s else None)


_CLASSES: tuple[type[StatusError], ...] = (
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    NotAcceptable,
    AlreadyExists,
    Conflict,
    Expired,
    RequestEntityTooLarge,
    UnsupportedMediaType,
    Invalid,
    TooManyRequests,
    InternalError,
    ServiceUnavailable,
    Timeout,
)
_BY_REASON = {cls.default_reason: cls for cls in _CLASSES}
_BY_CODE = {cls.default_code: cls for cls in reversed(_CLASSES)}


def from_status(body: Mapping[str, Any]) -> StatusError:
    """Return the failure that a v1 Status describes, as the class of its reason, else of its code.

    Never raises: a body that lacks parts, as proxies answer them, gives a StatusError with what there is.
    """
    code = body.get("code")
    code = code if isinstance(code, int) else 500
    reason = str(body.get("reason") or "")
    cls = _BY_REASON.get(reason) or _BY_CODE.get(code, StatusError)
    details = body.get("details")
    error = cls.__new__(cls)
    message = str(body.get("message") or reason or f"the server answered {code}")
    StatusError.__init__(error, code, reason, message, details if isinstance(details, dict) else None)
    return error

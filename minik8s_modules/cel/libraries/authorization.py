"""``authorizer``: whether the one who sent a request may do something else (pkg/cel/library/authz.go).

The answer comes from an ``Authorizer`` that the caller of an expression gives in.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

from minik8s_modules.cel import types
from minik8s_modules.cel.errors import EvaluationError
from minik8s_modules.cel.types import Type

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_LENGTH, _SUBDOMAIN_LENGTH = 63, 253


@dataclass(frozen=True, slots=True)
class Question:
    """What may be done: a path (of no resource), or a resource; empty fields are not set.

    ``service_account`` is (namespace, name) of who asks, or None for who sent the request.
    """

    verb: str = ""
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""
    service_account: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer; ``error`` is empty unless asking failed."""

    allowed: bool
    reason: str = ""
    error: str = ""
    cel_type: ClassVar[Type] = types.DECISION


class Authorizer(Protocol):
    """Whoever answers."""

    def authorize(self, question: Question) -> Decision:
        """Return the decision; never raises for a refusal."""


@dataclass(frozen=True, slots=True)
class AuthorizerValue:
    """The value of the variable ``authorizer``; ``request`` is what ``authorizer.requestResource`` asks about."""

    authorizer: Authorizer
    question: Question = Question()
    request: Question = Question()
    cel_type: ClassVar[Type] = types.AUTHORIZER

    def __getitem__(self, name: str) -> Any:
        """Return ``authorizer.requestResource``: a check of what the request is about."""
        if name != "requestResource":
            raise KeyError(name)
        return ResourceCheck(self.authorizer, self.request)


@dataclass(frozen=True, slots=True)
class PathCheck:
    """A path to be asked about."""

    authorizer: Authorizer
    question: Question
    cel_type: ClassVar[Type] = types.PATH_CHECK


@dataclass(frozen=True, slots=True)
class GroupCheck:
    """A group whose resource is not named yet."""

    authorizer: Authorizer
    question: Question
    cel_type: ClassVar[Type] = types.GROUP_CHECK


@dataclass(frozen=True, slots=True)
class ResourceCheck:
    """A resource to be asked about; also the value of ``authorizer.requestResource``."""

    authorizer: Authorizer
    question: Question
    cel_type: ClassVar[Type] = types.RESOURCE_CHECK


def _path(value: AuthorizerValue, path: str) -> PathCheck:
    if not path.strip():
        raise EvaluationError("path must not be empty")
    return PathCheck(value.authorizer, replace(value.question, path=path))


def _service_account(value: AuthorizerValue, namespace: str, name: str) -> AuthorizerValue:
    if not _SUBDOMAIN.fullmatch(name) or len(name) > _SUBDOMAIN_LENGTH:
        raise EvaluationError("Invalid service account name")
    if not _LABEL.fullmatch(namespace) or len(namespace) > _LABEL_LENGTH:
        raise EvaluationError("Invalid service account namespace")
    return AuthorizerValue(value.authorizer, replace(value.question, service_account=(namespace, name)))


def _resource(check: GroupCheck, resource: str) -> ResourceCheck:
    if not resource.strip():
        raise EvaluationError("resource must not be empty")
    return ResourceCheck(check.authorizer, replace(check.question, resource=resource))


def _with(part: str) -> Callable[[ResourceCheck, str], ResourceCheck]:
    def narrowed(check: ResourceCheck, value: str) -> ResourceCheck:
        changes: dict[str, Any] = {part: value}
        return replace(check, question=replace(check.question, **changes))

    return narrowed


def _check(check: PathCheck | ResourceCheck, verb: str) -> Decision:
    return check.authorizer.authorize(replace(check.question, verb=verb))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "authorizer_path": _path,
    "authorizer_group": lambda value, group: GroupCheck(value.authorizer, replace(value.question, group=group)),
    "authorizer_serviceaccount": _service_account,
    "groupcheck_resource": _resource,
    "resourcecheck_subresource": _with("subresource"),
    "resourcecheck_namespace": _with("namespace"),
    "resourcecheck_name": _with("name"),
    "authorizer_fieldselector": _with("field_selector"),
    "authorizer_labelselector": _with("label_selector"),
    "pathcheck_check": _check,
    "resourcecheck_check": _check,
    "decision_errored": lambda decision: bool(decision.error),
    "decision_error": lambda decision: decision.error,
    "decision_allowed": lambda decision: decision.allowed,
    "decision_reason": lambda decision: decision.reason,
}

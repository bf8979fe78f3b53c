"""Acting as others: ``kubectl --as`` sends Impersonate headers, and who may "impersonate" acts as the one they name.

Each part is authorized apart: the user (or service account), every group, the uid, every extra fact. Source:
k8s.io/apiserver ``endpoints/filters/impersonation.go``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from minik8s_modules.api.errors import BadRequest
from minik8s_modules.apiserver.authorization.attributes import Attributes
from minik8s_modules.apiserver.authorization.authorization import Access
from minik8s_modules.apiserver.authorization.identity import ACCOUNT, ALL_AUTHENTICATED, User, account_groups

_PREFIX = "HTTP_IMPERSONATE_"
_EXTRA = "HTTP_IMPERSONATE_EXTRA_"
_AUTHENTICATION = "authentication.k8s.io"


def acting(user: User, environ: Mapping[str, Any], access: Access) -> User:
    """Return whom the request acts as: ``user``, or the one it may impersonate.

    Raises:
        BadRequest: the headers cannot be used.
        Forbidden: ``user`` may not impersonate a part of what they name.
    """
    if not impersonates(environ):
        return user
    other = impersonated(environ)
    for asked in _questions(other):
        access.check(user, asked)
    groups = other.groups
    if not groups and other.name.startswith(ACCOUNT):
        groups = account_groups(_account(other.name)[0])
    return other._replace(groups=(*groups, *(() if ALL_AUTHENTICATED in groups else (ALL_AUTHENTICATED,))))


def impersonates(environ: Mapping[str, Any]) -> bool:
    """Return whether a request has a header of impersonation, whatever it says."""
    # one search for all names first: hardly any request has such a header, and every one has thirty others
    return _PREFIX in "\n".join(environ) and any(key.startswith(_PREFIX) for key in environ)


def impersonated(environ: Mapping[str, Any]) -> User:
    """Return the user the headers name, with the groups they name and no others.

    Raises:
        BadRequest: there is an unknown one, or one without a user.
    """
    asked = {key for key in environ if key.startswith(_PREFIX)}
    known = {f"{_PREFIX}{part}" for part in ("USER", "GROUP", "UID")}
    unknown = sorted(key for key in asked - known if not key.startswith(_EXTRA))
    name = environ.get("HTTP_IMPERSONATE_USER", "")
    if unknown or not name:
        raise BadRequest("impersonation takes Impersonate-User and, with it, Impersonate-Group, -Uid and -Extra-*")
    groups = tuple(filter(None, (group.strip() for group in environ.get("HTTP_IMPERSONATE_GROUP", "").split(","))))
    extra = {
        unquote(key.removeprefix(_EXTRA).replace("_", "-")).lower(): _values(environ[key])
        for key in asked
        if key.startswith(_EXTRA)
    }
    return User(name, groups, environ.get("HTTP_IMPERSONATE_UID", ""), tuple(sorted(extra.items())))


def _values(text: str) -> tuple[str, ...]:
    return tuple(value.strip() for value in text.split(","))


def _questions(other: User) -> Iterator[Attributes]:
    if other.name.startswith(ACCOUNT):
        namespace, name = _account(other.name)
        yield Attributes("impersonate", "", "serviceaccounts", namespace, name)
    else:
        yield Attributes("impersonate", "", "users", name=other.name)
    for group in other.groups:
        yield Attributes("impersonate", "", "groups", name=group)
    if other.uid:
        yield Attributes("impersonate", _AUTHENTICATION, "uids", name=other.uid)
    for key, values in other.extra:
        for value in values:
            yield Attributes("impersonate", _AUTHENTICATION, f"userextras/{key}", name=value)


def _account(name: str) -> tuple[str, str]:
    namespace, _, account = name.removeprefix(ACCOUNT).partition(":")
    if not namespace or not account:
        raise BadRequest(f'Impersonate-User: "{name}" is not a service account; write {ACCOUNT}NAMESPACE:NAME')
    return namespace, account

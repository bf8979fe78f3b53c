"""Who asks: the client certificate's common name is the user, its organizations are the groups.

That is Kubernetes' X.509 authentication. The TLS layer has checked the certificate against the client CA
(server.py), so what is read here is true. Reading it costs some 30 µs, so the answer is kept with the
connection.

``kubectl --as`` sends Impersonate headers: whoever may "impersonate" the user and the groups acts as them.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from minik8s_modules.api.errors import BadRequest

ALL_AUTHENTICATED = "system:authenticated"
MASTERS = "system:masters"


class User(NamedTuple):
    """A known client."""

    name: str
    groups: tuple[str, ...]

    def info(self) -> dict[str, Any]:
        """Return the authentication.k8s.io UserInfo object."""
        return {"username": self.name, "groups": list(self.groups)}


class CertificateAuthenticator:
    """Reads users from TLS connections."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[socket.socket, User | None] = WeakKeyDictionary()

    def __call__(self, environ: Mapping[str, Any]) -> User | None:
        """Return the user of a WSGI request's connection; None without a certificate or a name in it."""
        sock = environ.get("gunicorn.socket")
        if sock is None:
            return None
        try:
            return self._known[sock]
        except KeyError:
            user = self._known[sock] = _read(sock)
            return user


def impersonated(environ: Mapping[str, Any]) -> User | None:
    """Return the user the Impersonate headers name, None when there are none.

    Raises:
        BadRequest: they name a uid or extras, which no user has here, or groups without a user.
    """
    asked = {key for key in environ if key.startswith("HTTP_IMPERSONATE_")}
    if not asked:
        return None
    unknown = asked - {"HTTP_IMPERSONATE_USER", "HTTP_IMPERSONATE_GROUP"}
    name = environ.get("HTTP_IMPERSONATE_USER", "")
    if unknown or not name:
        raise BadRequest("impersonation takes Impersonate-User and, with it, Impersonate-Group; nothing else")
    groups = [group.strip() for group in environ.get("HTTP_IMPERSONATE_GROUP", "").split(",")]
    return User(name, (*filter(None, groups), ALL_AUTHENTICATED))


def _read(sock: Any) -> User | None:
    certificate = sock.getpeercert() if hasattr(sock, "getpeercert") else None
    return user_of(certificate["subject"]) if certificate else None


def user_of(subject: Iterable[Iterable[tuple[str, str]]]) -> User | None:
    """Return the user a certificate's subject (as ``ssl`` gives it) names; None without a common name."""
    parts = [pair for rdn in subject for pair in rdn]
    names = [value for key, value in parts if key == "commonName"]
    groups = [value for key, value in parts if key == "organizationName"]
    return User(names[-1], (*groups, ALL_AUTHENTICATED)) if names and names[-1] else None

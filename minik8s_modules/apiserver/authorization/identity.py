"""Who asks: the client certificate's common name is the user, its organizations are the groups.

That is Kubernetes' X.509 authentication; stricter is that a subject has one common name
(api/access/certificate_names.py). The TLS layer has checked the certificate against the client CA (server.py), so what
is read here is true; it is read once, after the handshake (intake.py). Service accounts come with a token instead
(tokens.py).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from minik8s_modules.api.access.certificate_names import peer_names
from minik8s_modules.api.objects import JsonObject

log = logging.getLogger(__name__)

CERTIFIED = "minik8s.certificate-user"  # where the server puts it in a WSGI environment
ALL_AUTHENTICATED = "system:authenticated"
MASTERS = "system:masters"
ACCOUNT = "system:serviceaccount:"
ACCOUNTS = "system:serviceaccounts"


class User(NamedTuple):
    """A known client; ``extra`` holds further facts as (key, values), sorted by key."""

    name: str
    groups: tuple[str, ...]
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def info(self) -> JsonObject:
        """Return the authentication.k8s.io UserInfo object."""
        found: JsonObject = {"username": self.name, "groups": list(self.groups)}
        if self.uid:
            found["uid"] = self.uid
        if self.extra:
            found["extra"] = {key: list(values) for key, values in self.extra}
        return found

    def fact(self, key: str) -> str:
        """Return the first value of an extra fact, "" when there is none."""
        return next((values[0] for found, values in self.extra if found == key and values), "")


def account_name(namespace: str, name: str) -> str:
    """Return the user a service account acts as."""
    return f"{ACCOUNT}{namespace}:{name}"


def account_groups(namespace: str) -> tuple[str, ...]:
    """Return the groups of a service account, without ``system:authenticated``."""
    return (ACCOUNTS, f"{ACCOUNTS}:{namespace}")


def certificate_user(environ: Mapping[str, Any]) -> User | None:
    """Return the user that the certificate of a WSGI request's connection names; None without one."""
    user: User | None = environ.get(CERTIFIED)
    return user


def user_of(certificate: Mapping[str, Any] | None) -> User | None:
    """Return the user a certificate (as ``ssl`` gives it) names; None without one, and for one that names nobody."""
    if not certificate:
        return None
    try:
        names = peer_names(certificate)
    except ValueError as error:
        log.warning("refusing a client certificate: %s (serial number %s)", error, certificate.get("serialNumber"))
        return None
    return User(names.common_name, (*names.organizations, ALL_AUTHENTICATED))

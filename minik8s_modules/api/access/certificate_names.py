"""Whom a certificate names: the one reading of subjects, for everybody who signs one or lets somebody in by one. Pure.

The common name is the user, the organizations are the groups, as in Kubernetes. Two programs that read differently make
two identities of one certificate: of two common names Go's library takes the last, others take the first. So a subject
has exactly one common name, or it names nobody. Other attributes name nobody, and are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

COMMON_NAME, ORGANIZATION = "commonName", "organizationName"


class Names(NamedTuple):
    """A user and its groups, in the order in which the certificate has them."""

    common_name: str
    organizations: tuple[str, ...]


def names_of(attributes: Iterable[tuple[str, str]]) -> Names:
    """Return whom a subject names.

    Args:
        attributes: all of its attributes as (name, value), in its order; names are OpenSSL's long ones.

    Raises:
        ValueError: the subject has no common name, or more than one; or a value is empty or has characters that cannot
            be printed, which others may end or hide it at.
    """
    found = tuple(attributes)
    common_names = [value for name, value in found if name == COMMON_NAME]
    organizations = tuple(value for name, value in found if name == ORGANIZATION)
    if len(common_names) != 1:
        detail = (
            f"{len(common_names)} common names: {', '.join(map(repr, common_names))}"
            if common_names
            else "no common name"
        )
        raise ValueError(f"the subject has {detail}; it must have exactly one")
    for value in (*common_names, *organizations):
        if not value or not value.isprintable():
            raise ValueError(f"the subject has the value {value!r}; values must not be empty and must be printable")
    return Names(common_names[0], organizations)


def peer_names(certificate: Mapping[str, Any] | None) -> Names:
    """Return whom the other end's certificate, as ``ssl.SSLSocket.getpeercert()`` returns it, names.

    Raises:
        ValueError: there is none, or as ``names_of``.
    """
    if not certificate:
        raise ValueError("the client presented no certificate")
    return names_of(pair for rdn in certificate.get("subject", ()) for pair in rdn)

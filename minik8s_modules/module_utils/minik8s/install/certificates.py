"""Decides which certificates must be issued, and why.

The module ``minik8s_certificates`` observes files (it needs ``cryptography`` for that) and hands plain facts to
:func:`plan_certificates`; what comes back is a list of steps with their reasons. Issuing happens in the module.
An authority that is issued again takes all its certificates along, in the same pass.
"""

from __future__ import annotations

import base64
import ipaddress
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

AUTHORITY_DAYS = 3650
"""For how long an authority is issued."""


class Identity(NamedTuple):
    """What a certificate says: subject, alternative names and uses, each list sorted."""

    common_name: str
    organizations: tuple[str, ...]
    names: tuple[str, ...]
    usages: tuple[str, ...]


class DeclaredCertificate(NamedTuple):
    """One declared certificate. ``authority`` is empty for an authority itself, which signs itself.

    ``place`` is the file that holds the certificate (or the kubeconfig), ``server`` is empty unless it is a kubeconfig.
    """

    place: str
    authority: str
    identity: Identity
    server: str
    access: tuple[str, str, str]


class CertificateFiles(NamedTuple):
    """What stands in a declared certificate's files now; ``not_after_s`` is in seconds since 1970."""

    identity: Identity
    not_after_s: float
    trusted: bool
    key_fits: bool
    server: str
    access: tuple[str, str, str]


class CertificateStep(NamedTuple):
    """One thing to do: ``issue`` makes a new key and certificate, ``protect`` sets owner, group and mode."""

    action: str
    place: str
    reason: str


def address_of(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the IP address that an alternative name is, or, of an IPv6 range, the first; None for a DNS name."""
    try:
        return ipaddress.IPv6Network(name).network_address + 1 if "/" in name else ipaddress.ip_address(name)
    except ValueError:
        return None


def plan_certificates(
    wanted: Sequence[DeclaredCertificate],
    found: Mapping[str, Optional[CertificateFiles]],  # noqa: UP045 - evaluated by tools on Python 3.9
    now_s: float,
    renew_s: float,
) -> list[CertificateStep]:
    """Return the steps that make ``found`` as ``wanted``, authorities first.

    Args:
        wanted: the declared certificates; authorities have an empty ``authority`` and their name in ``place``'s entry.
        found: by place, what stands there; None or missing when there is nothing usable.
        now_s: the present time in seconds since 1970.
        renew_s: certificates that end within this many seconds are issued again.
    """
    steps: list[CertificateStep] = []
    renewed: set[str] = set()
    for item in sorted(wanted, key=lambda entry: entry.authority != ""):
        present = found.get(item.place)
        reason = (
            "its authority is issued again" if item.authority in renewed else _reason(item, present, now_s, renew_s)
        )
        if reason:
            steps.append(CertificateStep("issue", item.place, reason))
            if not item.authority:
                renewed.add(item.place)
        elif present is not None and present.access != item.access:
            steps.append(
                CertificateStep("protect", item.place, f"{_access(present.access)} becomes {_access(item.access)}")
            )
    return steps


def diff(
    steps: Sequence[CertificateStep],
    wanted: Mapping[str, DeclaredCertificate],
    found: Mapping[str, Optional[CertificateFiles]],  # noqa: UP045 - evaluated by tools on Python 3.9
    days: int,
) -> dict[str, str]:
    """Return what stands in the files of ``steps`` before and after them, a line a file, for ``--diff``.

    Args:
        steps: what ``plan_certificates`` returned for ``wanted`` and ``found``.
        wanted: the declared certificates by place.
        found: by place, what stands there.
        days: for how long a certificate that is no authority's is issued.
    """
    before, after = [], []
    for step in steps:
        present, item = found.get(step.place), wanted[step.place]
        ends = "" if present is None else f"ends {time.strftime('%Y-%m-%d', time.gmtime(present.not_after_s))}"
        shown = (
            "absent or unreadable"
            if present is None
            else _state(present.identity, present.server, ends, present.access)
        )
        before.append(f"{step.place}: {shown}\n")
        ends = ends if step.action == "protect" else f"valid for {days if item.authority else AUTHORITY_DAYS} days"
        after.append(f"{step.place}: {_state(item.identity, item.server, ends, item.access)} ({step.reason})\n")
    return {"before": "".join(before), "after": "".join(after)}


def _state(identity: Identity, server: str, ends: str, access: tuple[str, str, str]) -> str:
    fields = zip(Identity._fields, identity)
    fields_shown = [f"{label.replace('_', ' ')} {_text(value)}" for label, value in fields if value]
    return "; ".join([*fields_shown, *([f"server {server}"] if server else []), ends, _access(access)])


def _reason(item: DeclaredCertificate, present: CertificateFiles | None, now_s: float, renew_s: float) -> str:
    """Return why ``item`` must be issued; empty when what is there will do."""
    if present is None:
        return "it is missing or cannot be read"
    left_s = present.not_after_s - now_s
    reasons = [
        (left_s < renew_s, f"it ends in {max(0, int(left_s // 86400))} days"),
        (not present.key_fits, "its key does not fit"),
        (not present.trusted, "its authority did not sign it"),
        (present.server != item.server, f"its server is {present.server!r}, not {item.server!r}"),
    ]
    for label, had, wants in zip(Identity._fields, present.identity, item.identity):
        reasons.append((had != wants, f"its {label.replace('_', ' ')} changed from {_text(had)} to {_text(wants)}"))
    return next((text for holds, text in reasons if holds), "")


def _text(value: str | Sequence[str]) -> str:
    return value if isinstance(value, str) else ", ".join(value) or "none"


def _access(access: tuple[str, str, str]) -> str:
    owner, group, mode = access
    return f"{owner}:{group} {mode}"


def kubeconfig(wanted: DeclaredCertificate, authority: bytes, certificate: bytes, key: bytes) -> dict[str, Any]:
    """Return a kubeconfig document with everything (PEM) embedded."""

    def text(data: bytes) -> str:
        return base64.b64encode(data).decode()

    name = wanted.identity.common_name
    cluster = {"server": wanted.server, "certificate-authority-data": text(authority)}
    user = {"client-certificate-data": text(certificate), "client-key-data": text(key)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "minik8s", "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": "minik8s", "context": {"cluster": "minik8s", "user": name}}],
        "current-context": "minik8s",
    }

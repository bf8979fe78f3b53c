"""Whether a newcomer's request is approved: its token is good for one certificate, and the name must be free. Pure.

The signer claims the token for one request before it approves it, by a write on the Secret that fails when somebody
else was faster; a signer that dies in between finds the claim and goes on. A name is taken while its Node is Ready or
its Lease is renewed: a second machine of that name would pull the node's pods over to itself. A node that lost its
keys, or was installed again, joins under its old name once it counts as down; whoever has a token may do the same then.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.access import bootstrap_tokens
from minik8s_modules.api.access.bootstrap_tokens import USED_AT, USED_BY, USER
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import parse_rfc3339, rfc3339


class Refuse(NamedTuple):
    """Deny the request, for good."""

    reason: str
    message: str


class Claim(NamedTuple):
    """Store this Secret, then look again."""

    secret: JsonObject


class Admit(NamedTuple):
    """The request has its token."""


def token_id(request: JsonObject) -> str:
    """Return the id of the bootstrap token that a signing request came with, "" when it came otherwise."""
    asked = objects.spec(request)
    newcomer = bootstrap_tokens.GROUP in (asked.get("groups") or [])
    username = str(asked.get("username") or "")
    return username.removeprefix(USER) if newcomer and username.startswith(USER) else ""


def decide_newcomer(
    request: JsonObject, secret: JsonObject | None, node: JsonObject | None, lease: JsonObject | None, now: datetime
) -> Admit | Claim | Refuse:
    """Return what becomes of a newcomer's request.

    Args:
        request: the CertificateSigningRequest.
        secret: its token's Secret, None when that is gone.
        node: the Node whose name it asks for, None when there is none.
        lease: the Lease of that node, None when there is none.
        now: the time.
    """
    called = f"token {token_id(request)}"
    if secret is None or not bootstrap_tokens.usable(secret, "authentication", now):
        return Refuse("TokenExpired", f"{called} is gone or has expired; create another: minik8s token create")
    owner = bootstrap_tokens.text_of(secret, USED_BY)
    if owner and owner != objects.uid(request):
        return Refuse(
            "TokenUsed", f"{called} has already been used for its one certificate; create another: minik8s token create"
        )
    if owner:
        return Admit()
    ready = objects.condition(node or {}, "Ready") or {}
    if node is not None and (ready.get("status") == "True" or _is_renewed(lease, now)):
        name = objects.name(node)
        text = f"node {name} is in the cluster and alive; choose another name, or remove that node first"
        return Refuse("NodeIsAlive", text)
    return Claim(_with(secret, {USED_BY: objects.uid(request), USED_AT: rfc3339(now)}))


def _is_renewed(lease: JsonObject | None, now: datetime) -> bool:
    """Return whether somebody holds the Lease now; one without a time is nobody's."""
    held = objects.spec(lease or {})
    renewed = str(held.get("renewTime") or "")
    return bool(renewed) and now < parse_rfc3339(renewed) + timedelta(seconds=held.get("leaseDurationSeconds") or 0)


def _with(secret: JsonObject, values: Mapping[str, str]) -> JsonObject:
    added = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    return {**secret, "data": {**(secret.get("data") or {}), **added}}

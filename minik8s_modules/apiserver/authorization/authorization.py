"""Who may do what: a chain of authorizers; the first that allows decides, and what none allows is refused.

``system:masters`` may do everything, whatever the roles say, so that nobody can lock himself out. After it come the
authorizers, in order: nodes (node_access.py), the roles in the cluster (policy.py), then those who carry virtual nodes
(carriers.py) and pilots (gateway_secrets.py). There are no negative rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from minik8s_modules.api.access.rbac import Rule
from minik8s_modules.api.errors import Forbidden, Resource, StatusError
from minik8s_modules.apiserver.authorization.attributes import Attributes, Named
from minik8s_modules.apiserver.authorization.identity import MASTERS, User
from minik8s_modules.apiserver.authorization.policy import Rbac


class Authorizer(Protocol):
    """One member of the chain."""

    def why(self, user: User, asked: Attributes) -> str:
        """Return why the request is allowed, "" when this authorizer does not allow it."""


class Access:
    """The chain. ``rbac`` is also asked for rules: by escalation checks and rules reviews."""

    def __init__(self, rbac: Rbac, before: Sequence[Authorizer] = (), after: Sequence[Authorizer] = ()) -> None:
        self.rbac = rbac
        self._chain: tuple[Authorizer, ...] = (*before, rbac, *after)

    def why(self, user: User, asked: Attributes) -> str:
        """Return why ``user`` may do ``asked``; "" when he may not."""
        if MASTERS in user.groups:
            return f"{MASTERS} may do everything"
        for authorizer in self._chain:
            reason = authorizer.why(user, asked)
            if reason:
                return reason
        return ""

    def allows_at_once(self, user: User, asked: Attributes) -> bool:
        """Return whether ``user`` may do ``asked`` by what is at hand; False says only that it may take longer."""
        return MASTERS in user.groups or self.rbac.allows_at_once(user, asked)

    def allowed(self, user: User, asked: Attributes) -> bool:
        """Return whether ``user`` may do ``asked``."""
        return bool(self.why(user, asked))

    def check(self, user: User, asked: Attributes, resource: Resource | None = None) -> None:
        """Raise Forbidden, worded as Kubernetes words it, unless ``user`` may do ``asked``."""
        if not self.why(user, asked):
            raise refusal(user, asked, resource)

    def rules(self, user: User, namespace: str) -> list[Rule]:
        """Return what ``user`` holds in a namespace by roles."""
        return self.rbac.rules(user, namespace)


class Requester(NamedTuple):
    """Who makes a request, and what decides what he may; writes carry it to admission.

    ``notes`` are annotations of the request's audit event.
    """

    user: User
    access: Access
    notes: dict[str, str]


def refusal(user: User, asked: Attributes, resource: Resource | None = None) -> StatusError:
    """Return the 403 for a request that is not allowed."""
    who = f'User "{user.name}" cannot {asked.verb}'
    if asked.path:
        return Forbidden(None, "", f'{who} path "{asked.path}"')
    what = f'{who} resource "{asked.resource}" in API group "{asked.group}"'
    where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    named = resource or Named(asked.group, "", asked.resource.partition("/")[0])
    return Forbidden(named, asked.name, f"{what} {where}")

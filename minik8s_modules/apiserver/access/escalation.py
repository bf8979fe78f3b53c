"""Nobody gives away more than he has: checks on roles and bindings.

Who writes a role must hold all its rules, or have the verb ``escalate`` on it; who binds one must hold its rules, or
have the verb ``bind`` on it. Source: kubernetes ``pkg/registry/rbac/{role,rolebinding}/policybased``.
"""

from __future__ import annotations

from collections.abc import Sequence

from minik8s_modules.api.access import rbac
from minik8s_modules.api.access.rbac import Rule, compiled
from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kinds import CLUSTER_ROLE, ROLE
from minik8s_modules.api.objects import name
from minik8s_modules.apiserver.authorization.attributes import Attributes
from minik8s_modules.apiserver.http.write import Write


def check_role(write: Write) -> None:
    """Raise Forbidden when a role holds rules that its writer does not."""
    old, new = write.old or {}, write.new
    aggregated = new.get("aggregationRule")
    if old.get("rules") == new.get("rules") and old.get("aggregationRule") == aggregated:
        return
    requester, kind, space = write.requester, write.target.kind, write.target.namespace
    if requester.access.allowed(requester.user, Attributes("escalate", rbac.GROUP, kind.plural, space, name(new))):
        return
    # an aggregated role may come to hold anything
    everything = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}]
    _check_held(write, compiled(everything if aggregated else new.get("rules")))


def check_binding(write: Write) -> None:
    """Raise Forbidden when a binding gives rules that its writer neither holds nor may bind."""
    old, new = write.old, write.new
    if old is not None and all((old.get(field) or []) == (new.get(field) or []) for field in ("subjects", "roleRef")):
        return
    requester, ref, space = write.requester, new["roleRef"], write.target.namespace
    kind = ROLE if ref["kind"] == ROLE.kind else CLUSTER_ROLE
    if requester.access.allowed(requester.user, Attributes("bind", rbac.GROUP, kind.plural, space, ref["name"])):
        return
    key = kind.key(space, ref["name"])
    if write.backend.cache.get(key) is None:
        why = f'{kind.resource} "{ref["name"]}" not found; binding a missing role needs the verb bind'
        raise Forbidden(write.target.kind, name(new), why)
    _check_held(write, requester.access.rbac.role_rules(ref, space))


def _check_held(write: Write, wanted: Sequence[Rule]) -> None:
    user = write.requester.user
    missing = rbac.uncovered(write.requester.access.rules(user, write.target.namespace), wanted)
    if missing:
        groups = " ".join(f'"{group}"' for group in user.groups)
        why = f'user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n'
        raise Forbidden(write.target.kind, name(write.new), why + rbac.described(missing))

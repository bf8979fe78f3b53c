"""What garbage collection and the emptying of namespaces need: the objects of every kind, custom ones too.

A role cannot say it: the resource ``*`` has all subresources in it, by which containers come into pods, logs are read
and certificates approved, and a list of kinds lacks those that come later. So it stands here: objects of every kind,
and nothing below them. What controllers write beside that, and the subresources they need, are in their role
(bootstrap_policy.yml). The values of Secrets are not kept from them: who creates pods in every namespace may mount any.
"""

from __future__ import annotations

from minik8s_modules.apiserver.authorization.attributes import Attributes
from minik8s_modules.apiserver.authorization.identity import User

CONTROLLERS = "system:kube-controller-manager"
_VERBS = frozenset({"get", "list", "watch", "patch", "delete", "deletecollection"})


class CollectingAuthorizer:
    """Allows the controllers to see every object, to take owners and finalizers from it, and to delete it."""

    def why(self, user: User, asked: Attributes) -> str:
        """Return why the controllers may do it; "" when they may not, or the user is another."""
        if user.name != CONTROLLERS or asked.verb not in _VERBS or asked.path or "/" in asked.resource:
            return ""
        return f"{CONTROLLERS}: objects of every kind are collected"

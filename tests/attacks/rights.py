"""Roles and bindings for users of a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.apiserver import ApiServerProcess
from tests.support.pki import Certificate

GROUP = "rbac.authorization.k8s.io"
Rule = dict[str, Any]


def rule(verbs: str, *resources: str, group: str = "", names: Sequence[str] = ()) -> Rule:
    """A PolicyRule; ``verbs`` are separated by spaces."""
    made: Rule = {"verbs": verbs.split(), "apiGroups": [group], "resources": [*resources]}
    return {**made, "resourceNames": [*names]} if names else made


class Rights:
    """Grants on one server."""

    def __init__(self, server: ApiServerProcess) -> None:
        self.server = server

    def grant(self, user: str, rules: Sequence[Rule], namespace: str = "") -> None:
        """Give a user rules in a namespace, or everywhere."""
        base = f"/apis/{GROUP}/v1" + (f"/namespaces/{namespace}" if namespace else "")
        kind = "Role" if namespace else "ClusterRole"
        role = {"metadata": {"name": user}, "rules": [*rules]}
        binding = {
            "metadata": {"name": user},
            "subjects": [{"kind": "User", "name": user, "apiGroup": GROUP}],
            "roleRef": {"kind": kind, "name": user, "apiGroup": GROUP},
        }
        for plural, body in ((f"{kind.lower()}s", role), (f"{kind.lower()}bindings", binding)):
            answer = self.server.request("POST", f"{base}/{plural}", body)
            assert answer.code == 201, answer.body

    def user(self, name: str, everywhere: Sequence[Rule], inside: Mapping[str, Sequence[Rule]]) -> Certificate:
        """A user with rules everywhere, and in namespaces."""
        self.grant(name, everywhere)
        for namespace, rules in inside.items():
            self.grant(name, rules, namespace)
        return self.server.identity(name)

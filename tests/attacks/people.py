"""Who attacks: people with the roles that every cluster has."""

from __future__ import annotations

from tests.integration.apiserver.conftest import Namespace
from tests.support.pki import Certificate


def editor_of(namespace: Namespace) -> Certificate:
    """Return the certificate of a user who holds the role edit in the namespace, and nothing else."""
    user = f"editor-{namespace.name}"
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace.name}/rolebindings"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    body = {"metadata": {"name": "editor"}, "roleRef": role, "subjects": [subject]}
    assert namespace.server.request("POST", path, body).code == 201
    return namespace.server.identity(user)

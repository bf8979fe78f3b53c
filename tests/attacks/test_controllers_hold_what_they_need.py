"""Whoever gets at the controllers' certificate gets what controllers need, and no ways around it.

The attack: their role had ``get`` and ``patch`` on ``*``, which has all subresources in it. With that one runs programs
in any pod (``get`` on ``pods/exec``), puts containers into it, and reads its log. What collects garbage needs the
objects of every kind; what is below them has names.
"""

from __future__ import annotations

import pytest

from minik8s_modules.api.kind import SUBRESOURCE_VERBS
from minik8s_modules.api.kinds import CLUSTER_ROLE, KINDS
from minik8s_modules.apiserver.serving import bootstrap
from minik8s_modules.apiserver.verbs.collecting_access import CONTROLLERS
from tests.integration.apiserver.conftest import Namespace
from tests.support.apiserver import ApiServerProcess, own_server
from tests.support.pki import Certificate

MERGE = {"Content-Type": "application/merge-patch+json"}
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
EVERYTHING = {
    "verbs": ["get", "list", "watch", "patch", "delete", "deletecollection"],
    "apiGroups": ["*"],
    "resources": ["*"],
}


@pytest.fixture
def thief(server: ApiServerProcess) -> Certificate:
    return server.identity(CONTROLLERS)


@pytest.mark.parametrize(
    ("method", "below"),
    [
        ("GET", "exec"),
        ("POST", "exec"),
        ("GET", "attach"),
        ("GET", "portforward"),
        ("GET", "log"),
        ("PATCH", "ephemeralcontainers"),
        ("PATCH", "resize"),
        ("POST", "eviction"),
        ("POST", "binding"),
    ],
)
def test_they_reach_into_no_pod(
    server: ApiServerProcess, namespace: Namespace, thief: Certificate, method: str, below: str
):
    pod = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "app", "image": "a"}]}}
    assert server.request("POST", namespace.path("pods"), pod).code == 201
    path = f"{namespace.path('pods', 'web')}/{below}"
    answer = server.request(method, path, {} if method != "GET" else None, client=thief, headers=MERGE)
    assert answer.code == 403, answer.body


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/v1/namespaces/default/serviceaccounts/default/token"),
        ("PATCH", "/apis/certificates.k8s.io/v1/certificatesigningrequests/x/approval"),
        ("PATCH", "/apis/certificates.k8s.io/v1/certificatesigningrequests/x/status"),
        ("POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests"),
        ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"),
        ("PUT", "/apis/rbac.authorization.k8s.io/v1/clusterroles/view"),
        ("POST", "/api/v1/namespaces/default/secrets"),
        ("PUT", "/api/v1/namespaces/default/secrets/x"),
        ("PATCH", "/apis/apps/v1/namespaces/default/deployments/x/scale"),
        ("GET", "/metrics"),
    ],
)
def test_they_become_nobody_else(server: ApiServerProcess, thief: Certificate, method: str, path: str):
    answer = server.request(method, path, {} if method != "GET" else None, client=thief, headers=MERGE)
    assert answer.code == 403, answer.body


def test_they_see_and_delete_objects_of_every_kind(server: ApiServerProcess, thief: Certificate):
    """What is collected may be of any kind, and of one that comes later."""
    for kind in KINDS.all():
        if kind.stored and "list" in kind.verbs:
            root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
            assert server.request("GET", f"{root}/{kind.plural}?limit=1", client=thief).code == 200, kind.plural


KUBELET_API_ADMIN = "system:kubelet-api-admin"  # Kubernetes' own, for people who are given it


def test_every_subresource_they_hold_is_named():
    """No role of a daemon has ``*``: whoever adds a subresource gives it to nobody by that.

    But autoscalers change the scale of whatever has one, and read figures, which only groups of extensions serve, as do
    plans of autoscalers.
    """
    held = [
        (default.name, *rule["apiGroups"], *rule["resources"], *rule["verbs"])
        for default in bootstrap.defaults()
        if default.kind is CLUSTER_ROLE and default.name not in {"cluster-admin", KUBELET_API_ADMIN}
        for rule in default.obj.get("rules") or []
        if any(word.startswith("*") for word in [*rule.get("resources", []), *rule.get("verbs", [])])
    ]
    assert held == [
        (CONTROLLERS, "*", "*/scale", "get", "update"),
        (CONTROLLERS, "custom.metrics.k8s.io", "external.metrics.k8s.io", "*", "get", "list"),
        ("system:minik8s:reconciler", "custom.metrics.k8s.io", "external.metrics.k8s.io", "*", "get", "list"),
    ]
    bound = [default.obj["roleRef"]["name"] for default in bootstrap.defaults() if "roleRef" in default.obj]
    assert KUBELET_API_ADMIN not in bound
    assert "exec" in SUBRESOURCE_VERBS


def test_a_cluster_that_is_upgraded_loses_what_was_too_much(tmp_path_factory: pytest.TempPathFactory):
    """Default roles only grow: what an earlier version gave is taken back by name, what a person added stays."""
    added = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"]}
    with own_server(tmp_path_factory.mktemp("upgraded")) as server:
        role = server.request("GET", f"{ROLES}/{CONTROLLERS}").json
        patch = {"rules": [EVERYTHING, *role["rules"], added]}
        assert server.request("PATCH", f"{ROLES}/{CONTROLLERS}", patch, headers=MERGE).code == 200
        server.stop()
        server.start()
        rules = server.request("GET", f"{ROLES}/{CONTROLLERS}").json["rules"]
        assert EVERYTHING not in rules
        assert added in rules
        thief = server.identity(CONTROLLERS)
        path = "/api/v1/namespaces/default/pods/web/ephemeralcontainers"
        assert server.request("PATCH", path, {}, client=thief, headers=MERGE).code == 403

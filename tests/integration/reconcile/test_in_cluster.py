"""A program in a pod finds the API server, trusts it, and may do what the roles of its account say: an operator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minik8s_modules.api.kinds import CONFIG_MAP, ROLE, ROLE_BINDING, SECRET, SERVICE, SERVICE_ACCOUNT
from tests.integration.reconcile.conftest import Cluster
from tests.support.docker.python_image import python_image

# answers every ConfigMap that has a name and no answer; the token is read each time, as client libraries do
OPERATOR = """
import json, os, ssl, time, urllib.error, urllib.request
place = "/var/run/secrets/kubernetes.io/serviceaccount/"
space = open(place + "namespace").read()
server = "https://%s:%s" % (os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"])
def call(method, path, body=None):
    headers = {"Authorization": "Bearer " + open(place + "token").read()}
    headers["Content-Type"] = "application/merge-patch+json"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=place + "ca.crt")) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, {}
maps = "/api/v1/namespaces/%s/configmaps" % space
while True:
    for found in call("GET", maps)[1].get("items", []):
        data = found.get("data", {})
        if "name" in data and "answer" not in data:
            secrets = call("GET", "/api/v1/namespaces/%s/secrets" % space)[0]
            answer = {"answer": "hello " + data["name"], "secrets": str(secrets)}
            call("PATCH", maps + "/" + found["metadata"]["name"], {"data": answer})
    time.sleep(0.2)
"""


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    with python_image() as name:
        yield name


def test_a_program_in_a_pod_reaches_the_api_with_its_token(cluster: Cluster, image: str):
    meta = {"name": "operator", "namespace": "default"}
    cluster.admin.create(SERVICE_ACCOUNT, {"metadata": meta})
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "patch"]}]
    cluster.admin.create(ROLE, {"metadata": meta, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "operator"}
    subjects = [{"kind": "ServiceAccount", "name": "operator", "namespace": "default"}]
    cluster.admin.create(ROLE_BINDING, {"metadata": meta, "roleRef": role, "subjects": subjects})
    cluster.admin.create(CONFIG_MAP, {"metadata": {**meta, "name": "question"}, "data": {"name": "world"}})
    container = {"name": "app", "image": image, "imagePullPolicy": "Never", "args": ["-u", "-c", OPERATOR]}
    # a user of its own: the token must be readable to it and to nobody else
    context = {"runAsUser": 1234}
    cluster.create("operator", containers=[container], serviceAccountName="operator", securityContext=context)
    # it is told the address of the service `kubernetes`, which the node's rules lead to the API server
    found = cluster.until(lambda: _answered(cluster), 60)
    assert found == {"name": "world", "answer": "hello world", "secrets": "403"}
    app = cluster.container("operator")["containerID"].removeprefix("docker://")
    shown = cluster.node.docker.inspect(app)
    host = cluster.admin.get(SERVICE, "kubernetes", "default")["spec"]["clusterIP"]
    assert f"'KUBERNETES_SERVICE_HOST={host}'" in str(shown)
    assert "eyJ" not in str(shown), "the token is a file and nothing else"
    assert cluster.container("operator")["restartCount"] == 0
    cluster.delete("operator", grace_s=0)
    cluster.until(lambda: cluster.gone("operator") and cluster.node.ids() == [])


def _answered(cluster: Cluster) -> dict[str, str]:
    data = dict(cluster.admin.get(CONFIG_MAP, "question", "default")["data"])
    return data if "answer" in data else {}


def test_a_pod_that_wants_no_token_gets_none(cluster: Cluster):
    pod = cluster.create("plain", automountServiceAccountToken=False)
    assert "volumes" not in pod["spec"]
    cluster.until(lambda: cluster.ready("plain"))
    cluster.delete("plain", grace_s=0)
    cluster.until(lambda: cluster.gone("plain"))
    assert cluster.admin.list(SECRET, "default").items == []

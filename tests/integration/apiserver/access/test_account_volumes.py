"""Every new pod gets the way to the API: token, authority and namespace, where Kubernetes puts them."""

from __future__ import annotations

import re
from typing import Any

from tests.support.apiserver import ApiServerProcess

MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def pod(name: str, **spec: object) -> dict[str, object]:
    containers = [{"name": "app", "image": "a"}, {"name": "b", "image": "b"}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def create(server: ApiServerProcess, body: dict[str, object]) -> dict[str, Any]:
    answer = server.request("POST", "/api/v1/namespaces/default/pods", body)
    assert answer.code == 201, answer.body
    spec: dict[str, Any] = answer.json["spec"]
    return spec


def test_a_new_pod_has_the_volume_in_every_container(server: ApiServerProcess):
    made = create(server, pod("tokens", initContainers=[{"name": "i", "image": "i"}]))
    (volume,) = made["volumes"]
    assert re.fullmatch(r"kube-api-access-[a-z0-9]{5}", volume["name"])
    assert [next(iter(source)) for source in volume["projected"]["sources"]] == [
        "serviceAccountToken",
        "configMap",
        "downwardAPI",
    ]
    assert volume["projected"]["sources"][0]["serviceAccountToken"] == {"expirationSeconds": 3607, "path": "token"}
    mounts = [each["volumeMounts"] for each in (*made["containers"], *made["initContainers"])]
    assert mounts == [[{"name": volume["name"], "readOnly": True, "mountPath": MOUNT}]] * 3


def test_a_container_that_mounts_something_there_keeps_it(server: ApiServerProcess):
    own = [{"name": "mine", "mountPath": MOUNT}]
    body = pod("own", containers=[{"name": "app", "image": "a", "volumeMounts": own}], volumes=[{"name": "mine"}])
    made = create(server, body)
    assert [each["name"] for each in made["volumes"]] == ["mine"]
    assert made["containers"][0]["volumeMounts"] == own


def test_automounting_can_be_refused_by_pod_and_account(server: ApiServerProcess):
    assert "volumes" not in create(server, pod("refused", automountServiceAccountToken=False))
    account = {"metadata": {"name": "quiet"}, "automountServiceAccountToken": False}
    server.request("POST", "/api/v1/namespaces/default/serviceaccounts", account)
    assert "volumes" not in create(server, pod("quiet", serviceAccountName="quiet"))
    loud = create(server, pod("loud", serviceAccountName="quiet", automountServiceAccountToken=True))
    assert len(loud["volumes"]) == 1


def test_a_mirror_pod_gets_nothing(server: ApiServerProcess):
    body = pod("mirror-n1", nodeName="n1")
    body["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "0123456789abcdef" * 2}  # type: ignore[index]
    reconciler = server.identity("system:minik8s:reconciler")
    answer = server.request("POST", "/api/v1/namespaces/default/pods", body, client=reconciler)
    assert (answer.code, "volumes" in answer.json["spec"]) == (201, False)

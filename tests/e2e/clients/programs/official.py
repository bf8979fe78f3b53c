"""The official Python client: typed and dynamic, watches, every patch, leader election.

Arguments: kubeconfig, namespace.
"""

from __future__ import annotations

import sys
import threading
import time

from kubernetes import client, config, dynamic, watch
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

KUBECONFIG, NAMESPACE = sys.argv[1:]
REASONS = {403: "Forbidden", 404: "Not Found", 409: "Conflict"}
TEMPLATE = {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "minik8s/busybox:1"}]}}
DEPLOYMENT = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": TEMPLATE}}


def refused(status: int, call, *arguments, **options) -> str:
    try:
        call(*arguments, **options)
    except client.ApiException as error:
        result = error
    else:
        raise AssertionError(f"{call} was not refused")
    assert (result.status, result.reason) == (status, REASONS[status]), result
    return str(result.body)


def typed(core: client.CoreV1Api) -> None:
    made = core.create_namespaced_config_map(
        NAMESPACE, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="a", labels={"x": "y"}), data={"k": "v"})
    )
    assert made.metadata.creation_timestamp.tzinfo
    assert "already exists" in refused(409, core.create_namespaced_config_map, NAMESPACE, {"metadata": {"name": "a"}})
    assert [one.metadata.name for one in core.list_namespaced_config_map(NAMESPACE, label_selector="x=y").items] == [
        "a"
    ]
    patches = {
        "application/merge-patch+json": {"data": {"k": "1"}},
        "application/strategic-merge-patch+json": {"data": {"k": "2"}},
        "application/json-patch+json": [{"op": "replace", "path": "/data/k", "value": "3"}],
    }
    for number, (media, body) in enumerate(patches.items(), 1):
        patched = core.patch_namespaced_config_map("a", NAMESPACE, body, _content_type=media)
        assert patched.data == {"k": str(number)}, media
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}, "data": {"k": "v"}}
    apply = {"field_manager": "me", "_content_type": "application/apply-patch+yaml"}
    fields = core.patch_namespaced_config_map("b", NAMESPACE, applied, force=True, **apply).metadata.managed_fields
    assert [(one.manager, one.operation) for one in fields] == [("me", "Apply")]
    refused(409, core.replace_namespaced_config_map, "a", NAMESPACE, made)
    page = core.list_namespaced_config_map(NAMESPACE, limit=1)
    rest = core.list_namespaced_config_map(NAMESPACE, limit=5, _continue=page.metadata._continue)
    assert [one.metadata.name for one in page.items + rest.items] == ["a", "b"]
    core.delete_collection_namespaced_config_map(NAMESPACE)
    assert "not found" in refused(404, core.read_namespaced_config_map, "a", NAMESPACE)


def watched(core: client.CoreV1Api) -> None:
    start = core.list_namespaced_secret(NAMESPACE).metadata.resource_version
    seen, stream = [], watch.Watch()

    def follow() -> None:
        options = {"resource_version": start, "timeout_seconds": 30, "allow_watch_bookmarks": True}
        for event in stream.stream(core.list_namespaced_secret, NAMESPACE, **options):
            seen.append((event["type"], event["object"].metadata.name))
            if event["type"] == "DELETED":
                stream.stop()

    thread = threading.Thread(target=follow)
    thread.start()
    core.create_namespaced_secret(NAMESPACE, {"metadata": {"name": "w"}, "stringData": {"a": "b"}})
    core.patch_namespaced_secret("w", NAMESPACE, {"metadata": {"labels": {"x": "y"}}})
    core.delete_namespaced_secret("w", NAMESPACE)
    thread.join(40)
    assert seen == [("ADDED", "w"), ("MODIFIED", "w"), ("DELETED", "w")], seen


def scaled(apps: client.AppsV1Api) -> None:
    apps.create_namespaced_deployment(NAMESPACE, DEPLOYMENT)
    assert apps.patch_namespaced_deployment_scale("d", NAMESPACE, {"spec": {"replicas": 0}}).spec.replicas == 0
    assert apps.read_namespaced_deployment_scale("d", NAMESPACE).spec.replicas == 0
    assert apps.read_namespaced_deployment_status("d", NAMESPACE).spec.replicas == 0


def discovered(api: client.ApiClient) -> None:
    found = dynamic.DynamicClient(api)
    maps = found.resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dynamic"}, "data": {"a": "b"}}
    maps.create(namespace=NAMESPACE, body=body)
    body["data"] = {"a": "c"}
    maps.server_side_apply(namespace=NAMESPACE, body=body, field_manager="me", force_conflicts=True)
    assert maps.get(namespace=NAMESPACE, name="dynamic").data.a == "c"
    assert [one["type"] for one in maps.watch(namespace=NAMESPACE, timeout=1, name="dynamic")] == ["ADDED"]
    deployments = found.resources.get(api_version="apps/v1", kind="Deployment")
    assert deployments.scale.get(namespace=NAMESPACE, name="d").spec.replicas == 0
    patch = {"body": {"spec": {"replicas": 1}}, "content_type": "application/merge-patch+json"}
    assert deployments.scale.patch(namespace=NAMESPACE, name="d", **patch).spec.replicas == 1
    maps.delete(namespace=NAMESPACE, name="dynamic")


def elected(api: client.ApiClient) -> None:
    client.Configuration.set_default(api.configuration)
    leading = threading.Event()
    wanted = electionconfig.Config(
        LeaseLock("leader", NAMESPACE, "me"), lease_duration=15, renew_deadline=10, retry_period=1,
        onstarted_leading=leading.set, onstopped_leading=lambda: None,
    )  # fmt: skip
    threading.Thread(target=leaderelection.LeaderElection(wanted).run, daemon=True).start()
    assert leading.wait(30)
    lease = client.CoordinationV1Api(api).read_namespaced_lease("leader", NAMESPACE)
    assert lease.spec.holder_identity == "me"
    deadline = time.monotonic() + 60
    while lease.spec.renew_time <= lease.spec.acquire_time and time.monotonic() < deadline:
        time.sleep(0.2)
        lease = client.CoordinationV1Api(api).read_namespaced_lease("leader", NAMESPACE)
    assert lease.spec.renew_time > lease.spec.acquire_time


def asked(api: client.ApiClient) -> None:
    core, attributes = client.CoreV1Api(api), {"verb": "get", "resource": "pods"}
    review = client.AuthorizationV1Api(api).create_self_subject_access_review(
        {"spec": {"resourceAttributes": attributes}}
    )
    assert review.status.allowed
    core.create_namespaced_service_account(NAMESPACE, {"metadata": {"name": "robot"}})
    token = core.create_namespaced_service_account_token("robot", NAMESPACE, {"spec": {"expirationSeconds": 600}})
    robot = client.Configuration(host=api.configuration.host)
    robot.ssl_ca_cert = api.configuration.ssl_ca_cert
    robot.api_key = {"authorization": f"Bearer {token.status.token}"}
    message = refused(403, client.CoreV1Api(client.ApiClient(robot)).list_namespaced_pod, NAMESPACE)
    assert f"system:serviceaccount:{NAMESPACE}:robot" in message
    assert client.VersionApi(api).get_code().major == "1"


def main() -> None:
    api = config.new_client_from_config(KUBECONFIG)
    typed(client.CoreV1Api(api))
    watched(client.CoreV1Api(api))
    scaled(client.AppsV1Api(api))
    discovered(api)
    asked(api)
    elected(api)


main()

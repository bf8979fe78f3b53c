"""Claims and volumes on a real API server: the controllers as a process, kubectl for what a user sees."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Forbidden, NotFound
from minik8s_modules.api.kinds import (
    EVENT,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    STATEFUL_SET,
    STORAGE_CLASS,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.api import ApiClient
from tests.integration.control.conftest import Cluster, Daemon, pod
from tests.support.waiting import until

PATIENCE_S = 60.0


def volume(name: str, size: str = "1Gi", **more: Any) -> JsonObject:
    spec = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": f"/data/{name}"}}
    return {"metadata": {"name": name}, "spec": {**spec, **more}}


def claim(space: str, name: str, size: str = "1Gi", **more: Any) -> JsonObject:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **more}
    return {"metadata": {"name": name, "namespace": space}, "spec": spec}


def phase(api: ApiClient, name: str, space: str = "") -> str:
    kind = PERSISTENT_VOLUME_CLAIM if space else PERSISTENT_VOLUME
    try:
        return str(objects.status(api.get(kind, name, space)).get("phase"))
    except NotFound:
        return "gone"


def reasons(api: ApiClient, space: str, name: str) -> set[str]:
    return {str(each["reason"]) for each in api.list(EVENT, space).items if each["involvedObject"]["name"] == name}


def test_a_claim_is_bound_and_its_volume_is_released_after_it(cluster: Cluster, daemon: Daemon):
    api, space = cluster.admin, cluster.namespace()
    api.create(PERSISTENT_VOLUME_CLAIM, claim(space, "data", storageClassName=space))
    until(lambda: "ProvisioningFailed" in reasons(api, space, "data"), PATIENCE_S)
    for name, size in ((f"{space}-big", "5Gi"), (f"{space}-fits", "2Gi")):
        api.create(PERSISTENT_VOLUME, volume(name, size, storageClassName="other"))
    api.create(PERSISTENT_VOLUME, volume(f"{space}-v", storageClassName=space))
    until(lambda: phase(api, "data", space) == "Bound", PATIENCE_S)
    until(lambda: phase(api, f"{space}-v") == "Bound", PATIENCE_S)
    shown = cluster.server.kubectl("-n", space, "get", "pvc", "data").stdout.splitlines()[1].split()
    assert shown[:6] == ["data", "Bound", f"{space}-v", "1Gi", "RWO", space]
    assert f"Claim:           {space}/data" in cluster.server.kubectl("describe", "pv", f"{space}-v").stdout
    api.delete(PERSISTENT_VOLUME_CLAIM, "data", space)
    until(lambda: phase(api, f"{space}-v") == "Released", PATIENCE_S)
    assert phase(api, f"{space}-big") == "Available"


def test_a_claim_and_its_volume_stay_as_long_as_a_pod_has_them(cluster: Cluster, daemon: Daemon):
    api, space = cluster.admin, cluster.namespace()
    name = f"{space}-v"
    api.create(PERSISTENT_VOLUME, volume(name, storageClassName=space))
    api.create(PERSISTENT_VOLUME_CLAIM, claim(space, "data", storageClassName=space))
    until(lambda: phase(api, name) == "Bound", PATIENCE_S)
    user = pod("user", space)
    user["spec"] |= {"nodeName": "n1", "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}
    api.create(POD, user)
    api.delete(PERSISTENT_VOLUME, name)
    api.delete(PERSISTENT_VOLUME_CLAIM, "data", space)
    assert "Terminating" in cluster.server.kubectl("-n", space, "get", "pvc", "data").stdout
    assert "Terminating" in cluster.server.kubectl("get", "pv", name).stdout
    api.delete(POD, "user", space, grace_s=0)
    until(lambda: phase(api, "data", space) == "gone", PATIENCE_S)
    until(lambda: phase(api, name) == "gone", PATIENCE_S)


def test_the_default_class_is_given_and_says_what_may_grow(cluster: Cluster, daemon: Daemon):
    api, space = cluster.admin, cluster.namespace()
    rigid = {"metadata": {"name": f"{space}-rigid"}, "provisioner": "example.com/disks"}
    api.create(STORAGE_CLASS, rigid)
    early = api.create(PERSISTENT_VOLUME_CLAIM, claim(space, "early"))
    assert "storageClassName" not in early["spec"]
    assert objects.finalizers(early) == ["kubernetes.io/pvc-protection"]
    marked = {"storageclass.kubernetes.io/is-default-class": "true"}
    name = f"{space}-default"
    provisioner = "example.com/disks"
    api.create(STORAGE_CLASS, {"metadata": {"name": name, "annotations": marked}, "provisioner": provisioner})
    try:
        assert api.create(PERSISTENT_VOLUME_CLAIM, claim(space, "late"))["spec"]["storageClassName"] == name
        none = api.create(PERSISTENT_VOLUME_CLAIM, claim(space, "none", storageClassName=""))
        assert none["spec"]["storageClassName"] == ""
        until(lambda: early_class(api, space) == name, PATIENCE_S)  # what waits gets it afterwards
    finally:
        api.delete(STORAGE_CLASS, name)
    elastic = {"metadata": {"name": f"{space}-elastic"}, "provisioner": provisioner, "allowVolumeExpansion": True}
    api.create(STORAGE_CLASS, elastic)
    for each, of_class in (("fixed", f"{space}-rigid"), ("grows", f"{space}-elastic")):
        api.create(PERSISTENT_VOLUME, volume(f"{space}-{each}", storageClassName=of_class))
        api.create(PERSISTENT_VOLUME_CLAIM, claim(space, each, storageClassName=of_class))
    until(lambda: {phase(api, each, space) for each in ("fixed", "grows")} == {"Bound"}, PATIENCE_S)
    more = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    api.patch(PERSISTENT_VOLUME_CLAIM, "grows", space, more)
    with pytest.raises(Forbidden, match="only dynamically provisioned pvc can be resized"):
        api.patch(PERSISTENT_VOLUME_CLAIM, "fixed", space, more)


def early_class(api: ApiClient, space: str) -> str:
    return str(objects.spec(api.get(PERSISTENT_VOLUME_CLAIM, "early", space)).get("storageClassName"))


def test_claims_of_a_stateful_set_get_volumes_of_their_class(cluster: Cluster, daemon: Daemon):
    api, space = cluster.admin, cluster.namespace()
    made = {"provisioner": "minik8s.io/hostpath", "reclaimPolicy": "Retain", "parameters": {"node": "n1"}}
    api.create(STORAGE_CLASS, {"metadata": {"name": space}, **made})
    template = {"metadata": {"labels": {"app": "db"}}, "spec": pod("x", space)["spec"]}
    claims = [{"metadata": {"name": "data"}, "spec": claim(space, "data", storageClassName=space)["spec"]}]
    declared = {"replicas": 2, "serviceName": "db", "podManagementPolicy": "Parallel", "template": template}
    selector = {"matchLabels": {"app": "db"}}
    body = {**declared, "selector": selector, "volumeClaimTemplates": claims}
    api.create(STATEFUL_SET, {"metadata": {"name": "db", "namespace": space}, "spec": body})
    until(lambda: {phase(api, f"data-db-{number}", space) for number in (0, 1)} == {"Bound"}, PATIENCE_S)
    found = api.get(PERSISTENT_VOLUME_CLAIM, "data-db-0", space)
    own = api.get(PERSISTENT_VOLUME, objects.spec(found)["volumeName"])
    assert objects.spec(own)["hostPath"]["path"].endswith(objects.uid(found))
    until(lambda: "ProvisioningSucceeded" in reasons(api, space, "data-db-0"), PATIENCE_S)


def test_the_originals_manifests_are_bound_as_they_were(cluster: Cluster, daemon: Daemon):
    """S-20, S-21 and S-23 of the original: an exported volume, a made one, and a volume that is free again."""
    api, space = cluster.admin, cluster.namespace()
    made = {"provisioner": "minik8s.io/hostpath", "reclaimPolicy": "Retain", "parameters": {"node": "n1"}}
    api.create(STORAGE_CLASS, {"metadata": {"name": space}, **made})
    old = {
        "metadata": {"name": f"{space}-pv", "namespace": space},
        "spec": {"capacity": "1Gi", "storageClassName": space},
    }
    api.create(PERSISTENT_VOLUME, old)
    until(lambda: phase(api, f"{space}-pv") == "Available", PATIENCE_S)
    for name, size in (("one", "500Mi"), (f"{space}-two", "2Gi")):
        spec = {"request": size, "storageClassName": space}
        api.create(PERSISTENT_VOLUME_CLAIM, {"metadata": {"name": name, "namespace": space}, "spec": spec})
        until(lambda name=name: phase(api, name, space) == "Bound", PATIENCE_S)  # type: ignore[misc]
    assert objects.spec(api.get(PERSISTENT_VOLUME_CLAIM, "one", space))["volumeName"] == f"{space}-pv"
    until(lambda: phase(api, f"pv-{space}-two") == "Bound", PATIENCE_S)
    api.delete(PERSISTENT_VOLUME_CLAIM, "one", space)
    until(lambda: phase(api, f"{space}-pv") == "Available", PATIENCE_S)
    assert "claimRef" not in objects.spec(api.get(PERSISTENT_VOLUME, f"{space}-pv"))


def test_a_volume_is_made_on_the_node_of_the_first_pod(cluster: Cluster, daemon: Daemon, scheduler: Daemon):
    api, space = cluster.admin, cluster.namespace()
    node = cluster.node()
    api.patch(NODE, node, "", {"metadata": {"labels": {"kubernetes.io/hostname": node}}})
    made = {"provisioner": "minik8s.io/hostpath", "reclaimPolicy": "Retain"}
    api.create(STORAGE_CLASS, {"metadata": {"name": space}, "volumeBindingMode": "WaitForFirstConsumer", **made})
    api.create(PERSISTENT_VOLUME_CLAIM, claim(space, "data", storageClassName=space))
    until(lambda: "WaitForFirstConsumer" in reasons(api, space, "data"), PATIENCE_S)
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    api.create(POD, pod("user", space, nodeSelector={"test": node}, volumes=volumes))
    until(lambda: objects.spec(api.get(POD, "user", space)).get("nodeName") == node, PATIENCE_S)
    bound = api.get(PERSISTENT_VOLUME_CLAIM, "data", space)
    assert objects.status(bound)["phase"] == "Bound"
    found = api.get(PERSISTENT_VOLUME, objects.spec(bound)["volumeName"])
    terms = objects.spec(found)["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert terms[0]["matchExpressions"][0]["values"] == [node]


def test_a_claim_is_made_for_a_pod_and_goes_with_it(cluster: Cluster, daemon: Daemon):
    api, space = cluster.admin, cluster.namespace()
    api.create(PERSISTENT_VOLUME, volume(f"{space}-v", storageClassName=space))
    template = {"metadata": {"labels": {"of": "pods"}}, "spec": claim(space, "", storageClassName=space)["spec"]}
    owner = pod("owner", space)
    owner["spec"]["volumes"] = [{"name": "own", "ephemeral": {"volumeClaimTemplate": template}}]
    api.create(PERSISTENT_VOLUME_CLAIM, claim(space, "clash-own", storageClassName="none"))
    api.create(POD, owner)
    api.create(POD, {**owner, "metadata": {**owner["metadata"], "name": "clash"}})
    until(lambda: phase(api, "owner-own", space) == "Bound", PATIENCE_S)
    made = api.get(PERSISTENT_VOLUME_CLAIM, "owner-own", space)
    assert objects.labels(made) == {"of": "pods"}
    until(lambda: "FailedBinding" in reasons(api, space, "clash"), PATIENCE_S)
    shown = cluster.server.kubectl("-n", space, "describe", "pod", "clash").stdout
    assert f"PVC {space}/clash-own was not created for pod {space}/clash (pod is not owner)" in shown
    api.delete(POD, "owner", space, grace_s=0)
    until(lambda: phase(api, "owner-own", space) == "gone", PATIENCE_S)
    until(lambda: phase(api, f"{space}-v") == "Released", PATIENCE_S)
    assert phase(api, "clash-own", space) == "Pending"

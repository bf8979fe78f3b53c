"""What a node may read and write around the claims of its pods: the sizes of its volumes, and nothing of others'."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kinds import NODE as NODE_KIND
from minik8s_modules.api.kinds import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, POD, POD_ADDRESS, POD_CIDR, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.access.node_access import NodeAuthorizer, restrict
from minik8s_modules.apiserver.authorization.attributes import Attributes
from minik8s_modules.apiserver.authorization.authorization import Access, Requester
from minik8s_modules.apiserver.authorization.identity import User
from minik8s_modules.apiserver.authorization.policy import Rbac
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.http.write import Write
from minik8s_modules.apiserver.verbs import writing

NODE = User("system:node:n1", ("system:nodes",))


def make(backend: Backend, kind: Kind, name: str, **fields: Any) -> None:
    options = Options(dry_run=False, validation="Strict", warnings=[])
    target = Target(kind, "default" if kind.namespaced else "")
    writing.create(backend, target, {"metadata": {"name": name}, **fields}, options)


def pod(backend: Backend, node: str, claim: str) -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    spec = {"nodeName": node, "containers": [{"name": "app", "image": "a"}], "volumes": volumes}
    make(backend, POD, f"has-{claim}", spec=spec)


def test_a_node_writes_the_status_of_claims_that_its_pods_name(backend: Backend):
    pod(backend, "n1", "near")
    pod(backend, "n2", "far")
    node = NodeAuthorizer(backend.cache)
    status = "persistentvolumeclaims/status"
    assert node.why(NODE, Attributes("patch", "", status, "default", "near"))
    for verb, resource, name in (
        ("patch", status, "far"),
        ("patch", "persistentvolumeclaims", "near"),
        ("update", status, "near"),
        ("patch", status, ""),
    ):
        assert not node.why(NODE, Attributes(verb, "", resource, "default", name))


def written(backend: Backend, old: JsonObject, new: JsonObject, options: Options, subresource: str = "status") -> Write:
    requester = Requester(NODE, Access(Rbac(backend.cache)), {})
    target = Target(PERSISTENT_VOLUME_CLAIM, "default", "near", subresource)
    return Write(backend, "update", target, {"status": new}, {"status": old}, options, requester)


def test_a_node_says_of_a_claim_how_large_it_is_and_nothing_else(backend: Backend, options: Options):
    old = {"phase": "Bound", "capacity": {"storage": "1Gi"}, "conditions": [{"type": "FileSystemResizePending"}]}
    grown = {"phase": "Bound", "capacity": {"storage": "2Gi"}}
    restrict(written(backend, old, grown, options))
    for new, subresource in (({**grown, "phase": "Lost"}, "status"), (grown, "")):
        with pytest.raises(Forbidden, match=r"is not allowed to update fields other than status\.capacity"):
            restrict(written(backend, old, new, options, subresource))


def volume(backend: Backend, claim: str, secret: str, *, field: str = "nodeStageSecretRef") -> None:
    csi = {"driver": "d.example.com", "volumeHandle": "h", field: {"name": secret, "namespace": "kube-system"}}
    held = {"namespace": "default", "name": claim, "uid": "u"}
    spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "csi": csi, "claimRef": held}
    make(backend, PERSISTENT_VOLUME, f"of-{claim}-{field.lower()}", spec=spec)


def test_a_node_reads_the_secrets_that_drivers_are_told_there_for_the_volumes_of_its_pods(backend: Backend):
    pod(backend, "n1", "near")
    pod(backend, "n2", "far")
    volume(backend, "near", "staged")
    volume(backend, "near", "published", field="nodePublishSecretRef")
    volume(backend, "near", "expanded", field="nodeExpandSecretRef")
    volume(backend, "near", "of-the-controller", field="controllerPublishSecretRef")
    volume(backend, "far", "of-another-node")
    node = NodeAuthorizer(backend.cache)
    for name in ("staged", "published", "expanded"):
        assert node.why(NODE, Attributes("get", "", "secrets", "kube-system", name))
        assert not node.why(NODE, Attributes("get", "", "secrets", "default", name))
        assert not node.why(NODE, Attributes("update", "", "secrets", "kube-system", name))
        assert not node.why(NODE, Attributes("get", "", "configmaps", "kube-system", name))
    for name in ("of-the-controller", "of-another-node", ""):
        assert not node.why(NODE, Attributes("get", "", "secrets", "kube-system", name))


def asked(backend: Backend, options: Options, kind: Kind, name: str, **fields: Any) -> None:
    """Have the node create an object, as admission looks at it."""
    obj = {"metadata": {"name": name}, **fields}
    restrict(
        Write(
            backend,
            "create",
            Target(kind, "", name),
            obj,
            None,
            options,
            Requester(NODE, Access(Rbac(backend.cache)), {}),
        )
    )


@pytest.mark.parametrize("cidr", ["fd00:9::/64", "10.244.0.0/16", "10.244.2.0/24"])
def test_a_node_has_no_range_but_the_one_that_is_claimed_for_it(backend: Backend, options: Options, cidr: str):
    make(backend, POD_CIDR, "10.244.1.0-24", spec={"cidr": "10.244.1.0/24", "nodeName": "n1"})
    make(backend, POD_CIDR, "10.244.2.0-24", spec={"cidr": "10.244.2.0/24", "nodeName": "n2"})
    asked(backend, options, NODE_KIND, "n1", spec={})
    asked(backend, options, NODE_KIND, "n1", spec={"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"]})
    for spec in ({"podCIDR": cidr}, {"podCIDRs": [cidr]}):
        with pytest.raises(Forbidden, match="which no PodCIDR claims for it"):
            asked(backend, options, NODE_KIND, "n1", spec=spec)
    requester = Requester(NODE, Access(Rbac(backend.cache)), {})
    old: JsonObject = {"spec": {}}
    write = Write(backend, "update", Target(NODE_KIND, "", "n1"), {"spec": {"podCIDR": cidr}}, old, options, requester)
    with pytest.raises(Forbidden, match="which no PodCIDR claims for it"):
        restrict(write)
    restrict(write._replace(old=write.obj))  # an administrator gave it


def test_a_node_claims_no_range_that_overlaps_anothers(backend: Backend, options: Options):
    make(backend, POD_CIDR, "10.244.2.0-24", spec={"cidr": "10.244.2.0/24", "nodeName": "n2"})
    make(backend, POD_CIDR, "fd00:2::-64", spec={"cidr": "fd00:2::/64", "nodeName": "n2"})
    for name in ("10.244.1.0-24", "fd00:1::-64", "no-range", "10.244.9.9-24"):
        asked(backend, options, POD_CIDR, name, spec={"cidr": name.replace("-", "/"), "nodeName": "n1"})
    for name in ("10.244.0.0-16", "10.244.2.128-25", "fd00::-16"):
        with pytest.raises(Forbidden, match='of node "n2"'):
            asked(backend, options, POD_CIDR, name, spec={"cidr": name.replace("-", "/"), "nodeName": "n1"})


def test_a_node_claims_no_address_for_a_pod_of_another_node(backend: Backend, options: Options):
    static = "0123456789abcdef" * 2
    for node in ("n1", "n2"):
        make(backend, POD, f"api-{node}", spec={"nodeName": node, "containers": [{"name": "app", "image": "a"}]})
    mirror = {"name": "static-n2", "annotations": {"kubernetes.io/config.mirror": static}}
    make(
        backend, POD, "static-n2", metadata=mirror, spec={"nodeName": "n2", "containers": [{"name": "a", "image": "a"}]}
    )
    uids = {each: backend.get(Target(POD, "default", f"api-{each}")).object["metadata"]["uid"] for each in ("n1", "n2")}
    for uid in (uids["n1"], "of-nobody", "0" * 32):
        asked(backend, options, POD_ADDRESS, "10.244.1.5", spec={"podUID": uid, "podName": "p", "nodeName": "n1"})
    for uid in (uids["n2"], static):
        with pytest.raises(Forbidden, match="can only claim addresses for pods with"):
            asked(backend, options, POD_ADDRESS, "10.244.1.5", spec={"podUID": uid, "podName": "p", "nodeName": "n1"})

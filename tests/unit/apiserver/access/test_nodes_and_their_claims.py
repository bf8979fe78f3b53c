"""What a node may read and write around the claims of its pods: the sizes of its volumes, and nothing of others'."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kinds import NODE as NODE_KIND
from minik8s_modules.api.kinds import (
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    POD_ADDRESS,
    POD_CIDR,
    SERVICE,
    Kind,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.access.node_access import NodeAuthorizer, restrict
from minik8s_modules.apiserver.authorization.attributes import Attributes
from minik8s_modules.apiserver.authorization.authorization import Access, Requester
from minik8s_modules.apiserver.authorization.identity import User
from minik8s_modules.apiserver.authorization.policy import Rbac
from minik8s_modules.apiserver.http.addressing import read_addressing
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.http.write import Write
from minik8s_modules.apiserver.verbs import writing
from minik8s_modules.base.config import Configuration

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


def of_an_installation(backend: Backend) -> Backend:
    """Return a backend that knows the ranges of Pods, and the pool."""
    told = {
        "cluster_cidr": "10.244.0.0/16",
        "cluster_cidr_ipv6": "fd00:10:244::/48",
        "load_balancer": {"addresses": ["192.0.2.50-192.0.2.60", "2001:db8::50-2001:db8::60"]},
    }
    return replace(backend, addressing=read_addressing(Configuration(told, "test")))


@pytest.mark.parametrize("cidr", ["192.0.0.0/8", "192.0.2.0/24", "10.0.0.0/8", "0.0.0.0/0", "::/0", "2001:db8::/64"])
def test_a_node_claims_parts_of_the_clusters_ranges_alone(backend: Backend, options: Options, cidr: str):
    known = of_an_installation(backend)
    for own in ("10.244.1.0/24", "fd00:10:244:1::/64"):
        asked(known, options, POD_CIDR, own.replace("/", "-"), spec={"cidr": own, "nodeName": "n1"})

    with pytest.raises(Forbidden, match="nodes claim ranges of"):
        asked(known, options, POD_CIDR, cidr.replace("/", "-"), spec={"cidr": cidr, "nodeName": "n1"})


@pytest.mark.parametrize("second", ["::/0", "fd00:10:244:2::/64", "2001:db8::/64", "no range"])
def test_each_range_of_a_node_is_claimed_or_follows(backend: Backend, options: Options, second: str):
    known = of_an_installation(backend)
    make(backend, POD_CIDR, "10.244.1.0-24", spec={"cidr": "10.244.1.0/24", "nodeName": "n1"})
    ranges = ["10.244.1.0/24", "fd00:10:244:1::/64"]
    asked(known, options, NODE_KIND, "n1", spec={"podCIDR": ranges[0], "podCIDRs": ranges})
    for told in ([ranges[0], second], [second]):
        with pytest.raises(Forbidden, match="which no PodCIDR claims for it"):
            asked(known, options, NODE_KIND, "n1", spec={"podCIDRs": told})


def tells(backend: Backend, options: Options, before: JsonObject, *told: str) -> JsonObject:
    """Have the node write its addresses, as ``Internal 192.0.2.1``; return its status."""
    kinds = (each.split() for each in told)
    status = {"addresses": [{"type": f"{kind}IP", "address": address} for kind, address in kinds]}
    requester = Requester(NODE, Access(Rbac(backend.cache)), {})
    target = Target(NODE_KIND, "", "n1", "status")
    restrict(Write(backend, "update", target, {"status": status}, {"status": before}, options, requester))
    return status


def test_a_node_tells_no_address_of_the_pool_beside_its_own(backend: Backend, options: Options):
    known = of_an_installation(backend)
    own = "Internal 192.0.2.55", "Internal 2001:db8::55"
    status = tells(known, options, {}, *own, "External 192.0.2.70", "Internal 192.0.2.71", "Hostname n1")
    for further in ("External 192.0.2.50", "Internal 192.0.2.50", "External 2001:DB8:0::50", "Internal 2001:db8::50"):
        with pytest.raises(Forbidden, match="of the load balancers' pool"):
            tells(known, options, status, *own, further)
        with pytest.raises(Forbidden, match="of the load balancers' pool"):
            tells(known, options, {}, *own, further)
    moved = "Internal 192.0.2.56", "Internal 2001:db8::55"
    tells(known, options, status, *moved)
    with pytest.raises(Forbidden, match="of the load balancers' pool"):
        tells(known, options, status, *moved, "Internal 192.0.2.55")  # nor does it go through the pool by and by
    tells(known, options, {"addresses": [{"type": "ExternalIP", "address": "192.0.2.50"}]}, "External 192.0.2.50")


def test_a_node_tells_no_address_that_a_service_has(backend: Backend, options: Options):
    known = of_an_installation(backend)
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
    make(backend, SERVICE, "named", spec={**spec, "externalIPs": ["198.51.100.8", "198.51.100.1"]})
    for name, points in {
        "pooled": [{"ip": "192.0.2.55", "ipMode": "VIP"}, {"ip": "2001:db8::55"}],
        "metal": [{"ip": "203.0.113.5"}],
        "at-nodes": [{"ip": "198.51.100.2", "ipMode": "Proxy"}],
    }.items():
        make(backend, SERVICE, name, spec=spec)
        found = backend.get(Target(SERVICE, "default", name)).object
        told = {**found, "status": {"loadBalancer": {"ingress": points}}}
        writing.update(backend, Target(SERVICE, "default", name, "status"), told, options)
    for taken in ("Internal 192.0.2.55", "Internal 2001:db8::55"):
        with pytest.raises(Forbidden, match="Service default/pooled has"):
            tells(known, options, {}, taken)
    for taken, service in (("External 203.0.113.5", "metal"), ("External 198.51.100.8", "named")):
        with pytest.raises(Forbidden, match=f"Service default/{service} has"):
            tells(known, options, {}, "Internal 198.51.100.1", taken)
    # its own address is its own, whoever names it; so are those that Services have because they are nodes'
    tells(known, options, {}, "Internal 198.51.100.1", "External 198.51.100.2")
    tells(known, options, {"addresses": [{"type": "InternalIP", "address": "192.0.2.55"}]}, "Internal 192.0.2.55")

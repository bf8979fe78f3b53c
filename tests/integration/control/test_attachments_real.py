"""CSI volumes for one node on a real API server: two nodes want one at once, and two volumes have one handle."""

from __future__ import annotations

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import (
    CSI_DRIVER,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    VOLUME_ATTACHMENT,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.api import ApiClient
from tests.integration.control.conftest import Cluster, Daemon, pod
from tests.integration.control.test_claims_real import PATIENCE_S, claim, phase, reasons, volume
from tests.support.waiting import until


def bound(api: ApiClient, space: str, name: str, handle: str) -> None:
    """Have a claim with a volume of a driver."""
    source = {"driver": f"{space}.csi.test", "volumeHandle": handle}
    made = volume(f"{space}-{name}", storageClassName=f"{space}-{name}", csi=source)
    del made["spec"]["hostPath"]
    api.create(PERSISTENT_VOLUME, made)
    api.create(PERSISTENT_VOLUME_CLAIM, claim(space, name, storageClassName=f"{space}-{name}"))
    until(lambda: phase(api, name, space) == "Bound", PATIENCE_S)


def nodes(api: ApiClient, space: str) -> tuple[str, str]:
    """Make two nodes."""
    names = (f"{space}-a", f"{space}-b")
    for name in names:
        api.create(NODE, {"metadata": {"name": name}, "spec": {}})
    return names


def user(api: ApiClient, space: str, name: str, node: str, claimed: str = "data") -> None:
    """Have a Pod of a node with a claim."""
    made = pod(name, space)
    made["spec"] |= {"nodeName": node, "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": claimed}}]}
    api.create(POD, made)


def attached(api: ApiClient, space: str) -> list[JsonObject]:
    """Return the VolumeAttachments of the space's driver."""
    found = api.list(VOLUME_ATTACHMENT).items
    return [each for each in found if objects.spec(each)["attacher"] == f"{space}.csi.test"]


def places(api: ApiClient, space: str) -> list[str]:
    return sorted(objects.spec(each)["nodeName"] for each in attached(api, space))


def test_of_two_nodes_that_want_a_volume_at_once_the_second_waits_for_the_first(cluster: Cluster, daemon: Daemon):
    api, space = cluster.admin, cluster.namespace()
    api.create(CSI_DRIVER, {"metadata": {"name": f"{space}.csi.test"}, "spec": {}})
    bound(api, space, "data", "h")
    names = nodes(api, space)
    for name, node in zip(("first", "second"), names, strict=True):
        user(api, space, name, node)
    until(lambda: attached(api, space), PATIENCE_S)
    until(
        lambda: {"FailedAttachVolume"} & (reasons(api, space, "first") | reasons(api, space, "second")),
        PATIENCE_S,
    )
    (one,) = attached(api, space)
    (having,) = places(api, space)
    (waiting,) = {*names} - {having}
    api.patch(VOLUME_ATTACHMENT, objects.name(one), "", {"status": {"attached": True}}, subresource="status")
    until(lambda: objects.status(api.get(NODE, having)).get("volumesAttached"), PATIENCE_S)
    in_use = {"status": {"volumesInUse": [f"kubernetes.io/csi/{space}.csi.test^h"]}}
    api.patch(NODE, having, "", in_use, subresource="status")
    api.delete(POD, "first" if having == names[0] else "second", space, grace_s=0)
    until(lambda: "Multi-Attach" in str(cluster.server.kubectl("-n", space, "get", "events").stdout), PATIENCE_S)
    assert places(api, space) == [having], "its node says that it may have the volume mounted"
    api.patch(NODE, having, "", {"status": {"volumesInUse": None}}, subresource="status")
    until(lambda: places(api, space) == [waiting], PATIENCE_S)


def test_two_volumes_of_one_handle_are_not_attached_to_two_nodes(cluster: Cluster, daemon: Daemon):
    api, space = cluster.admin, cluster.namespace()
    api.create(CSI_DRIVER, {"metadata": {"name": f"{space}.csi.test"}, "spec": {}})
    for name in ("data", "twin"):
        bound(api, space, name, "same")
    here, there = nodes(api, space)
    user(api, space, "first", here)
    until(lambda: places(api, space) == [here], PATIENCE_S)
    user(api, space, "second", there, "twin")
    until(lambda: "FailedAttachVolume" in reasons(api, space, "second"), PATIENCE_S)
    assert places(api, space) == [here]
    api.delete(POD, "first", space, grace_s=0)
    until(lambda: places(api, space) == [there], PATIENCE_S)

"""What a plan says of claims and volumes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from minik8s_modules.api.kinds import (
    CSI_DRIVER,
    CSI_NODE,
    CSI_STORAGE_CAPACITY,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    STATEFUL_SET,
    STORAGE_CLASS,
    Kind,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.feeds.plan_subjects import of
from minik8s_modules.reconcile.planning.questions import Operation, Question
from minik8s_modules.reconcile.planning.simulated_rollouts import Change, simulated_rollout
from minik8s_modules.reconcile.planning.simulated_storage import storage
from minik8s_modules.reconcile.planning.simulation import PlannedState, planned_state
from minik8s_modules.reconcile.planning.storage_notes import planned_folders
from tests.support.workloads import NOW, SPACE, workload

BOUND = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}


def volume(name: str, **spec: Any) -> JsonObject:
    declared = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/data"}, **spec}
    meta = {"name": name, "uid": name}
    phase = "Bound" if "claimRef" in spec else "Available"
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": meta,
        "spec": declared,
        "status": {"phase": phase},
    }


def claim(name: str, **spec: Any) -> JsonObject:
    declared = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    meta = {"name": name, "namespace": "shop"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": declared}


def bound(name: str, to: str) -> JsonObject:
    made = claim(name, volumeName=to)
    made["metadata"] |= {"uid": name, "annotations": BOUND}
    status = {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    return {**made, "status": status}


def found(known: list[JsonObject], *changes: tuple[str, JsonObject], pods: tuple[JsonObject, ...] = ()) -> PlannedState:
    question = Question(tuple(Operation(*each) for each in changes), frozenset())
    return planned_state(question, pods, [node("n1"), node("n2")], NOW, storage=known)


def texts_of(known: list[JsonObject], *changes: tuple[str, JsonObject], pods: tuple[JsonObject, ...] = ()) -> list[str]:
    return [note.text for note in found(known, *changes, pods=pods).messages]


def node(name: str) -> JsonObject:
    ready = [{"type": "Ready", "status": "True"}]
    status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}, "conditions": ready}
    labels = {"kubernetes.io/hostname": name}
    return {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": status}


def pod(name: str, *claims: str, on: str = "") -> JsonObject:
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    spec = {"containers": [{"name": "app", "image": "a:1"}], "volumes": volumes, **({"nodeName": on} if on else {})}
    meta = {"name": name, "namespace": "shop", "uid": f"pod-{name}"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def storage_class(name: str, **fields: Any) -> JsonObject:
    made = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
    return {**made, "provisioner": "minik8s.io/hostpath", "reclaimPolicy": "Retain", **fields}


MADE = "bound to a PersistentVolume of 1Gi that StorageClass disk (minik8s.io/hostpath) makes for it"
FOLDER = "hostPath /var/lib/minik8s-volumes/pvc-<uid> on node n1"
WAITING = {"volumeBindingMode": "WaitForFirstConsumer"}


def node_of(result: PlannedState, name: str) -> str:
    (there,) = [each for each in result.pods.values() if each is not None and each["metadata"]["name"] == name]
    return str(there["spec"].get("nodeName") or "")


def test_a_claim_would_be_bound_to_the_volume_that_fits():
    notes = found([volume("v"), volume("w")], ("create", claim("data"))).messages
    assert [note.text for note in notes] == [
        "PersistentVolumeClaim shop/data would be bound to PersistentVolume v",
        "PersistentVolume v would be Bound, of PersistentVolumeClaim shop/data",
    ]
    assert notes[0].about == (of(PERSISTENT_VOLUME_CLAIM, "shop", "data"),)
    assert notes[1].about == (of(PERSISTENT_VOLUME, name="v"), of(PERSISTENT_VOLUME_CLAIM, "shop", "data"))


def test_a_claim_that_would_wait_says_for_what():
    (text,) = texts_of([volume("v", storageClassName="fast")], ("create", claim("data")))
    why = "no persistent volumes available for this claim and no storage class is set"
    assert text == f"PersistentVolumeClaim shop/data would be Pending: {why}"


def test_a_volume_that_would_be_made_is_told_with_its_class_and_its_place():
    made = storage_class("disk", parameters={"node": "n1"})
    assert texts_of([made], ("create", claim("data", storageClassName="disk"))) == [
        f"PersistentVolumeClaim shop/data would be {MADE}",
        "PersistentVolume pvc-<uid> of PersistentVolumeClaim shop/data would be " + FOLDER,
    ]


def test_a_pod_and_its_claim_of_one_file_get_a_node_and_a_volume_on_it():
    waiting = claim("data", storageClassName="disk")
    result = found([storage_class("disk", **WAITING)], ("create", waiting), ("create", pod("web", "data")))
    assert node_of(result, "web") == "n1"
    assert [note.text.rpartition(" would be ")[2] for note in result.messages] == [
        MADE,
        FOLDER,
    ]
    mine = result.overlay["PersistentVolumeClaim", "shop/data"]
    assert mine is not None
    assert mine["status"]["phase"] == "Bound"
    assert ("PersistentVolume", f"/{mine['spec']['volumeName']}") in result.overlay


def test_a_pod_goes_where_its_volume_is():
    here = {"required": {"nodeSelectorTerms": [{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["n2"]}]}]}}  # fmt: skip
    local = volume("v", nodeAffinity=here, storageClassName="local")
    nobody = storage_class("local", **WAITING) | {"provisioner": "kubernetes.io/no-provisioner"}
    asked = (("create", claim("data", storageClassName="local")), ("create", pod("web", "data")))
    result = found([local, nobody], *asked)
    assert node_of(result, "web") == "n2"
    assert result.messages[0].text == "PersistentVolumeClaim shop/data would be bound to PersistentVolume v"
    # a second pod with a claim of its own finds none
    more = found([local, nobody], *asked, ("create", claim("more", storageClassName="local")),
                 ("create", pod("other", "more")))  # fmt: skip
    assert [node_of(more, name) for name in ("web", "other")] == ["n2", ""]
    assert more.messages[-1].text == (
        "Pod shop/other: 0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind."
    )


def test_a_pod_that_waits_for_a_volume_of_somebody_elses_provisioner_says_where_it_would_run():
    foreign = storage_class("csi", **WAITING) | {"provisioner": "example.com/disks"}
    asked = (("create", claim("data", storageClassName="csi")), ("create", pod("web", "data")))
    result = found([foreign], *asked)
    assert node_of(result, "web") == ""
    claimed, waits = [note.text for note in result.messages]
    assert "would be Pending: Waiting for a volume to be created either by the external provisioner" in claimed
    assert waits == "Pod shop/web: it would run on node n1 once it has a volume for PersistentVolumeClaim data"


def test_a_pod_that_waits_for_a_claim_runs_when_the_claim_comes():
    waiting = {**pod("web", "data"), "status": {"phase": "Pending"}}
    assert node_of(found([volume("v")], ("create", claim("data")), pods=(waiting,)), "web") == "n1"
    there = {**pod("other", "data", on="n2"), "status": {"phase": "Pending"}}
    assert node_of(found([volume("v")], ("create", claim("data")), pods=(there,)), "other") == "n2"


def test_a_claim_in_use_would_stay_and_goes_with_its_last_pod():
    held = volume("v", claimRef={"namespace": "shop", "name": "data", "uid": "data"})
    mine = bound("data", "v")
    mine["metadata"]["finalizers"] = ["kubernetes.io/pvc-protection"]
    going = {**mine, "metadata": {**mine["metadata"], "deletionTimestamp": "2026-01-01T12:00:00Z"}}
    user = pod("web", "data", on="n1")
    assert texts_of([held, mine], ("update", going), pods=(user,)) == [
        "PersistentVolumeClaim shop/data would stay, with its data, until pods that use it are gone: web"
    ]
    assert texts_of([held, mine], ("update", going), ("delete", user), pods=(user,)) == [
        "PersistentVolume v would be Released, of PersistentVolumeClaim shop/data"
    ]
    assert texts_of([held, going], ("delete", user), pods=(user,)) == [
        "PersistentVolume v would be Released, of PersistentVolumeClaim shop/data"
    ]
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    assert texts_of([held, mine], ("delete", space), pods=(user,)) == [
        "PersistentVolume v would be Released, of PersistentVolumeClaim shop/data"
    ]


def test_who_may_not_read_pods_is_not_told_which_use_a_claim():
    mine = bound("data", "v")
    mine["metadata"]["finalizers"] = ["kubernetes.io/pvc-protection"]
    going = {**mine, "metadata": {**mine["metadata"], "deletionTimestamp": "2026-01-01T12:00:00Z"}}
    held = volume("v", claimRef={"namespace": "shop", "name": "data", "uid": "data"})
    for count, expected in ((1, [of(POD, "shop", "p0")]), (6, [of(POD, "shop")])):
        users = tuple(pod(f"p{number}", "data", on="n1") for number in range(count))
        (note,) = found([held, mine], ("update", going), pods=users).messages
        assert note.about == (of(PERSISTENT_VOLUME_CLAIM, "shop", "data"), *expected)


def test_a_volume_that_is_bound_would_stay_until_its_claim_is_gone():
    held = volume("v", claimRef={"namespace": "shop", "name": "data", "uid": "data"})
    held["metadata"]["finalizers"] = ["kubernetes.io/pv-protection"]
    going = {**held, "metadata": {**held["metadata"], "deletionTimestamp": "2026-01-01T12:00:00Z"}}
    assert texts_of([held, bound("data", "v")], ("update", going)) == [
        "PersistentVolume v would stay until PersistentVolumeClaim shop/data is gone"
    ]


def test_a_claim_that_is_made_for_a_pod_comes_and_goes_with_it():
    own = pod("web")
    own["spec"]["volumes"] = [{"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": claim("c")["spec"]}}}]
    own["spec"]["volumes"][0]["ephemeral"]["volumeClaimTemplate"]["spec"]["storageClassName"] = "disk"
    disk = storage_class("disk", **WAITING)
    result = found([disk], ("create", own))
    assert node_of(result, "web") == "n1"
    assert result.messages[0].text == f"PersistentVolumeClaim shop/web-own would be {MADE}"
    there = [disk, *(obj for obj in result.overlay.values() if obj is not None)]
    (made,) = [each for each in result.pods.values() if each is not None]
    name = there[1]["spec"]["volumeName"]
    assert texts_of(there, ("delete", made), pods=(made,)) == [
        f"PersistentVolume {name} would be Released, of PersistentVolumeClaim shop/web-own"
    ]
    clash = texts_of([disk, claim("web-own")], ("create", own))
    assert clash == [
        "Pod shop/web: 0/2 nodes are available: PVC shop/web-own was not created for pod shop/web (pod is not owner)."
    ]


def test_what_would_be_deleted_with_its_data_is_said_and_shown():
    made = found([storage_class("disk", parameters={"node": "n1"}, reclaimPolicy="Delete")],
                 ("create", claim("data", storageClassName="disk"))).overlay  # fmt: skip
    there = [obj for obj in made.values() if obj is not None]
    name = there[0]["spec"]["volumeName"]
    nodes = [node("n1"), node("n2")]
    assert planned_folders({}, made, nodes)["n1"][name]["state"] == "present"
    gone = found(there, ("delete", there[0]))
    folder = f"/var/lib/minik8s-volumes/{name}"
    assert [note.text for note in gone.messages] == [
        f"PersistentVolume {name} would go, with its data: hostPath {folder} on node n1"
    ]
    told_before = planned_folders({}, made, nodes)
    assert planned_folders(told_before, gone.overlay, nodes)["n1"][name]["state"] == "absent"


def test_a_claim_that_asks_for_more_would_have_it():
    made = volume("v", claimRef={"namespace": "shop", "name": "data", "uid": "data"})
    made["metadata"]["annotations"] = {"pv.kubernetes.io/provisioned-by": "minik8s.io/hostpath"}
    more = bound("data", "v")
    more["spec"]["resources"] = {"requests": {"storage": "2Gi"}}
    texts = texts_of([made, bound("data", "v")], ("update", more))
    assert texts[0] == "PersistentVolumeClaim shop/data would have 2Gi"


def test_claims_of_a_stateful_set_are_made_with_its_pods_and_go_as_its_policy_says():
    policy = {"whenScaled": "Delete", "whenDeleted": "Delete"}
    template = {"metadata": {"name": "data"}, "spec": claim("data", storageClassName="disk")["spec"]}
    told_set = {"replicas": 2, "serviceName": "db", "volumeClaimTemplates": [template],
                "persistentVolumeClaimRetentionPolicy": policy}  # fmt: skip
    wanted = workload(STATEFUL_SET, told_set, "db")
    question = Question((Operation("create", wanted),), frozenset())
    disk = storage_class("disk", **WAITING)
    result = planned_state(question, [], [node("n1"), node("n2")], NOW, storage=[disk])
    assert [step["action"] for step in result.order] == ["create", "create"]
    assert sum("makes for it" in note.text for note in result.messages) == 2
    # all of it stands: then it goes
    names = ("PersistentVolumeClaim", "PersistentVolume")
    there = [disk, *(obj for (kind, _), obj in result.overlay.items() if kind in names and obj is not None)]
    pods = [{**each, "status": {"phase": "Running"}} for each in result.pods.values() if each is not None]
    owner = pods[0]["metadata"]["ownerReferences"][0]["uid"]
    standing = {**wanted, "metadata": {**wanted["metadata"], "uid": owner}}
    gone = Question((Operation("delete", standing),), frozenset())
    after = planned_state(gone, pods, [node("n1"), node("n2")], NOW, [standing], storage=there)
    assert [step["action"] for step in after.order] == ["delete", "delete"]
    assert [note.text.rpartition(" would be ")[2] for note in after.messages] == [
        f"Released, of PersistentVolumeClaim {SPACE}/data-db-{number}" for number in range(2)
    ]


def test_a_volume_whose_claim_would_go_is_Released():  # noqa: N802 - the phase's name
    held = volume("v", claimRef={"namespace": "shop", "name": "data", "uid": "data"})
    assert texts_of([held, bound("data", "v")], ("delete", bound("data", "v"))) == [
        "PersistentVolume v would be Released, of PersistentVolumeClaim shop/data"
    ]


def test_what_stays_as_it_is_is_not_told():
    held = volume("v", claimRef={"namespace": "shop", "name": "data", "uid": "data"})
    again, waiting = {**bound("data", "v"), "status": {}}, {**claim("other"), "status": {"phase": "Pending"}}
    assert texts_of([held, bound("data", "v"), waiting], ("update", again)) == []


def test_other_objects_are_no_question_of_storage():
    asked: list[str] = []

    class Lister:
        """Lists what is asked for, and remembers."""

        def list(self, kind: Kind) -> Any:
            """Return nothing."""
            asked.append(kind.plural)
            return SimpleNamespace(items=[])

    assert storage([{"apiVersion": "v1", "kind": "Service"}], Lister(), pods_change=False) == ()
    assert asked == []
    assert storage([claim("c")], Lister(), pods_change=False) == ()
    assert storage([pod("p")], Lister(), pods_change=True) == ()
    kinds = (PERSISTENT_VOLUME_CLAIM, PERSISTENT_VOLUME, STORAGE_CLASS, CSI_NODE, CSI_DRIVER, CSI_STORAGE_CAPACITY)
    assert asked == 2 * [kind.plural for kind in kinds]


def test_a_pod_whose_volume_has_no_room_says_so():
    waits = storage_class("late", provisioner="disk.example.com", volumeBindingMode="WaitForFirstConsumer")
    driver = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": "disk.example.com"},
        "spec": {"storageCapacity": True},
    }
    asked = ("create", claim("data", storageClassName="late")), ("create", pod("p", "data"))
    (_, why) = texts_of([waits, driver], *asked)
    assert "did not have enough free storage" in why
    room = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {"name": "room", "namespace": "kube-system"},
        "storageClassName": "late",
        "nodeTopology": {},
        "capacity": "1Gi",
    }
    (_, why) = texts_of([waits, driver, room], *asked)
    assert "it would run on node" in why


def test_volumes_that_were_just_made_are_there_for_the_claims_of_a_rollout():
    """Seed 25 of the random rollouts, with other dice: claims got new ones beside those nobody had looked at."""
    made = [{**volume(f"v{number}", storageClassName="disk"), "status": {}} for number in range(3)]
    template = {"metadata": {"name": "data"}, "spec": claim("data", storageClassName="disk")["spec"]}
    declared = workload(STATEFUL_SET, {"replicas": 2, "serviceName": "peers", "volumeClaimTemplates": [template]})
    disk = storage_class("disk", parameters={"node": "n1"})
    planned = simulated_rollout([Change("create", declared)], [], [], [node("n1")], NOW, storage=[disk, *made])
    phases = sorted(one["status"]["phase"] for one in planned.storage if one["kind"] == "PersistentVolume")
    assert phases == ["Available", "Bound", "Bound"]


def test_pods_that_wait_for_their_claims_count_where_they_will_run():
    """Seed 110 of the random rollouts: all were told the same node, which has no room for them."""
    small = [node("n1"), node("n2"), node("n3")]
    for each in small:
        each["status"]["allocatable"]["pods"] = "2"
    template = {"metadata": {"name": "data"}, "spec": claim("data", storageClassName="disk")["spec"]}
    fields = {"replicas": 5, "serviceName": "db", "podManagementPolicy": "Parallel", "volumeClaimTemplates": [template]}
    wanted, disk = workload(STATEFUL_SET, fields, "db"), storage_class("disk", **WAITING)
    planned = simulated_rollout([Change("create", wanted)], [], [], small, NOW, storage=[disk])
    assert sorted(step["node"] for step in planned.order) == ["n1", "n1", "n2", "n2", "n3"]
    assert planned.messages == ()


def test_a_pod_whose_volume_somebody_else_makes_takes_room_meanwhile():
    late = storage_class("late", provisioner="disk.example.com", **WAITING)
    asked = ("create", claim("data", storageClassName="late")), ("create", pod("p", "data")), ("create", pod("q"))
    tight = pod("there", on="n2")
    tight["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    for _, each in asked[1:]:
        each["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "3"}}
    texts = texts_of([late], *asked, pods=(tight,))
    assert any("Pod shop/p: it would run on node n1 once it has a volume" in text for text in texts)
    assert any(text.startswith("Pod shop/q: 0/2 nodes are available: 2 Insufficient cpu.") for text in texts)

"""What a plan says of claims and volumes."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from minik8s_modules.api.kinds import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, STORAGE_CLASS, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.feeds.plan_subjects import of
from minik8s_modules.reconcile.planning.simulated_storage import storage, storage_notes

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
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


def told(known: list[JsonObject], *changes: tuple[str, JsonObject]) -> list[str]:
    return [note.text for note in storage_notes(known, changes, [], NOW)]


def test_a_claim_would_be_bound_to_the_volume_that_fits():
    notes = storage_notes([volume("v"), volume("w")], [("create", claim("data"))], [], NOW)
    assert [note.text for note in notes] == [
        "PersistentVolumeClaim shop/data would be bound to PersistentVolume v",
        "PersistentVolume v would be Bound, of PersistentVolumeClaim shop/data",
    ]
    assert notes[0].about == (of(PERSISTENT_VOLUME_CLAIM, "shop", "data"),)
    assert notes[1].about == (of(PERSISTENT_VOLUME, name="v"), of(PERSISTENT_VOLUME_CLAIM, "shop", "data"))


def test_a_claim_that_would_wait_says_for_what():
    (text,) = told([volume("v", storageClassName="fast")], ("create", claim("data")))
    why = "no persistent volumes available for this claim and no storage class is set"
    assert text == f"PersistentVolumeClaim shop/data would be Pending: {why}"


def test_a_volume_that_would_be_made_is_named():
    made = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "disk"}}
    made |= {"provisioner": "minik8s.io/hostpath", "reclaimPolicy": "Retain", "parameters": {"node": "n1"}}
    first, second = told([made], ("create", claim("data", storageClassName="disk")))
    name = first.rsplit(" ", 1)[1]
    assert name.startswith("pvc-")
    assert second == f"PersistentVolume {name} would be Bound, of PersistentVolumeClaim shop/data"


def test_a_volume_whose_claim_would_go_is_Released():  # noqa: N802 - the phase's name
    held = volume("v", claimRef={"namespace": "shop", "name": "data", "uid": "data"})
    assert told([held, bound("data", "v")], ("delete", bound("data", "v"))) == [
        "PersistentVolume v would be Released, of PersistentVolumeClaim shop/data"
    ]


def test_what_stays_as_it_is_is_not_told():
    held = volume("v", claimRef={"namespace": "shop", "name": "data", "uid": "data"})
    again, waiting = {**bound("data", "v"), "status": {}}, {**claim("other"), "status": {"phase": "Pending"}}
    assert told([held, bound("data", "v"), waiting], ("update", again)) == []


def test_other_objects_are_no_question_of_storage():
    asked: list[str] = []

    class Lister:
        """Lists what is asked for, and remembers."""

        def list(self, kind: Kind) -> Any:
            """Return nothing."""
            asked.append(kind.plural)
            return SimpleNamespace(items=[])

    assert storage([{"apiVersion": "v1", "kind": "Pod"}], Lister()) == ()
    assert asked == []
    assert storage([claim("c")], Lister()) == ()
    assert asked == [kind.plural for kind in (PERSISTENT_VOLUME_CLAIM, PERSISTENT_VOLUME, STORAGE_CLASS)]

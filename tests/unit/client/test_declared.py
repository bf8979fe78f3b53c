"""What is declared is read whole before anything is done; what a person is shown holds no secret."""

from __future__ import annotations

import json
from typing import Any

import pytest

from minik8s_modules.api.kinds import CONFIG_MAP, SECRET
from minik8s_modules.api.merging.apply import LAST_APPLIED
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.client import declared
from minik8s_modules.client.readiness import Condition, judge

MANNER = declared.Manner()


def config(name: Any, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **more}}


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([], "d: there is no object in it"),
        (["text"], "d, document 1: an object must be a mapping, not str"),
        ([{"kind": "Pod"}], "say what it is"),
        ([{"kind": "Nothing", "apiVersion": "v9"}], "kind Nothing of v9 is not known"),
        ([config("a"), config("")], "document 2: ConfigMap needs metadata.name"),
        ([{**config("a"), "metadata": None}], "ConfigMap needs metadata.name"),
        ([config("a"), config("a", namespace="default")], "configmaps default/a is declared twice"),
        ([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "namespace": "x"}}], "is in no namespace"),
    ],
)
def test_what_cannot_be_declared_is_refused(documents: list[Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        declared.read(documents, "default", "d")


def test_lists_are_read_one_by_one_and_namespaces_filled_in() -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [config("a"), config("b", namespace="other")]}
    found = declared.read([listed], "mine", "d")
    assert [each.key for each in found] == ["configmaps mine/a", "configmaps other/b"]
    assert "namespace" not in listed["items"][0]["metadata"]  # type: ignore[index]  # what was given stays as it was


def test_text_that_is_no_yaml_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="f is not valid YAML"):
        declared.read("a: [", "default", "f")
    found = declared.read(f"{json.dumps(config('a'))}\n---\n---\n{json.dumps(config('b'))}\n", "default", "f")
    assert [each.name for each in found] == ["a", "b"]


class Answers:
    """An API server that has ``live`` and answers each patch with ``after``."""

    def __init__(self, live: dict[str, Any], after: dict[str, Any]) -> None:
        self._live, self._after = live, after
        self.dry_runs: list[bool] = []

    def get(self, *_where: Any) -> dict[str, Any]:
        """Return the live object."""
        return self._live

    def patch(self, *_where: Any, dry_run: bool, **_options: Any) -> dict[str, Any]:
        """Return what the patch makes of it."""
        self.dry_runs.append(dry_run)
        return self._after


def test_values_of_secrets_are_hidden_and_a_difference_is_told() -> None:
    metadata = {"name": "s", "namespace": "default", "annotations": {LAST_APPLIED: "canary-1"}}
    live = {"metadata": metadata, "data": {"a": "canary-1", "b": "canary-2", "c": "canary-3"}}
    after = {"metadata": metadata, "data": {"a": "canary-1", "b": "canary-4", "d": "canary-5"}}
    api: Any = Answers(live, after)
    step = declared.plan(api, declared.DeclaredObject(SECRET, live), MANNER)
    assert step is not None
    assert step.before is not None
    assert step.after is not None
    assert step.before["data"] == {"a": "hidden", "b": "hidden", "c": "hidden"}
    assert step.after["data"] == {"a": "hidden", "b": "hidden (changed)", "d": "hidden"}
    assert "canary" not in str((step.before, step.after, declared.shown(SECRET, live)))
    assert live["data"]["a"] == "canary-1"  # type: ignore[index]


def test_only_ones_own_fields_and_what_was_declared_count_as_a_change() -> None:
    def seen(version: str, **owners: str) -> dict[str, Any]:
        entries = [
            {"manager": name, "operation": "Apply", "time": version, "fieldsV1": {"f:data": {key: {}}}}
            for name, key in owners.items()
        ]
        return {**config("a", resourceVersion=version, managedFields=entries), "status": {"seen": version}}

    wanted = declared.DeclaredObject(CONFIG_MAP, config("a"))
    same: Any = Answers(seen("1", ansible="x", other="y"), seen("2", ansible="x", other="z"))
    assert declared.plan(same, wanted, MANNER) is None
    assert same.dry_runs == [True]
    taken: Any = Answers(seen("1", ansible="x"), seen("2", ansible="y"))
    step = declared.plan(taken, wanted, MANNER)
    assert step is not None
    assert "managedFields" in str(step.before), "it is all that changes"


def test_who_owns_what_is_not_told_beside_what_changes() -> None:
    owned = [{"manager": "ansible", "operation": "Apply", "fieldsV1": {"f:data": {}}}]
    api: Any = Answers(config("a"), {**config("a", managedFields=owned), "data": {"k": "v"}})
    step = declared.plan(api, declared.DeclaredObject(CONFIG_MAP, config("a")), MANNER)
    assert step is not None
    assert step.after is not None
    assert step.after["data"] == {"k": "v"}
    assert "managedFields" not in step.after["metadata"]


READY = {"type": "Ready", "status": "True"}


@pytest.mark.parametrize(
    ("kind", "spec", "status", "missing"),
    [
        ("Pod", {}, {"conditions": [READY]}, None),
        ("Pod", {}, {"phase": "Succeeded"}, None),
        ("Pod", {}, {"phase": "Failed", "reason": "Evicted"}, "the pod has failed: Evicted"),
        ("Pod", {}, {}, "condition Ready is Unknown, not True"),
        ("Deployment", {"replicas": 2}, {"updatedReplicas": 1}, "1 of 2 replicas are updated"),
        ("Deployment", {"replicas": 1}, {"updatedReplicas": 1, "replicas": 2}, "1 old replicas have not ended"),
        ("Deployment", {}, {"updatedReplicas": 1, "replicas": 1}, "0 of 1 replicas are available"),
        ("Deployment", {}, {"updatedReplicas": 1, "replicas": 1, "availableReplicas": 1}, None),
        ("Deployment", {}, {"observedGeneration": 1}, "its controller has not seen the latest change"),
        ("ReplicaSet", {"replicas": 0}, {"replicas": 0}, None),
        ("ReplicaSet", {"replicas": 2}, {"replicas": 2, "readyReplicas": 1}, "1 of 2 replicas are ready"),
        ("StatefulSet", {}, {"updateRevision": "b", "currentRevision": "a"}, "0 of 1 replicas are updated"),
        ("DaemonSet", {}, {}, "its controller has not seen it"),
        ("DaemonSet", {}, {"observedGeneration": 2, "desiredNumberScheduled": 1}, "0 of 1 pods are updated"),
        ("Job", {}, {"conditions": [{"type": "Failed", "status": "True", "message": "m"}]}, "the job has failed: m"),
        ("Job", {}, {"conditions": [{"type": "Complete", "status": "True"}]}, None),
        ("PersistentVolumeClaim", {}, {"phase": "Pending"}, "its phase is Pending, not Bound"),
        ("ConfigMap", {}, {}, None),
    ],
)
def test_readiness_by_kind(kind: str, spec: dict[str, Any], status: dict[str, Any], missing: str | None) -> None:
    obj = {"kind": kind, "metadata": {"name": "x", "generation": 2}, "spec": spec, "status": status}
    found = judge(obj)
    assert (found is None) == (missing is None)
    assert found is None or (missing or "") in found.missing
    assert found is None or found.hopeless == ("has failed" in found.missing)


def test_named_conditions_replace_the_kinds_rules() -> None:
    obj = {"kind": "Pod", "metadata": {"name": "x"}, "status": {"conditions": [{**READY, "reason": "A"}]}}
    assert judge(obj, [Condition("Ready", "True", "A")]) is None
    assert judge(obj, [Condition("Ready", "True", "B")]) is not None
    assert judge(obj, [Condition("Ready", "False")]) is not None
    assert judge(None, [Condition("Ready")]) is not None

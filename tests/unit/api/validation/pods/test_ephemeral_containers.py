"""Ephemeral containers: they come by their subresource alone, and only ever more of them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from minik8s_modules.api.defaulting.defaults import apply_defaults
from minik8s_modules.api.kinds import POD
from minik8s_modules.api.lifecycle import strategy
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.validation import validate_create, validate_update

SUB = "ephemeralcontainers"


def pod(*extra: JsonObject) -> JsonObject:
    made: JsonObject = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "uid": "u", "resourceVersion": "5"},
        "spec": {
            "containers": [{"name": "app", "image": "i:1"}],
            "volumes": [{"name": "v", "emptyDir": {}}],
            "ephemeralContainers": list(extra),
        },
        "status": {"phase": "Running"},
    }
    apply_defaults(POD, made)
    return made


def debugger(**fields: Any) -> JsonObject:
    return {"name": "debugger", "image": "busybox:1", **fields}


def causes(new: JsonObject, old: JsonObject) -> list[str]:
    return [f"{each.field}: {each.message}".strip() for each in validate_update(POD, new, old, SUB)]


def test_a_debugging_container_comes_with_the_defaults_of_containers():
    new = pod(debugger(targetContainerName="app", stdin=True, tty=True))
    assert causes(new, pod()) == []
    assert new["spec"]["ephemeralContainers"][0]["terminationMessagePolicy"] == "File"


def test_nothing_else_changes_by_the_subresource():
    new, old = pod(debugger()), pod()
    new["spec"]["containers"][0]["image"] = "other:2"
    new["metadata"]["labels"] = {"a": "b"}
    new["status"] = {"phase": "Failed"}
    strategy.prepare_update(POD, new, old, SUB)
    assert new["spec"]["containers"] == old["spec"]["containers"]
    assert "labels" not in new["metadata"]
    assert new["status"] == old["status"]
    assert new["spec"]["ephemeralContainers"][0]["name"] == "debugger"


def test_what_is_there_may_neither_go_nor_change():
    old = pod(debugger())
    text = 'spec.ephemeralContainers: Forbidden: existing ephemeral containers "debugger" may not be'
    assert causes(pod(), old) == [f"{text} removed"]
    assert causes(pod(debugger(command=["sh"])), old) == [f"{text} changed"]
    assert causes(pod(debugger(), debugger(name="second")), old) == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"name": "app"}, 'spec.ephemeralContainers[0].name: Duplicate value: "app"'),
        ({"targetContainerName": "no"}, 'spec.ephemeralContainers[0].targetContainerName: Not found: "no"'),
        ({"image": ""}, "spec.ephemeralContainers[0].image: Required value"),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "x"}]},
            "spec.ephemeralContainers[0].volumeMounts[0].subPath: Forbidden: cannot be set for an Ephemeral Container",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(fields, expected):
    assert expected in causes(pod(debugger(**fields)), pod())


@pytest.mark.parametrize(
    "fields",
    [
        {"ports": [{"containerPort": 80}]},
        {"livenessProbe": {"exec": {"command": ["true"]}}},
        {"lifecycle": {"preStop": {"exec": {"command": ["true"]}}}},
        {"resources": {"limits": {"cpu": "1"}}},
        {"restartPolicy": "Always"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_what_only_other_containers_may_have_is_refused(fields):
    field = next(iter(fields))
    text = f"spec.ephemeralContainers[0].{field}: Forbidden: cannot be set for an Ephemeral Container"
    assert text in causes(pod(debugger(**fields)), pod())


def test_a_new_pod_has_none():
    made = pod(debugger())
    del made["metadata"]["resourceVersion"]
    message = [f"{each.field}: {each.message}" for each in validate_create(POD, made)]
    assert "spec.ephemeralContainers: Forbidden: cannot be set on create" in message


def test_a_static_pods_mirror_takes_none():
    old = pod()
    old["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "hash"}
    new = copy.deepcopy(old)
    new["spec"]["ephemeralContainers"] = [debugger()]
    apply_defaults(POD, new)
    assert causes(new, old) == [": Forbidden: static pods do not support ephemeral containers"]


def test_strict_groups_hold_for_debugging_containers():
    """Without a user and a group of its own, one would get the groups that its image gives a user."""
    strict, own = {"supplementalGroupsPolicy": "Strict"}, {"runAsUser": 7, "runAsGroup": 7}
    before, after = pod(), pod(debugger())
    for each in (before, after):
        each["spec"]["securityContext"] = strict
        each["spec"]["containers"][0]["securityContext"] = own
    assert any("supplementalGroupsPolicy" in one for one in causes(after, before))
    after["spec"]["ephemeralContainers"][0]["securityContext"] = own
    assert causes(after, before) == []

"""Resources of a pod's containers change by the subresource ``resize`` alone, and nothing else does."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api.defaulting.defaults import apply_defaults
from minik8s_modules.api.kinds import POD
from minik8s_modules.api.lifecycle import strategy
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.validation import validate_create, validate_update

SUB = "resize"
LESS_MEMORY = {"requests": {"cpu": "250m"}, "limits": {"cpu": "1", "memory": "32Mi"}}


def pod(resources: JsonObject | None = None, *, init: JsonObject | None = None, **fields: Any) -> JsonObject:
    given = resources or {"requests": {"cpu": "250m"}, "limits": {"cpu": "1", "memory": "64Mi"}}
    made: JsonObject = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "uid": "u", "resourceVersion": "5", "generation": 1},
        "spec": {
            "containers": [{"name": "app", "image": "i:1", "resources": given, **fields}],
            **({"initContainers": [{"name": "first", "image": "i:1", **init}]} if init is not None else {}),
        },
        "status": {"phase": "Running"},
    }
    apply_defaults(POD, made)
    return made


def causes(new: JsonObject, old: JsonObject) -> list[str]:
    strategy.prepare_update(POD, new, old, SUB)
    return [f"{each.field}: {each.message}".strip() for each in validate_update(POD, new, old, SUB)]


def resources(**amounts: str) -> JsonObject:
    found: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
    for name, amount in {"requests_cpu": "250m", "limits_cpu": "1", "limits_memory": "64Mi", **amounts}.items():
        side, _, resource = name.partition("_")
        found[side][resource.replace("_", "-")] = amount
    return found


def test_amounts_change_and_the_generation_rises():
    new, old = pod(resources(requests_cpu="500m", limits_cpu="2", limits_memory="128Mi")), pod()
    assert causes(new, old) == []
    assert new["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "2", "memory": "128Mi"}
    assert new["metadata"]["generation"] == 2


def test_nothing_but_resources_and_their_policy_changes():
    rules = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    new, old = pod(resources(limits_cpu="2"), image="other:2", resizePolicy=rules), pod()
    new["metadata"]["labels"] = {"a": "b"}
    new["status"] = {"phase": "Failed"}
    new["spec"]["containers"].append({"name": "more", "image": "i:1"})
    assert causes(new, old) == []
    (container,) = new["spec"]["containers"]
    assert (container["image"], container["resizePolicy"]) == ("i:1", rules)
    assert "labels" not in new["metadata"]
    assert new["status"] == old["status"]


def test_an_update_of_the_pod_itself_leaves_resources_fixed():
    new, old = pod(resources(limits_cpu="2")), pod()
    strategy.prepare_update(POD, new, old)
    assert "spec.containers[0].resources.limits.cpu" in str(validate_update(POD, new, old))


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (LESS_MEMORY, "limits: Forbidden: memory limits cannot be decreased unless resizePolicy is RestartContainer"),
        ({"limits": {"cpu": "1", "memory": "64Mi"}}, "spec: Invalid value: "),
        ({"requests": {"cpu": "250m"}}, "limits: Forbidden: resource limits cannot be removed"),
        (resources(requests_cpu="2"), "requests: Invalid value: "),
        (resources(limits_ephemeral_storage="1Gi"), "limits: Forbidden: only cpu and memory resources are mutable"),
    ],
)
def test_what_a_resize_may_not_do_is_said(wanted: JsonObject, said: str):
    assert any(said in each for each in causes(pod(wanted), pod())), causes(pod(wanted), pod())


def test_memory_shrinks_where_the_container_is_started_again_for_it():
    rules = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    assert causes(pod(LESS_MEMORY | {"requests": {"cpu": "250m", "memory": "32Mi"}}, resizePolicy=rules), pod()) == []


def test_the_quality_of_service_stays():
    same = {"limits": {"cpu": "1", "memory": "64Mi"}, "requests": {"cpu": "1", "memory": "64Mi"}}
    assert causes(pod(same), pod()) == [
        'spec: Invalid value: "Guaranteed": Pod QOS Class may not change as a result of resizing'
    ]


def test_an_init_container_keeps_its_resources_and_a_sidecar_does_not():
    more = {"limits": {"cpu": "2", "memory": "64Mi"}}
    assert causes(
        pod(init={"resources": more}), pod(init={"resources": {"limits": {"cpu": "1", "memory": "64Mi"}}})
    ) == [
        "spec.initContainers[0].resources: Forbidden: only cpu and memory resources for sidecar containers are mutable"
    ]
    sidecar, before = {"restartPolicy": "Always"}, {"limits": {"cpu": "1", "memory": "64Mi"}}
    assert causes(pod(init={"resources": more, **sidecar}), pod(init={"resources": before, **sidecar})) == []


def test_a_static_pod_is_not_resized():
    old = pod()
    old["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    assert "static pods cannot be resized" in str(causes(pod(resources(limits_cpu="2")), old))


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ([{"resourceName": "gpu", "restartPolicy": "NotRequired"}], "resourceName: Unsupported value"),
        ([{"resourceName": "cpu", "restartPolicy": "Sometimes"}], "restartPolicy: Unsupported value"),
        ([{"resourceName": "cpu", "restartPolicy": "NotRequired"}] * 2, "resourceName: Duplicate value"),
    ],
)
def test_a_policy_that_cannot_be_kept_is_refused(rules: list[JsonObject], said: str):
    found = [f"{each.field}: {each.message}" for each in validate_create(POD, pod(resizePolicy=rules))]
    assert any(said in each for each in found), found


def test_a_pod_that_is_never_restarted_has_no_resize_that_restarts():
    made = pod(resizePolicy=[{"resourceName": "cpu", "restartPolicy": "RestartContainer"}])
    made["spec"]["restartPolicy"] = "Never"
    message = [each.message for each in validate_create(POD, made) if each.field.endswith(".restartPolicy")]
    assert any("must be 'NotRequired'" in each for each in message), message


def test_what_a_webhook_changes_beside_is_refused() -> None:
    text = "only cpu and memory resources are mutable"
    for more in ([{"name": "beside", "image": "i:1"}], []):
        new = pod()
        new["spec"]["containers"] = [*new["spec"]["containers"], *more]
        new["spec"]["containers"][0]["image"] = "i:1" if more else "i:2"
        assert [each.message for each in validate_update(POD, new, pod(), SUB)] == [f"Forbidden: {text}"]

"""What a Gateway runs as: made, kept, and taken away; stopped after any step, the next decision has the rest."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.defaulting.defaults import apply_defaults
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import DEPLOYMENT, SERVICE, SERVICE_ACCOUNT
from minik8s_modules.api.network.gateway_api import CONTROLLER, name_of_parts
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.sidecar_images import sidecar_of
from minik8s_modules.controllers.network.gateways import Apply, PutBack, Remove, Taken, decide_gateway, event_of

OURS = {"metadata": {"name": "minik8s"}, "spec": {"controllerName": CONTROLLER}}
THEIRS = {"metadata": {"name": "other"}, "spec": {"controllerName": "example.com/x"}}
Found = dict[Kind, JsonObject | None]
ENVOY = '.spec.template.spec.containers[name="envoy"]'


def gateway(*ports: int, **spec: Any) -> JsonObject:
    listeners = [{"name": f"l{port}", "port": port, "protocol": "HTTP"} for port in ports or (80,)]
    meta = {"name": "edge", "namespace": "shop", "uid": "uid-edge"}
    return {"metadata": meta, "spec": {"gatewayClassName": "minik8s", "listeners": listeners, **spec}}


def made(one: JsonObject) -> Found:
    """Return the parts after all steps were taken; every step but the last ones was taken alone first."""
    found: Found = {}
    steps = decide_gateway(one, OURS, found)
    while steps:
        step = steps[0]
        assert isinstance(step, Apply)
        found[step.kind] = step.obj
        left = decide_gateway(one, OURS, found)
        assert len(left) == len(steps) - 1
        steps = left
    return found


def test_a_gateway_is_an_account_a_deployment_and_a_service_that_it_owns():
    found = made(gateway(80, 443))
    assert set(found) == {SERVICE_ACCOUNT, DEPLOYMENT, SERVICE}
    for each in found.values():
        assert each is not None
        assert objects.name(each) == name_of_parts("edge")
        assert (objects.controller_of(each) or {})["uid"] == "uid-edge"
    deployment, service = found[DEPLOYMENT] or {}, found[SERVICE] or {}
    assert [each["port"] for each in service["spec"]["ports"]] == [80, 443]
    assert deployment["spec"]["replicas"] == 1
    pod = deployment["spec"]["template"]["spec"]
    assert sidecar_of(pod) == ""  # nothing is led to it
    assert pod["serviceAccountName"] == name_of_parts("edge")
    assert service["spec"]["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()


def test_a_port_that_comes_changes_the_service_and_replaces_no_pod():
    steps = decide_gateway(gateway(80, 8080), OURS, made(gateway(80)))
    assert [each.kind for each in steps] == [SERVICE]


def test_a_deployment_that_changes_keeps_the_replicas_it_has():
    steps = decide_gateway(gateway(infrastructure={"labels": {"a": "b"}}), OURS, made(gateway()))
    (changed,) = [each.obj for each in steps if isinstance(each, Apply) and each.kind == DEPLOYMENT]
    assert "replicas" not in changed["spec"]


def test_what_is_somebody_elses_is_left_alone():
    other = {"metadata": {"name": name_of_parts("edge"), "namespace": "shop"}}
    steps = decide_gateway(gateway(), OURS, {DEPLOYMENT: other})
    assert [type(each) for each in steps] == [Apply, Taken]
    assert decide_gateway(gateway(), THEIRS, {DEPLOYMENT: other}) == []


def test_a_gateway_that_is_given_to_another_class_loses_its_parts():
    found = made(gateway())
    steps = decide_gateway(gateway(), THEIRS, found)
    assert {each.kind for each in steps if isinstance(each, Remove)} == set(found)
    assert decide_gateway(gateway(), None, found) == []


@pytest.mark.parametrize(
    "spec",
    [
        {"infrastructure": {"annotations": {"minik8s.io/x": "y"}}},
        {"infrastructure": {"parametersRef": {"name": "x"}}},
        {"addresses": [{"value": "192.0.2.1"}]},
    ],
)
def test_what_is_refused_is_not_made(spec: JsonObject):
    assert decide_gateway(gateway(**spec), OURS, {}) == []


def test_labels_and_annotations_that_are_asked_for_are_on_all_parts_and_their_pods():
    asked = {"labels": {"team": "x"}, "annotations": {"example.com/a": "b"}}
    found = made(gateway(infrastructure=asked))
    pods = (found[DEPLOYMENT] or {})["spec"]["template"]
    for each in (*found.values(), pods):
        assert each is not None
        assert objects.labels(each)["team"] == "x"
        assert objects.annotations(each)["example.com/a"] == "b"


def edited(kind: Kind, edit: Callable[[JsonObject], object]) -> tuple[JsonObject, Found]:
    """Return a Gateway and its parts as the API server completes them, one of which was edited."""
    one = gateway()
    found: Found = {each: copy.deepcopy(part) for each, part in made(one).items()}
    for each, part in found.items():
        apply_defaults(each, part or {})
    assert decide_gateway(one, OURS, found) == []
    edit(found[kind] or {})
    return one, found


def envoy_of(deployment: JsonObject) -> JsonObject:
    found: JsonObject = deployment["spec"]["template"]["spec"]["containers"][0]
    return found


@pytest.mark.parametrize(
    ("kind", "edit", "fields"),
    [
        (DEPLOYMENT, lambda it: envoy_of(it).update(image="evil:1"), [f"{ENVOY}.image"]),
        (DEPLOYMENT, lambda it: envoy_of(it).pop("readinessProbe"), [f"{ENVOY}.readinessProbe"]),
        (DEPLOYMENT, lambda it: it["spec"]["strategy"].update(type="Recreate"), [".spec.strategy.type"]),
        (SERVICE, lambda it: it["spec"].update(type="ClusterIP"), [".spec.type"]),
        (SERVICE, lambda it: it["spec"].update(selector={"app": "mine"}), [".spec.selector"]),
        (SERVICE, lambda it: it["metadata"]["labels"].clear(), [".metadata.labels"]),
        (SERVICE_ACCOUNT, lambda it: it["metadata"].pop("labels"), [".metadata.labels"]),
    ],
)  # fmt: skip
def test_fields_of_a_part_that_were_changed_by_hand_are_named_and_come_back(
    kind: Kind, edit: Callable[[JsonObject], object], fields: list[str]
):
    one, found = edited(kind, edit)
    (step,) = decide_gateway(one, OURS, found)
    assert isinstance(step, Apply)
    assert (step.kind, [*step.changed]) == (kind, fields)
    told = event_of(step)
    assert told is not None
    assert told.reason == "Reverted"
    assert f"{kind.kind} {name_of_parts('edge')} differs from what the Gateway declares" in told.message
    assert fields[0] in told.message


@pytest.mark.parametrize(
    ("kind", "edit"),
    [
        (DEPLOYMENT, lambda it: it["spec"].update(replicas=5, paused=True)),
        (DEPLOYMENT, lambda it: envoy_of(it).update(resources={"limits": {"cpu": "1"}})),
        (DEPLOYMENT, lambda it: it["spec"]["template"]["metadata"].update(annotations={"restartedAt": "now"})),
        (SERVICE, lambda it: it["spec"].update(clusterIP="100.0.0.7", externalTrafficPolicy="Local")),
        (SERVICE, lambda it: it["spec"]["ports"][0].update(nodePort=30080)),
        (SERVICE, lambda it: it["spec"]["ports"].append({"name": "mine", "port": 9, "protocol": "TCP"})),
        (SERVICE, lambda it: it["metadata"].update(annotations={**it["metadata"]["annotations"], "a": "b"})),
    ],
)
def test_what_others_set_beside_what_is_declared_stays(kind: Kind, edit: Callable[[JsonObject], object]):
    one, found = edited(kind, edit)
    assert decide_gateway(one, OURS, found) == []


def test_a_port_whose_number_was_edited_comes_back_and_leaves_no_second_one_of_its_name():
    def renumber(service: JsonObject) -> None:
        service["spec"]["ports"][0]["port"] = 81
        service["spec"]["ports"].append({"name": "mine", "port": 9, "protocol": "TCP"})

    one, found = edited(SERVICE, renumber)
    (step,) = decide_gateway(one, OURS, found)
    assert isinstance(step, PutBack)
    ports = step.body["spec"]["ports"]
    assert [(each["name"], each["port"]) for each in ports] == [("mine", 9), ("port-80", 80)]
    stands = {**(found[SERVICE] or {}), "spec": {**(found[SERVICE] or {})["spec"], "ports": ports}}
    assert decide_gateway(one, OURS, {**found, SERVICE: stands}) == []

"""What a Gateway runs as: made, kept, and taken away; stopped after any step, the next decision has the rest."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.defaulting.defaults import apply_defaults
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import DEPLOYMENT, SERVICE, SERVICE_ACCOUNT
from minik8s_modules.api.merging import managed_fields, server_side_apply
from minik8s_modules.api.merging.patch import merge_patch
from minik8s_modules.api.network.gateway_api import CONTROLLER, GATEWAY_NAME, name_of_parts
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.sidecar_images import sidecar_of
from minik8s_modules.api.validation import validate_update
from minik8s_modules.cli.plans.planning import fields
from minik8s_modules.controllers.network.gateways import (
    DIGEST,
    MANAGER,
    Apply,
    Clear,
    Remove,
    Step,
    Taken,
    decide_gateway,
    event_of,
)

OURS = {"metadata": {"name": "minik8s"}, "spec": {"controllerName": CONTROLLER}}
THEIRS = {"metadata": {"name": "other"}, "spec": {"controllerName": "example.com/x"}}
Found = dict[Kind, JsonObject | None]
ENVOY = "spec.template.spec.containers[envoy]"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


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


def pod_of(deployment: JsonObject) -> JsonObject:
    found: JsonObject = deployment["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize(
    ("kind", "edit", "names"),
    [
        (DEPLOYMENT, lambda it: envoy_of(it).update(image="evil:1"), [f"{ENVOY}.image"]),
        (DEPLOYMENT, lambda it: envoy_of(it).pop("readinessProbe"), [f"{ENVOY}.readinessProbe"]),
        (DEPLOYMENT, lambda it: it["spec"]["strategy"].update(type="Recreate"), ["spec.strategy.type"]),
        (SERVICE, lambda it: it["spec"].update(type="ClusterIP"), ["spec.type"]),
        (SERVICE, lambda it: it["spec"].update(selector={"app": "mine"}), ["spec.selector"]),
        (SERVICE, lambda it: it["metadata"]["labels"].clear(), ["metadata.labels"]),
        (SERVICE_ACCOUNT, lambda it: it["metadata"].pop("labels"), ["metadata.labels"]),
    ],
)  # fmt: skip
def test_fields_of_a_part_that_were_changed_by_hand_are_named_and_come_back(
    kind: Kind, edit: Callable[[JsonObject], object], names: list[str]
):
    one, found = edited(kind, edit)
    (step,) = decide_gateway(one, OURS, found)
    assert isinstance(step, Apply)
    assert (step.kind, [*step.changed]) == (kind, names)
    told = event_of(step)
    assert told is not None
    assert told.reason == "Reverted"
    assert f"{kind.kind} {name_of_parts('edge')} differs from what the Gateway declares" in told.message
    assert names[0] in told.message


def test_an_event_names_fields_as_a_plan_does():
    def edit(deployment: JsonObject) -> None:
        envoy_of(deployment).update(image="evil:1", args=["x"])
        deployment["metadata"]["labels"][GATEWAY_NAME] = "other"

    one, found = edited(DEPLOYMENT, edit)
    (step,) = decide_gateway(one, OURS, found)
    assert isinstance(step, Apply)
    _, before = edited(DEPLOYMENT, lambda _: None)
    assert {*step.changed} == {each.path for each in fields(before[DEPLOYMENT], found[DEPLOYMENT])}


@pytest.mark.parametrize(
    ("kind", "edit"),
    [
        (DEPLOYMENT, lambda it: it["spec"].update(replicas=5, paused=True)),
        (DEPLOYMENT, lambda it: envoy_of(it).update(resources={"limits": {"cpu": "1"}})),
        (DEPLOYMENT, lambda it: envoy_of(it).update(env=[{"name": "A", "value": "b"}], imagePullPolicy="Never")),
        (DEPLOYMENT, lambda it: pod_of(it)["containers"].insert(0, {"name": "agent", "image": "agent:1"})),
        (DEPLOYMENT, lambda it: pod_of(it).update(initContainers=[{"name": "first", "image": "agent:1"}],
                                                  volumes=[{"name": "v", "emptyDir": {}}], nodeSelector={"a": "b"})),
        (DEPLOYMENT, lambda it: it["spec"]["template"]["metadata"]["labels"].update({"example.com/injected": "yes"})),
        (DEPLOYMENT, lambda it: it["spec"]["template"]["metadata"].update(annotations={"restartedAt": "now"})),
        (SERVICE, lambda it: it["spec"].update(clusterIP="100.0.0.7", externalTrafficPolicy="Local")),
        (SERVICE, lambda it: it["spec"]["ports"][0].update(nodePort=30080)),
        (SERVICE, lambda it: it["spec"]["ports"].append({"name": "mine", "port": 9, "protocol": "TCP"})),
        (SERVICE, lambda it: it["metadata"].update(annotations={**it["metadata"]["annotations"], "a": "b"})),
    ],
)  # fmt: skip
def test_what_others_set_beside_what_is_declared_stays(kind: Kind, edit: Callable[[JsonObject], object]):
    one, found = edited(kind, edit)
    assert decide_gateway(one, OURS, found) == []


def stands(kind: Kind, old: JsonObject, new: JsonObject) -> JsonObject:
    """Return an object as the API server keeps it; one that it would refuse is none."""
    apply_defaults(kind, new)
    new["metadata"].setdefault("uid", f"uid-{kind.kind}")
    if old:
        assert [each.message for each in validate_update(kind, new, old)] == []
    return new


def taken(step: Step, found: Found) -> None:
    """Take a step as an API server does, with whose fields are whose."""
    assert isinstance(step, Apply | Clear)
    old = found.get(step.kind) or {}
    before = copy.deepcopy(old)
    if isinstance(step, Apply):
        applier = server_side_apply.Applier(MANAGER, force=True)
        new = server_side_apply.apply(step.kind, before, copy.deepcopy(step.obj), applier, NOW)
        found[step.kind] = stands(step.kind, old, new)
    else:
        found[step.kind] = written(step.kind, old, merge_patch(before, step.body), MANAGER)


def written(kind: Kind, old: JsonObject, new: JsonObject, manager: str) -> JsonObject:
    """Return an object after a write that is no server-side apply."""
    new = stands(kind, old, copy.deepcopy(new))
    managed_fields.record_update(kind, kind, new, old, managed_fields.Writer(manager), NOW)
    return new


def settled(one: JsonObject, found: Found) -> list[Step]:
    """Take steps until there are none; return them. Each is decided anew, as after a kill."""
    done: list[Step] = []
    while steps := decide_gateway(one, OURS, found):
        taken(steps[0], found)
        done.append(steps[0])
        assert len(done) <= 10, "it does not come to rest"
    return done


def ports_of(found: Found) -> list[tuple[str, int, str]]:
    ports = (found[SERVICE] or {})["spec"]["ports"]
    return sorted((each["name"], each["port"], each["protocol"]) for each in ports)


MINE = {"name": "mine", "port": 9, "targetPort": 9, "protocol": "TCP"}


@pytest.mark.parametrize("others", [[], [MINE]])
@pytest.mark.parametrize("edit", [{"port": 81}, {"protocol": "UDP"}, {"name": "web"}, {"targetPort": 1}])
def test_a_port_that_was_edited_comes_back_alone_and_goes_when_the_gateway_has_it_no_more(
    edit: JsonObject, others: list[JsonObject]
):
    found: Found = {}
    assert len(settled(gateway(), found)) == 3
    service = copy.deepcopy(found[SERVICE] or {})
    service["spec"]["ports"][0].update(edit)
    service["spec"]["ports"] += others
    found[SERVICE] = written(SERVICE, found[SERVICE] or {}, service, "kubectl-patch")
    assert settled(gateway(), found)
    theirs = [("mine", 9, "TCP")] if others else []
    assert ports_of(found) == [*theirs, ("port-80", 80, "TCP")]
    settled(gateway(8080), found)
    assert ports_of(found) == [*theirs, ("port-8080", 8080, "TCP")]


def test_a_port_that_is_edited_while_no_controller_runs_does_not_keep_a_changed_gateway_from_its_service():
    found: Found = {}
    settled(gateway(), found)
    service = copy.deepcopy(found[SERVICE] or {})
    service["spec"]["ports"] = [{**service["spec"]["ports"][0], "port": 81}, {**MINE, "name": "port-443"}]
    found[SERVICE] = written(SERVICE, found[SERVICE] or {}, service, "kubectl-edit")
    settled(gateway(80, 443), found)
    assert ports_of(found) == [("port-443", 443, "TCP"), ("port-80", 80, "TCP")]


@pytest.mark.parametrize("seed", range(60))
def test_whatever_is_edited_of_a_services_ports_it_comes_to_rest_with_those_of_the_gateway(seed: int):
    roll = random.Random(seed)
    found: Found = {}
    mine = dict(MINE)
    for _ in range(4):
        one = gateway(*roll.sample([80, 81, 443], roll.randint(1, 3)))
        settled(one, found)
        service = copy.deepcopy(found[SERVICE] or {})
        ports = service["spec"]["ports"]
        names = roll.sample(["port-80", "port-81", "port-443", "mine", "web"], 5)
        places = roll.sample([(port, protocol) for port in (80, 81, 443, 9) for protocol in ("TCP", "UDP")], 5)
        for name, (port, protocol), each in zip(names, places, [*ports, mine], strict=False):
            each |= {"name": name, "port": port, "protocol": protocol}
        service["spec"]["ports"] = roll.sample([*ports, dict(mine)], roll.randint(1, len(ports) + 1))
        if len({each["name"] for each in service["spec"]["ports"]}) < len(service["spec"]["ports"]):
            continue
        found[SERVICE] = written(SERVICE, found[SERVICE] or {}, service, "kubectl-edit")
        settled(one, found)
        wanted = {(f"port-{each['port']}", each["port"], "TCP") for each in one["spec"]["listeners"]}
        assert wanted <= {*ports_of(found)}


def test_what_the_gateways_infrastructure_says_is_kept_and_goes_with_it_and_a_label_by_hand_stays():
    found: Found = {}
    asked = gateway(infrastructure={"labels": {"team": "x"}, "annotations": {"example.com/a": "b"}})
    settled(asked, found)
    edited = copy.deepcopy(found[DEPLOYMENT] or {})
    edited["metadata"]["labels"].update(team="y", mine="z")
    edited["spec"]["template"]["metadata"]["annotations"]["example.com/a"] = "c"
    found[DEPLOYMENT] = written(DEPLOYMENT, found[DEPLOYMENT] or {}, edited, "kubectl-edit")
    (step,) = settled(asked, found)
    assert isinstance(step, Apply)
    assert step.changed == ("metadata.labels.team", "spec.template.metadata.annotations.example.com/a")
    again = settled(gateway(), found)
    assert [event_of(each) for each in again] == [None] * 3  # nobody edited anything
    labels = objects.labels(found[DEPLOYMENT] or {})
    assert ("team" in labels, labels["mine"]) == (False, "z")
    assert "example.com/a" not in ((found[DEPLOYMENT] or {})["spec"]["template"]["metadata"].get("annotations") or {})


def test_replicas_stay_whoever_sets_them_also_when_the_deployment_is_applied_again():
    found: Found = {}
    settled(gateway(), found)
    scaled = copy.deepcopy(found[DEPLOYMENT] or {})
    scaled["spec"]["replicas"] = 7
    found[DEPLOYMENT] = written(DEPLOYMENT, found[DEPLOYMENT] or {}, scaled, "autoscaler")
    assert settled(gateway(), found) == []
    settled(gateway(infrastructure={"labels": {"a": "b"}}), found)
    assert (found[DEPLOYMENT] or {})["spec"]["replicas"] == 7


@pytest.mark.parametrize("policy", ["SingleStack", "RequireDualStack"])
def test_the_families_of_a_service_stay_whoever_chose_them_also_when_it_is_applied_again(policy: str):
    found: Found = {}
    settled(gateway(), found)
    assert objects.spec(found[SERVICE] or {})["ipFamilyPolicy"] == "PreferDualStack"
    chosen = copy.deepcopy(found[SERVICE] or {})
    chosen["spec"]["ipFamilyPolicy"] = policy
    found[SERVICE] = written(SERVICE, found[SERVICE] or {}, chosen, "kubectl-patch")
    assert settled(gateway(), found) == []
    settled(gateway(80, 81), found)
    spec = objects.spec(found[SERVICE] or {})
    assert (spec["ipFamilyPolicy"], [each["port"] for each in spec["ports"]]) == (policy, [80, 81])


def test_what_another_version_of_the_controllers_made_is_applied_once_and_is_nobodys_edit():
    found: Found = {}
    settled(gateway(), found)
    earlier = copy.deepcopy(found[DEPLOYMENT] or {})
    envoy_of(earlier)["image"] = "minik8s/envoy:0"
    earlier["metadata"]["annotations"][DIGEST] = "of-another-version"
    found[DEPLOYMENT] = earlier
    (step,) = settled(gateway(), found)
    assert event_of(step) is None
    assert envoy_of(found[DEPLOYMENT] or {})["image"] == "minik8s/envoy:1"

"""Rules of pods that need more than a case file."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from minik8s_modules.api.kinds import DEPLOYMENT, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.schema import structural
from minik8s_modules.api.validation import validate_create, validate_update, warnings
from tests.unit.api import samples


def refused(change):
    return [cause.field for cause in validate_create(POD, samples.created(samples.merged(samples.sample(POD), change)))]


def with_ports(*ports, **spec):
    return {"spec": {**spec, "containers": [{"name": "app", "image": "i", "ports": list(ports)}]}}


def test_ports():
    assert refused(with_ports({"containerPort": 80, "name": "http"}, {"containerPort": 53, "protocol": "UDP"})) == []
    assert refused(with_ports({"containerPort": -1})) == ["spec.containers[0].ports[0].containerPort"]


def test_a_host_port_is_taken_once_an_address():
    assert refused(with_ports({"containerPort": 80, "hostPort": 80})) == []
    assert refused(with_ports({"containerPort": 80, "hostPort": 80}, {"containerPort": 81, "hostPort": 80})) == [
        "spec.containers[0].ports[1].hostPort"
    ]
    assert refused(with_ports({"containerPort": 80}, hostNetwork=True)) == []
    two = with_ports({"containerPort": 80}, {"containerPort": 80}, hostNetwork=True)
    assert refused(two) == ["spec.containers[0].ports[1].hostPort"]


@pytest.mark.parametrize(("name", "fine"), [("linux", True), ("windows", False)])
def test_only_linux_pods_run(name, fine):
    assert refused({"spec": {"os": {"name": name}}}) == ([] if fine else ["spec.os.name"])


def test_what_is_not_acted_on_is_told_once_per_reason():
    spec = {"securityContext": {"fsGroupChangePolicy": "Always"}}
    pod = samples.created(samples.merged(samples.sample(POD), {"spec": spec}))
    assert len(warnings(POD, pod)) == 1
    assert warnings(POD, pod)[0].startswith("spec.securityContext.fsGroupChangePolicy: stored, but minik8s does not")


@pytest.mark.parametrize(
    ("beside", "sizes"),
    [
        ({}, []),
        ({"containers": [{"name": "b", "image": "i"}]}, ["hugepages-2Mi"]),
        ({"initContainers": [{"name": "b", "image": "i"}]}, []),
        ({"initContainers": [{"name": "b", "image": "i", "restartPolicy": "Always"}]}, ["hugepages-2Mi"]),
    ],
)
def test_whose_containers_share_huge_pages_is_told_so(beside: JsonObject, sizes: list[str]):
    limits = {"memory": "64Mi", "hugepages-2Mi": "4Mi"}
    app: JsonObject = {"name": "app", "image": "i", "resources": {"limits": limits}}
    spec = {**beside, "containers": [app, *beside.get("containers", [])]}
    for kind, obj in ((POD, {"spec": spec}), (DEPLOYMENT, {"spec": {"template": {"spec": spec}}})):
        assert [text.partition(":")[0] for text in warnings(kind, obj)] == sizes


def gated(*names: str, **spec: object) -> JsonObject:
    change = {"schedulingGates": [{"name": name} for name in names], **spec}
    made: JsonObject = samples.merged(samples.created(samples.sample(POD)), {"spec": change})
    return made


def test_gates_have_names_and_keep_the_pod_from_any_node():
    assert refused({"spec": {"schedulingGates": [{"name": "a/b"}, {"name": "c"}]}}) == []
    assert refused({"spec": {"schedulingGates": [{"name": "a b"}]}}) == ["spec.schedulingGates[0].name"]
    assert refused({"spec": {"schedulingGates": [{"name": "a"}, {"name": "a"}]}}) == ["spec.schedulingGates[1]"]
    assert refused({"spec": {"schedulingGates": [{"name": "a"}], "nodeName": "n"}}) == ["spec.nodeName"]


def test_gates_are_taken_away_and_never_added():
    assert validate_update(POD, gated("a"), gated("a", "b")) == []
    found = validate_update(POD, gated("a", "c"), gated("a"))
    assert [cause.field for cause in found] == ["spec.schedulingGates"]
    assert "only deletion is allowed, but found new scheduling gate 'c'" in found[0].message


def test_a_gated_pod_may_be_narrowed_down():
    before = gated("a", nodeSelector={"disk": "ssd"})
    assert validate_update(POD, gated("a", nodeSelector={"disk": "ssd", "zone": "x"}), before) == []
    assert validate_update(POD, gated("a", nodeSelector={"disk": "hdd"}), before) != []
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Exists"}]}]}
    required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert validate_update(POD, gated("a", affinity=required), gated("a")) == []
    free = samples.created(samples.sample(POD))
    assert validate_update(POD, samples.merged(free, {"spec": {"nodeSelector": {"a": "b"}}}), free) != []


def test_what_was_stored_earlier_can_still_be_changed():
    old = samples.created(
        samples.merged(samples.sample(POD), {"spec": {"hostUsers": False}, "metadata": {"finalizers": ["a/b"]}})
    )
    released = samples.merged(old, {"metadata": {"finalizers": []}})
    assert validate_update(POD, released, old) == []
    clean = samples.created(samples.sample(POD))
    added = samples.merged(clean, {"spec": {"hostUsers": False}})
    assert "spec.hostUsers" in {cause.field for cause in validate_update(POD, added, clean)}


def test_a_plain_pod_is_not_warned_about():
    assert warnings(POD, samples.created(samples.sample(POD))) == []


def test_limits_of_local_storage_are_kept_so_nobody_is_warned():
    volume = {"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}
    container = {"name": "c", "resources": {"limits": {"ephemeral-storage": "1Gi", "memory": "1Mi"}}}
    assert warnings(POD, {"spec": {"containers": [container], "volumes": [volume]}}) == []


def functions_called(action: Callable[[], None]) -> int:
    """Return how many Python functions ``action`` calls."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def test_a_second_write_of_a_pod_walks_what_the_first_has_compiled():
    pod = samples.created(samples.sample(POD))

    def write():
        structural.unknown_fields(POD, pod)
        structural.type_errors(POD, pod)
        validate_create(POD, pod)
        warnings(POD, pod)

    assert functions_called(write) < 1_000  # 293; a walk that compiles anew calls 17,000

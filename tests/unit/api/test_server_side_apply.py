"""Server-side apply, case by case: steps of appliers and updaters, then the object and who owns what."""

from __future__ import annotations

import copy
from datetime import timedelta

import pytest

from minik8s_modules.api import managed_fields
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import CONFIG_MAP, KINDS, POD
from minik8s_modules.api.server_side_apply import Applier, apply
from tests.unit.api import samples


def play(case):
    """Carry out the steps of a case and return the object."""
    kind = samples.kind_of(case.get("kind") or case.get("live") or {"apiVersion": "v1", "kind": "ConfigMap"})
    identity = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "x"}}
    live = copy.deepcopy(case.get("live", {}))
    for minute, step in enumerate(case["steps"]):
        now = samples.NOW + timedelta(minutes=minute)
        ((operation, told),) = step.items()
        if operation == "apply":
            applier = Applier(told["manager"], told.get("force", False), told.get("subresource", ""))
            live = apply(kind, live, samples.merged(identity, told["config"]), applier, now)
        else:
            new = samples.merged(identity, told["object"])
            writer = managed_fields.Writer(told["manager"], told.get("subresource", ""))
            managed_fields.record_update(kind, kind, new, live or None, writer, now)
            live = new
    return live


def owners(obj):
    """Return the fields by manager, with the subresource behind a slash; the map of data itself is left out."""
    found = {}
    for entry in obj["metadata"]["managedFields"]:
        name = "/".join(filter(None, (entry["manager"], entry.get("subresource"))))
        found[name] = entry["fieldsV1"]
    return found


@samples.cases("server_side_apply")
def test_cases(path):
    case = samples.read(path)
    then = case["then"]
    if "refused" in then:
        with pytest.raises(StatusError) as refused:
            play(case)
        assert refused.value.message == then["refused"]
        assert refused.value.details.get("causes", []) == then.get("causes", refused.value.details.get("causes", []))
        return
    obj = play(case)
    if "owners" in then:
        assert owners(obj) == then["owners"]
    for field in set(then) - {"owners"}:
        assert obj[field] == samples.merged(obj[field], then[field])


def test_applying_again_changes_nothing_not_even_the_time():
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"k": "v"}}
    first = apply(CONFIG_MAP, {}, copy.deepcopy(config), Applier("a"), samples.NOW)
    later = samples.NOW + timedelta(hours=1)
    assert apply(CONFIG_MAP, copy.deepcopy(first), copy.deepcopy(config), Applier("a"), later) == first


def test_kubectl_keeps_its_annotation_up_to_date():
    name = "kubectl.kubernetes.io/last-applied-configuration"
    meta = {"name": "x", "uid": "u", "annotations": {name: '{"apiVersion":"v1","kind":"ConfigMap","data":{"k":"v"}}'}}
    live = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"k": "v"}}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"k": "w"}}
    result = apply(CONFIG_MAP, live, config, Applier("kubectl"), samples.NOW)
    assert '"data":{"k":"w"}' in result["metadata"]["annotations"][name]


def test_the_order_of_merged_lists_follows_the_configuration_where_it_speaks():
    def pod(*names):
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "x"},
            "spec": {"containers": [{"name": name} for name in names]},
        }

    live = apply(POD, {}, pod("a", "b", "c"), Applier("one"), samples.NOW)
    result = apply(POD, live, pod("new", "c", "a"), Applier("two"), samples.NOW)
    assert [item["name"] for item in result["spec"]["containers"]] == ["b", "new", "c", "a"]


@pytest.mark.parametrize("kind", [kind for kind in KINDS.all() if kind.stored], ids=lambda kind: kind.resource)
def test_a_stored_object_is_compared_with_nothing(kind):
    obj = samples.created(samples.sample(kind))
    managed_fields.record_update(kind, kind, obj, None, managed_fields.Writer("a"), samples.NOW)
    assert len(managed_fields.decode(obj["metadata"].get("managedFields", []))) <= 1

"""Server-side apply, case by case: steps of appliers and updaters, then the object and who owns what."""

from __future__ import annotations

import copy
import json
from datetime import timedelta

import pytest

from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import CONFIG_MAP, KINDS, POD
from minik8s_modules.api.merging import managed_fields, server_side_apply
from minik8s_modules.api.merging.server_side_apply import Applier, apply
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.schema.shapes import Shape
from tests.unit.api import samples


def play(case):
    """Carry out the steps of a case and return the object."""
    kind = samples.kind_of(case.get("kind") or case.get("live") or {"apiVersion": "v1", "kind": "ConfigMap"})
    identity = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "x"}}
    live = copy.deepcopy(case.get("live", {}))
    for minute, step in enumerate(case["steps"]):
        now = samples.NOW + timedelta(minutes=minute)
        ((operation, result),) = step.items()
        if operation == "apply":
            applier = Applier(result["manager"], result.get("force", False), result.get("subresource", ""))
            live = apply(kind, live, samples.merged(identity, result["config"]), applier, now)
        else:
            new = samples.merged(identity, result["object"])
            writer = managed_fields.Writer(result["manager"], result.get("subresource", ""))
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


HISTORIES = (samples.ROOT / "tests/cases/apply_histories/structured-merge-diff.jsonl").read_text().splitlines()


@pytest.mark.parametrize("number", range(len(HISTORIES)))
def test_random_histories_end_as_those_of_structured_merge_diff(number, monkeypatch):
    """Recorded from structured-merge-diff 4.4.2, which knows neither what is the server's nor what Go always writes."""
    monkeypatch.setattr(Shape, "always", lambda _self, _name, _sub: False)
    for module in (managed_fields, server_side_apply):
        monkeypatch.setattr(module, "without_servers", lambda fields: fields)
        monkeypatch.setattr(module, "counted", lambda _kind, fields, _subresource: fields)
    history = json.loads(HISTORIES[number])
    live: JsonObject = {"apiVersion": "v1", "kind": "Pod"}
    managers: managed_fields.Managers = {}
    for step, conflicts in zip(history["steps"], history["conflicts"], strict=True):
        try:
            live, managers = advanced(live, managers, step)
        except StatusError as refused:
            causes = refused.details["causes"]
            assert sorted(f"{each['message'].split()[2][1:-1]} {each['field']}" for each in causes) == conflicts
        else:
            assert not conflicts
    assert live == history["object"]
    assert {found.manager: entry.fields for found, entry in managers.items()} == history["owners"]


def advanced(live, managers, step):
    """Return object and managers after one step of a history."""
    if step["operation"] == "update":
        versions = managed_fields.Versions(POD, live, step["object"], "")
        writer = managed_fields.Writer(step["manager"])
        return step["object"], managed_fields.updated(managers, versions, "v1", writer, samples.NOW)
    before = copy.deepcopy(live)
    if managers:
        before.setdefault("metadata", {})["managedFields"] = managed_fields.encode(managers)
    applied = apply(POD, before, step["object"], Applier(step["manager"], step.get("force", False)), samples.NOW)
    managers = managed_fields.decode(applied["metadata"].pop("managedFields", []))
    return applied, managers

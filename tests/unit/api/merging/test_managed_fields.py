"""managedFields of updates: who owns what after creates, updates, resets, and many managers."""

from __future__ import annotations

import copy
from datetime import timedelta

import pytest

from minik8s_modules.api.custom.kinds import kinds_of
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import CONFIG_MAP, EVENT, EVENTS_EVENT, KINDS, POD
from minik8s_modules.api.merging import fieldsets, managed_fields
from minik8s_modules.api.merging.managed_fields import Writer, record_update, same_owners
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.schema.shapes import kind_shape
from tests.unit.api import samples

OWNED = [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "1"}]


def write(old, new, manager="u", subresource="", kind=CONFIG_MAP, later_s=0):
    new = copy.deepcopy(new)
    now = samples.NOW + timedelta(seconds=later_s)
    record_update(kind, kind, new, old, Writer(manager, subresource), now)
    return new


def config_map(managed=None, **data):
    meta = {"name": "x", "uid": "u"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta | ({"managedFields": managed} if managed else {}),
            "data": data}  # fmt: skip


def entries(obj):
    return [(entry["manager"], entry["fieldsV1"]) for entry in obj["metadata"].get("managedFields", [])]


def test_a_create_owns_what_it_says():
    obj = write(None, config_map(k="v"))
    assert obj["metadata"]["managedFields"] == [
        {
            "manager": "u",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2026-01-01T12:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {".": {}, "f:k": {}}},
        }
    ]


def test_what_go_always_writes_is_nobodys():
    obj = write(None, samples.created(samples.sample(POD)), kind=POD)
    ((_, fields),) = entries(obj)
    assert "." not in fields["f:spec"]
    assert "." not in fields["f:spec"]["f:containers"]
    assert "f:status" not in fields
    assert "f:metadata" not in fields


@pytest.mark.parametrize("more", [{}, {"labels": {"a": "b"}, "finalizers": ["a.b/c"], "ownerReferences": OWNED}])
@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS.all() if kind.stored and kind.storage is None], ids=lambda kind: kind.resource
)
def test_a_create_owns_all_that_differs_from_nothing_but_what_is_the_servers(kind, more):
    obj = samples.created(samples.sample(kind))
    obj["metadata"] |= copy.deepcopy(more)
    found = fieldsets.compare(kind_shape(kind), {}, obj)
    expected = managed_fields.without_servers(managed_fields.counted(kind, found.written, ""))
    written = entries(write(None, obj, kind=kind))
    assert written == ([("u", expected)] if expected else [])
    assert not more or expected["f:metadata"].keys() == {"f:labels", "f:finalizers", "f:ownerReferences"}


def test_an_update_takes_what_it_changes_and_leaves_the_rest():
    first = write(None, config_map(k="v", l="w"), "a")
    second = write(first, config_map(k="new", l="w"), "b", later_s=5)
    assert entries(second) == [
        ("a", {"f:data": {".": {}, "f:l": {}}}),
        ("b", {"f:data": {"f:k": {}}}),
    ]
    third = write(second, config_map(k="new"), "b", later_s=9)
    assert entries(third) == [("a", {"f:data": {}}), ("b", {"f:data": {"f:k": {}}})]
    assert third["metadata"]["managedFields"][1]["time"] == "2026-01-01T12:00:05Z"  # b only removed something


def test_a_client_may_leave_out_or_rewrite_managed_fields():
    first = write(None, config_map(k="v"), "a")
    assert write(first, config_map(k="v"))["metadata"] == first["metadata"]
    rewritten = [{**first["metadata"]["managedFields"][0], "operation": "Apply", "manager": "kubectl"}]
    assert write(first, config_map(rewritten, k="v"))["metadata"]["managedFields"] == rewritten


@pytest.mark.parametrize("reset", [[], [{}]])
def test_an_empty_list_resets_them_and_tracking_stays_off(reset):
    first = write(None, config_map(k="v"), "a")
    asked = config_map(k="v")
    asked["metadata"]["managedFields"] = reset
    second = write(first, asked)
    assert "managedFields" not in second["metadata"]
    assert "managedFields" not in write(second, config_map(k="w"))["metadata"]


@pytest.mark.parametrize(
    "broken",
    [
        [{"manager": "x"}],
        [{"operation": "Nope", "apiVersion": "v1", "fieldsType": "FieldsV1"}],
        [{"operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"x": {}}}],
        [{"operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"k:{": {}}}],
    ],
)
def test_managed_fields_that_cannot_be_read_are_not_taken_over(broken):
    first = write(None, config_map(k="v"), "a")
    assert write(first, config_map(broken, k="v"))["metadata"] == first["metadata"]


def test_elements_of_clients_are_spelled_as_ours():
    element = 'k:{ "protocol": "TCP", "containerPort": 80 }'
    given = [{"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
              "fieldsV1": {"f:spec": {element: {}}}}]  # fmt: skip
    first = write(None, config_map(k="v"), "a")
    assert entries(write(first, config_map(given, k="v"))) == [
        ("m", {"f:spec": {'k:{"containerPort":80,"protocol":"TCP"}': {}}})
    ]


def test_a_status_write_owns_status_alone_and_under_its_name():
    pod = write(None, samples.created(samples.sample(POD)), kind=POD)
    new = samples.merged(pod, {"status": {"phase": "Running"}})
    changed = write(pod, new, "kubelet", "status", POD, later_s=1)
    entry = changed["metadata"]["managedFields"][1]
    assert (entry["subresource"], entry["fieldsV1"]) == ("status", {"f:status": {"f:phase": {}}})


def test_the_oldest_updaters_become_one():
    obj = write(None, config_map(k="0"), "m0")
    for number in range(1, 15):
        data = {f"k{n}": "x" for n in range(number + 1)}
        obj = write(obj, config_map(**data), f"m{number}", later_s=number)
    assert len(entries(obj)) == managed_fields.MAX_UPDATERS
    assert entries(obj)[0][0] == managed_fields.ANCIENT


def test_managers_of_two_versions_are_compared_each_in_its_own():
    event = samples.created(samples.sample(EVENT))
    event["message"] = "one"
    record_update(EVENT, EVENT, event, None, Writer("core"), samples.NOW)
    new = copy.deepcopy(event) | {"message": "two"}
    record_update(EVENTS_EVENT, EVENT, new, event, Writer("new"), samples.NOW)
    fields = dict(entries(new))
    assert "f:message" not in fields["core"]
    assert fields["new"] == {"f:note": {}}


def test_only_times_differ():
    first = write(None, config_map(k="v"), "a")
    later = copy.deepcopy(first)
    later["metadata"]["managedFields"][0]["time"] = "2027-01-01T00:00:00Z"
    assert same_owners(first, later)
    later["metadata"]["managedFields"][0]["manager"] = "b"
    assert not same_owners(first, later)


@pytest.mark.parametrize(
    ("left", "right", "joined", "less", "common"),
    [
        ({"f:a": {}}, {"f:b": {}}, {"f:a": {}, "f:b": {}}, {"f:a": {}}, {}),
        ({"f:a": {".": {}, "f:b": {}}}, {"f:a": {}}, {"f:a": {".": {}, "f:b": {}}}, {"f:a": {"f:b": {}}}, {"f:a": {}}),
        ({"f:a": {"f:b": {}}}, {"f:a": {}}, {"f:a": {".": {}, "f:b": {}}}, {"f:a": {"f:b": {}}}, {}),
        ({"f:a": {}}, {"f:a": {"f:b": {}}}, {"f:a": {".": {}, "f:b": {}}}, {"f:a": {}}, {}),
        ({}, {"f:a": {}}, {"f:a": {}}, {}, {}),
    ],
)
def test_the_algebra_of_sets(left, right, joined, less, common):
    assert fieldsets.union(left, right) == joined
    assert fieldsets.difference(left, right) == less
    assert fieldsets.intersection(left, right) == common


def test_paths_are_shown_as_messages_name_them():
    fields: fieldsets.Fields = {"f:spec": {"f:ports": {'k:{"port":80,"protocol":"TCP"}': {}, 'v:"x"': {}}, "f:n": {}}}
    assert [fieldsets.shown(path) for path in fieldsets.paths(fields)] == [
        ".spec.n",
        '.spec.ports[port=80,protocol="TCP"]',
        '.spec.ports[="x"]',
    ]


def hosts(convert):
    """A custom kind in the versions v1, which is kept, and v2."""
    spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    versions = [{"name": name, "served": True, "storage": name == "v1", "schema": schema} for name in ("v1", "v2")]
    names = {"plural": "hosts", "kind": "Host", "singular": "host", "listKind": "HostList"}
    held = [{"type": kind, "status": "True"} for kind in ("NamesAccepted", "Established")]
    declared = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions}
    definition = {
        "metadata": {"name": "hosts.example.com"},
        "spec": {**declared, "conversion": {"strategy": "Webhook"}},
        "status": {"acceptedNames": names, "conditions": held},
    }
    return {kind.version: kind for kind in kinds_of(definition, convert=convert)}


def host(version, **spec):
    return {"apiVersion": f"example.com/{version}", "kind": "Host", "metadata": {"name": "a", "uid": "u"}, "spec": spec}


def test_managers_of_a_version_that_cannot_be_converted_to_keep_what_they_have():
    asked = []

    def stopped(_objs, wanted):
        asked.append(wanted)
        raise StatusError(500, "", "conversion webhook failed")

    kinds = hosts(stopped)
    made = write(None, host("v1", address="one:1"), "a", kind=kinds["v1"])
    theirs: list[JsonObject] = [
        {"manager": manager, "operation": "Apply", "apiVersion": "example.com/v2", "time": "2026-01-01T12:00:00Z",
         "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:host": {}}}}
        for manager in ("b", "c")
    ]  # fmt: skip
    made["metadata"]["managedFields"] += theirs
    changed = copy.deepcopy(made)
    changed["spec"]["address"] = "two:2"
    found = write(made, changed, "d", kind=kinds["v1"])
    assert [each for each in found["metadata"]["managedFields"] if each["operation"] == "Apply"] == theirs
    assert ("d", {"f:spec": {"f:address": {}}}) in entries(found)
    assert asked == ["example.com/v2"]

"""The compiled definitions: wrong types, unknown fields, pruning, closures and merge keys."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import kubernetes_validate
import pytest

from minik8s_modules.api.kinds import CLUSTER_ROLE, CONFIG_MAP, KINDS, LEASE, NODE, POD, POD_ADDRESS, SECRET, SERVICE
from minik8s_modules.api.schema import structural
from tests.unit.api import samples


def pod(**spec):
    made = samples.sample(POD)
    made["spec"].update(spec)
    return made


def test_unknown_fields_are_told_with_their_path():
    obj = pod(nope=1)
    obj["spec"]["containers"][0]["nope"] = 1
    obj["foo"] = {}
    assert structural.unknown_fields(POD, obj) == [
        'unknown field "spec.containers[0].nope"',
        'unknown field "spec.nope"',
        'unknown field "foo"',
    ]


def test_keys_of_maps_are_no_fields():
    obj = {"metadata": {"labels": {"anything": "x"}, "managedFields": [{"fieldsV1": {"f:x": {}}}]}, "data": {"k": "v"}}
    assert structural.unknown_fields(CONFIG_MAP, obj) == []


@pytest.mark.parametrize(
    ("kind", "obj", "message"),
    [
        (POD, {"metadata": {"name": 5}}, "number 5 into Go struct field ObjectMeta.metadata.name of type string"),
        (POD, {"spec": []}, "array into Go struct field PodSpec.spec of type PodSpec"),
        (POD, {"spec": {"containers": {}}}, "object into Go struct field PodSpec.spec.containers of type []Container"),
        (POD, {"spec": {"hostNetwork": "yes"}}, "string into Go struct field PodSpec.spec.hostNetwork of type bool"),
        (POD, {"spec": {"priority": 2**31}}, f"number {2**31} into Go struct field PodSpec.spec.priority of type"),
        (POD, {"spec": {"priority": 1.5}}, "number 1.5 into Go struct field PodSpec.spec.priority of type int32"),
        (POD, {"spec": {"priority": True}}, "bool into Go struct field PodSpec.spec.priority of type int32"),
        (POD, {"metadata": {"labels": {"a": 1}}}, "number 1 into Go struct field ObjectMeta.metadata.labels.a of type"),
        (POD, {"metadata": {"labels": ["a"]}}, "array into Go struct field ObjectMeta.metadata.labels of type map"),
        (SERVICE, {"spec": {"ports": [{"targetPort": []}]}}, "of type int32"),
        (NODE, {"status": {"capacity": {"cpu": {}}}}, "of type resource.Quantity"),
        (NODE, {"status": {"capacity": {"cpu": "1x"}}}, "quantities must match the regular expression"),
        (LEASE, {"spec": {"renewTime": "yesterday"}}, 'parsing time "yesterday" as "2006-01-02T15:04:05Z07:00"'),
        (LEASE, {"spec": {"renewTime": "2026-13-01T00:00:00Z"}}, 'parsing time "2026-13-01T00:00:00Z"'),
        (SECRET, {"data": {"a": "not base64!"}}, "illegal base64 data"),
        (SECRET, {"data": {"a": 1}}, "cannot unmarshal number 1"),
    ],
)  # fmt: skip
def test_wrong_types_are_told_as_the_decoder_words_them(kind, obj, message):
    (cause,) = structural.type_errors(kind, obj)
    assert message in cause.message
    error = structural.undecodable(kind, [cause])
    assert (error.code, error.message.startswith(f'{kind.kind} in version "v1" cannot be handled as a')) == (400, True)


@pytest.mark.parametrize("kind", KINDS.all(), ids=lambda kind: f"{kind.kind}.{kind.group}")
def test_nulls_are_absent_fields(kind):
    assert structural.type_errors(kind, dict.fromkeys(structural.kind_shape(kind).fields)) == []
    assert structural.type_errors(kind, samples.sample(kind)) == []
    assert structural.unknown_fields(kind, samples.sample(kind)) == []


def test_times_and_quantities_of_all_forms_are_read():
    lease = {"spec": {"renewTime": "2026-01-01T00:00:00.123456Z", "acquireTime": "2026-01-01T00:00:00+02:00"}}
    assert structural.type_errors(LEASE, lease) == []
    assert structural.type_errors(NODE, {"status": {"capacity": {"cpu": 2, "memory": "1Gi", "x": 0.5}}}) == []
    assert structural.type_errors(SERVICE, {"spec": {"ports": [{"targetPort": "http"}, {"targetPort": 80}]}}) == []


def test_prune_drops_what_decoding_drops():
    obj = pod(nope=1, nodeName=None, hostname="a")
    obj["spec"]["containers"][0].update({"args": ["x", None], "env": [None, {"name": "A", "nope": 1}]})
    obj["metadata"]["annotations"] = {"a": None}
    structural.prune(POD, obj)
    assert obj["spec"] == {
        "hostname": "a",
        "containers": [
            {"name": "app", "image": "minik8s/busybox:1", "args": ["x", ""], "env": [{}, {"name": "A"}]},
        ],
    }
    assert obj["metadata"]["annotations"] == {"a": ""}


def test_times_lose_fractions_of_seconds():
    """KWOK writes nanoseconds; clients that parse strictly to seconds would stumble."""
    node = {"status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": "2026-11-22T01:25:46.748166484Z"}]}}
    structural.prune(NODE, node)
    assert node["status"]["conditions"][0]["lastHeartbeatTime"] == "2026-11-22T01:25:46Z"
    lease = {"spec": {"renewTime": "2026-11-22T01:25:46.748166Z"}}
    structural.prune(LEASE, lease)
    assert lease["spec"]["renewTime"] == "2026-11-22T01:25:46.748166Z"


def test_prune_drops_empty_lists_and_maps_that_may_be_left_out():
    obj = pod(nodeSelector={}, volumes=[], securityContext={}, containers=[])
    obj["metadata"].update({"labels": {}, "annotations": {}, "finalizers": []})
    structural.prune(POD, obj)
    assert obj["spec"] == {"securityContext": {}, "containers": []}  # a struct says something, a required list too
    assert obj["metadata"].keys() <= {"name", "namespace"}


def test_prune_keeps_empty_rules_of_roles():
    role = {"metadata": {"name": "aggregated"}, "rules": []}
    structural.prune(CLUSTER_ROLE, role)
    assert role["rules"] == []


def test_prune_leaves_free_form_parts():
    obj = {"metadata": {"managedFields": [{"fieldsV1": {"f:a": None}}]}}
    before = copy.deepcopy(obj)
    structural.prune(CONFIG_MAP, obj)
    assert obj == before


def test_missing_fields():
    obj = samples.sample(POD_ADDRESS)
    assert structural.missing_fields(POD_ADDRESS, obj) == []
    obj["spec"] = {"podUID": "", "podName": None, "podNamespace": "default"}
    causes = [cause.field for cause in structural.missing_fields(POD_ADDRESS, obj)]
    assert causes == ["spec.podUID", "spec.podName", "spec.nodeName"]
    assert [cause.field for cause in structural.missing_fields(POD_ADDRESS, {})] == ["spec"]


def test_the_closure_holds_all_that_is_referred_to():
    found = structural.closure([POD.definition])
    assert "io.k8s.api.core.v1.Container" in found
    assert "io.k8s.api.core.v1.Service" not in found
    text = repr(found)
    assert all(f"'#/$defs/{name}'" in text or name == POD.definition for name in found)


def test_every_definition_of_the_file_is_there_as_it_stands():
    folder = Path(kubernetes_validate.__file__).parent / f"kubernetes-json-schema/{structural.KUBERNETES_VERSION}-local"
    written = json.loads((folder / "_definitions.json").read_text(encoding="utf-8"))["$defs"]
    assert {name: structural.definition(name) for name in written} == written
    assert structural.definition(POD_ADDRESS.definition)["type"] == "object"


def test_a_definition_is_the_callers_own():
    structural.definition(POD.definition).clear()
    assert structural.definition(POD.definition)


def test_a_missing_definition_is_a_key_error():
    with pytest.raises(KeyError):
        structural.definition("io.k8s.api.core.v1.Nope")


@pytest.mark.parametrize(
    ("path", "key", "strategies"),
    [
        (("spec", "containers"), "name", {"merge"}),
        (("spec", "containers", "ports"), "containerPort", {"merge"}),
        (("spec", "volumes"), "name", {"merge", "retainKeys"}),
        (("spec", "containers", "args"), "", set()),
        (("metadata", "finalizers"), "", {"merge"}),
        (("spec", "nope"), "", set()),
    ],
)
def test_merge_keys(path, key, strategies):
    merge = structural.merge_keys(POD, *path)
    assert (merge.key, set(merge.strategies)) == (key, strategies)


def test_strict_decoding_names_all_fields():
    error = structural.strict_decoding_error(['unknown field "a"', 'unknown field "b"'])
    assert error.message == 'strict decoding error: unknown field "a", unknown field "b"'

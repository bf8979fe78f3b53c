"""Which definitions may be stored, and why not."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from minik8s_modules.api.custom import definitions
from minik8s_modules.api.kinds import CUSTOM_RESOURCE_DEFINITION as CRD
from minik8s_modules.api.validation import validate_create, validate_update
from tests.unit.api import samples

AT = "spec.versions[0].schema.openAPIV3Schema"


EITHER = [{"type": "integer"}, {"type": "string"}]
SHORT = {"type": "string", "maxLength": 5}


def made(schema=None, **version):
    obj = samples.sample(CRD)
    obj["spec"]["versions"][0].update(version)
    if schema is not None:
        obj["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
    return samples.created(obj)


def causes_of(obj):
    return [str(each) for each in validate_create(CRD, obj)]


def with_spec(**fields):
    return {"type": "object", "properties": {"spec": fields}}


SPEC = f"{AT}.properties[spec]"


def test_names_of_lists_and_single_objects_are_filled_in():
    obj = made()
    assert obj["spec"]["names"] == {
        "plural": "widgets", "kind": "Widget", "singular": "widget", "listKind": "WidgetList",
    }  # fmt: skip
    assert obj["spec"]["conversion"] == {"strategy": "None"}
    assert obj["status"]["storedVersions"] == ["v1"]


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ({}, f"{AT}.type: Required value: must not be empty at the root"),
        ({"type": "string"}, f'{AT}.type: Invalid value: "string": must be object at the root'),
        (with_spec(), f"{SPEC}.type: Required value: must not be empty for specified object fields"),
        (with_spec(type="array"), f"{SPEC}.items: Required value: must be specified"),
        (
            with_spec(type="array", items={}),
            f"{SPEC}.items.type: Required value: must not be empty for specified array items",
        ),
        (
            with_spec(type="object", anyOf=[{"type": "object"}]),
            f"{SPEC}.anyOf[0].type: Forbidden: must be empty to be structural",
        ),
        (
            {"type": "object", "allOf": [{"properties": {"a": {"minimum": 1}}}]},
            f"{AT}.properties[a]: Required value: because it is defined in {AT}.allOf[0].properties[a]",
        ),
        (with_spec(type="text"), f'{SPEC}.type: Unsupported value: "text": supported values: '),
        (with_spec(type="string", pattern="("), f'{SPEC}.pattern: Invalid value: "(": must be a valid regular'),
        (with_spec(**{"type": "object", "$ref": "#/x"}), f"{SPEC}.$ref: Forbidden: $ref is not supported"),
        (
            with_spec(type="array", items={"type": "string"}, uniqueItems=True),
            f"{SPEC}.uniqueItems: Forbidden: uniqueItems cannot be set to true",
        ),
        (
            with_spec(type="object", properties={"a": {"type": "string"}}, additionalProperties={"type": "string"}),
            f"{SPEC}.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (
            with_spec(**{"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}),
            f"{SPEC}.x-kubernetes-list-map-keys: Required value: must not be empty",
        ),
        (with_spec(type="string", default=1), f'{SPEC}.default: Invalid value: "integer": '),
        (
            with_spec(type="object", properties={}, default={"a": 1}),
            f'{SPEC}.default: Invalid value: {{"a": 1}}: must not have unknown fields',
        ),
        (
            with_spec(**{"type": "object", "x-kubernetes-validations": [{"rule": "self.none == 1"}]}),
            f"{SPEC}.x-kubernetes-validations[0].rule: Invalid value: ",
        ),
        (with_spec(type="array", items=[{"type": "string"}]), f"{SPEC}.items: Invalid value: "),
        (
            {"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {}}}}},
            f"{AT}.properties[metadata]: Forbidden: must not specify anything other than name and generateName",
        ),
    ],
)
def test_a_schema_that_is_not_structural_is_refused_with_its_path(schema, wanted):
    assert any(each.startswith(wanted) for each in causes_of(made(schema))), causes_of(made(schema))


@pytest.mark.parametrize(
    "schema",
    [
        with_spec(**{"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
        with_spec(**{"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
        with_spec(**{"x-kubernetes-int-or-string": True, "allOf": [{"anyOf": EITHER}]}),
        with_spec(type="string", enum=["=", "on", None], nullable=True),
        with_spec(type="object", properties={"a": {"type": "string", "default": "x"}}, default={}),
        {"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": SHORT}}}},
        with_spec(**{"type": "string", "x-vendor": {"a": 1}}),
        with_spec(**{"type": "string", "maxLength": 9, "x-kubernetes-validations": [{"rule": "self.startsWith('a')"}]}),
    ],
)  # fmt: skip
def test_a_structural_schema_is_taken(schema):
    assert causes_of(made(schema)) == []


def test_a_schema_without_end_is_refused():
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(100):
        deep = {"type": "object", "properties": {"a": deep}}
    assert "at most 64 levels" in causes_of(made(deep))[0]


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"metadata": {"name": "other"}}, "metadata.name: "),
        ({"spec": {"group": "apps"}}, 'spec.group: Invalid value: "apps": should be a domain with at least one dot'),
        ({"spec": {"group": "a/b.c"}}, "spec.group: "),
        ({"spec": {"names": {"plural": "../x"}}}, "spec.names.plural: "),
        ({"spec": {"names": {"plural": "a/b"}}}, "spec.names.plural: "),
        ({"spec": {"names": {"kind": "Wid/get"}}}, "spec.names.kind: "),
        ({"spec": {"names": {"listKind": "Widget"}}}, "spec.names.listKind: "),
        ({"spec": {"scope": "World"}}, 'spec.scope: Unsupported value: "World"'),
        ({"spec": {"versions": []}}, "spec.versions: Invalid value: []: must have exactly one version marked"),
        ({"spec": {"preserveUnknownFields": True}}, "spec.preserveUnknownFields: "),
        (
            {"spec": {"conversion": {"strategy": "Webhook"}}},
            "spec.conversion.webhook.clientConfig: Required value: required when strategy is set to Webhook",
        ),
        ({"spec": {"conversion": {"strategy": "Magic"}}}, 'spec.conversion.strategy: Unsupported value: "Magic"'),
        ({"spec": {"group": "x.k8s.io"}}, "metadata.annotations[api-approved.kubernetes.io]: Required value"),
    ],
)
def test_what_else_is_wrong_is_told(change, wanted):
    obj = samples.merged(samples.created(samples.sample(CRD)), change)
    assert any(each.startswith(wanted) for each in causes_of(obj)), causes_of(obj)


@pytest.mark.parametrize(
    ("version", "wanted"),
    [
        ({"name": "1"}, "spec.versions[0].name: "),
        ({"schema": None}, "spec.versions[0].schema.openAPIV3Schema: Required value: schemas are required"),
        ({"deprecationWarning": "x"}, "spec.versions[0].deprecationWarning: "),
        ({"additionalPrinterColumns": [{"name": "a", "type": "x", "jsonPath": ".a"}]},
         'spec.versions[0].additionalPrinterColumns[0].type: Invalid value: "x": must be one of boolean,date'),
        ({"additionalPrinterColumns": [{"name": "a", "type": "string", "jsonPath": ".a["}]},
         "spec.versions[0].additionalPrinterColumns[0].JSONPath: "),
        ({"subresources": {"scale": {"specReplicasPath": ".x", "statusReplicasPath": ".status.x"}}},
         "spec.versions[0].subresources.scale.specReplicasPath: Invalid value: \".x\": should be a json path"),
        ({"selectableFields": [{"jsonPath": ".spec.a"}]}, "spec.versions[0].selectableFields[0].jsonPath: "),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_version_is_told(version, wanted):
    obj = samples.sample(CRD)
    obj["spec"]["versions"][0].update(version)
    obj = samples.created(obj)
    assert any(each.startswith(wanted) for each in causes_of(obj)), causes_of(obj)


def test_scope_and_kind_are_fixed_once_established():
    old = made()
    new = copy.deepcopy(old)
    new["spec"]["names"]["kind"] = "Gadget"
    new["spec"]["scope"] = "Cluster"
    assert validate_update(CRD, new, old) == []
    old["status"]["conditions"] = [{"type": "Established", "status": "True"}]
    assert [each.field for each in validate_update(CRD, new, old)] == ["spec.scope", "spec.names.kind"]


def test_a_version_that_objects_are_kept_in_cannot_go():
    obj = made()
    obj["status"]["storedVersions"] = ["v0", "v1"]
    assert [str(each) for each in definitions.validate(obj)] == [
        'status.storedVersions[0]: Invalid value: "v0": must appear in spec.versions'
    ]

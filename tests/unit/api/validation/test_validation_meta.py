"""Metadata: names of every kind, sizes, delete options."""

from __future__ import annotations

import pytest

from minik8s_modules.api.kinds import CONFIG_MAP, KINDS, NAMESPACE, POD
from minik8s_modules.api.validation import validate_create, validate_delete_options
from minik8s_modules.api.validation.meta import ANNOTATIONS_LIMIT_BYTES
from tests.unit.api import samples

SUPPORTED = 'supported values: "Background", "Foreground", "Orphan", "nil"'
BOTH = "orphanDependents and deletionPropagation cannot be both set"
STORED = pytest.mark.parametrize("kind", [k for k in KINDS.all() if k.stored], ids=lambda k: f"{k.kind}.{k.group}")


@STORED
@pytest.mark.parametrize(
    "name", ["../x", "a/b", "..", ".", "A", "a_b", "a b", "-a", "a-", "a\n", "a\0b", "{{ x }}", "ä", "a" * 300]
)
def test_a_bad_name_is_refused(kind, name):
    obj = samples.created(samples.merged(samples.sample(kind), {"metadata": {"name": name}}))
    # a role may be called anything that is one segment of a path
    fine = kind.group == "rbac.authorization.k8s.io" and name not in {"../x", "a/b", "..", ".", "a\n", "a\0b"}
    assert ("metadata.name" in {cause.field for cause in validate_create(kind, obj)}) is not fine


@STORED
@pytest.mark.parametrize("namespace", ["../x", "a/b", "..", "A", "a.b", ""])
def test_a_bad_namespace_is_refused(kind, namespace):
    if kind.namespaced:
        obj = samples.created(samples.sample(kind), namespace)
        assert "metadata.namespace" in {cause.field for cause in validate_create(kind, obj)}


@STORED
def test_the_samples_are_valid(kind):
    assert validate_create(kind, samples.created(samples.sample(kind))) == []


def test_a_namespace_name_is_a_label():
    obj = samples.created(samples.merged(samples.sample(NAMESPACE), {"metadata": {"name": "a.b"}}))
    assert "metadata.name" in {cause.field for cause in validate_create(NAMESPACE, obj)}


@pytest.mark.parametrize(
    ("prefix", "fine"), [("web-", True), ("web.", True), ("Web-", False), ("a/", False), ("-", False)]
)
def test_generate_name_is_checked(prefix, fine):
    obj = samples.created({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": prefix}})
    assert (validate_create(CONFIG_MAP, obj) == []) is fine


def test_annotations_are_limited():
    def reported(size):
        obj = samples.merged(samples.sample(CONFIG_MAP), {"metadata": {"annotations": {"a": "x" * (size - 1)}}})
        return list(map(str, validate_create(CONFIG_MAP, samples.created(obj))))

    assert reported(ANNOTATIONS_LIMIT_BYTES) == []
    assert reported(ANNOTATIONS_LIMIT_BYTES + 1) == [
        "metadata.annotations: Too long: may not be more than 262144 bytes"
    ]


def test_annotation_keys_may_have_capitals_but_no_spaces():
    fine = samples.merged(samples.sample(POD), {"metadata": {"annotations": {"Example.com/Key": "x"}}})
    assert validate_create(POD, samples.created(fine)) == []
    bad = samples.merged(samples.sample(POD), {"metadata": {"annotations": {"a b": "x"}}})
    assert validate_create(POD, samples.created(bad))[0].field == "metadata.annotations"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, []),
        ({"propagationPolicy": "Background", "gracePeriodSeconds": 0, "dryRun": ["All"]}, []),
        (
            {"propagationPolicy": "Never"},
            ['propagationPolicy: Unsupported value: "Never": ' + SUPPORTED],
        ),
        ({"dryRun": ["Some"]}, ['dryRun: Unsupported value: "Some": supported values: "All"']),
        (
            {"propagationPolicy": "Orphan", "orphanDependents": True},
            ['propagationPolicy: Invalid value: "Orphan": ' + BOTH],
        ),
    ],
)
def test_delete_options(options, expected):
    assert list(map(str, validate_delete_options(options))) == expected

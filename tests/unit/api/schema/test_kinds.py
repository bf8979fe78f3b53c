"""The registry of kinds: every kind is found by all its names and has a definition."""

from __future__ import annotations

import pytest

from minik8s_modules.api.kind import SUBRESOURCE_VERBS
from minik8s_modules.api.kinds import KINDS, LEASE, POD, POD_ADDRESS
from minik8s_modules.api.schema import structural

EACH = pytest.mark.parametrize("kind", KINDS.all(), ids=lambda kind: f"{kind.kind}.{kind.group}")


@EACH
def test_kinds_are_found_by_api_version(kind):
    assert KINDS.by_api_version(kind.api_version, kind.kind) == kind
    assert KINDS.by_resource(kind.group, kind.version, kind.plural) == kind


@EACH
def test_the_definition_of_a_kind_is_its_own(kind):
    named = structural.definition(kind.definition)["x-kubernetes-group-version-kind"]
    assert {"group": kind.group, "version": kind.version, "kind": kind.kind} in named


@EACH
def test_subresources_have_verbs(kind):
    assert set(kind.subresources) <= set(SUBRESOURCE_VERBS)


@pytest.mark.parametrize("name", ["po", "pod", "Pods", "POD"])
def test_names_are_case_insensitive(name):
    assert KINDS.by_name(name) is POD


def test_a_name_may_carry_its_group():
    assert KINDS.by_name("leases.coordination.k8s.io") is LEASE
    assert KINDS.by_name("nothing") is None


def test_groups_are_listed_with_their_versions():
    assert KINDS.groups()[""] == ("v1",)
    assert set(KINDS.groups()) >= {"coordination.k8s.io", "discovery.k8s.io", "events.k8s.io", "minik8s.io"}


def test_keys_follow_the_contract():
    assert POD.key("default", "web") == "/registry/core/pods/default/web"
    assert LEASE.key("kube-system", "x") == "/registry/coordination.k8s.io/leases/kube-system/x"
    assert POD_ADDRESS.key("ignored", "10.0.0.1") == "/registry/minik8s.io/podaddresses/10.0.0.1"


def test_keys_of_two_objects_never_meet():
    keys = {kind.key("a", "b") for kind in KINDS.all() if kind.stored and kind.storage is None}
    assert len(keys) == len([kind for kind in KINDS.all() if kind.stored and kind.storage is None])

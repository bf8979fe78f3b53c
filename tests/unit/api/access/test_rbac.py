"""Rules of roles: what they allow, cover and add up to."""

from __future__ import annotations

import pytest

from minik8s_modules.api.access import rbac
from minik8s_modules.api.access.rbac import compiled, effective_rules, uncovered
from minik8s_modules.api.kinds import CLUSTER_ROLE_BINDING, ROLE_BINDING
from minik8s_modules.api.validation import validate_create, validate_update
from tests.unit.api.samples import created, merged, sample


def rule(**fields):
    return {field: text.split() if text else [""] for field, text in fields.items()}


PODS = rule(verbs="get list", apiGroups="", resources="pods pods/log")


@pytest.mark.parametrize(
    ("given", "asked", "allowed"),
    [
        (PODS, ("get", "", "pods", "web"), True),
        (PODS, ("get", "", "pods/log", "web"), True),
        (PODS, ("get", "", "pods/exec", "web"), False),
        (PODS, ("delete", "", "pods", "web"), False),
        (PODS, ("get", "apps", "pods", "web"), False),
        (rule(verbs="*", apiGroups="*", resources="*"), ("anything", "any.group", "things/status", ""), True),
        (
            rule(verbs="update", apiGroups="apps", resources="*/scale"),
            ("update", "apps", "deployments/scale", "a"),
            True,
        ),
        (rule(verbs="update", apiGroups="apps", resources="*/scale"), ("update", "apps", "deployments", "a"), False),
        (rule(verbs="get", apiGroups="", resources="secrets", resourceNames="a b"), ("get", "", "secrets", "b"), True),
        (rule(verbs="get", apiGroups="", resources="secrets", resourceNames="a b"), ("get", "", "secrets", "c"), False),
        (rule(verbs="list", apiGroups="", resources="secrets", resourceNames="a"), ("list", "", "secrets", ""), False),
    ],
)
def test_a_rule_allows(given, asked, allowed):
    (made,) = compiled([given])
    assert made.allows(*asked) is allowed


@pytest.mark.parametrize(
    ("url", "path", "allowed"),
    [
        ("/healthz", "/healthz", True),
        ("/healthz", "/healthz/etcd", False),
        ("/api/*", "/api/v1", True),
        ("*", "/x", True),
    ],
)
def test_a_rule_allows_paths(url, path, allowed):
    (made,) = compiled([rule(verbs="get", nonResourceURLs=url)])
    assert made.allows_path("get", path) is allowed
    assert not made.allows_path("post", path)


def test_what_is_not_held_is_told():
    held = compiled([PODS])
    wanted = compiled(
        [rule(verbs="get delete", apiGroups="", resources="pods"), rule(verbs="get", nonResourceURLs="/m")]
    )
    missing = uncovered(held, wanted)
    assert rbac.described(missing) == (
        '{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}\n{NonResourceURLs:["/m"], Verbs:["get"]}'
    )
    assert uncovered(compiled([rule(verbs="*", apiGroups="*", resources="*")]), held) == []


def test_names_do_not_cover_all_names():
    one = compiled([rule(verbs="get", apiGroups="", resources="secrets", resourceNames="a")])
    every = compiled([rule(verbs="get", apiGroups="", resources="secrets")])
    assert uncovered(one, every)
    assert not uncovered(every, one)
    assert not uncovered(one, one)


def test_a_path_with_a_star_covers_longer_ones():
    assert not uncovered(
        compiled([rule(verbs="get", nonResourceURLs="/api/*")]),
        compiled([rule(verbs="get", nonResourceURLs="/api/v1/*")]),
    )
    assert uncovered(
        compiled([rule(verbs="get", nonResourceURLs="/api/v1/*")]),
        compiled([rule(verbs="get", nonResourceURLs="/api/*")]),
    )


def aggregated(name, label, part_of=""):
    labels = {part_of: "true"} if part_of else {}
    selector = {"matchLabels": {label: "true"}}
    return {"metadata": {"name": name, "labels": labels}, "aggregationRule": {"clusterRoleSelectors": [selector]}}


def test_aggregated_roles_add_up_through_others_and_rings_end():
    part = {"metadata": {"name": "part", "labels": {"to-view": "true"}}, "rules": [PODS]}
    roles = {
        "part": part,
        "view": aggregated("view", "to-view", "to-edit"),
        "edit": aggregated("edit", "to-edit", "to-view"),
    }
    assert effective_rules(roles) == {"part": [PODS], "view": [PODS], "edit": [PODS]}


def causes(kind, change):
    return [str(cause) for cause in validate_create(kind, created(merged(sample(kind), change)))]


def test_a_binding_names_a_role_and_keeps_it():
    assert causes(ROLE_BINDING, {}) == []
    assert causes(ROLE_BINDING, {"roleRef": {"name": None}}) == ["roleRef.name: Required value"]
    assert causes(CLUSTER_ROLE_BINDING, {"roleRef": {"kind": "Role"}}) == [
        'roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"'
    ]
    old = created(sample(ROLE_BINDING))
    new = created(merged(sample(ROLE_BINDING), {"roleRef": {"name": "other"}}))
    assert [cause.field for cause in validate_update(ROLE_BINDING, new, old)] == ["roleRef"]

"""Which webhooks a write concerns."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    HORIZONTAL_POD_AUTOSCALER,
    HORIZONTAL_POD_AUTOSCALER_V1,
    KINDS,
    LEGACY_REPLICA_SET,
    MUTATING_WEBHOOK_CONFIGURATION,
    NAMESPACE,
    NODE,
    POD,
    REPLICA_SET,
    TOKEN_REVIEW,
    VALIDATING_WEBHOOK_CONFIGURATION,
    Kind,
)
from minik8s_modules.apiserver.webhooks.rules import Hook, Operation, compiled, concerned, exempt, selected


def rule(**fields: Any) -> dict[str, Any]:
    every = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "scope": "*"}
    return {**every, **fields}


def hooks(*rules: dict[str, Any], **fields: Any) -> tuple[Hook, ...]:
    hook = {"name": "a.b.c", "clientConfig": {"url": "https://example.com"}, "rules": list(rules), **fields}
    return compiled(MUTATING_WEBHOOK_CONFIGURATION, [{"metadata": {"name": "x", "uid": "u"}, "webhooks": [hook]}])


CASES: list[tuple[dict[str, Any], Kind, str, Operation, bool]] = [
    (rule(), POD, "", "CREATE", True),
    (rule(), POD, "status", "UPDATE", False),  # a star alone has no subresource in it
    (rule(resources=["*/*"]), POD, "status", "UPDATE", True),
    (rule(resources=["pods/*"]), POD, "exec", "CONNECT", True),
    (rule(resources=["pods/*"]), POD, "", "CREATE", True),
    (rule(resources=["*/scale"]), DEPLOYMENT, "scale", "UPDATE", True),
    (rule(resources=["*/scale"]), DEPLOYMENT, "", "UPDATE", False),
    (rule(resources=["pods"]), POD, "eviction", "CREATE", False),
    (rule(resources=["pods/eviction"]), POD, "eviction", "CREATE", True),
    (rule(operations=["UPDATE"]), POD, "", "CREATE", False),
    (rule(operations=["UPDATE", "CREATE"]), POD, "", "CREATE", True),
    (rule(apiGroups=[""]), DEPLOYMENT, "", "CREATE", False),
    (rule(apiGroups=["apps"]), DEPLOYMENT, "", "CREATE", True),
    (rule(apiVersions=["v1beta1"]), DEPLOYMENT, "", "CREATE", False),
    (rule(scope="Cluster"), NODE, "", "CREATE", True),
    (rule(scope="Cluster"), POD, "", "CREATE", False),
    (rule(scope="Namespaced"), POD, "", "CREATE", True),
    (rule(scope="Namespaced"), NAMESPACE, "", "CREATE", False),
    (rule(scope="Cluster"), NAMESPACE, "", "CREATE", True),
]


@pytest.mark.parametrize(("written", "kind", "subresource", "operation", "expected"), CASES)
def test_rules(written: dict[str, Any], kind: Kind, subresource: str, operation: Operation, expected: bool) -> None:  # noqa: FBT001 - a case
    assert bool(concerned(hooks(written), kind, subresource, operation)) == expected


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (HORIZONTAL_POD_AUTOSCALER_V1, HORIZONTAL_POD_AUTOSCALER),
        (HORIZONTAL_POD_AUTOSCALER, HORIZONTAL_POD_AUTOSCALER_V1),
        (LEGACY_REPLICA_SET, REPLICA_SET),
    ],
)
def test_an_equivalent_resource_matches_unless_exactly_it_is_asked_for(asked: Kind, named: Kind) -> None:
    written = rule(apiGroups=[named.group], apiVersions=[named.version], resources=[named.plural])
    (match,) = concerned(hooks(written), asked, "", "CREATE")
    assert match.kind is named
    assert concerned(hooks(written, matchPolicy="Exact"), asked, "", "CREATE") == ()


def test_a_resource_of_its_own_comes_before_an_equivalent_one() -> None:
    older = rule(apiGroups=["autoscaling"], apiVersions=["v1"], resources=["horizontalpodautoscalers"])
    (match,) = concerned(hooks(older, rule()), HORIZONTAL_POD_AUTOSCALER, "", "CREATE")
    assert match.kind is HORIZONTAL_POD_AUTOSCALER


def test_what_configures_webhooks_and_asks_about_rights_is_seen_by_none() -> None:
    for kind in (VALIDATING_WEBHOOK_CONFIGURATION, TOKEN_REVIEW):
        assert exempt(kind)
        assert concerned(hooks(rule()), kind, "", "CREATE") == ()
    unseen = {kind.group for kind in KINDS.all() if exempt(kind)}
    assert unseen == {
        "admissionregistration.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "metrics.k8s.io", "minik8s.io",
    }  # fmt: skip


def test_a_namespace_selector_looks_at_the_objects_namespace() -> None:
    (hook,) = hooks(rule(), namespaceSelector={"matchLabels": {"watched": "yes"}})
    assert selected(hook, CONFIG_MAP, {"watched": "yes"}, {}, None)
    assert not selected(hook, CONFIG_MAP, {}, {}, None)
    assert selected(hook, NODE, None, {}, None)  # what is in no namespace is never left out
    assert not selected(hook, NAMESPACE, {}, {}, None)


def test_an_object_selector_looks_at_the_new_and_the_old_object() -> None:
    (hook,) = hooks(rule(), objectSelector={"matchExpressions": [{"key": "a", "operator": "Exists"}]})
    marked: dict[str, Any] = {"metadata": {"labels": {"a": ""}}}
    plain: dict[str, Any] = {"metadata": {}}
    assert selected(hook, CONFIG_MAP, {}, marked, None)
    assert selected(hook, CONFIG_MAP, {}, plain, marked)
    assert selected(hook, CONFIG_MAP, {}, None, marked)
    assert not selected(hook, CONFIG_MAP, {}, plain, plain)


def test_webhooks_stand_in_the_order_of_their_configurations_names() -> None:
    def configuration(name: str, *called: str) -> dict[str, Any]:
        config = {"url": "https://example.com"}
        return {"metadata": {"name": name}, "webhooks": [{"name": each, "clientConfig": config} for each in called]}

    found = compiled(MUTATING_WEBHOOK_CONFIGURATION, [configuration("b", "1"), configuration("a", "3", "2")])
    assert [hook.name for hook in found] == ["3", "2", "1"]

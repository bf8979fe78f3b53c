"""What can be read of AuthorizationPolicies is exactly what their definition takes, and the rest denies everything."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api.network.authorization import NONE, Caller, access, selects
from minik8s_modules.api.network.readable_policies import SPEC, Fields, Labels, Many, Text, readable_policy
from minik8s_modules.api.objects import JsonObject
from tests.support.authorization import definition, policy
from tests.support.wrong_types import WRONG, places, put
from tests.unit.api.network.test_authorization import faults, of, to

SOURCE = {"principals": ["p"], "notNamespaces": ["*n"]}
OPERATION = {"hosts": ["*.h"], "notPorts": ["65535"], "notMethods": ["P*"], "paths": ["/%C3%A4/*"]}
WHOLE = policy("a", {**of(**SOURCE), **to(**OPERATION)}, app="web", action="DENY")
VALUES: tuple[Any, ...] = (
    *WRONG, None, "", -1, 1.5, "ALLOW", "AUDIT", ["8080-8090"], ["http"], ["65536"], ["0"], ["80\n"], ["*"], ["**"],
    ["a*b"], [""], ["spiffe://a"], ["/a/../b"], ["/a%2Fb"], ["/a%"], ["/\u00e4"], ["x" * 513], ["x"] * 65, [{}] * 65,
    [{"source": {}}] * 17, "x" * 64, {f"l{number}": "x" for number in range(65)}, {"source": {}}, {"sources": SOURCE},
    {"source": {"namespaces": ["a"]}}, {"operation": {}}, {"when": []}, {"targetRef": {}}, {"matchExpressions": []},
)  # fmt: skip


def is_taken(declared: JsonObject) -> bool:
    """Return whether the definition takes a policy whole: what it does not know, API servers leave out."""
    return not faults(declared) and not [*unknown(schema()["spec"], declared["spec"])]


def schema() -> JsonObject:
    found: JsonObject = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    return found


def unknown(at: JsonObject, value: Any) -> Iterator[str]:
    """Yield the fields that a schema does not know."""
    if isinstance(value, list):
        for each in value:
            yield from unknown(at.get("items", {}), each)
    elif isinstance(value, dict) and "properties" in at:
        for name, each in value.items():
            yield from unknown(at["properties"][name], each) if name in at["properties"] else [name]


def test_what_can_be_read_is_what_the_definition_takes():
    assert is_taken(WHOLE)
    assert readable_policy(WHOLE) == (WHOLE, "")
    differ, number_taken = [], 0
    for path in [path for path in places(WHOLE) if path[0] == "spec"]:
        for value in VALUES:
            one = copy.deepcopy(WHOLE)
            put(one, path, value)
            taken, fault = is_taken(one), readable_policy(one)[1]
            number_taken += taken
            if taken != (not fault):
                differ.append((path, value, fault))
    assert differ == []
    assert number_taken > 30


def compare(form: Any, declared: JsonObject, place: str = "spec") -> None:
    """Compare a form with the schema: limits and patterns are the same."""
    if isinstance(form, Fields):
        rules = str(declared.get("x-kubernetes-validations", ""))
        known = {name for name in declared["properties"] if f"!has(self.{name})" not in rules}
        assert form.fields.keys() == known, place
        for name, inner in form.fields.items():
            compare(inner, declared["properties"][name], f"{place}.{name}")
    elif isinstance(form, Many):
        assert (form.most, form.least) == (declared["maxItems"], declared.get("minItems", 0)), place
        compare(form.item, declared["items"], f"{place}[]")
    elif isinstance(form, Labels):
        assert form.most == declared["maxProperties"], place
        compare(form.item, declared["additionalProperties"], place)
    elif "enum" not in declared:
        patterns = [each["pattern"] for each in (declared, *declared.get("allOf", ())) if "pattern" in each]
        assert (form.longest, list(form.patterns)) == (declared["maxLength"], patterns), place
        assert isinstance(form, Text)
        assert bool(form.refused) == ("x-kubernetes-validations" in declared), place


def test_limits_and_patterns_are_those_of_the_definition():
    compare(SPEC, schema()["spec"])


@pytest.mark.parametrize(
    "rule",
    [
        of(principals=[]), of(principals=None), of(principals=["\ud800"]), of(principles=["p"]),
        of(ipBlocks=["10.0.0.0/8"]), of(principals=["p"], ipBlocks=["10.0.0.0/8"]), {"from": []},
        {"from": None}, {"from": [{}]}, {"from": [{"source": None}]}, {"from": [{"source": {}}]},
        {"from": [{"sources": SOURCE}]}, None,
        {"when": [{"key": "source.ip", "values": ["10.0.0.1"]}]}, to(), {"to": []}, {"to": [{}]}, to(ports=[]),
        to(ports=["8080-8090"]), to(ports=["http"]), to(ports=["-1"]), to(ports=["99999999999"]), to(ports=[80]),
    ],
)  # fmt: skip
def test_a_policy_of_another_form_denies_everything_to_those_that_it_selects(rule: JsonObject):
    for action in ("ALLOW", "DENY"):
        found, fault = readable_policy(policy("a", rule, app="web", action=action))
        assert fault.startswith("spec.rules[0]")
        assert access([found], Caller("shop", "any"), 80, http=True).passes == NONE
        assert (selects(found, {"app": "web"}), selects(found, {"app": "db"})) == (True, False)


@pytest.mark.parametrize(
    "selector",
    [None, [], {"matchLabels": None}, {"matchExpressions": [{"key": "app", "operator": "Exists"}]}, {"labels": {}},
     {"matchLabels": {"app": "web"}, "matchExpressions": []}, {"matchLabels": {"app": 5}}],
)  # fmt: skip
def test_one_whose_selector_has_another_form_denies_everything_to_all_of_its_namespace(selector: Any):
    found, fault = readable_policy(policy("a", {}, selector=selector))
    assert fault.startswith("spec.selector")
    assert access([found], Caller("shop", "any"), 80, http=True).passes == NONE
    assert selects(found, {"app": "any"})


@pytest.mark.parametrize("spec", [None, [], "text", {"action": "AUDIT"}, {"provider": {}}, {"rules": None}])
def test_so_does_one_whose_spec_has(spec: Any):
    found, fault = readable_policy({**policy("a"), "spec": spec})
    assert fault.startswith("spec")
    assert access([found], Caller("shop", "any"), 80, http=True).passes == NONE

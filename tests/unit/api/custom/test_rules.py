"""CEL rules of custom kinds: what an update did not touch is warned of, what it touched is refused."""

from __future__ import annotations

from minik8s_modules.api.custom import checking
from minik8s_modules.api.custom.rules import with_rules

RULE = {"rule": "self.size < 10", "message": "too large"}
PART = {"type": "object", "properties": {"size": {"type": "integer"}}, "x-kubernetes-validations": [RULE]}
SCHEMA = {"type": "object", "properties": {"a": PART, "b": PART}}
CHECK = with_rules(SCHEMA, checking.checker(SCHEMA))


def test_a_broken_rule_of_an_unchanged_part_is_a_warning() -> None:
    collected: list[str] = []
    old = {"a": {"size": 20}, "b": {"size": 1}}
    assert CHECK({"a": {"size": 20}, "b": {"size": 2}}, old, collected.append) == []
    assert collected == ['a: Invalid value: "object": too large']


def test_a_broken_rule_of_a_changed_part_is_refused() -> None:
    collected: list[str] = []
    old = {"a": {"size": 20}, "b": {"size": 1}}
    causes = CHECK({"a": {"size": 21}, "b": {"size": 1}}, old, collected.append)
    assert ([str(each) for each in causes], collected) == (['a: Invalid value: "object": too large'], [])


def test_nobody_is_warned_of_a_new_object() -> None:
    collected: list[str] = []
    assert [each.field for each in CHECK({"a": {"size": 20}}, None, collected.append)] == ["a"]
    assert collected == []


def test_a_schema_without_rules_warns_of_nothing() -> None:
    plain = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 3}}}
    check, result = with_rules(plain, checking.checker(plain)), list[str]()
    assert [each.field for each in check({"a": 4}, None, result.append)] == ["a"]
    assert result == []

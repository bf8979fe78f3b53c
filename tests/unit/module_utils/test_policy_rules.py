"""Entries of the section policies as rules: tests/cases/policy_rules/<sentence>.yml, and in which order nft is fed."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core.faults import KeyFault
from minik8s_modules.module_utils.minik8s.core.sections import SECTIONS
from minik8s_modules.module_utils.minik8s.policies.policies import WORDS
from minik8s_modules.module_utils.minik8s.policies.policy_entries import check_entry
from minik8s_modules.module_utils.minik8s.policies.policy_rules import CHAIN, SET, rules_of, shown
from minik8s_modules.module_utils.minik8s.policies.policy_table import LEFT, PRESENT, is_left, script
from minik8s_modules.module_utils.minik8s.services.services_plan import SHOWN, Rule, plan_rules
from tests.unit.module_utils.test_plan_cases import cases


@pytest.mark.parametrize("case", cases("policy_rules"))
def test_rules_of_an_entry(case: dict[str, Any]) -> None:
    if "refused" in case:
        with pytest.raises(KeyFault) as raised:
            check_entry(case["key"], case["entry"])
        assert case["refused"] in str(raised.value)
        return
    check_entry(case["key"], case["entry"])
    found = dict(map(shown, rules_of(case["key"], case["entry"])))
    for name in [name for name in found if len(case["key"]) > 100 and name.startswith("chain ingress/")]:
        assert len(name) < 64
        found["chain ingress/"] = found.pop(name)
    assert found == case["rules"]


def test_what_is_new_comes_before_what_needs_it_and_what_goes_after() -> None:
    element = Rule("group/a", b"\x0a\0\0\1", b"")
    lines = script(
        "t",
        [Rule(CHAIN, "old", "x"), Rule(SET, "group/b", "ipv4_addr"), Rule("group/b", b"\x0a\0\0\2", b"")],
        [Rule(CHAIN, "new", "ip saddr @group/a accept"), Rule(SET, "group/a", "ipv4_addr"), element],
    )
    assert lines == [
        "add set ip t group/a { type ipv4_addr; }",
        "add chain ip t new",
        "flush chain ip t new",
        "add rule ip t new ip saddr @group/a accept",
        "add element ip t group/a { 10.0.0.1 }",
        "flush chain ip t old",
        "delete chain ip t old",
        "delete set ip t group/b",
    ]


def test_policies_come_before_what_makes_pods() -> None:
    assert SECTIONS.index("network") < SECTIONS.index("policies") < SECTIONS.index("sandboxes")


@pytest.mark.parametrize(
    ("rule", "ours"),
    [
        (Rule(SET, "group/0123456789abcdef01234567", "ipv4_addr"), True),
        (Rule(SET, "group/0123456789abcdef01234567", "ipv6_addr"), True),
        (Rule(SET, "group/0123456789abcdef01234567", "ipv4_addr . inet_service"), False),
        (Rule(SET, "ports/tcp/web", "ipv4_addr . inet_service"), True),
        (Rule(SET, "ingress_of", "ipv4_addr : verdict"), True),
        (Rule(SET, "itself", "ipv4_addr . ipv4_addr"), True),
        (Rule(SET, "theirs", "ipv4_addr"), False),
        (Rule(SET, "group", "ipv4_addr"), False),
        (Rule(CHAIN, "egress", LEFT), True),
        (Rule(CHAIN, "egress", PRESENT), False),
        (Rule("group/0123456789abcdef01234567", b"\1\2\3\4", b""), False),
    ],
)
def test_what_we_left_is_known_by_its_name_and_type(rule: Rule, *, ours: bool) -> None:
    assert is_left(rule) is ours


def test_however_much_we_left_it_is_one_step_and_what_somebody_added_is_told() -> None:
    left = {f"group/{number:024x}": "ipv4_addr" for number in range(SHOWN + 1)}
    seen = {SET: {**left, "theirs": "ipv4_addr"}}
    plan = plan_rules({}, [Rule(SET, name, "") for name in seen[SET]], seen, WORDS["ip"])
    assert [(step.action, step.key) for step in plan.steps] == [("remove", "theirs"), ("tidy", "left over")]
    assert len(plan.delete) == len(seen[SET])
    assert {key: len(rules or ()) for key, rules in plan.before.items()} == {"theirs": 1, "left over": SHOWN}
    assert set(plan.after.values()) == {None}

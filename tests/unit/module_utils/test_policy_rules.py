"""Entries of the section policies as rules: tests/cases/policy_rules/<sentence>.yml, and in which order nft is fed."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core.faults import KeyFault
from minik8s_modules.module_utils.minik8s.core.sections import SECTIONS
from minik8s_modules.module_utils.minik8s.policies.policy_entries import check_entry
from minik8s_modules.module_utils.minik8s.policies.policy_rules import CHAIN, SET, rules_of, shown
from minik8s_modules.module_utils.minik8s.policies.policy_table import script
from minik8s_modules.module_utils.minik8s.services.services_plan import Rule
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

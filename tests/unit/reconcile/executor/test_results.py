"""Values from nodes are checked before anybody looks at them."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.reconcile.executor.results import RESULT, BadResult, check_result

GOOD = {
    "changed": True,
    "diff": {"before": "", "after": "x"},
    "differences": {"before": {"k": None}, "after": {"k": {"is": "x"}}},
    "section": "network",
    "digest": "ab",
    "steps": [{"action": "create", "key": "k", "detail": ""}],
    "status": {"k": None, "l": {"state": "running"}},
    "errors": {"k": {"reason": "R", "message": "m"}},
    "due": [{"key": "k", "after_s": 1, "reason": "grace"}],
    "held": [],
    "base_mismatch": False,
    "fenced": False,
    "calls": [{"driver": "d", "method": "/csi.v1.Node/NodeGetInfo", "code": "OK", "seconds": 0.1}],
    "in_use": ["kubernetes.io/csi/d^h"],
}


def test_a_result_keeps_its_known_fields_only() -> None:
    assert check_result("network", {**GOOD, "ansible_facts": {"ansible_host": "evil"}, "invocation": {}}) == GOOD


def test_missing_fields_have_their_defaults() -> None:
    assert set(check_result("network", {})) == set(RESULT)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("changed", "yes"),
        ("diff", []),
        ("differences", {"before": {}}),
        ("differences", {"before": [], "after": {}}),
        ("digest", 1),
        ("steps", ["x"]),
        ("steps", {}),
        ("status", {"k": 3}),
        ("errors", {"k": "text"}),
        ("due", [[]]),
        ("held", {}),
        ("fenced", 0),
        ("in_use", [1]),
        ("in_use", "kubernetes.io/csi/d^h"),
        ("status", {str(number): None for number in range(20_001)}),
    ],
)
def test_a_wrong_type_or_too_much_is_refused(field: str, value: Any) -> None:
    with pytest.raises(BadResult, match=field):
        check_result("network", {**GOOD, field: value})


def test_a_failed_module_gives_its_own_message_cut() -> None:
    with pytest.raises(BadResult, match="no daemon") as caught:
        check_result("network", {"failed": True, "msg": "no daemon" + "x" * 10_000})
    assert len(str(caught.value)) == 4096


def test_other_sections_pass_without_ansibles_own_keys() -> None:
    assert check_result("facts", {"cpus": 2, "warnings": [], "minik8s_item": "i"}) == {"cpus": 2}

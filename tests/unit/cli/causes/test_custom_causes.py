"""What an object of a custom kind says of itself."""

from __future__ import annotations

from minik8s_modules.cli.causes.checks import judge
from tests.unit.cli.causes.logged_api import LoggedApi


def test_a_condition_that_is_false_is_the_cause():
    condition = {"type": "Ready", "status": "False", "reason": "NoDisk", "message": "the disk is full"}
    shop = {
        "apiVersion": "example.com/v1",
        "kind": "Shop",
        "metadata": {"name": "x", "namespace": "mall"},
        "status": {"conditions": [condition]},
    }
    (fault,) = judge(shop, LoggedApi().around()).faults
    assert fault.cause == "its condition Ready is False: NoDisk: the disk is full"
    assert fault.next == "kubectl -n mall describe shop/x"


def test_a_condition_that_is_true_is_told_for_what_it_is():
    shop = {"apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": "x"}}
    shop["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
    verdict = judge(shop, LoggedApi().around())
    assert verdict.otherwise == "as it should be, as far as its condition Ready tells: nothing else checks a Shop"
    assert not verdict.certain

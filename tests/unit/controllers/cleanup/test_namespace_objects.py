"""Every namespace has its account ``default`` and the authorities its pods trust, whatever anybody does to them."""

from __future__ import annotations

from minik8s_modules.api.pods.account_volumes import ROOT_CA
from minik8s_modules.controllers.access.root_ca import decide_root_ca
from minik8s_modules.controllers.access.service_accounts import decide_account
from minik8s_modules.controllers.core.namespace_objects import Create, Replace

NAMESPACE = {"metadata": {"name": "n"}}


def test_a_missing_account_is_made_and_one_that_is_there_is_its_owners():
    assert decide_account(NAMESPACE, None) == Create({"metadata": {"name": "default", "namespace": "n"}})
    assert decide_account(NAMESPACE, {"metadata": {}, "automountServiceAccountToken": False}) is None


def test_missing_authorities_are_published():
    step = decide_root_ca(NAMESPACE, None, "PEM")
    assert isinstance(step, Create)
    assert step.obj["metadata"]["name"] == ROOT_CA
    assert step.obj["data"] == {"ca.crt": "PEM"}


def test_published_authorities_are_left_alone():
    found = {"metadata": {"name": ROOT_CA, "labels": {"a": "b"}}, "data": {"ca.crt": "PEM"}}
    assert decide_root_ca(NAMESPACE, found, "PEM") is None


def test_changed_authorities_are_put_right_and_nothing_else():
    found = {"metadata": {"name": ROOT_CA, "labels": {"a": "b"}}, "data": {"ca.crt": "OLD", "x": "y"}}
    step = decide_root_ca(NAMESPACE, found, "PEM")
    assert step == Replace({"metadata": {"name": ROOT_CA, "labels": {"a": "b"}}, "data": {"ca.crt": "PEM"}})

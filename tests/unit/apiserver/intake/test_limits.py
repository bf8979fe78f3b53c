"""Accounts, and what they may hold."""

from __future__ import annotations

import pytest

from minik8s_modules.api.errors import TooManyRequests
from minik8s_modules.apiserver.authorization.identity import MASTERS, User
from minik8s_modules.apiserver.http.settings import Limits
from minik8s_modules.apiserver.intake.limits import (
    STRANGER,
    SYSTEM,
    USER,
    Account,
    Admission,
    Holder,
    account_of,
    stranger,
)
from minik8s_modules.base.metrics import Registry

JANE = Account("jane", USER)


@pytest.mark.parametrize(
    ("user", "account"),
    [
        (User("jane", ()), JANE),
        (User("admin", (MASTERS,)), Account("admin", SYSTEM)),
        (User("system:kube-scheduler", ()), Account("system:kube-scheduler", SYSTEM)),
        (User("system:node:n1", ("system:nodes",)), Account("system:node:n1", USER)),
        (User("system:serviceaccount:shop:web", ()), Account("system:serviceaccounts:shop", USER)),
        (User("system:serviceaccount:shop:db", ()), Account("system:serviceaccounts:shop", USER)),
    ],
)
def test_whose_account_it_is(user: User, account: Account):
    assert account_of(user) == account


def test_a_user_and_an_address_have_limits_and_the_system_has_none():
    metrics = Registry()
    admission = Admission(Limits(watches_per_user=2, watches_per_address=3), metrics)
    jane, joe = Holder(JANE, "192.0.2.1"), Holder(Account("joe", USER), "192.0.2.1")
    daemon = Holder(Account("system:kube-scheduler", SYSTEM), "192.0.2.1")
    for _ in range(2):
        admission.admit("watches", jane)
        admission.hold("watches", jane, 1)
    with pytest.raises(TooManyRequests, match=r"limit is 2.*limits\.watches_per_user"):
        admission.admit("watches", jane)
    admission.admit("watches", joe)
    admission.hold("watches", joe, 1)
    with pytest.raises(TooManyRequests, match=r"limits\.watches_per_address"):
        admission.admit("watches", Holder(Account("ann", USER), "192.0.2.1"))
    for _ in range(10):
        admission.admit("watches", daemon)
        admission.hold("watches", daemon, 1)
    admission.hold("watches", jane, -2)
    admission.admit("watches", jane)
    assert 'apiserver_limit_rejected_total{limit="watches_per_address"} 1' in metrics.text()


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff:1:2:3", "2001:db8:1:2::/64"),
        ("2001:DB8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", ""),
    ],
)
def test_the_account_of_a_stranger_is_its_address_or_the_network_of_its_host(address: str, name: str):
    assert stranger(address) == Account(name, STRANGER)


def test_users_in_one_network_of_ipv6_share_its_limit_and_nodes_do_not_count():
    admission = Admission(Limits(watches_per_user=5, watches_per_address=2), Registry())
    for n in range(9):
        node = Holder(Account(f"system:node:n{n}", USER), f"2001:db8::1:{n}")
        admission.admit("watches", node)
        admission.hold("watches", node, 1)
    for n in range(2):
        user = Holder(Account(f"user-{n}", USER), f"2001:db8::2:{n}")
        admission.admit("watches", user)
        admission.hold("watches", user, 1)
    with pytest.raises(TooManyRequests, match=r"limits\.watches_per_address"):
        admission.admit("watches", Holder(JANE, "2001:db8::3"))
    admission.admit("watches", Holder(JANE, "2001:db8:0:1::3"))


def test_the_heaviest_is_no_daemon():
    admission = Admission(Limits(), Registry())
    admission.bytes.add(Account("system:kube-scheduler", SYSTEM), 100)
    assert admission.bytes.heaviest() is None
    admission.bytes.add(Account("192.0.2.1", STRANGER), 5)
    admission.bytes.add(JANE, 7)
    assert admission.bytes.heaviest() == JANE
    admission.bytes.add(JANE, -7)
    assert admission.bytes.heaviest() == Account("192.0.2.1", STRANGER)
    assert admission.bytes.total == 105

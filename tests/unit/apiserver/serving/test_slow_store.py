"""A store that answers late is told, with figures; one that is quick, or was hardly asked, is not."""

from __future__ import annotations

import pytest

from minik8s_modules.apiserver.serving.health import report
from minik8s_modules.apiserver.serving.metered import MeteredStore, slowness
from minik8s_modules.base.metrics import Registry
from minik8s_modules.store.memory import MemoryStore

TOLD = "answers of the last minute took longer than 0.5 s"


@pytest.mark.parametrize(
    ("answers_s", "message"),
    [
        ([0.003] * 500, ""),
        ([0.003] * 199 + [4.0], ""),
        ([4.0] * 19, ""),
        (
            [0.003] * 118 + [0.6, 4.0],
            f"slow: 2 of its 120 {TOLD} (median 0.003 s, 99th percentile 0.6 s)",
        ),
        (
            [2.0] * 20,
            f"slow: 20 of its 20 {TOLD} (median 2.000 s, 99th percentile 2.0 s)",
        ),
    ],
    ids=["quick", "one late of two hundred", "too few to say", "two late", "all late"],
)
def test_ninety_nine_of_a_hundred_answers_come_in_time_or_it_is_said(answers_s: list[float], message: str):
    assert slowness(answers_s) == message


def test_a_store_remembers_what_it_took():
    store = MeteredStore(MemoryStore(), Registry())
    for _ in range(30):
        store.revision()
    assert store.slowness() == ""


def test_a_remark_stands_behind_a_check_that_passes():
    remarks = {"etcd": lambda: "slow: late", "ping": lambda: ""}
    assert report("readyz", {"ping": lambda: "", "etcd": lambda: ""}, remarks, verbose=True) == (
        "[+]ping ok\n[+]etcd ok: slow: late\nreadyz check passed\n",
        True,
    )
    assert report("readyz", {"etcd": lambda: "gone"}, remarks, verbose=True)[0] == (
        "[-]etcd failed: gone\nreadyz check failed\n"
    )
    assert report("readyz", {"etcd": lambda: ""}, remarks, verbose=False) == ("ok", True)

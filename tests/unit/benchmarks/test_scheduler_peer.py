"""Sizes of the workloads that run beside kube-scheduler's, as a whole and made smaller."""

from __future__ import annotations

from tests.benchmarks.scheduler_peer import COMPARED, sizes


def test_a_workload_is_made_smaller_as_a_whole_and_stays_one():
    basic = COMPARED[0]
    assert sizes(basic, 1.0) == {"initNodes": 5000, "initPods": 1000, "measurePods": 2000}
    assert sizes(basic, 0.02) == {"initNodes": 100, "initPods": 20, "measurePods": 40}
    assert min(sizes(basic, 0.0001).values()) == 20


def test_pods_fill_their_nodes_at_any_size_where_others_are_to_preempt_them():
    (preemption,) = (one for one in COMPARED if one.case == "PreemptionBasic")
    assert sizes(preemption, 1.0) == {"initNodes": 500, "initPods": 2000, "measurePods": 500}
    assert sizes(preemption, 0.02) == {"initNodes": 20, "initPods": 80, "measurePods": 20}

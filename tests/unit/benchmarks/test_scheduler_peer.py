"""The workloads that run beside kube-scheduler's, as a whole and made smaller, and what is compared."""

from __future__ import annotations

from tests.benchmarks.scheduler_peer import COMPARED, LEAST_SAMPLES, Ran, ratio, sizes


def test_a_workload_is_made_smaller_as_a_whole_and_stays_one():
    basic = COMPARED[0]
    assert sizes(basic, 1.0) == {"initNodes": 5000, "initPods": 1000, "measurePods": 2000}
    assert sizes(basic, 0.02) == {"initNodes": 100, "initPods": 20, "measurePods": 40}
    assert min(sizes(basic, 0.0001).values()) == 20


def test_pods_fill_their_nodes_at_any_size_where_others_are_to_preempt_them():
    (preemption,) = (one for one in COMPARED if one.case == "PreemptionBasic")
    assert sizes(preemption, 1.0) == {"initNodes": 500, "initPods": 2000, "measurePods": 500}
    assert sizes(preemption, 0.02) == {"initNodes": 20, "initPods": 80, "measurePods": 20}


def test_the_whole_time_counts_where_samples_are_too_few_to_tell_a_rate():
    burst, steady = Ran(932.0, 10.0, 1, 1.0), Ran(34.0, 20.0, LEAST_SAMPLES, 1.0)
    assert ratio(steady, burst) == 0.5
    assert ratio(steady, burst._replace(samples=LEAST_SAMPLES, rate=17.0)) == 0.5

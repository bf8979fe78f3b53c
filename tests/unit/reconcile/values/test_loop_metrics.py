"""What the loop counts of a node."""

from __future__ import annotations

from typing import Any, Literal

from minik8s_modules.reconcile.values.items import Outcome
from minik8s_modules.reconcile.values.loop_metrics import LoopMetrics, NodeLoopMetrics


def ended(item: str, status: Literal["ok", "failed"] = "ok", **sections: Any) -> Outcome:
    return Outcome(item, "n1", status, sections, "")


def lines(metrics: NodeLoopMetrics, name: str) -> list[str]:
    return [line for line in metrics.registry.text().splitlines() if line.startswith(name)]


def pod_in(uid: str, phase: str) -> dict[str, dict[str, str]]:
    """Return a Pod in its phase."""
    return {"metadata": {"uid": uid}, "status": {"phase": phase}}


def test_a_pod_start_is_counted_from_its_first_sight_until_it_runs() -> None:
    metrics = NodeLoopMetrics()
    for now_s, phase in enumerate(("", "Pending", "Pending", "Running", "Running")):
        metrics.on_pod(pod_in("u", phase), float(now_s))
    assert lines(metrics, "kubelet_pod_start_duration_seconds_sum") == ["kubelet_pod_start_duration_seconds_sum 3.0"]
    assert lines(metrics, "kubelet_pod_start_duration_seconds_count") == [
        "kubelet_pod_start_duration_seconds_count 1.0"
    ]


def test_what_was_not_seen_waiting_or_never_ran_is_no_start() -> None:
    metrics = NodeLoopMetrics()
    metrics.on_pod(pod_in("ran before", "Running"), 1.0)
    metrics.on_pod(pod_in("ended", "Pending"), 1.0)
    metrics.on_pod(pod_in("ended", "Failed"), 2.0)
    metrics.on_pod(pod_in("gone", "Pending"), 1.0)
    metrics.forget("gone")
    metrics.on_pod(pod_in("gone", "Running"), 2.0)
    assert lines(metrics, "kubelet_pod_start_duration_seconds_count") == [
        "kubelet_pod_start_duration_seconds_count 0.0"
    ]


def test_listings_of_a_node_are_timed_as_kubelets_tell_them() -> None:
    metrics = NodeLoopMetrics()
    metrics.on_told({"op": "state", "took_s": 0.25})
    metrics.on_told({"op": "state"})  # told again
    assert lines(metrics, "kubelet_pleg_relist_duration_seconds_sum") == [
        "kubelet_pleg_relist_duration_seconds_sum 0.25"
    ]


def test_items_are_counted_with_their_steps_and_time() -> None:
    metrics = NodeLoopMetrics()
    metrics.on_sent("i1", 1.0)
    metrics.on_outcome(ended("i1", dns={"steps": [{}, {}]}, ingress={"steps": []}, facts={"facts": {}}), 1.5)
    metrics.on_outcome(ended("of an earlier process", "failed"), 9.0)
    assert lines(metrics, "minik8s_reconciler_item_duration_seconds_sum") == [
        "minik8s_reconciler_item_duration_seconds_sum 0.5"
    ]
    assert lines(metrics, "minik8s_reconciler_items_total") == [
        'minik8s_reconciler_items_total{status="ok"} 1.0',
        'minik8s_reconciler_items_total{status="failed"} 1.0',
    ]
    assert lines(metrics, "minik8s_reconciler_steps_total") == [
        'minik8s_reconciler_steps_total{section="dns"} 2.0',
        'minik8s_reconciler_steps_total{section="ingress"} 0.0',
    ]


def test_pods_that_policies_isolate_are_counted_by_direction() -> None:
    metrics, pod = NodeLoopMetrics(), {"address": "10.244.0.2", "ingress": None, "egress": None}
    walled = {**pod, "ingress": ["policy/default/wall"]}
    metrics.on_policies({"filter": {"table": "t"}, "pod/default/a": walled, "pod/default/b": pod})
    assert lines(metrics, "minik8s_reconciler_isolated_pods") == [
        'minik8s_reconciler_isolated_pods{direction="egress"} 0.0',
        'minik8s_reconciler_isolated_pods{direction="ingress"} 1.0',
    ]


def test_health_checks_are_counted_by_their_answer() -> None:
    metrics = NodeLoopMetrics()
    metrics.on_checks({f"_health/default/{number}": {"port": 30090, "endpoints": number} for number in range(3)})
    assert lines(metrics, "minik8s_reconciler_health_checks") == [
        'minik8s_reconciler_health_checks{code="200"} 2.0',
        'minik8s_reconciler_health_checks{code="503"} 1.0',
    ]


def test_drift_is_counted_by_what_became_of_it() -> None:
    metrics = NodeLoopMetrics()
    metrics.on_drift("services", healed=True, held=False)
    metrics.on_drift("services", healed=False, held=True)
    metrics.on_drift("services", healed=False, held=False)
    assert lines(metrics, "minik8s_reconciler_drift_total") == [
        f'minik8s_reconciler_drift_total{{result="{result}",section="services"}} 1.0'
        for result in ("healed", "held", "failed")
    ]


def test_volumes_of_claims_are_as_full_as_they_were_last() -> None:
    metrics = NodeLoopMetrics()
    metrics.on_rooms({("shop", "data"): {"capacity_bytes": 8, "used_bytes": 0}, ("shop", "other"): {"inodes": 4}})
    labels = '{namespace="shop",persistentvolumeclaim="data"}'
    assert lines(metrics, "kubelet_volume_stats_") == [
        f"kubelet_volume_stats_capacity_bytes{labels} 8.0",
        f"kubelet_volume_stats_used_bytes{labels} 0.0",
        f"kubelet_volume_stats_inodes{labels.replace('data', 'other')} 4.0",
    ]
    metrics.on_rooms({})
    assert lines(metrics, "kubelet_volume_stats_") == []


def test_calls_of_csi_drivers_are_counted_as_far_as_they_are_csis() -> None:
    metrics = NodeLoopMetrics()
    call = {"driver": "d.example.com", "method": "/csi.v1.Node/NodePublishVolume", "code": "OK", "seconds": 0.2}
    strange = [{"method": "/x"}, {"code": "Fine"}, {"seconds": "long"}, {"method": "/csi.v1.Node/Node" + "x" * 99}]
    metrics.on_outcome(ended("i", volumes={"calls": [call, call, *({**call, **one} for one in strange)]}), 1.0)
    (found,) = lines(metrics, "csi_operations_seconds_count")
    assert found.endswith(" 2.0")
    assert 'driver_name="d.example.com"' in found
    for number in range(100):
        metrics.on_calls([{**call, "driver": f"d{number}.example.com"}])
    assert len(lines(metrics, "csi_operations_seconds_count")) == 32


def test_nodes_that_left_are_forgotten() -> None:
    metrics = LoopMetrics()
    metrics.keep(("n1", "n2"))
    metrics.of("n1").on_outcome(ended("i"), 1.0)
    before = metrics.text("n1")
    metrics.keep(("n1",))
    assert (metrics.text("n1"), metrics.text("n2")) == (before, None)

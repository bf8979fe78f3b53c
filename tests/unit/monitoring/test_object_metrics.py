"""Objects as figures: names and labels of kube-state-metrics; changes are told, and a bad object hides no other."""

from __future__ import annotations

import re
from typing import Any

import pytest

from minik8s_modules.api.kinds import DEPLOYMENT, NODE, POD, RESOURCE_QUOTA, ROLLING_UPDATE
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.monitoring.families.family import lines
from minik8s_modules.monitoring.object_metrics import TABLES, ObjectMetrics
from minik8s_modules.runtime.informers import Informers
from tests.support.waiting import until

POD_OBJECT: dict[str, Any] = {
    "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "creationTimestamp": "1970-01-01T00:01:00Z"},
    "spec": {
        "nodeName": "n1",
        "containers": [{"name": "c", "image": "web:1", "resources": {"requests": {"cpu": "250m", "memory": "1Ki"}}}],
    },
    "status": {
        "phase": "Running",
        "podIP": "10.0.0.7",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [
            {
                "name": "c",
                "ready": True,
                "restartCount": 3,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}},
            }
        ],
    },
}
WHOSE = 'namespace="shop",pod="web",uid="u1"'


def exposed(kind: Any, obj: dict[str, Any]) -> list[str]:
    table = next(each for each in TABLES if each.kind is kind)
    return "".join(lines(table, obj)).splitlines()


@pytest.mark.parametrize(
    "line",
    [
        f'kube_pod_status_phase{{{WHOSE},phase="Running"}} 1.0',
        f'kube_pod_status_phase{{{WHOSE},phase="Failed"}} 0.0',
        f'kube_pod_status_ready{{{WHOSE},condition="true"}} 1.0',
        f"kube_pod_created{{{WHOSE}}} 60.0",
        f'kube_pod_container_status_restarts_total{{{WHOSE},container="c"}} 3.0',
        f'kube_pod_container_status_waiting_reason{{{WHOSE},container="c",reason="CrashLoopBackOff"}} 1.0',
        f'kube_pod_container_status_last_terminated_reason{{{WHOSE},container="c",reason="OOMKilled"}} 1.0',
        f'kube_pod_container_status_last_terminated_exitcode{{{WHOSE},container="c"}} 137.0',
        f'kube_pod_container_resource_requests{{{WHOSE},container="c",node="n1",resource="cpu",unit="core"}} 0.25',
        f'kube_pod_container_resource_requests{{{WHOSE},container="c",node="n1",resource="memory",unit="byte"}} 1024.0',
        f'kube_pod_owner{{{WHOSE},owner_kind="",owner_name="",owner_is_controller=""}} 1.0',
    ],
)
def test_a_pod_has_its_lines(line: str):
    assert line in exposed(POD, POD_OBJECT)


def test_a_rolling_update_tells_how_far_it_is():
    status = {"phase": "Running", "total": 3, "updated": 1, "batchStartTime": "1970-01-01T00:01:00Z"}
    found = exposed(ROLLING_UPDATE, {"metadata": {"name": "u", "namespace": "n"}, "spec": {}, "status": status})
    assert 'minik8s_rollingupdate_updated_pods{namespace="n",rollingupdate="u"} 1.0' in found
    assert 'minik8s_rollingupdate_status_phase{namespace="n",rollingupdate="u",phase="Running"} 1.0' in found
    assert 'minik8s_rollingupdate_batch_start_time{namespace="n",rollingupdate="u"} 60.0' in found


def test_a_deployment_that_has_no_status_yet_has_zeros():
    found = exposed(DEPLOYMENT, {"metadata": {"name": "d", "namespace": "n", "generation": 1}, "spec": {"replicas": 2}})
    assert 'kube_deployment_spec_replicas{namespace="n",deployment="d"} 2.0' in found
    assert 'kube_deployment_status_replicas_available{namespace="n",deployment="d"} 0.0' in found
    assert 'kube_deployment_status_observed_generation{namespace="n",deployment="d"} 0.0' in found


def test_a_node_tells_conditions_taints_and_resources():
    labels = {"node-role.kubernetes.io/control-plane": ""}
    node = {
        "metadata": {"name": "n1", "labels": labels},
        "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {"conditions": [{"type": "Ready", "status": "Unknown"}], "allocatable": {"nvidia.com/gpu": "2"}},
    }
    found = exposed(NODE, node)
    for line in (
        'kube_node_status_condition{node="n1",condition="Ready",status="unknown"} 1.0',
        'kube_node_status_condition{node="n1",condition="Ready",status="true"} 0.0',
        'kube_node_status_allocatable{node="n1",resource="nvidia_com_gpu",unit="integer"} 2.0',
        'kube_node_spec_taint{node="n1",key="k",value="",effect="NoSchedule"} 1.0',
        'kube_node_spec_unschedulable{node="n1"} 1.0',
        'kube_node_role{node="n1",role="control-plane"} 1.0',
    ):
        assert line in found


def test_a_label_ends_where_it_ends():
    quota = {"metadata": {"name": "q", "namespace": 'a"\n\\'}, "status": {"hard": {"pods": "2"}}}
    assert 'kube_resourcequota{namespace="a\\"\\n\\\\",resourcequota="q",resource="pods",type="hard"} 2.0' in exposed(
        RESOURCE_QUOTA, quota
    )


def test_names_follow_prometheus_rules_and_are_there_once():
    names = [family.name for table in TABLES for family in table.families]
    assert len(names) == len(set(names)) > 90
    for table in TABLES:
        for family in table.families:
            assert re.fullmatch(r"(kube|minik8s)_[a-z_]+", family.name)
            assert family.help.endswith(".")
            assert (family.type == "counter") == family.name.endswith("_total"), family.name
            assert not set(family.labels) & {"namespace", "le", "quantile", "job", "instance"}, family.name


def test_a_change_is_told_and_an_object_that_is_gone_is_not():
    api = FakeApi()
    informers = Informers(api)
    metrics = ObjectMetrics(informers)
    informers.start()
    try:
        api.create(POD, POD_OBJECT)
        api.create(POD, {"metadata": {"name": "odd", "namespace": "shop"}, "spec": {"containers": [{}]}})
        api.create(POD, {"metadata": {"name": "bad", "namespace": "shop"}, "status": {"startTime": "soon"}})
        running = f'kube_pod_status_phase{{{WHOSE},phase="Running"}} '
        until(lambda: f"{running}1.0\n" in metrics.text())
        api.patch(POD, "web", "shop", {"status": {"phase": "Failed"}}, subresource="status")
        until(lambda: f"{running}0.0\n" in metrics.text())
        api.delete(POD, "web", "shop", grace_s=0)
        until(lambda: WHOSE not in metrics.text())
    finally:
        api.cut_watches()
        informers.stop()


def test_of_what_is_gone_nothing_is_kept_though_nobody_asks_for_figures():
    api = FakeApi()
    informers = Informers(api)
    metrics = ObjectMetrics(informers)
    informers.start()
    (store,) = [each for each in metrics._stores if each.table.kind is POD]
    try:
        for number in range(20):
            api.create(POD, {**POD_OBJECT, "metadata": {"name": f"p{number}", "namespace": "shop"}})
        until(lambda: len(store._changed) == 20)
        for number in range(20):
            api.delete(POD, f"p{number}", "shop", grace_s=0)
        until(lambda: not store._changed)
    finally:
        api.cut_watches()
        informers.stop()

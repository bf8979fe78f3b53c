"""nodes/proxy: what of a kubelet's paths is answered, from the gateway's figures and the cache."""

from __future__ import annotations

import pytest
from werkzeug.datastructures import MultiDict

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.http.target import parse, proxy_prefix, rights, verb_of
from minik8s_modules.apiserver.nodes.node_metrics import (
    Measured,
    Node,
    cadvisor_lines,
    kubelet_lines,
    reconciler_text,
    resource_lines,
)
from minik8s_modules.apiserver.nodes.node_paths import configuration, log_arguments, summary
from minik8s_modules.reconcile.values.loop_metrics import NodeLoopMetrics

USAGE = {"timestamp_s": 20.0, "window_s": 10.0, "cpu_nanocores": 5, "cpu_nanoseconds": 1_500_000_000, "memory_bytes": 7}
STARTED = {"name": "c", "state": {"running": {"startedAt": "1970-01-01T00:00:09Z"}}}
POD: JsonObject = {
    "metadata": {"name": "web", "namespace": "default", "uid": "u"},
    "status": {"containerStatuses": [STARTED], "startTime": "1970-01-01T00:00:08Z"},
}


def node(machine: JsonObject) -> Node:
    later = {**USAGE, "timestamp_s": 21.0, "cpu_nanoseconds": 500_000_000}
    return Node("n1", {}, machine, (Measured(POD, {"c": USAGE, "d": later}),))


def test_resources_are_told_as_a_kubelet_tells_them() -> None:
    lines = "".join(resource_lines(node(USAGE))).splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        'container_cpu_usage_seconds_total{container="c",namespace="default",pod="web"} 1.5 20000',
        'container_cpu_usage_seconds_total{container="d",namespace="default",pod="web"} 0.5 21000',
        'container_memory_working_set_bytes{container="c",namespace="default",pod="web"} 7.0 20000',
        'container_memory_working_set_bytes{container="d",namespace="default",pod="web"} 7.0 21000',
        'pod_cpu_usage_seconds_total{namespace="default",pod="web"} 2.0 20000',
        'pod_memory_working_set_bytes{namespace="default",pod="web"} 14.0 20000',
        "node_cpu_usage_seconds_total 1.5 20000",
        "node_memory_working_set_bytes 7.0 20000",
        'container_start_time_seconds{container="c",namespace="default",pod="web"} 9.0 20000',
        "resource_scrape_error 0",
    ]
    assert "# TYPE node_cpu_usage_seconds_total counter" in lines


def test_a_node_that_nobody_measured_says_so() -> None:
    assert "resource_scrape_error 1\n" in list(resource_lines(Node("n1", {}, {}, ())))
    assert summary(Node("n1", {}, {}, ())) == {"node": {"nodeName": "n1"}, "pods": []}


def test_a_summary_adds_up_what_a_pods_containers_use() -> None:
    found = summary(node(USAGE))
    assert found["node"]["cpu"] == {
        "time": "1970-01-01T00:00:20Z", "usageNanoCores": 5, "usageCoreNanoSeconds": 1_500_000_000,
    }  # fmt: skip
    (pod,) = found["pods"]
    assert pod["podRef"] == {"name": "web", "namespace": "default", "uid": "u"}
    assert (pod["memory"]["workingSetBytes"], pod["cpu"]["usageCoreNanoSeconds"]) == (14, 2_000_000_000)
    assert [each["name"] for each in pod["containers"]] == ["c", "d"]


def test_cadvisors_lines_name_pod_and_container() -> None:
    text = "".join(cadvisor_lines(node({})))
    assert 'container_memory_working_set_bytes{container="c",namespace="default",pod="web"} 7.0 20000\n' in text


def test_cadvisors_lines_have_the_machine_and_what_dashboards_select_by() -> None:
    status = {**STARTED, "image": "web:1", "containerID": "docker://abc"}
    pod = {**POD, "status": {"containerStatuses": [status]}}
    machine = {**USAGE, "disk": {"capacity_bytes": 100, "available_bytes": 30, "inodes": 1, "inodes_free": 1}}
    whole = Node("n1", {"status": {"capacity": {"cpu": "4", "memory": "1Ki"}}}, machine, (Measured(pod, {"c": USAGE}),))
    lines = "".join(cadvisor_lines(whole)).splitlines()
    labels = 'container="c",namespace="default",pod="web",id="/docker/abc",image="web:1",name="abc"'
    assert [line for line in lines if not line.startswith("#")] == [
        'container_cpu_usage_seconds_total{id="/"} 1.5 20000',
        f"container_cpu_usage_seconds_total{{{labels}}} 1.5 20000",
        'container_memory_working_set_bytes{id="/"} 7.0 20000',
        f"container_memory_working_set_bytes{{{labels}}} 7.0 20000",
        f"container_start_time_seconds{{{labels}}} 9.0 20000",
        'container_fs_limit_bytes{id="/"} 100.0 20000',
        'container_fs_usage_bytes{id="/"} 70.0 20000',
        "machine_cpu_cores 4.0",
        "machine_memory_bytes 1024.0",
    ]


def test_the_pressure_of_a_machine_is_told_in_both() -> None:
    row = {"total_us": 2_500_000, "avg10": 1.5, "avg60": 0.5, "avg300": 0.25}
    machine = {**USAGE, "pressure": {"cpu": {"some": row}, "io": {"some": row, "full": {**row, "total_us": 7}}}}
    found = summary(node(machine))["node"]
    shown = {"total": 2_500_000_000, "avg10": 1.5, "avg60": 0.5, "avg300": 0.25}
    assert found["cpu"]["psi"] == {"some": shown}
    assert found["io"] == {"time": "1970-01-01T00:00:20Z", "psi": {"some": shown, "full": {**shown, "total": 7000}}}
    lines = "".join(cadvisor_lines(node(machine))).splitlines()
    assert [line for line in lines if line.startswith("container_pressure")] == [
        'container_pressure_cpu_waiting_seconds_total{id="/"} 2.5 20000',
        'container_pressure_io_waiting_seconds_total{id="/"} 2.5 20000',
        'container_pressure_io_stalled_seconds_total{id="/"} 7e-06 20000',
    ]


def test_the_pressure_of_a_pod_is_told_in_both() -> None:
    row = {"total_us": 3_000_000, "avg10": 1.5, "avg60": 0.5, "avg300": 0.25}
    told = {"timestamp_s": 19.0, "cpu": {"some": row, "full": row}, "io": {"full": row}}
    whole = Node("n1", {}, {}, (Measured(POD, {"c": USAGE}, told),))
    (pod,) = summary(whole)["pods"]
    shown = {"total": 3_000_000_000, "avg10": 1.5, "avg60": 0.5, "avg300": 0.25}
    assert pod["cpu"]["psi"] == {"some": shown, "full": shown}
    assert pod["io"]["psi"] == {"full": shown}
    assert "psi" not in pod["memory"]
    lines = "".join(cadvisor_lines(whole)).splitlines()
    of_pod = '{container="",namespace="default",pod="web"} 3.0 19000'
    assert [line for line in lines if line.startswith("container_pressure")] == [
        f"container_pressure_cpu_waiting_seconds_total{of_pod}",
        f"container_pressure_cpu_stalled_seconds_total{of_pod}",
        f"container_pressure_io_stalled_seconds_total{of_pod}",
    ]


@pytest.mark.parametrize(("method", "verb"), [("GET", "get"), ("POST", "create"), ("DELETE", "delete")])
def test_rights_are_those_of_the_subresource(method: str, verb: str) -> None:
    path = "/api/v1/nodes/n1:10250/proxy/metrics/resource"
    assert proxy_prefix(path) == "/api/v1/nodes/n1:10250/proxy"
    target = parse(path)
    assert target is not None
    assert verb_of(method, target, watch=False) == verb
    assert target.attributes(verb)[:5] == (verb, "", "nodes/proxy", "", "n1:10250")
    assert rights(target, "get", upgrade=True) == ("get", "create")


def test_a_kubelets_own_figures_are_those_of_its_pods() -> None:
    ended: JsonObject = {"status": {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {}}}]}}
    waits: JsonObject = {"status": {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {}}}]}}
    runs: JsonObject = {"status": {**POD["status"], "phase": "Running"}}
    lines = "".join(kubelet_lines("n1", [runs, runs, ended, waits, {}], 5.0)).splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        'kubelet_node_name{node="n1"} 1.0 5000',
        "kubelet_running_pods 2.0 5000",
        'kubelet_running_containers{container_state="exited"} 1.0 5000',
        'kubelet_running_containers{container_state="running"} 2.0 5000',
    ]
    assert 'kubelet_running_containers{container_state="running"} 0.0 5000\n' in list(kubelet_lines("n1", [], 5.0))


def test_a_reconciler_tells_what_it_counted_and_nothing_else() -> None:
    metrics = NodeLoopMetrics()
    metrics.on_pod({"metadata": {"uid": "u"}, "status": {"phase": "Pending"}}, 1.0)
    metrics.on_pod({"metadata": {"uid": "u"}, "status": {"phase": "Running"}}, 2.5)
    assert reconciler_text(metrics.registry.text()) == metrics.registry.text()
    text = "# TYPE minik8s_reconciler_items counter\nminik8s_reconciler_items_total 1\nkubelet_node_name 0\nup 0\n"
    assert [line for line in reconciler_text(text).splitlines() if line[0] != "#"] == [
        "minik8s_reconciler_items_total 1.0"
    ]
    assert reconciler_text("up{") == reconciler_text("") == ""


def test_a_kubelets_configuration_is_what_holds_here() -> None:
    node = {"status": {"capacity": {"pods": "110"}, "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}}}
    found = configuration(node, {"dns": {"listen": "169.254.20.10"}, "pod_pids_limit": 4096})
    assert (found["port"], found["maxPods"], found["podPidsLimit"]) == (10250, 110, 4096)
    assert found["clusterDNS"] == ["169.254.20.10"]
    bare = configuration({}, {})
    assert (bare["clusterDNS"], bare["podPidsLimit"], bare.get("port")) == ([], -1, None)
    assert configuration({}, {"cluster_dns": ["192.0.2.53"], "dns": {"listen": "169.254.20.10"}})["clusterDNS"] == [
        "192.0.2.53"
    ]


def test_a_log_is_that_of_the_container_in_the_path() -> None:
    given = MultiDict([("container", "b"), ("tailLines", "1")])
    assert [*log_arguments("a", given).items(multi=True)] == [("container", "a"), ("tailLines", "1")]

"""The role ``monitoring`` on machines with systemd: Prometheus of Debian 12, then of Debian 13, on a real cluster.

What kube-prometheus' dashboards and rules ask most returns data: figures of containers, of objects, of daemons and of
machines. All targets are there again after an upgrade and after the certificate authority was replaced.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from tests.support.clients import debian_program, node_exporter, prometheus
from tests.support.clusters.labcluster import LabCluster

CONTROL, WORKER = "control1", "worker1"
IMAGE = "minik8s/busybox:1"
WAIT_S = 600
JOBS = {"apiserver": 1, "kube-controller-manager": 1, "kube-scheduler": 1, "kube-state-metrics": 1, "node-exporter": 2,
        "kubelet": 6, "prometheus": 1}  # fmt: skip
"""Targets by job; each node has three of the kubelet."""
# of kubernetes-mixin and node-mixin, as kube-prometheus ships them, with shorter ranges
QUERIES = """
sum by (namespace, pod) (rate(container_cpu_usage_seconds_total{image!=""}[1m]))
sum by (namespace, pod, container) (container_memory_working_set_bytes{container!="", image!=""})
sum by (namespace) (kube_pod_status_phase{phase="Running"}) > 0
sum by (namespace, pod) (kube_pod_container_status_restarts_total)
sum by (namespace) (kube_pod_container_resource_requests{resource="cpu"})
sum by (namespace) (kube_pod_container_resource_limits{resource="memory"})
kube_deployment_status_replicas_available == kube_deployment_spec_replicas
kube_daemonset_status_number_ready == kube_daemonset_status_desired_number_scheduled
kube_statefulset_status_replicas_ready == kube_statefulset_replicas
kube_persistentvolumeclaim_status_phase{phase="Bound"} == 1
kube_persistentvolume_status_phase{phase="Bound"} == 1
kube_node_status_condition{condition="Ready", status="true"} == 1
sum(kube_node_status_allocatable{resource="memory"})
sum by (node) (kube_node_status_capacity{resource="pods"})
kube_node_info
count by (node) (kube_pod_info)
histogram_quantile(0.99, sum by (le, verb) (rate(apiserver_request_duration_seconds_bucket[5m])))
sum by (code) (rate(apiserver_request_total[5m]))
sum by (name) (rate(workqueue_adds_total[5m]))
histogram_quantile(0.99, sum by (le, name) (rate(workqueue_queue_duration_seconds_bucket[5m])))
sum by (result) (max_over_time(scheduler_schedule_attempts_total[2h]))
sum(kubelet_running_pods) >= 1
sum(kubelet_running_containers) >= 1
histogram_quantile(0.99, sum by (node, le) (increase(kubelet_pod_start_duration_seconds_bucket[1h])))
sum by (node) (kubelet_pleg_relist_duration_seconds_count) > 0
sum by (persistentvolumeclaim) (kubelet_volume_stats_available_bytes / kubelet_volume_stats_capacity_bytes)
1 - avg by (instance) (rate(node_cpu_seconds_total{mode="idle"}[1m]))
1 - node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes
node_filesystem_avail_bytes{fstype!=""} / node_filesystem_size_bytes
rate(node_network_receive_bytes_total[1m])
sum(machine_cpu_cores)
process_resident_memory_bytes{job="apiserver"}
rate(process_cpu_seconds_total{job="apiserver"}[1m])
"""
OBJECTS = f"""
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {{name: disk}}
provisioner: minik8s.io/hostpath
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      containers:
        - name: app
          image: {IMAGE}
          command: [sleep, "100000"]
          resources: {{requests: {{cpu: 10m}}, limits: {{memory: 64Mi}}}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: agent}}
spec:
  selector: {{matchLabels: {{app: agent}}}}
  template:
    metadata: {{labels: {{app: agent}}}}
    spec: {{containers: [{{name: app, image: {IMAGE}, command: [sleep, "100000"]}}]}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: data}}
spec:
  serviceName: data
  selector: {{matchLabels: {{app: data}}}}
  template:
    metadata: {{labels: {{app: data}}}}
    spec:
      containers:
        - {{name: app, image: {IMAGE}, command: [sleep, "100000"], volumeMounts: [{{name: v, mountPath: /v}}]}}
  volumeClaimTemplates:
    - metadata: {{name: v}}
      spec: {{accessModes: [ReadWriteOnce], storageClassName: disk, resources: {{requests: {{storage: 16Mi}}}}}}
"""


@pytest.fixture(scope="module")
def cluster(lab_name: str) -> Iterator[LabCluster]:
    """The cluster; MINIK8S_MONITORED in the environment names a lab to use again, and to keep."""
    name = os.environ.get("MINIK8S_MONITORED") or lab_name
    given = {
        "minik8s_monitoring": True,
        "minik8s_kubelet_port": 10250,
        "monitoring_scrape_interval_s": 5,
        "monitoring_prometheus_program": str(debian_program("bookworm", "prometheus", "usr/bin/prometheus")),
        "monitoring_node_exporter_program": str(node_exporter()),
    }
    made = LabCluster(name, workers=1, control_is_node=True, variables=given)
    try:
        made.up()
        if not made.kubeconfig.exists():
            made.install()
        made.kubectl("apply", "-f", "-", stdin=OBJECTS)
        yield made
    finally:
        if name == lab_name:
            made.close()


def asked(cluster: LabCluster, path: str, *more: str) -> object:
    """Return the data of a path of Prometheus, which listens on the machine's loopback."""
    words = ["curl", "--silent", "--fail", "--get", f"http://127.0.0.1:9090/api/v1/{path}", *more]
    return json.loads(cluster.on(CONTROL, words))["data"]


def query(cluster: LabCluster, expression: str) -> list[object]:
    """Return what an expression gives now."""
    found = asked(cluster, "query", "--data-urlencode", f"query={expression}")
    assert isinstance(found, dict)
    return list(found["result"])


def up(cluster: LabCluster) -> dict[str, int]:
    """Return how many targets answer, by job."""
    found = query(cluster, "sum by (job) (up)")
    return {one["metric"]["job"]: int(one["value"][1]) for one in found if isinstance(one, dict)}


def without_data(cluster: LabCluster) -> list[str]:
    return [each for each in QUERIES.strip().splitlines() if not query(cluster, each)]


def all_up(cluster: LabCluster) -> bool:
    return JOBS.items() <= up(cluster).items()


def version(cluster: LabCluster) -> str:
    found = asked(cluster, "status/buildinfo")
    assert isinstance(found, dict)
    return str(found["version"])


def test_everything_is_scraped_by_the_prometheus_of_debian_12(cluster: LabCluster) -> None:
    cluster.until(lambda: all_up(cluster), WAIT_S, "all targets are up")
    assert version(cluster).startswith("2.42.")
    assert "active" in cluster.on(CONTROL, ["systemctl", "is-active", "minik8s-prometheus", "minik8s-monitoring"])


def test_what_kube_prometheus_asks_returns_data(cluster: LabCluster) -> None:
    cluster.until(lambda: not without_data(cluster), WAIT_S, "all queries return data")


def test_nothing_is_alarming_about_a_cluster_that_is_well(cluster: LabCluster) -> None:
    cluster.until(lambda: not query(cluster, 'ALERTS{alertstate="firing"}'), WAIT_S, "no alert fires")


def test_a_newer_prometheus_goes_on_with_the_data_and_an_upgrade_keeps_all_targets(cluster: LabCluster) -> None:
    cluster.variables["monitoring_prometheus_program"] = str(prometheus())
    cluster.write_inventory()
    cluster.play("upgrade.yml")
    cluster.until(lambda: version(cluster).startswith("2.53."), WAIT_S, "trixie's runs")
    cluster.until(lambda: all_up(cluster), WAIT_S, "all targets are up again")
    assert query(cluster, "count_over_time(up{job='apiserver'}[2h]) > 10"), "what was scraped before is there"


def test_all_targets_are_there_after_the_authority_was_replaced(cluster: LabCluster) -> None:
    cluster.play("rotate_ca.yml")
    cluster.fetch_kubeconfig()
    cluster.until(lambda: all_up(cluster), WAIT_S, "all targets are up again")
    cluster.until(lambda: not without_data(cluster), WAIT_S, "all queries return data")

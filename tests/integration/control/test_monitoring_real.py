"""S-25 and S-26 on a real Prometheus: targets come and vanish with nodes and Pods, figures of objects are there."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import ssl
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from minik8s_modules.api.kinds import DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, NODE, POD
from tests.integration.control.conftest import Cluster, Daemon, pod
from tests.support.apiserver import ApiServerProcess
from tests.support.etcd import EtcdServer, free_port
from tests.support.extension import front_proxy
from tests.support.monitored import Adapter, Monitored, Server, adapter_objects, objects
from tests.support.playing import PlayingNode
from tests.support.servers.proxy import Proxy
from tests.support.waiting import until
from tests.support.webhook import machine_address


@pytest.fixture(scope="module")
def kubelets() -> Iterator[Proxy]:
    """What stands in for the rule on nodes that leads the port of kubelets to an API server; nodes are at 127.0.1.*."""
    proxy = Proxy(free_port(), "0.0.0.0")
    yield proxy
    proxy.cut()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, etcd: EtcdServer, kubelets: Proxy) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    proxies, proxy = front_proxy(folder)
    files = {"cert": str(proxy.cert), "key": str(proxy.key), "ca": str(proxies.ca)}
    server = ApiServerProcess(folder / "api", etcd.endpoint, kubelet_port=kubelets.port, front_proxy=files).start()
    kubelets._target = server.port
    cluster = Cluster(folder, server)
    yield cluster
    cluster.admin.close()
    server.stop()


@pytest.fixture(scope="module")
def monitored(cluster: Cluster, daemon: Daemon, kubelets: Proxy) -> Iterator[Monitored]:
    server = cluster.server
    for each in objects():
        server.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(each))
    who = Server(server.port, kubelets.port, server.authority.ca, cluster.kubeconfig("monitoring"))
    names = ("localhost", "custom-metrics.monitoring.svc")
    serving = server.authority.issue("monitoring", "minik8s-monitoring", names=names)
    adapter = Adapter(machine_address(), free_port(), serving, cluster.folder / "front-proxy" / "front-proxy-ca.crt")
    for each in adapter_objects(adapter, server.authority.ca):
        server.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(each))
    with Monitored(cluster.folder / "monitored", who, serving, adapter) as made:
        yield made


@contextlib.contextmanager
def exporter(address: str) -> Iterator[int]:
    """Serve a gauge, as the original's example does; yields the port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"random_value 42\n")

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer((address, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def node_at(cluster: Cluster, address: str) -> str:
    name = cluster.node()
    status = {"addresses": [{"type": "InternalIP", "address": address}]}
    cluster.admin.patch(NODE, name, "", {"status": status}, subresource="status")
    return name


def test_s25_nodes_are_up_and_vanish_when_they_leave(cluster: Cluster, monitored: Monitored):
    names = {node_at(cluster, f"127.0.1.{number}"): f"127.0.1.{number}:8090" for number in (1, 2)}
    up = dict.fromkeys(names.values(), "up")
    until(lambda: up.items() <= monitored.up("kubelet").items())
    found = monitored.prometheus.query("kubelet_node_name")
    assert {names[each["metric"]["node"]] for each in found} == set(up)
    assert {each["metric"]["job"] for each in found} == {"kubelet"}
    gone, stays = names
    cluster.admin.delete(NODE, gone)
    until(lambda: {path.stem for path in (monitored.folder / "nodes").glob("*.yml")} == {stays})
    until(lambda: monitored.up("kubelet").keys() == {names[stays]})
    assert monitored.up("node-exporter").keys() == {stays}


def test_s26_a_pod_of_the_original_is_scraped_until_it_is_deleted(cluster: Cluster, monitored: Monitored):
    namespace, name = cluster.namespace(), "prome-pod"
    with exporter("127.0.0.9") as port:
        wanted = pod(name, namespace)
        wanted["metadata"]["labels"] = {"monitor": "prometheus", "monitorPort": str(port)}
        cluster.admin.create(POD, wanted)
        status = {"phase": "Running", "podIP": "127.0.0.9", "podIPs": [{"ip": "127.0.0.9"}]}
        cluster.admin.patch(POD, name, namespace, {"status": status}, subresource="status")
        until(lambda: monitored.up("diy") == {f"127.0.0.9:{port}": "up"})
        (found,) = until(lambda: monitored.prometheus.query("random_value"))
        assert (found["metric"]["namespace"], found["metric"]["pod"], found["value"][1]) == (namespace, name, "42")
        cluster.admin.delete(POD, name, namespace, grace_s=0)
        until(lambda: not monitored.up("diy"))
        until(lambda: not monitored.prometheus.query("random_value"))


def test_objects_are_figures(cluster: Cluster, monitored: Monitored):
    namespace = cluster.namespace()
    cluster.admin.create(POD, pod("waits", namespace))
    asked = f'kube_pod_status_phase{{namespace="{namespace}",pod="waits",phase="Pending"}} == 1'
    until(lambda: monitored.prometheus.query(asked))
    until(lambda: monitored.prometheus.query(f'kube_namespace_status_phase{{namespace="{namespace}",phase="Active"}}'))


def test_an_autoscaler_scales_by_a_metric_of_a_pods_own(cluster: Cluster, monitored: Monitored, node: PlayingNode):
    namespace, server = cluster.namespace(), cluster.server
    server.kubectl("wait", "--for=condition=Available", "apiservice/v1beta2.custom.metrics.k8s.io", "--timeout=50s")
    server.kubectl("create", "deployment", "worker", "--image=minik8s/busybox:1", "-n", namespace)
    first = until(lambda: [each for each in cluster.admin.list(POD, namespace).items if phase(each) == "Running"])[0]
    with exporter("127.0.0.10") as port:
        labels = {"monitor": "prometheus", "monitorPort": str(port)}
        cluster.admin.patch(POD, first["metadata"]["name"], namespace, {"metadata": {"labels": labels}})
        status = {"podIP": "127.0.0.10", "podIPs": [{"ip": "127.0.0.10"}]}
        cluster.admin.patch(POD, first["metadata"]["name"], namespace, {"status": status}, subresource="status")
        path = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{namespace}/pods/*/random_value"
        found = until(lambda: server.kubectl("get", "--raw", path, check=False).stdout)
        (item,) = json.loads(found)["items"]
        assert (item["describedObject"]["name"], item["value"]) == (first["metadata"]["name"], "42000m")
        metric = {"metric": {"name": "random_value"}, "target": {"type": "AverageValue", "averageValue": "14"}}
        spec = {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "worker"},
            "maxReplicas": 3,
            "metrics": [{"type": "Pods", "pods": metric}],
        }
        cluster.admin.create(
            HORIZONTAL_POD_AUTOSCALER, {"metadata": {"name": "w", "namespace": namespace}, "spec": spec}
        )
        until(lambda: cluster.admin.get(DEPLOYMENT, "worker", namespace)["spec"]["replicas"] == 3, 120)


def test_custom_metrics_are_for_the_front_proxy_alone(cluster: Cluster, monitored: Monitored):
    served = ("--for=condition=Available", "apiservice/v1beta2.custom.metrics.k8s.io", "--timeout=50s")
    cluster.server.kubectl("wait", *served)  # so that it is asked, not looked for
    context = ssl.create_default_context(cafile=str(cluster.server.authority.ca))
    context.check_hostname = False
    context.load_cert_chain(*cluster.server.admin)  # of the cluster's authority, not of the front proxy's
    connection = http.client.HTTPSConnection(*adapter_at(monitored), context=context, timeout=30)

    def ask() -> int:
        connection.request("GET", "/apis/custom.metrics.k8s.io")
        return connection.getresponse().status

    with contextlib.closing(connection), pytest.raises((ssl.SSLError, ConnectionResetError, BrokenPipeError)):
        ask()


def phase(each: dict[str, Any]) -> str:
    return str((each.get("status") or {}).get("phase"))


def adapter_at(monitored: Monitored) -> tuple[str, int]:
    listen = yaml.safe_load((monitored.folder / "monitoring.yml").read_text())["adapter"]["listen"]
    host, _, port = listen.partition(":")
    return host, int(port)


def test_targets_are_right_again_after_a_kill(cluster: Cluster, monitored: Monitored):
    before = node_at(cluster, "127.0.1.11")
    path = monitored.folder / "nodes" / f"{before}.yml"
    until(path.exists)
    monitored.kill9()
    cluster.admin.delete(NODE, before)
    after = node_at(cluster, "127.0.1.12")
    (monitored.folder / "pods" / f"{uuid.uuid4()}.yml").write_text("- targets: [192.0.2.99:22]")
    monitored.start()
    until(lambda: (monitored.folder / "nodes" / f"{after}.yml").exists() and not path.exists())
    until(lambda: "192.0.2.99:22" not in str([p.read_text() for p in (monitored.folder / "pods").glob("*.yml")]))
    until(lambda: monitored.up("kubelet").get("127.0.1.12:8090") == "up")

"""What nodes and pods use, by kubectl top: sampled by the gateway, served by the API server."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from minik8s_modules.api.kinds import NODE
from tests.integration.streams.conftest import KUBELET_PORT, ROOT, Streaming
from tests.support.apiserver import Answer
from tests.support.etcd import free_port

CADVISOR = ROOT / ".cache" / "cadvisor-v0.36.0" / "cadvisor"


def _register(streaming: Streaming) -> None:
    names = [one["metadata"]["name"] for one in streaming.admin.list(NODE).items]
    if streaming.node.name not in names:
        streaming.admin.create(NODE, {"metadata": {"name": streaming.node.name}})
    capacity = {"cpu": "2", "memory": "4Gi"}
    body = {"status": {"capacity": capacity, "allocatable": capacity}}
    streaming.admin.patch(NODE, streaming.node.name, "", body, subresource="status")


def test_kubectl_top_tells_what_nodes_and_pods_use(streaming):
    _register(streaming)
    streaming.pod("busy", "while :; do :; done", "sleep 3600", cpu_quota_us=20_000)

    def top():
        return streaming.kubectl("top", "pod", "busy", "--containers", "--no-headers", check=False)

    streaming.until(lambda: top().returncode == 0, 60)
    end = time.monotonic() + 60
    while True:
        rows = {line.split()[1]: line.split()[2:] for line in top().stdout.splitlines()}
        if int(rows["app"][0].removesuffix("m")) > 50 or time.monotonic() > end:
            break
        time.sleep(1)
    assert set(rows) == {"app", "app1"}
    assert 50 < int(rows["app"][0].removesuffix("m")) < 500
    assert rows["app1"][0] == "0m" or int(rows["app1"][0].removesuffix("m")) < 50
    node = streaming.kubectl("top", "node", streaming.node.name, "--no-headers").stdout.split()
    assert node[0] == streaming.node.name
    assert int(node[1].removesuffix("m")) > 0
    found = json.loads(streaming.kubectl("get", "--raw", "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods").stdout)
    assert found["kind"] == "PodMetricsList"
    assert float(found["items"][0]["window"].removesuffix("s")) > 1
    assert found["items"][0]["containers"][0]["usage"]["memory"].endswith("Ki")


def test_a_node_answers_as_its_kubelet_at_its_own_address(streaming):
    """By the Host header alone, as it comes by the port of nodes that leads to API servers."""
    _register(streaming)
    address = {"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.44"}]}}
    streaming.admin.patch(NODE, streaming.node.name, "", address, subresource="status")
    streaming.pod("figure", "echo said; sleep 3600")

    def ask(path: str) -> Answer:
        found: Answer = streaming.server.request("GET", path, headers={"Host": f"192.0.2.44:{KUBELET_PORT}"})
        return found

    shown = 'container_memory_working_set_bytes{container="app",namespace="default",pod="figure"}'
    streaming.until(lambda: shown in ask("/metrics/resource").body.decode())
    assert "node_cpu_usage_seconds_total" in ask("/metrics/resource").body.decode()
    summary = ask("/stats/summary").json
    assert summary["node"]["nodeName"] == streaming.node.name
    assert "figure" in [each["podRef"]["name"] for each in summary["pods"]]
    assert "figure" in [each["metadata"]["name"] for each in ask("/pods").json["items"]]
    assert f'kubelet_node_name{{node="{streaming.node.name}"}}' in ask("/metrics").body.decode()
    assert ask("/configz").json["kubeletconfig"]["maxPods"] == 0
    streaming.until(lambda: ask("/containerLogs/default/figure/app").body == b"said\n")
    assert ask("/containerLogs/default/figure/app?limitBytes=2").body == b"sa"
    assert ask("/containerLogs/default/figure/none").code == 400
    assert ask("/containerLogs/default/none/app").code == 404
    by_proxy = f"/api/v1/nodes/{streaming.node.name}/proxy/containerLogs/default/figure/app"
    assert streaming.kubectl("get", "--raw", by_proxy).stdout == "said\n"


def test_a_pod_without_figures_is_not_found(streaming):
    gone = streaming.kubectl("get", "--raw", "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/none", check=False)
    assert gone.returncode
    assert "not found" in gone.stderr


@pytest.mark.skipif(not CADVISOR.exists(), reason="no cAdvisor was built here (role cadvisor)")
def test_figures_come_from_cadvisor_and_from_docker_when_it_dies():
    port = free_port()
    argv = [str(CADVISOR), "--listen_ip=127.0.0.1", f"--port={port}", "--docker_only", "--housekeeping_interval=2s"]
    folder = Path(tempfile.mkdtemp(prefix="mk8s-"))
    cadvisor = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    made = Streaming(folder, minik8s_cadvisor_port=port)
    try:
        made.start_gateway()
        _register(made)
        made.pod("figures", "while :; do :; done", cpu_quota_us=20_000)
        top = ("top", "pod", "figures", "--no-headers")
        made.until(lambda: made.kubectl(*top, check=False).returncode == 0, 90)
        assert "Docker's stats are read" not in made.log.read_text()
        # it listens on loopback alone, so no pod reaches it
        fetch = ("exec", "figures", "--", "timeout", "9", "wget", "-O", "-", f"http://{made.node.range}.1:{port}/")
        assert "refused" in made.kubectl(*fetch, check=False).stderr
        cadvisor.send_signal(signal.SIGKILL)
        cadvisor.wait(60)
        made.until(lambda: "cAdvisor does not answer, so Docker's stats are read" in made.log.read_text(), 60)
        assert made.kubectl(*top).returncode == 0
    finally:
        cadvisor.kill()
        cadvisor.wait(60)
        made.close()
        shutil.rmtree(folder, ignore_errors=True)

"""A cluster whose Pods and Services have IPv6 addresses alone: found by address, name and path, and nobody has IPv4."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import (
    DNS,
    ENDPOINT_SLICE,
    ENDPOINTS,
    HOST_GRANT,
    NETWORK_POLICY,
    NODE,
    POD,
    POD_ADDRESS,
    POD_CIDR,
    SERVICE,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.places import parse_place
from minik8s_modules.module_utils.minik8s.names.dns import folder_of
from minik8s_modules.module_utils.minik8s.names.dns_guard import NOWHERE, guard
from minik8s_modules.module_utils.minik8s.pods.dns_host import remove_address
from minik8s_modules.reconcile.network.services import kubernetes_address
from tests.integration.naming.conftest import free_node_port, nginx
from tests.integration.reconcile.conftest import IMAGE, ROOT, Cluster, running
from tests.support.etcd import free_port
from tests.support.node import command
from tests.support.servers import coredns

HTTPD = "hostname > /index.html; exec httpd -f -p 8080 -h /"
PORTS = [{"port": 80, "targetPort": 8080}]
HOST = "shop.example.test"


class AloneCluster(Cluster):
    """A node whose ranges are of IPv6, with a server of names and one of paths."""

    def __init__(self, folder: Path) -> None:
        # beside those of the other processes that share this machine
        digits = uuid.uuid4().hex
        self.prefix = f"fd{digits[:2]}:{int(digits[2:6], 16) | 1:x}:{int(digits[6:10], 16) | 1:x}"
        self.pods, self.services = f"{self.prefix}:1::/64", f"{self.prefix}:96::/112"
        self.gateway, self.dns = f"{self.prefix}:1::1", f"{self.prefix}:53::10"
        self.http_port, self.https_port = free_port(), free_port()
        super().__init__(folder)

    def offers(self) -> dict[str, Any]:
        """Return what its API server is configured with."""
        names = (self.gateway, parse_place(kubernetes_address(self.services))[0])
        ours = {"listen_address": "::", "advertise_address": self.gateway, "service_cidr": self.services}
        return {"addresses": names, "mesh": False, **ours}

    def _configs(self) -> dict[str, JsonObject]:
        found = super()._configs()
        ranges = {"cluster_cidr": self.pods, "service_cidr": self.services}
        found["controllers"] |= ranges
        ingress = {"http_port": self.http_port, "https_port": self.https_port}
        dns = {"listen": self.dns, "forward": []}
        found["reconcile"] |= {**ranges, "mesh": False, "dns": dns, "ingress": ingress}
        return found

    def command(self, *words: str) -> str:
        """Return what our command prints, whatever its code."""
        argv = [sys.executable, "-m", "minik8s_modules.cli.main", f"--kubeconfig={self.server.kubeconfig}", *words]
        done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, check=False)
        return done.stdout + done.stderr

    def serve(self) -> None:
        """Start a Pod behind Services, and one that asks."""
        meta, selected = {"name": "web", "namespace": "default"}, {"selector": {"app": "web"}, "ports": PORTS}
        self.node_port = free_node_port()
        at_nodes = {"type": "NodePort", "ports": [{**PORTS[0], "nodePort": self.node_port}]}
        self.admin.create(SERVICE, {"metadata": meta, "spec": {**selected, **at_nodes}})
        self.admin.create(SERVICE, {"metadata": {**meta, "name": "db"}, "spec": {**selected, "clusterIP": "None"}})
        fields = {"POD_IPS": "status.podIPs", "HOST_IP": "status.hostIP"}
        app: JsonObject = {
            "name": "app",
            "image": IMAGE,
            "command": ["sh", "-c", HTTPD],
            "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
            "env": [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()],
        }
        body = {"metadata": {**meta, "labels": {"app": "web"}}, "spec": {"containers": [app]}}
        self.admin.create(POD, body)
        self.create("client", terminationGracePeriodSeconds=0)
        for name in ("web", "client"):
            self.until(partial(self.ready, name), 180)

    @property
    def ip(self) -> str:
        """The address of the Pod behind the Services."""
        return str(self.pod("web")["status"]["podIP"])

    def inside(self, pod: str, *argv: str) -> str:
        """Return what a command prints in a Pod."""
        return self.node.execute(self.container(pod)["containerID"].removeprefix("docker://"), *argv)

    def answer(self, place: str) -> str:
        """Return what the client gets from a place, "" for nothing."""
        try:
            # not wget -T: Debian's static busybox ends with a segmentation fault, at addresses of either family
            return self.inside("client", "timeout", "5", "wget", "-qO-", f"http://{place}/")
        except AssertionError:
            return ""

    def steps(self) -> list[JsonObject]:
        """Return what drift would heal."""
        return list(self.plan()["nodes"].get(self.node.name, {}).get("steps", []))


@pytest.fixture(scope="module")
def cluster() -> Iterator[AloneCluster]:
    with running(AloneCluster) as made:
        assert isinstance(made, AloneCluster)
        made.folder.chmod(0o755)
        names, paths = Path(folder_of(made.node.state_dir)), Path(made.node.state_dir, "nginx")
        with coredns.running(names / "Corefile", made.folder / "dns.log"), nginx(paths, made.folder / "nginx.log"):
            made.serve()
            yield made
    remove_address(made.dns)
    guard(made.node.name, NOWHERE)


def test_a_pod_is_reached_by_address_name_and_node_port(cluster: AloneCluster) -> None:
    own = cluster.admin.get(SERVICE, "web", "default")["spec"]
    assert (own["ipFamilies"], own["ipFamilyPolicy"]) == (["IPv6"], "SingleStack")
    assert own["clusterIP"].startswith(f"{cluster.prefix}:96::")
    assert cluster.admin.get(SERVICE, "db", "default")["spec"]["ipFamilies"] == ["IPv6"]
    assert cluster.ip.startswith(f"{cluster.prefix}:1::")
    assert cluster.pod("web")["status"]["podIPs"] == [{"ip": cluster.ip}]
    at_node = f"[{cluster.gateway}]:{cluster.node_port}"
    for place in (f"[{own['clusterIP']}]", "web", "web.default.svc.cluster.local", "db:8080", at_node):
        cluster.until(partial(_is_web, cluster, place))
    # from the node itself, too
    connection = http.client.HTTPConnection(cluster.gateway, cluster.node_port, timeout=30)
    connection.request("GET", "/")
    assert connection.getresponse().read() == b"web\n"
    connection.close()


def test_nobody_is_told_an_address_of_ipv4(cluster: AloneCluster) -> None:
    told = cluster.inside("web", "sh", "-c", "echo $POD_IPS $KUBERNETES_SERVICE_HOST; ip -4 addr show dev eth0")
    assert told.split() == [cluster.ip, f"{cluster.prefix}:96::1"]
    assert f"nameserver {cluster.dns}" in cluster.inside("client", "cat", "/etc/resolv.conf")
    (claim,) = cluster.admin.list(POD_CIDR).items
    assert claim["spec"]["cidr"] == cluster.pods
    node = cluster.admin.get(NODE, cluster.node.name)
    assert (node["spec"]["podCIDR"], node["spec"]["podCIDRs"]) == (cluster.pods, [cluster.pods])
    addresses = {objects.name(one) for one in cluster.admin.list(POD_ADDRESS).items}
    assert addresses == {cluster.pod(name)["status"]["podIP"] for name in ("web", "client")}
    kubernetes = cluster.admin.get(SERVICE, "kubernetes", "default")["spec"]
    assert (kubernetes["clusterIP"], kubernetes["ipFamilies"]) == (f"{cluster.prefix}:96::1", ["IPv6"])
    (subset,) = cluster.admin.get(ENDPOINTS, "web", "default")["subsets"]
    assert [one["ip"] for one in subset["addresses"]] == [cluster.ip]
    labelled = [(objects.labels(one), one) for one in cluster.admin.list(ENDPOINT_SLICE, "default").items]
    (found,) = [one for labels, one in labelled if labels.get("kubernetes.io/service-name") == "web"]
    assert (found["addressType"], found["endpoints"][0]["addresses"]) == ("IPv6", [cluster.ip])
    assert "inet " not in command("ip", "addr", "show", "dev", cluster.node.bridge)


def test_a_policy_holds_and_why_says_so(cluster: AloneCluster) -> None:
    place = f"[{cluster.ip}]:8080"
    cluster.until(partial(_is_web, cluster, place))
    spec: dict[str, Any] = {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"]}
    policy = {"metadata": {"name": "wall", "namespace": "default"}, "spec": spec}
    planned = cluster.plan(objects=[{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", **policy}])
    assert "policy/default/wall" in json.dumps(planned)
    cluster.admin.create(NETWORK_POLICY, policy)
    cluster.until(lambda: not cluster.answer(place))
    assert "wall" in cluster.command("why", "connect", "client", place)
    cluster.admin.delete(NETWORK_POLICY, "wall", "default")
    cluster.until(partial(_is_web, cluster, place))
    assert "wall" not in cluster.command("why", "connect", "client", place)


def test_a_path_leads_to_the_pod_and_trace_says_how(cluster: AloneCluster) -> None:
    grant = {"namespaces": ["default"], "hosts": ["*"], "shortNames": True}
    cluster.admin.create(HOST_GRANT, {"metadata": {"name": "default"}, "spec": grant})
    path = {"path": "/", "backend": {"service": {"name": "web", "port": 80}}}
    spec = {"rules": [{"host": HOST, "paths": [path]}]}
    cluster.admin.create(DNS, {"metadata": {"name": "shop", "namespace": "default"}, "spec": spec})
    cluster.until(lambda: _get("::1", cluster.http_port) == (HTTPStatus.OK, "web\n"))
    cluster.until(partial(_is_web, cluster, f"{HOST}:{cluster.http_port}"))
    assert f"[{cluster.ip}]:8080" in cluster.command("trace", f"{HOST}/")
    cluster.admin.delete(DNS, "shop", "default")


def test_a_plan_for_a_pod_is_what_comes_and_then_nothing_drifts(cluster: AloneCluster) -> None:
    container = {"name": "app", "image": IMAGE, "command": ["sleep", "3600"]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "third", "namespace": "default"}}
    own: dict[str, Any] = {"terminationGracePeriodSeconds": 0, "dnsConfig": {"nameservers": ["2001:db8::53"]}}
    spec = {"containers": [container], "nodeName": cluster.node.name, **own}
    planned = json.dumps(cluster.plan(objects=[{**pod, "spec": spec}]))
    cluster.create("third", **own)
    cluster.until(lambda: cluster.ready("third"), 120)
    told = cluster.inside("third", "cat", "/etc/resolv.conf")
    assert f"nameserver {cluster.dns}\nnameserver 2001:db8::53\n" in told
    assert cluster.pod("third")["status"]["podIP"] in planned
    cluster.until(lambda: cluster.steps() == [])
    for name in ("third", "client", "web"):
        cluster.delete(name, grace_s=0)
    cluster.until(lambda: cluster.node.ids() == [] and cluster.addresses() == [])


def _is_web(cluster: AloneCluster, place: str) -> bool:
    return cluster.answer(place) == "web\n"


def _get(address: str, port: int) -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, port, timeout=30)
    try:
        connection.request("GET", "/", headers={"Host": HOST})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (OSError, http.client.HTTPException) as error:
        return 0, str(error)
    finally:
        connection.close()

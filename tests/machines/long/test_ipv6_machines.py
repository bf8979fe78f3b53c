"""A cluster of machines without IPv4: installed by playbook over IPv6, two nodes, Pods and Services of IPv6 alone.

What machines lack here is addresses and routes of IPv4 on their network device; their loopback has 127.0.0.1, as that
of every machine has. Busybox' wget gets no ``-T``: Debian's static one crashes then, at any address.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from minik8s_modules.api.objects import JsonObject
from tests.lab.host import Host
from tests.lab.records import Names
from tests.lab.remote import Remote
from tests.support.clusters import standing
from tests.support.clusters.labcluster import CommandFailed, LabCluster

CONTROL, WORKER = MACHINES = ("control1", "worker1")
ADDRESSES = {CONTROL: "fd00:1ab::1", WORKER: "fd00:1ab::2"}
HOST, ROUTER = "fd00:1ab::fe", "fd00:1ab::ff"
RANGES = {"minik8s_cluster_cidr": "fd00:10:244::/48", "minik8s_service_cidr": "fd00:10:96::/112"}
SERVICES_OF_IPV4 = {**RANGES, "minik8s_service_cidr": "100.0.0.0/24"}
ALL_OF_IPV4 = {"minik8s_cluster_cidr": "10.244.0.0/16", "minik8s_service_cidr": "100.0.0.0/24"}
SERVES = 'trap "exit 0" TERM; hostname >index.html; httpd -p 80; echo serving; sleep 100000 & wait'
NODE_PORT = 30080


class Ipv6Cluster(LabCluster):
    """Machines that are reached by IPv6 alone, by us, by Ansible and by each other."""

    def address(self, machine: str) -> str:
        """Return the address of a machine."""
        return ADDRESSES[machine]

    def leave_ipv4(self) -> None:
        """Give all machines an IPv6 address and route, and take away what they have of IPv4."""
        device = Names(self.lab.name).network
        Host().run(["sysctl", "-qw", f"net.ipv6.conf.{device}.disable_ipv6=0"])
        Host().run(["ip", "address", "replace", f"{HOST}/64", "dev", device, "nodad"])
        hosts = "127.0.0.1 localhost\n" + "".join(f"{ADDRESSES[name]} {name}\n" for name in MACHINES)
        for machine in MACHINES:
            self.on(machine, ["sysctl", "-qw", "net.ipv6.conf.eth0.disable_ipv6=0"])
            self.on(machine, ["ip", "address", "replace", f"{ADDRESSES[machine]}/64", "dev", "eth0", "nodad"])
            self.on(machine, ["ip", "-6", "route", "replace", "default", "via", ROUTER, "dev", "eth0"])
            self.on(machine, ["tee", "/etc/hosts"], text=hosts)
        ways = "".join(f"Host {name}\n  HostName {ADDRESSES[name]}\n  HostKeyAlias {name}\n" for name in MACHINES)
        config = self.lab.ssh_config
        config.write_text(ways + config.read_text(encoding="utf-8"), encoding="utf-8")
        for machine in MACHINES:
            Remote(self.lab.folder).hang_up(self.lab.host, machine)  # it is a connection of IPv4
        for machine in MACHINES:
            self.on(machine, ["ip", "-4", "address", "flush", "dev", "eth0"])

    def write_inventory(self) -> None:
        """Write the inventory; host keys are pinned by names, as the lab knows no such addresses."""
        super().write_inventory()
        path = self.inventory / "hosts.yml"
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
        common = tree["all"]["vars"]["ansible_ssh_common_args"]
        for name, host in tree["all"]["hosts"].items():
            host["ansible_ssh_common_args"] = f"{common} -o HostKeyAlias={name}"
        path.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")

    def fetch_kubeconfig(self, control: str = "") -> Path:
        """Take the administrator's kubeconfig, whose server is then the machine's IPv6 address."""
        name = control or self.control[0]
        text = self.on(name, ["cat", "/etc/minik8s/admin.kubeconfig"])
        server = re.sub(r"https://(\[[^]]*\]|[^:/]+):", f"https://[{self.address(name)}]:", text)
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(server, encoding="utf-8")
        return self.kubeconfig

    def refusal(self, ranges: dict[str, str]) -> str:
        """Return what the playbook says of ranges that it does not take."""
        self.variables |= ranges
        self.write_inventory()
        with pytest.raises(CommandFailed) as caught:
            self.install()
        return caught.value.words

    def asked(self, pod: str, place: str) -> str:
        """Return what a Pod is answered by a place, in time; answers of Services may need a moment at first."""
        return str(self.until(lambda: self.inside(pod, "wget", "-qO-", f"http://{place}/").strip(), told=place))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Ipv6Cluster]:
    name = f"six{uuid.uuid4().hex[:4]}"
    with Ipv6Cluster(name, workers=1, control_is_node=True, variables=RANGES, install=False) as made:
        made.leave_ipv4()
        yield made


@pytest.fixture(scope="module")
def installed(cluster: Ipv6Cluster) -> Ipv6Cluster:
    """A cluster with a Pod on each machine, a Service for each, and one of node ports that leads to both."""
    cluster.variables |= RANGES
    cluster.write_inventory()
    cluster.install()
    for machine in MACHINES:
        cluster.apply(pod(machine), service(f"of-{machine}", {"on": machine}))
    cluster.apply(service("web", {"app": "web"}, NODE_PORT))
    cluster.until(lambda: all(cluster.ready(f"on-{machine}") for machine in MACHINES), 300, "the pods are not ready")
    return cluster


def pod(machine: str) -> JsonObject:
    labels = {"app": "web", "on": machine}
    spec = standing.pod_spec(["sh", "-c", SERVES], machine, automountServiceAccountToken=False)
    spec["containers"][0]["readinessProbe"] = {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"on-{machine}", "labels": labels}, "spec": spec}


def service(name: str, selector: dict[str, str], node_port: int = 0) -> JsonObject:
    port = {"port": 80, **({"nodePort": node_port} if node_port else {})}
    spec = {"selector": selector, "ports": [port], **({"type": "NodePort"} if node_port else {})}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def test_ranges_of_ipv4_are_refused_before_anything_is_changed(cluster: Ipv6Cluster) -> None:
    assert "are of two families" in cluster.refusal(SERVICES_OF_IPV4)
    assert "cannot lead to machines that are known by an IPv6 address" in cluster.refusal(ALL_OF_IPV4)
    assert cluster.on(WORKER, ["sh", "-c", "ls -d /opt/minik8s || true"]).strip() != "/opt/minik8s"


def test_machines_have_no_ipv4_and_say_their_ipv6_address(installed: Ipv6Cluster) -> None:
    for machine in MACHINES:
        assert installed.on(machine, ["ip", "-4", "route", "show", "default"]).strip() == ""
        told = installed.get("node", machine)["status"]["addresses"]
        assert [one["address"] for one in told if one["type"] == "InternalIP"] == [ADDRESSES[machine]]


def test_api_servers_are_known_by_ipv6(installed: Ipv6Cluster) -> None:
    endpoints = installed.get("endpoints", "kubernetes")
    assert [one["ip"] for one in endpoints["subsets"][0]["addresses"]] == [ADDRESSES[CONTROL]]
    assert installed.get("service", "kubernetes")["spec"]["clusterIPs"] == ["fd00:10:96::1"]
    leases = json.dumps(installed.get("leases", "-n", "kube-system"))
    assert "apiserver-fd00-01ab-0000-0000-0000-0000-0000-0001" in leases


@pytest.mark.parametrize(("machine", "other"), [MACHINES, MACHINES[::-1]])
def test_pods_of_two_machines_reach_each_other(installed: Ipv6Cluster, machine: str, other: str) -> None:
    status = installed.get("pod", f"on-{other}")["status"]
    assert [":" in one["ip"] for one in status["podIPs"]] == [True]
    assert (status["hostIP"], status["hostIPs"]) == (ADDRESSES[other], [{"ip": ADDRESSES[other]}])
    assert installed.asked(f"on-{machine}", f"[{status['podIP']}]") == f"on-{other}"


@pytest.mark.parametrize(("machine", "other"), [MACHINES, MACHINES[::-1]])
def test_services_lead_to_the_other_machine_by_address_and_by_name(
    installed: Ipv6Cluster, machine: str, other: str
) -> None:
    found = installed.get("service", f"of-{other}")["spec"]
    assert found["ipFamilies"] == ["IPv6"]
    assert installed.asked(f"on-{machine}", f"[{found['clusterIP']}]") == f"on-{other}"
    assert installed.asked(f"on-{machine}", f"of-{other}") == f"on-{other}"
    assert installed.asked(f"on-{machine}", f"of-{other}.default.svc.cluster.local") == f"on-{other}"


def test_endpoints_name_the_pods_addresses(installed: Ipv6Cluster) -> None:
    wanted = {installed.get("pod", f"on-{machine}")["status"]["podIP"] for machine in MACHINES}

    def told() -> bool:
        (subset,) = installed.get("endpoints", "web").get("subsets") or [{}]
        return {one["ip"] for one in subset.get("addresses") or []} == wanted

    installed.until(told, told="endpoints of web")


def test_node_ports_are_open_at_both_machines(installed: Ipv6Cluster) -> None:
    for machine in MACHINES:
        url = f"http://[{ADDRESSES[machine]}]:{NODE_PORT}/"
        ask = f"import urllib.request as r; print(r.urlopen({url!r}, timeout=30).read().decode())"
        assert installed.on(WORKER, ["python3", "-c", ask]).strip().startswith("on-")


def test_logs_and_exec_reach_pods_of_another_machine(installed: Ipv6Cluster) -> None:
    assert installed.inside(f"on-{WORKER}", "hostname").strip() == f"on-{WORKER}"
    assert installed.kubectl("logs", f"on-{WORKER}").strip() == "serving"


def test_plan_and_drift_are_quiet(installed: Ipv6Cluster) -> None:
    declared = yaml.safe_dump_all([pod(WORKER), service("web", {"app": "web"}, NODE_PORT)])
    installed.on(CONTROL, ["tee", "/tmp/declared.yml"], text=declared)

    def quiet(words: str) -> bool:
        return "no changes" in installed.on(CONTROL, ["sh", "-c", f"minik8s {words} 2>&1 || true"])

    installed.until(lambda: quiet("plan -f /tmp/declared.yml"), told="minik8s plan")
    installed.until(lambda: quiet("drift"), told="minik8s drift")


def test_another_family_is_refused_where_a_cluster_stands(installed: Ipv6Cluster) -> None:
    assert "is of another family than fd00:10:96::/112" in installed.refusal(ALL_OF_IPV4)


def test_a_second_run_changes_nothing(installed: Ipv6Cluster) -> None:
    installed.variables |= RANGES
    installed.write_inventory()
    assert installed.play("site.yml").changed == 0

"""A whole cluster on one machine with a kernel of its own, services by IPVS: S-07, S-08, S-12 and S-13.

The machine is control plane and node, installed with ``inventory/lab_ipvs``. Everything is asked for by real kubectl;
requests are made on the machine, in another pod, and in the very pods that answer.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.support.labcluster import CommandFailed, LabCluster

JsonObject = dict[str, Any]
NODE = "control1"
NODE_PORT = 30080
MEMORY_MIB = 2560
IMAGE = "minik8s/busybox:1"
SERVER = 'mkdir -p /tmp/w && echo "$POD" > /tmp/w/index.html && exec httpd -f -p 1024 -h /tmp/w'
ASKED = 11
# one line an answer, the last of each; an empty one for none
FROM_POD = "for i in $(seq $2); do echo $(printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 10 $0 $1 | tail -n 1); done"
FROM_MACHINE = "for i in $(seq $1); do echo $(curl -s -m 10 $0); done"


@pytest.fixture(scope="module")
def ipvs(lab_name: str) -> Iterator[LabCluster]:
    """The cluster; MINIK8S_IPVS in the environment names a lab to use again, and to keep."""
    name = os.environ.get("MINIK8S_IPVS") or lab_name
    cluster = LabCluster(name, workers=0, kind="uml", memory_mib=MEMORY_MIB, beside=["lab_ipvs"])
    try:
        cluster.up()
        if not cluster.kubeconfig.exists():
            cluster.install()
        cluster.apply(pod("client"))
        yield cluster
    finally:
        if name == lab_name:
            cluster.close()


def pod(name: str, **labels: str) -> JsonObject:
    """Return a pod that answers at port 1024 (http) with its name."""
    container = {
        "name": "app",
        "image": IMAGE,
        "command": ["sh", "-c", SERVER],
        "env": [{"name": "POD", "value": name}],
        "ports": [{"name": "http", "containerPort": 1024}],
        "readinessProbe": {"tcpSocket": {"port": 1024}, "periodSeconds": 1},
    }
    metadata = {"name": name, "labels": labels}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def service(name: str, app: str, **spec: Any) -> JsonObject:
    """Return a Service at port 800."""
    body = {"selector": {"app": app}, "ports": [{"port": 800, "targetPort": 1024}], **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": body}


def dns(name: str, host: str, **paths: str) -> JsonObject:
    """Return a DNS object: path to service, at port 800."""
    rows = [
        {"path": f"/{path}", "backend": {"service": {"name": backend, "port": 800}}} for path, backend in paths.items()
    ]
    spec = {"rules": [{"host": host, "paths": rows}]}
    return {"apiVersion": "v1", "kind": "DNS", "metadata": {"name": name}, "spec": spec}


def address(cluster: LabCluster, name: str) -> str:
    """Return the address of a Service."""
    return str(cluster.get("service", name)["spec"]["clusterIP"])


def ask(cluster: LabCluster, host: str, port: int, count: int, client: str = "") -> Counter[str]:
    """Return who answered, "" for none, to requests from the machine or a pod."""
    if client:
        text = cluster.inside(client, "sh", "-c", FROM_POD, host, str(port), str(count), timeout_s=180)
    else:
        text = cluster.on(NODE, ["sh", "-c", FROM_MACHINE, f"http://{host}:{port}/", str(count)], timeout_s=180)
    return Counter(text.split("\n")[:-1])


def listing(cluster: LabCluster) -> list[str]:
    """Return the lines of ``ipvsadm -ln``, one blank between words."""
    return [" ".join(line.split()) for line in cluster.on(NODE, ["ipvsadm", "-ln"]).splitlines()]


def page(cluster: LabCluster, url: str) -> set[str]:
    """Return what the machine and a pod get at a URL, "" for none."""
    there = cluster.inside("client", "sh", "-c", "timeout 10 wget -q -O- http://$0 || true", url)
    here = cluster.on(NODE, ["sh", "-c", "curl -s -f -m 10 http://$0 || true", url])
    return {there.strip(), here.strip()}


def shows(cluster: LabCluster, url: str, expected: str) -> bool:
    """Return whether the machine and a pod both get what is expected."""
    return page(cluster, url) == {expected}


def test_a_service_is_spread_exactly_from_machine_other_pod_and_itself(ipvs: LabCluster) -> None:
    names = {"web-1", "web-2"}
    ipvs.apply(*(pod(name, app="web") for name in names))
    ipvs.apply(service("web", "web", type="NodePort", ports=[{"port": 800, "targetPort": 1024, "nodePort": NODE_PORT}]))
    ipvs.until(lambda: all(ipvs.ready(name) for name in (*names, "client")))
    targets = [(address(ipvs, "web"), 800), (ipvs.address(NODE), NODE_PORT)]
    ipvs.until(lambda: all(set(ask(ipvs, *target, 2)) == names for target in targets))
    for client in ("", "client", *sorted(names)):
        for target in targets:
            seen = ask(ipvs, *target, ASKED, client)
            assert set(seen) == names, (client, target, seen)
            assert abs(seen["web-1"] - seen["web-2"]) <= 1, (client, target, seen)
    # the listing of the original, KP-05
    lines = listing(ipvs)
    ends = sorted(f"-> {ipvs.get('pod', name)['status']['podIP']}:1024 Masq 1" for name in names)
    for host, port in targets:
        at = lines.index(f"TCP {host}:{port} rr")
        assert sorted(line.rsplit(" ", 2)[0] for line in lines[at + 1 : at + 3]) == ends


def test_a_back_end_and_a_service_that_go_leave_no_rules(ipvs: LabCluster) -> None:
    ipvs.apply(pod("goes", app="less"), pod("stays", app="less"), service("less", "less"))
    freed = address(ipvs, "less")
    ipvs.until(lambda: set(ask(ipvs, freed, 800, 2)) == {"goes", "stays"})
    ipvs.kubectl("delete", "pod", "goes")
    ipvs.until(lambda: set(ask(ipvs, freed, 800, 4)) == {"stays"})
    ipvs.kubectl("delete", "service", "less")
    ipvs.until(lambda: not any(f"{freed}:" in line for line in listing(ipvs)))
    ipvs.until(lambda: f" {freed}/32 " not in ipvs.on(NODE, ["ip", "-oneline", "addr"]))
    ipvs.apply(service("more", "less", clusterIP=freed))
    ipvs.until(lambda: set(ask(ipvs, freed, 800, 4)) == {"stays"})


def test_a_host_leads_paths_to_services_and_a_second_one_is_refused(ipvs: LabCluster) -> None:
    ipvs.apply(pod("named-1", app="one"), pod("named-2", app="two"), service("one", "one"), service("two", "two"))
    ipvs.apply(dns("my-dns", "myservice.test", first="one", second="two"))
    for path, name in (("first", "named-1"), ("second", "named-2")):
        ipvs.until(functools.partial(shows, ipvs, f"myservice.test/{path}", name))
    ipvs.until(lambda: shows(ipvs, "one:800", "named-1"), told="a service by its name")
    with pytest.raises(CommandFailed, match=r"host myservice\.test conflicts with existing host"):
        ipvs.kubectl("create", "-f", "-", stdin=yaml.safe_dump(dns("other", "myservice.test", third="one")))
    ipvs.kubectl("delete", "dns", "my-dns")
    ipvs.until(lambda: shows(ipvs, "myservice.test/first", ""))

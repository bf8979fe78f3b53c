"""A whole cluster on one machine with a kernel of its own, services by IPVS: S-07, S-08, S-12 and S-13; then on two.

The machine is control plane and node, installed with ``inventory/lab_ipvs``; a second one joins for the tests of
services across machines. Everything is asked for by real kubectl; requests are made on the machines, in other pods,
and in the very pods that answer.
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api.objects import JsonObject
from tests.support.clusters.labcluster import CommandFailed, LabCluster

NODE, PEER = "control1", "spare1"
NODE_PORT, BOTH_PORT, STICKY_PORT, NEAR_PORT = 30080, 30081, 30082, 30083
MEMORY_MIB = 1536
# Slow there are a start of sftp, and 56 MB over SSH: large programs come through the lab's folder.
QUICK = {"ansible_ssh_transfer_method": "piped"}
PROGRAMS = {"coredns": "coredns-*", "kubectl": "kubectl-*"}
IMAGE = "minik8s/busybox:1"
# the page is the pod's name, and /cgi-bin/from tells who asked
SERVER = r"""
mkdir -p /tmp/w/cgi-bin && echo "$POD" >/tmp/w/index.html
printf '#!/bin/sh\necho; echo "$REMOTE_ADDR"\n' >/tmp/w/cgi-bin/from && chmod 755 /tmp/w/cgi-bin/from
exec httpd -f -p 1024 -h /tmp/w
"""
ASKED, ASKED_ACROSS = 11, 4
# one line an answer, the last of each; an empty one for none
FROM_POD = "for i in $(seq $2); do echo $(printf 'GET /%s HTTP/1.0\\r\\n\\r\\n' $3 | nc -w 10 $0 $1 | tail -n 1); done"
FROM_MACHINE = "for i in $(seq $1); do echo $(curl -s -m 10 $0); done"


@pytest.fixture(scope="module")
def ipvs(lab_name: str) -> Iterator[LabCluster]:
    """The cluster; MINIK8S_IPVS in the environment names a lab to use again, and to keep."""
    name = os.environ.get("MINIK8S_IPVS") or lab_name
    cluster = LabCluster(name, workers=0, kind="uml", memory_mib=MEMORY_MIB, beside=["lab_ipvs"], variables=QUICK)
    cluster.spare = [PEER] if (cluster.lab.folder / "nodes" / PEER).exists() else []
    try:
        cluster.up()
        if not cluster.kubeconfig.exists():
            lend(cluster, NODE)
            cluster.install()
        cluster.apply(pod("client", NODE))
        yield cluster
    finally:
        if name == lab_name:
            cluster.close()


@pytest.fixture(scope="module")
def both(ipvs: LabCluster) -> LabCluster:
    """The cluster with a second machine, and on each a client and a pod of the app ``both``."""
    ipvs.spare = [PEER]
    ipvs.up()
    ipvs.nodes.append(PEER)
    ipvs.write_inventory()
    if PEER not in ipvs.ready_nodes():
        lend(ipvs, PEER)
        ipvs.play("node_add.yml", "-e", f"node={PEER}")
    ipvs.apply(pod("near", NODE, app="both"), pod("far", PEER, app="both"), pod("far-client", PEER))
    wait(ipvs, lambda: all(ipvs.ready(name) for name in ("near", "far", "client", "far-client")))
    return ipvs


def lend(cluster: LabCluster, machine: str) -> None:
    """Lay the large programs of this user's cache where the roles copy them to; outdated ones are replaced there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "minik8s"
    for name, pattern in PROGRAMS.items():
        for kept in sorted(cache.glob(pattern))[:1]:
            shared = cluster.lab.folder / "share" / name
            shutil.copyfile(kept, shared)
            cluster.on(machine, ["install", "-D", "-m", "755", f"/mnt/host/{name}", f"/opt/minik8s/bin/{name}"])
            shared.unlink()


def pod(name: str, node: str = NODE, **labels: str) -> JsonObject:
    """Return a pod of a machine that answers at port 1024 (http) with its name."""
    container = {
        "name": "app",
        "image": IMAGE,
        "command": ["sh", "-c", SERVER],
        "env": [{"name": "POD", "value": name}],
        "ports": [{"name": "http", "containerPort": 1024}],
        "readinessProbe": {"tcpSocket": {"port": 1024}, "periodSeconds": 1},
    }
    metadata = {"name": name, "labels": labels}
    spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def service(name: str, app: str, node_port: int = 0, **spec: Any) -> JsonObject:
    """Return a Service at port 800, and at a node port if one is given."""
    port = {"port": 800, "targetPort": 1024, **({"nodePort": node_port} if node_port else {})}
    body = {"type": "NodePort" if node_port else "ClusterIP", "selector": {"app": app}, "ports": [port], **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": body}


def dns(name: str, host: str, **paths: str) -> JsonObject:
    """Return a DNS object: path to service, at port 800."""
    rows = [
        {"path": f"/{path}", "backend": {"service": {"name": backend, "port": 800}}} for path, backend in paths.items()
    ]
    spec = {"rules": [{"host": host, "paths": rows}]}
    return {"apiVersion": "v1", "kind": "DNS", "metadata": {"name": name}, "spec": spec}


def wait(cluster: LabCluster, condition: Callable[[], Any], told: str = "") -> None:
    """Wait until something is so; a UML machine beside busy processes takes minutes for a pod."""
    cluster.until(condition, 400, told)


def address(cluster: LabCluster, name: str) -> str:
    """Return the address of a Service."""
    return str(cluster.get("service", name)["spec"]["clusterIP"])


def ask(cluster: LabCluster, host: str, port: int, count: int, client: str = NODE, path: str = "") -> Counter[str]:
    """Return what was answered, "" for nothing, to requests from a machine or a pod."""
    if client in (NODE, PEER):
        words = [FROM_MACHINE, f"http://{host}:{port}/{path}", str(count)]
        text = cluster.on(client, ["sh", "-c", *words], timeout_s=180)
    else:
        text = cluster.inside(client, "sh", "-c", FROM_POD, host, str(port), str(count), path, timeout_s=180)
    return Counter(text.split("\n")[:-1])


def spread(cluster: LabCluster, target: tuple[str, int], client: str, names: set[str]) -> bool:
    """Return whether these pods answer a client, and nobody else does."""
    return set(ask(cluster, *target, len(names), client)) == names


def listing(cluster: LabCluster, machine: str = NODE) -> list[str]:
    """Return the lines of ``ipvsadm -ln``, one blank between words."""
    return [" ".join(line.split()) for line in cluster.on(machine, ["ipvsadm", "-ln"]).splitlines()]


def behind(cluster: LabCluster, host: str, port: int, machine: str = NODE) -> list[str]:
    """Return the ends of a virtual server as ``ipvsadm -ln`` has them, without counts of connections; sorted."""
    lines = iter(listing(cluster, machine))
    next((line for line in lines if line.startswith(f"TCP {host}:{port} rr")), "")
    return sorted(line.rsplit(" ", 2)[0] for line in itertools.takewhile(lambda line: line.startswith("->"), lines))


def ends(cluster: LabCluster, *names: str) -> list[str]:
    """Return what ``behind`` should say of the servers of pods."""
    return sorted(f"-> {cluster.get('pod', name)['status']['podIP']}:1024 Masq 1" for name in names)


def listed(cluster: LabCluster, name: str, node_port: int, *pods: str) -> str:
    """Wait until both machines list these pods behind a service and its node port; return its address."""
    host = address(cluster, name)
    for machine in (NODE, PEER):
        for place in ((host, 800), (cluster.address(machine), node_port)):
            text = f"{machine} has no such ends at {place}"
            wait(cluster, functools.partial(lists, cluster, place, machine, pods), text)
    return host


def lists(cluster: LabCluster, place: tuple[str, int], machine: str, pods: Sequence[str]) -> bool:
    """Return whether a machine lists just these pods behind a place."""
    return behind(cluster, *place, machine) == ends(cluster, *pods)


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
    ipvs.apply(service("web", "web", NODE_PORT))
    wait(ipvs, lambda: all(ipvs.ready(name) for name in (*names, "client")))
    targets = [(address(ipvs, "web"), 800), (ipvs.address(NODE), NODE_PORT)]
    wait(ipvs, lambda: all(set(ask(ipvs, *target, 2)) == names for target in targets))
    for client in (NODE, "client", *sorted(names)):
        for target in targets:
            seen = ask(ipvs, *target, ASKED, client)
            assert set(seen) == names, (client, target, seen)
            assert abs(seen["web-1"] - seen["web-2"]) <= 1, (client, target, seen)
    # the listing of the original, KP-05
    for target in targets:
        assert behind(ipvs, *target) == ends(ipvs, *names)


def test_a_back_end_and_a_service_that_go_leave_no_rules(ipvs: LabCluster) -> None:
    ipvs.apply(pod("goes", app="less"), pod("stays", app="less"), service("less", "less"))
    freed = address(ipvs, "less")
    wait(ipvs, lambda: set(ask(ipvs, freed, 800, 2)) == {"goes", "stays"})
    ipvs.kubectl("delete", "pod", "goes")
    wait(ipvs, lambda: set(ask(ipvs, freed, 800, 4)) == {"stays"})
    ipvs.kubectl("delete", "service", "less")
    wait(ipvs, lambda: not any(f"{freed}:" in line for line in listing(ipvs)))
    wait(ipvs, lambda: f" {freed}/32 " not in ipvs.on(NODE, ["ip", "-oneline", "addr"]))
    ipvs.apply(service("more", "less", clusterIP=freed))
    wait(ipvs, lambda: set(ask(ipvs, freed, 800, 4)) == {"stays"})


def test_a_host_leads_paths_to_services_and_a_second_one_is_refused(ipvs: LabCluster) -> None:
    ipvs.apply(pod("named-1", app="one"), pod("named-2", app="two"), service("one", "one"), service("two", "two"))
    ipvs.apply(dns("my-dns", "myservice.test", first="one", second="two"))
    for path, name in (("first", "named-1"), ("second", "named-2")):
        wait(ipvs, functools.partial(shows, ipvs, f"myservice.test/{path}", name))
    wait(ipvs, lambda: shows(ipvs, "one:800", "named-1"), told="a service by its name")
    with pytest.raises(CommandFailed, match=r"host myservice\.test conflicts with existing host"):
        ipvs.kubectl("create", "-f", "-", stdin=yaml.safe_dump(dns("other", "myservice.test", third="one")))
    ipvs.kubectl("delete", "dns", "my-dns")
    wait(ipvs, lambda: shows(ipvs, "myservice.test/first", ""))


def test_a_service_is_spread_over_two_machines_from_each_place(both: LabCluster) -> None:
    names = {"near", "far"}
    both.apply(service("both", "both", BOTH_PORT))
    host = listed(both, "both", BOTH_PORT, *names)
    for client in (NODE, PEER, "client", "far-client", "near", "far"):
        for target in ((host, 800), (both.address(NODE), BOTH_PORT), (both.address(PEER), BOTH_PORT)):
            seen = ask(both, *target, ASKED_ACROSS, client)
            assert set(seen) == names, (client, target, seen)
            assert abs(seen["near"] - seen["far"]) <= 1, (client, target, seen)
    assert both.inside("far-client", "timeout", "10", "wget", "-q", "-O-", "http://both:800").strip() in names


def test_clients_of_both_machines_stay_with_one_end_where_asked_for(both: LabCluster) -> None:
    both.apply(service("sticky", "both", STICKY_PORT, sessionAffinity="ClientIP"))
    host = listed(both, "sticky", STICKY_PORT, "near", "far")
    for client in (NODE, PEER, "client", "far-client"):
        for target in ((host, 800), (both.address(PEER), STICKY_PORT)):
            seen = ask(both, *target, ASKED_ACROSS, client)
            assert set(seen) in ({"near"}, {"far"}), (client, target, seen)


def test_local_traffic_stays_on_a_machine_and_keeps_its_source(both: LabCluster) -> None:
    both.apply(pod("only", PEER, app="only"))
    both.apply(service("only", "only", NEAR_PORT, externalTrafficPolicy="Local"))
    both.apply(service("inner", "both", internalTrafficPolicy="Local"))
    at_peer, inner = (both.address(PEER), NEAR_PORT), (address(both, "inner"), 800)
    wait(both, lambda: set(ask(both, *at_peer, 1)) == {"only"})
    seen = ask(both, *at_peer, 2, path="cgi-bin/from")
    assert {one.strip("[]").removeprefix("::ffff:") for one in seen} == {both.address(NODE)}
    # a machine without an end answers nobody from outside; by the service's own address all ends are reached
    assert set(ask(both, both.address(NODE), NEAR_PORT, 1, PEER)) == {""}
    wait(both, lambda: set(ask(both, address(both, "only"), 800, 1)) == {"only"})
    for client, name in (("client", "near"), ("far-client", "far"), (NODE, "near"), (PEER, "far")):
        wait(both, lambda of=client, end=name: set(ask(both, *inner, 3, of)) == {end}, told=f"{client}")  # type: ignore[misc]


def test_an_end_that_goes_leaves_the_rules_of_both_machines(both: LabCluster) -> None:
    both.apply(pod("brief", PEER, app="brief"), pod("lasting", NODE, app="brief"), service("brief", "brief"))
    host = address(both, "brief")
    for machine in (NODE, PEER):
        wait(both, functools.partial(spread, both, (host, 800), machine, {"brief", "lasting"}))
    both.kubectl("delete", "pod", "brief")
    for machine in (NODE, PEER):
        wait(both, functools.partial(lists, both, (host, 800), machine, ["lasting"]))
        assert set(ask(both, host, 800, 2, machine)) == {"lasting"}

"""Fields of a pod from the API to the kernel: created through the API server, seen inside the container."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from typing import Any

import pytest

from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kinds import NAMESPACE, NODE, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.core import labels
from minik8s_modules.module_utils.minik8s.entries.sandboxes import PodCgroup
from minik8s_modules.module_utils.minik8s.pods import pod_cgroup
from tests.integration.reconcile.conftest import IMAGE, Cluster
from tests.support.node import command

RESTRICTED = {
    "runAsUser": 1000,
    "runAsGroup": 2000,
    "runAsNonRoot": True,
    "supplementalGroups": [4000],
    "fsGroup": 3000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
OWN = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def inside(cluster: Cluster, name: str, *argv: str, container: str = "app") -> str:
    """Return the output of a program in a pod's container."""
    statuses = cluster.pod(name)["status"]["containerStatuses"]
    found = next(one["containerID"] for one in statuses if one["name"] == container)
    return cluster.node.execute(found.removeprefix("docker://"), *argv)


def one(name: str = "app", **fields: Any) -> dict[str, Any]:
    """Return a container that sleeps."""
    return {"name": name, "image": IMAGE, "command": ["sleep", "3600"], **fields}


def test_a_restricted_pod_runs_where_only_such_may(cluster: Cluster) -> None:
    rule = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.admin.create(NAMESPACE, {"metadata": {"name": "strict", "labels": rule}})
    space = {"namespace": "strict"}
    with pytest.raises(Forbidden, match="violates PodSecurity"):
        cluster.admin.create(POD, {"metadata": {"name": "loose", **space}, "spec": {"containers": [one()]}})
    mount = {"name": "data", "mountPath": "/data"}
    spec = {
        "securityContext": RESTRICTED,
        "containers": [one(securityContext=OWN, volumeMounts=[mount])],
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
    cluster.admin.create(POD, {"metadata": {"name": "good", **space}, "spec": spec})

    def status() -> dict[str, Any]:
        found: dict[str, Any] = cluster.admin.get(POD, "good", "strict")["status"]
        return found

    cluster.until(lambda: status().get("phase") == "Running")
    container = status()["containerStatuses"][0]["containerID"].removeprefix("docker://")
    seen = cluster.node.execute(container, "sh", "-c", "id; grep -E 'CapBnd|NoNewPrivs|Seccomp:' /proc/self/status")
    assert seen.startswith("uid=1000 gid=2000 groups=2000,3000,4000")
    words = dict(line.split(":\t") for line in seen.splitlines()[1:])
    assert words == {"CapBnd": "0" * 16, "NoNewPrivs": "1", "Seccomp": "2"}
    cluster.node.execute(container, "sh", "-c", "touch /data/x && ! touch /x 2>/dev/null")
    assert cluster.node.execute(container, "stat", "-c", "%g", "/data/x") == "3000\n"
    cluster.admin.delete(POD, "good", "strict", grace_s=0)


def test_names_namespaces_ports_and_limits_reach_the_kernel(cluster: Cluster) -> None:
    serve = ["nc", "-ll", "-p", "8080", "-e", "hostname"]
    containers = [
        one(
            command=serve,
            ports=[{"containerPort": 8080, "hostPort": 23461}],
            resources={"limits": {"cpu": "500m", "memory": "64Mi"}},
        ),
        one("side", resources={"limits": {"cpu": "100m", "memory": "32Mi"}}),
    ]
    cluster.create(
        "parts",
        containers=containers,
        hostname="front",
        subdomain="team",
        setHostnameAsFQDN=True,
        shareProcessNamespace=True,
        hostAliases=[{"ip": "192.0.2.7", "hostnames": ["foo"]}],
        dnsPolicy="None",
        dnsConfig={
            "nameservers": ["192.0.2.53"],
            "searches": ["example.com"],
            "options": [{"name": "ndots", "value": "3"}],
        },
        securityContext={"sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "80"}]},
    )
    cluster.until(lambda: cluster.ready("parts"))
    full = "front.team.default.svc.cluster.local"
    assert inside(cluster, "parts", "hostname") == full + "\n"
    hosts = inside(cluster, "parts", "cat", "/etc/hosts")
    assert f"\t{full}\tfront\n" in hosts
    assert hosts.endswith("192.0.2.7\tfoo\n")
    resolver = "search example.com\nnameserver 192.0.2.53\noptions ndots:3\n"
    assert inside(cluster, "parts", "cat", "/etc/resolv.conf") == resolver
    assert "nc -ll" in inside(cluster, "parts", "ps", container="side")
    assert inside(cluster, "parts", "cat", "/proc/sys/net/ipv4/ip_unprivileged_port_start") == "80\n"
    assert cluster.pod("parts")["status"]["qosClass"] == "Guaranteed"
    pause = cluster.node.docker.inspect(cluster.node.ids(labels.SANDBOX)[-1])
    assert pause
    assert "/pod" + cluster.pod("parts")["metadata"]["uid"] in pause["HostConfig"]["CgroupParent"]
    cluster.until(lambda: full in _ask(f"{cluster.node.range}.1", 23461))
    cluster.delete("parts", 0)
    cluster.until(lambda: cluster.gone("parts"))


def _resize(cluster: Cluster, name: str, container: str, **amounts: str) -> None:
    """Have a container's request and limit be ``amounts``."""
    resources = {"requests": amounts, "limits": amounts}
    patch = json.dumps({"spec": {"containers": [{"name": container, "resources": resources}]}})
    cluster.kubectl("patch", "pod", name, "--subresource", "resize", "--patch", patch)


def _limits(cluster: Cluster, container: JsonObject) -> tuple[int, int]:
    """Return the quota and the memory that Docker has given the container."""
    seen = cluster.node.docker.inspect(container["containerID"].removeprefix("docker://"))
    assert seen
    return seen["HostConfig"]["CpuQuota"], seen["HostConfig"]["Memory"]


def test_a_pod_is_resized_while_it_runs(cluster: Cluster) -> None:
    def sized(name: str, **fields: Any) -> dict[str, Any]:
        return one(name, resources={"limits": {"cpu": "200m", "memory": "32Mi"}}, **fields)

    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    source = {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}
    containers = [sized("app", resizePolicy=policy), sized("told", env=[{"name": "MINE", "valueFrom": source}])]
    cluster.create("sized", containers=containers, terminationGracePeriodSeconds=1)
    cluster.until(lambda: cluster.ready("sized"))

    def status(name: str) -> JsonObject:
        return next(each for each in cluster.pod("sized")["status"]["containerStatuses"] if each["name"] == name)

    def conditions() -> dict[str, str]:
        found = cluster.pod("sized")["status"]["conditions"]
        return {each["type"]: each.get("reason", "") for each in found if each["type"].startswith("PodResize")}

    def runs_with(name: str, **amounts: str) -> bool:
        given = status(name)
        return given["resources"] == {"requests": amounts, "limits": amounts} and not conditions()

    before = {name: status(name) for name in ("app", "told")}
    for name, first in before.items():
        _resize(cluster, "sized", name, cpu="300m", memory="32Mi")
        cluster.until(partial(runs_with, name, cpu="300m", memory="32Mi"))
        assert _limits(cluster, first) == (30000, 32 << 20)
        assert status(name)["containerID"] == first["containerID"]
        assert status(name)["allocatedResources"] == {"cpu": "300m", "memory": "32Mi"}
    # what the node cannot give is told, and changes nothing
    _resize(cluster, "sized", "told", cpu="9k", memory="32Mi")
    cluster.until(lambda: conditions() == {"PodResizePending": "Infeasible"})
    assert status("told")["allocatedResources"]["cpu"] == "300m"
    _resize(cluster, "sized", "told", cpu="300m", memory="32Mi")
    cluster.until(lambda: not conditions())
    # memory is the container's at its next start
    _resize(cluster, "sized", "app", cpu="300m", memory="48Mi")
    cluster.until(lambda: runs_with("app", cpu="300m", memory="48Mi") and status("app")["restartCount"] == 1)
    assert _limits(cluster, status("app")) == (30000, 48 << 20)
    assert (status("told")["containerID"], status("told")["restartCount"]) == (before["told"]["containerID"], 0)
    cluster.delete("sized", 0)
    cluster.until(lambda: cluster.gone("sized"))


def test_containers_share_what_their_pod_declares(cluster: Cluster) -> None:
    source = {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}
    told = one("app", env=[{"name": "MINE", "valueFrom": source}])
    small = one("small", resources={"limits": {"memory": "16Mi"}})
    cluster.create("shared", containers=[told, small], resources={"limits": {"cpu": "200m", "memory": "48Mi"}})
    cluster.until(lambda: cluster.ready("shared"))
    pod = cluster.pod("shared")
    assert pod["spec"]["resources"]["requests"] == {"cpu": "200m", "memory": "16Mi"}
    assert pod["status"]["qosClass"] == "Burstable"
    of = {each["name"]: _limits(cluster, each) for each in pod["status"]["containerStatuses"]}
    assert of == {"app": (20000, 48 << 20), "small": (20000, 16 << 20)}
    assert "MINE=48\n" in inside(cluster, "shared", "env")
    pause = cluster.node.docker.inspect(cluster.node.ids(labels.SANDBOX)[-1])
    assert pause
    declared: PodCgroup = {"cpu_shares": 204, "cpu_quota_us": 20000, "memory_bytes": 48 << 20, "pids": 0}
    found = pod_cgroup.found(cluster.node.name, pod["metadata"]["uid"], pause["State"]["Pid"], declared)
    assert found is not None
    assert (found["cpu_quota_us"], found["memory_bytes"]) == (20000, 48 << 20)
    cluster.delete("shared", 0)
    cluster.until(lambda: cluster.gone("shared"))


def _ask(address: str, port: int) -> str:
    argv = ["/bin/busybox", "nc", "-w", "2", address, str(port)]
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False).stdout


def test_a_pod_on_the_nodes_namespaces_has_them(cluster: Cluster) -> None:
    cluster.create("hosted", hostNetwork=True, hostPID=True, hostIPC=True, dnsPolicy="ClusterFirstWithHostNet")
    cluster.until(lambda: cluster.ready("hosted"))
    for kind in ("net", "pid", "ipc"):
        ours = command("readlink", f"/proc/self/ns/{kind}")
        assert inside(cluster, "hosted", "readlink", f"/proc/self/ns/{kind}") == ours
    assert inside(cluster, "hosted", "cat", "/etc/hosts").startswith("# Kubernetes-managed hosts file (host network).")
    cluster.delete("hosted", 0)


def test_what_a_node_refuses_fails_with_its_reason(cluster: Cluster) -> None:
    cluster.create("unsafe", securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "1"}]})
    status = cluster.until(lambda: (found := cluster.pod("unsafe")["status"]).get("phase") == "Failed" and found)
    assert status["reason"] == "SysctlForbidden"
    assert status["message"] == 'Pod was rejected: forbidden sysctl: "kernel.msgmax" not allowlisted'
    text = 'SysctlForbidden: forbidden sysctl: "kernel.msgmax" not allowlisted'
    cluster.until(lambda: text in cluster.events("unsafe"))
    cluster.delete("unsafe", 0)


def test_a_pod_that_names_its_node_fails_where_its_port_is_taken(cluster: Cluster) -> None:
    taken = [one(ports=[{"containerPort": 8080, "hostPort": 23463}])]
    cluster.create("first", containers=taken, nodeName=cluster.node.name)
    cluster.until(lambda: cluster.ready("first"))
    cluster.create("second", containers=taken, nodeName=cluster.node.name)
    status = cluster.until(lambda: (found := cluster.pod("second")["status"]).get("phase") == "Failed" and found)
    text = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
    assert (status["reason"], status["message"]) == ("NodePorts", f"Pod was rejected: {text}")
    cluster.until(lambda: f"NodePorts: {text}" in cluster.events("second"))
    assert cluster.ready("first")
    for name in ("second", "first"):
        cluster.delete(name, 0)


def test_root_is_refused_by_the_user_of_the_image(cluster: Cluster) -> None:
    cluster.create("rooted", securityContext={"runAsNonRoot": True})
    waiting = cluster.until(
        lambda: (
            (found := cluster.container("rooted").get("state", {}).get("waiting", {})).get("reason")
            == "CreateContainerConfigError"
            and found
        )
    )
    uid = cluster.pod("rooted")["metadata"]["uid"]
    text = f'container has runAsNonRoot and image will run as root (pod: "rooted_default({uid})", container: app)'
    assert waiting["message"] == text
    cluster.until(lambda: f"Failed: Error: {text}" in cluster.events("rooted"))
    cluster.delete("rooted", 0)


def test_a_resource_that_people_declare_on_a_node_is_counted(cluster: Cluster) -> None:
    declared = {"status": {"capacity": {"example.com/dongle": "2"}}}
    cluster.admin.patch(NODE, cluster.node.name, "", declared, subresource="status")
    asked: dict[str, Any] = {"resources": {"limits": {"example.com/dongle": "2"}}}
    cluster.create("first", containers=[one(**asked)])
    cluster.until(lambda: cluster.ready("first"), 120)
    cluster.create("second", containers=[one(**asked)])
    cluster.until(lambda: any("Insufficient example.com/dongle" in event for event in cluster.events("second")))
    cluster.delete("first", 0)
    cluster.until(lambda: cluster.ready("second"))
    cluster.delete("second", 0)

"""Parts of a pod beside its containers and network, on real Docker: names, namespaces, cgroup, ports of the node."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

from minik8s_modules.module_utils.minik8s.core import labels
from minik8s_modules.module_utils.minik8s.pods import cgroups, host_ports, pod_cgroup
from tests.support.node import TestNode, command

LIMITS = {"cpu_shares": 512, "cpu_quota_us": 50_000, "memory_bytes": 64 << 20}
SERVE = ["nc", "-ll", "-p", "8080", "-e", "echo", "hello"]


def start(node: TestNode, pods: list[dict[str, Any]], containers: list[dict[str, Any]]) -> dict[str, Any]:
    """Bring pods up; return the containers' ids by key."""
    node.run("network", node.network())
    result = node.run("sandboxes", {pod["pod"]["uid"]: pod for pod in pods})
    assert not result["errors"], result["errors"]
    entries = {f"{one['pod']['uid']}/{one['name']}": one for one in containers}
    result = node.run("containers", entries)
    assert not result["errors"], result["errors"]
    return {key: seen["id"] for key, seen in result["status"].items()}


def says(address: str, port: int) -> str:
    """Return what answers at a port of this machine, trying for 20 s."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        argv = ["/bin/busybox", "nc", "-w", "2", address, str(port)]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.stdout:
            return done.stdout.strip()
        time.sleep(0.1)
    return ""


def own_address(node: TestNode) -> str:
    """Return an address of this machine that a pod's port is reached at: the bridge's."""
    return f"{node.range}.1"


def test_hosts_and_resolv_conf_are_kubelets(node: TestNode) -> None:
    dns = {"nameservers": ["192.0.2.53"], "searches": ["example.com"], "options": ["ndots:2"], "node": True}
    names = {"fqdn": "web.sub.default.svc.cluster.local", "host_aliases": [["192.0.2.7", "foo.local", "bar.local"]]}
    pod, hosted = node.pod(7, dns=dns, **names), node.pod(8, dns=dns, host_network=True, hostname="")
    ids = start(node, [pod, hosted], [node.container(pod), node.container(hosted)])
    ours, theirs = ids.values()
    text = node.execute(ours, "cat", "/etc/hosts")
    assert text.startswith("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n")
    assert f"\n{pod['ip']}\tweb.sub.default.svc.cluster.local\tweb\n" in text
    assert text.endswith("\n\n# Entries added by HostAliases.\n192.0.2.7\tfoo.local\tbar.local\n")
    host = node.execute(theirs, "cat", "/etc/hosts")
    assert host == "# Kubernetes-managed hosts file (host network).\n" + Path("/etc/hosts").read_text()
    for container in (ours, theirs):
        resolver = node.execute(container, "cat", "/etc/resolv.conf")
        assert "nameserver 192.0.2.53\n" in resolver
        assert "example.com" in resolver
        assert "ndots:2" in resolver
        for server in command("sed", "-n", "s/^nameserver //p", "/etc/resolv.conf").split():
            assert f"nameserver {server}\n" in resolver


def test_names_that_a_killed_pass_left_unwritten_are_written(node: TestNode) -> None:
    sandboxes, _ = node.start_pod(7)
    found = node.docker.inspect(node.ids(labels.SANDBOX)[0])
    assert found is not None
    Path(found["HostsPath"]).write_text("127.0.0.1 localhost\n")
    planned = node.run("sandboxes", sandboxes, check=True)
    assert [step["action"] for step in planned["steps"]] == ["names"]
    assert node.run("sandboxes", sandboxes)["steps"] == planned["steps"]
    assert not node.run("sandboxes", sandboxes)["changed"]


def test_pods_share_the_namespaces_they_ask_for(node: TestNode) -> None:
    shared = node.pod(7, share_pid=True, sysctls=[["net.ipv4.ip_unprivileged_port_start", "80"]])
    hosted = node.pod(8, host_pid=True, host_ipc=True)
    ids = start(
        node,
        [shared, hosted],
        [
            node.container(shared, "one", security={"pid": "pod"}, entrypoint=["sleep", "4711"]),
            node.container(shared, "two", security={"pid": "pod"}),
            node.container(hosted, security={"pid": "host", "ipc": "host"}),
        ],
    )
    one, two, third = ids.values()
    assert "sleep 4711" in node.execute(two, "ps")
    assert node.execute(one, "cat", "/proc/sys/net/ipv4/ip_unprivileged_port_start") == "80\n"
    # an orphan is reaped by process 1, which is the pause container's
    node.execute(one, "sh", "-c", "(sleep 0 &) ; exec true")
    end = time.monotonic() + 60
    while "Z" in (states := node.execute(two, "ps", "-o", "stat")) and time.monotonic() < end:
        time.sleep(0.1)
    assert "Z" not in states
    for kind in ("pid", "ipc"):
        assert node.execute(third, "readlink", f"/proc/self/ns/{kind}") == command("readlink", f"/proc/self/ns/{kind}")


def test_a_pod_has_a_cgroup_with_its_limits_that_is_healed_and_goes_with_it(node: TestNode) -> None:
    pod = node.pod(7, cgroup=LIMITS)
    uid = pod["pod"]["uid"]
    container = node.container(pod, memory_bytes=32 << 20)
    start(node, [pod], [container])
    pause, app = (node.docker.inspect(node.ids(kind)[0]) for kind in (labels.SANDBOX, "app"))
    assert pause
    assert app
    assert pod_cgroup.found(node.name, uid, pause["State"]["Pid"], LIMITS) == LIMITS
    above = pod_cgroup.paths_of(node.name, uid, app["State"]["Pid"])
    assert above == pod_cgroup.paths_of(node.name, uid, pause["State"]["Pid"])
    limits = {name: path for name, path in above.items() if name in {"memory", ""}}
    name, path = next(iter(limits.items()))
    file = Path(f"{cgroups.ROOT}/{name}{path}") / ("memory.limit_in_bytes" if name else "memory.max")
    file.write_text(str(128 << 20))
    planned = node.run("sandboxes", {uid: pod}, check=True)
    assert [step["action"] for step in planned["steps"]] == ["limits"]
    assert node.run("sandboxes", {uid: pod})["steps"] == planned["steps"]
    assert int(file.read_text()) == LIMITS["memory_bytes"]
    assert not node.run("sandboxes", {uid: pod})["changed"]
    node.run("sandboxes", {})
    node.run("containers", {})
    assert pod_cgroup.left_over(node.name, []) == []
    assert not node.run("sandboxes", {})["changed"]


def test_a_port_of_the_node_leads_to_its_pod_from_everywhere_and_is_healed(node: TestNode) -> None:
    port = {"ip": "", "protocol": "TCP", "host_port": 23457, "port": 8080}
    one = {"ip": own_address(node), "protocol": "TCP", "host_port": 23458, "port": 8080}
    served, other = node.pod(7, host_ports=[port, one]), node.pod(8)
    ids = start(
        node,
        [served, other],
        [node.container(served, "web", entrypoint=SERVE), node.container(other, "asking")],
    )
    web, asking = ids.values()
    address = own_address(node)
    assert says(address, 23457) == "hello"
    assert says(address, 23458) == "hello"
    for container in (asking, web):  # from a neighbour on the bridge, and from the pod to itself
        assert node.execute(container, "nc", "-w", "5", address, "23457").strip() == "hello"
    entries = {pod["pod"]["uid"]: pod for pod in (served, other)}
    for harm in (["flush", "chain"], ["flush", "map"]):
        command("nft", *harm, "ip", host_ports.table_of(node.name), "ports" if harm[1] == "chain" else "tcp_any")
        planned = node.run("sandboxes", entries, check=True)
        assert [step["action"] for step in planned["steps"]] == ["ports"]
        assert node.run("sandboxes", entries)["steps"] == planned["steps"]
        assert not node.run("sandboxes", entries)["changed"]
        assert says(address, 23457) == "hello"
    node.run("sandboxes", {other["pod"]["uid"]: other})
    assert host_ports.table_of(node.name) not in command("nft", "list", "tables")


def test_a_port_of_the_loopback_is_a_pods_beside_the_same_one_of_another_address(node: TestNode) -> None:
    def port(ip: str) -> dict[str, Any]:
        return {"ip": ip, "protocol": "TCP", "host_port": 23460, "port": 8080}

    near, far = node.pod(7, host_ports=[port("127.0.0.1")]), node.pod(8, host_ports=[port(own_address(node))])
    tells = ["nc", "-ll", "-p", "8080", "-e", "hostname"]
    first, second = (node.container(pod, "web", entrypoint=tells) for pod in (near, far))
    ids = start(node, [near, far], [first, second])
    assert says("127.0.0.1", 23460) == near["hostname"]
    assert says(own_address(node), 23460) == far["hostname"]
    for container in ids.values():  # its own loopback, which is not the node's
        assert not node.execute(container, "sh", "-c", "nc -w 2 127.0.0.1 23460 || true").strip()


def test_rules_of_a_pod_that_is_gone_go_too(node: TestNode) -> None:
    node.run("network", node.network())
    pod = node.pod(7, host_ports=[{"ip": "", "protocol": "UDP", "host_port": 23459, "port": 53}])
    node.run("sandboxes", {pod["pod"]["uid"]: pod})
    node.docker.remove(node.ids(labels.SANDBOX)[0])
    assert "unports" in [step["action"] for step in node.run("sandboxes", {})["steps"]]
    assert host_ports.table_of(node.name) not in command("nft", "list", "tables")
    assert not node.run("sandboxes", {})["changed"]


def test_a_pod_runs_in_the_runtime_it_asks_for(node: TestNode) -> None:
    pod = node.pod(7, runtime="runc")
    (app,) = start(node, [pod], [node.container(pod)]).values()
    for container in (app, node.ids(labels.SANDBOX)[0]):
        found = node.docker.inspect(container)
        assert found
        assert found["HostConfig"]["Runtime"] == "runc"


def test_a_runtime_that_docker_does_not_know_is_told(node: TestNode) -> None:
    node.run("network", node.network())
    pod = node.pod(7, runtime="nothing-of-this-name")
    error = node.run("sandboxes", {pod["pod"]["uid"]: pod})["errors"][pod["pod"]["uid"]]
    assert error["reason"] == "CreatePodSandboxError"
    assert "nothing-of-this-name" in error["message"]

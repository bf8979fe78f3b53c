"""Services by IPVS on real pods, on a machine with a kernel and systemd of its own: scenarios S-07 and S-08.

Also what only such a machine shows: limits of pods under Docker's systemd driver, clocks that are wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from minik8s_modules.api.kinds import POD, SERVICE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.plans import drifting
from minik8s_modules.reconcile.network.services import kubernetes_address
from tests.integration.services.conftest import SICK
from tests.integration.services.lab_cluster import NODE, LabCluster
from tests.lab.lab import Lab

NODE_PORT = 30080


@pytest.fixture(scope="module")
def ipvs(lab: Lab) -> Iterator[LabCluster]:
    folder = Path(tempfile.mkdtemp(prefix="mk8s-"))
    made = LabCluster(folder, lab, "ipvs")
    try:
        made.start()
        made.until(made.registered, 120)
        yield made
    finally:
        made.close()
        if not os.environ.get("MINIK8S_KEEP"):
            shutil.rmtree(folder, ignore_errors=True)


def test_a_service_is_spread_exactly_from_host_other_pod_and_itself(ipvs: LabCluster) -> None:
    names = {"web-1", "web-2"}
    for name in names:
        ipvs.web(name, {"app": "web"})
    ipvs.create("client")
    ports = [{"port": 800, "targetPort": "http", "nodePort": NODE_PORT}]
    address = ipvs.service("web", {"app": "web"}, type="NodePort", ports=ports)
    ipvs.until(lambda: len(ipvs.endpoints("web")) == len(names) and ipvs.ready("client"), 120)
    place = f"{address}:800"
    ipvs.until(lambda: set(ipvs.ask(place, 2)) == names, 60)
    for client in ("", "client", *sorted(names)):
        for target in (place, f"{ipvs.address}:{NODE_PORT}"):
            seen = ipvs.ask(target, 11, client)
            assert set(seen) == names, (client, target, seen)
            assert abs(seen["web-1"] - seen["web-2"]) <= 1, (client, target, seen)
    # the listing of the original, KP-05
    lines = ipvs.listing()
    ends = [f"-> {ip}:8080 Masq 1" for ip in ipvs.endpoints("web")]
    for target in (place, f"{ipvs.address}:{NODE_PORT}"):
        at = lines.index(f"TCP {target} rr")
        assert sorted(line.rsplit(" ", 2)[0] for line in lines[at + 1 : at + 3]) == ends
    # a pod reaches the API server, which is on another machine, at the address it is told
    api = kubernetes_address(ipvs.node.services).split(":")
    ipvs.inside("client", "sh", "-c", "nc -w 10 $0 $1 < /dev/null", *api)


def test_a_back_end_and_a_service_that_go_leave_no_rules(ipvs: LabCluster) -> None:
    for name in ("goes", "stays"):
        ipvs.web(name, {"app": "less"})
    address = ipvs.service("less", {"app": "less"})
    place = f"{address}:80"
    ipvs.until(lambda: set(ipvs.ask(place, 2)) == {"goes", "stays"}, 120)
    ipvs.delete("goes")
    ipvs.until(lambda: set(ipvs.ask(place, 4)) == {"stays"}, 60)
    ipvs.admin.delete(SERVICE, "less", "default")
    ipvs.until(lambda: not any(place in line for line in ipvs.listing()), 60)
    again = ipvs.service("more", {"app": "less"}, clusterIP=address)
    assert again == address
    ipvs.until(lambda: set(ipvs.ask(place, 4)) == {"stays"}, 60)


def test_an_unready_pod_leaves_and_what_was_flushed_by_hand_is_healed(ipvs: LabCluster) -> None:
    names = {"probed-1", "probed-2"}
    for name in names:
        ipvs.web(name, {"app": "probed"}, container={"readinessProbe": SICK})
    place = f"{ipvs.service('probed', {'app': 'probed'})}:80"
    ipvs.until(lambda: set(ipvs.ask(place, 2)) == names, 120)
    ipvs.inside("probed-1", "touch", "/tmp/sick")
    ipvs.until(lambda: set(ipvs.ask(place, 4)) == {"probed-2"}, 60)
    ipvs.inside("probed-1", "rm", "/tmp/sick")
    ipvs.until(lambda: set(ipvs.ask(place, 2)) == names, 60)
    # one command: a pass that begins in between would heal the first part before the last is gone
    flushed = f"ip link del minik8s-dummy; nft delete table ip minik8s_{ipvs.node.bridge}; ipvsadm --clear; ipvsadm -Ln"
    assert place not in ipvs.lab.run(NODE, ["sh", "-c", flushed])
    options = argparse.Namespace(words=[], heal=True, history=False, full=False, detailed_exitcode=True)
    with contextlib.closing(ipvs.person()) as person:
        # 0: the kernel told of the link's end, and the reconciler was faster than the question
        assert drifting.drift(person, options) in {0, 2}
    ipvs.until(lambda: set(ipvs.ask(place, 2)) == names, 60)


def test_equal_names_in_two_namespaces_and_quick_recreation(ipvs: LabCluster) -> None:
    ipvs.admin.create(*ipvs.namespace("other"))
    ipvs.web("mine", {"app": "same"})
    ipvs.web("theirs", {"app": "same"}, namespace="other")
    mine = ipvs.service("same", {"app": "same"})
    theirs = f"{ipvs.service('same', {'app': 'same'}, namespace='other')}:80"
    ipvs.until(lambda: (set(ipvs.ask(f"{mine}:80", 1)), set(ipvs.ask(theirs, 1))) == ({"mine"}, {"theirs"}), 120)
    ipvs.admin.delete(SERVICE, "same", "default")
    assert ipvs.service("same", {"app": "same"}, clusterIP=mine) == mine
    ipvs.until(lambda: set(ipvs.ask(f"{mine}:80", 3)) == {"mine"}, 60)
    ipvs.admin.delete(SERVICE, "same", "default")
    ipvs.until(lambda: not any(f"{mine}:80" in line for line in ipvs.listing()), 60)
    assert set(ipvs.ask(theirs, 2)) == {"theirs"}


def test_limits_outlast_a_reload_of_systemd_and_the_slice_goes_with_its_pod(ipvs: LabCluster) -> None:
    limits = {"cpu": "100m", "memory": "64Mi"}
    uid = ipvs.web("limited", {}, container={"resources": {"limits": limits}})["metadata"]["uid"]
    ipvs.until(lambda: ipvs.ready("limited"), 120)
    roots = ["/sys/fs/cgroup", "/run/systemd"]  # where other Pods' cgroups come and go meanwhile
    found = ["find", *roots, "-ignore_readdir_race", "-name", f"minik8s-*-pod{uid.replace('-', '_')}.slice*"]
    slices = [path for path in ipvs.lab.run(NODE, found).split() if path.startswith("/sys/fs/cgroup/minik8s.slice/")]
    assert len(slices) == 1
    limits_of = ["cat", *(f"{slices[0]}/{name}" for name in ("cpu.max", "memory.max", "cpu.weight"))]
    before = ipvs.lab.run(NODE, limits_of).split()
    assert before[:3] == ["10000", "100000", str(64 << 20)]
    ipvs.lab.run(NODE, ["systemctl", "daemon-reload"])
    assert ipvs.lab.run(NODE, limits_of).split() == before
    # a resize is for pod and container, and outlasts the next reload as well
    more = {"cpu": "200m", "memory": "96Mi"}
    resources = {"containers": [{"name": "app", "resources": {"requests": more, "limits": more}}]}
    ipvs.kubectl("patch", "pod", "limited", "--subresource", "resize", "--patch", json.dumps({"spec": resources}))
    ipvs.until(lambda: ipvs.container("limited").get("resources") == {"requests": more, "limits": more}, 60)
    scope = f"docker-{ipvs.container('limited')['containerID'].removeprefix('docker://')}.scope"
    scope = ipvs.lab.run(NODE, ["find", slices[0], "-ignore_readdir_race", "-name", scope]).strip()
    for _ in range(2):
        for path in (slices[0], scope):
            found_there = ipvs.lab.run(NODE, ["cat", f"{path}/cpu.max", f"{path}/memory.max"]).split()
            assert found_there == ["20000", "100000", str(96 << 20)], path
        ipvs.lab.run(NODE, ["systemctl", "daemon-reload"])
    assert ipvs.container("limited")["restartCount"] == 0
    ipvs.delete("limited")
    ipvs.until(lambda: not ipvs.lab.run(NODE, found), 120)


def test_a_container_killed_for_memory_says_so_whichever_of_its_processes_was(ipvs: LabCluster) -> None:
    def container(name: str, *command: str) -> dict[str, object]:
        limits = {"limits": {"memory": "16Mi"}}
        return {"name": name, "image": "minik8s/busybox:1", "command": list(command), "resources": limits}

    hungry = [container("itself", "tail", "/dev/zero"), container("child", "sh", "-c", "tail /dev/zero; exit 0")]
    hungry += [container(f"again-{number}", "tail", "/dev/zero") for number in range(3)]
    expected = {str(one["name"]): ("OOMKilled", 137) for one in hungry} | {
        "child": ("OOMKilled", 0),  # only the process that the kernel chose ends
        "killed": ("Error", 137),
        "well": ("Completed", 0),
    }
    others = [container("killed", "sh", "-c", "exit 137"), container("well", "true")]
    spec = {"containers": [*hungry, *others], "restartPolicy": "Never"}
    made = ipvs.admin.create(POD, {"metadata": {"name": "hungry", "namespace": "default"}, "spec": spec})

    def ends() -> dict[str, tuple[str, int]]:
        found = ipvs.pod("hungry")["status"].get("containerStatuses") or []
        ended = {one["name"]: one["state"].get("terminated") for one in found}
        return {name: (one["reason"], one["exitCode"]) for name, one in ended.items() if one}

    ipvs.until(lambda: len(ends()) == len(expected), 180)
    assert ends() == expected
    ipvs.delete("hungry")
    left = ["find", "/sys/fs/cgroup", "-ignore_readdir_race", "-name", f"*{made['metadata']['uid'].replace('-', '_')}*"]
    ipvs.until(lambda: not ipvs.lab.run(NODE, left), 60)


def test_profiles_of_apparmor_confine_containers_where_the_kernel_has_it(ipvs: LabCluster) -> None:
    enabled = ["sh", "-c", "cat /sys/module/apparmor/parameters/enabled || true"]
    if not ipvs.lab.run(NODE, enabled).startswith("Y"):
        pytest.skip("the kernel of this lab has no AppArmor")
    profile = "profile team flags=(attach_disconnected) { file, deny /tmp/** w, signal, }"
    ipvs.lab.run(NODE, ["sh", "-c", f"echo '{profile}' | apparmor_parser --replace"])
    asked: dict[str, JsonObject] = {
        "usual": {},
        "default": {"type": "RuntimeDefault"},
        "free": {"type": "Unconfined"},
        "own": {"type": "Localhost", "localhostProfile": "team"},
        "missing": {"type": "Localhost", "localhostProfile": "nobody-loaded-it"},
    }
    text = "exec 2>&1; cat /proc/1/attr/current; touch /tmp/x && echo wrote"
    containers = [
        {
            "name": name,
            "image": "minik8s/busybox:1",
            "command": ["sh", "-c", f"{text}; sleep 3600"],
            "securityContext": {"appArmorProfile": one} if one else {},
        }
        for name, one in asked.items()
    ]
    ipvs.admin.create(
        POD, {"metadata": {"name": "confined", "namespace": "default"}, "spec": {"containers": containers}}
    )

    def statuses() -> dict[str, JsonObject]:
        return {one["name"]: one for one in ipvs.pod("confined")["status"].get("containerStatuses") or []}

    def said(name: str) -> list[str]:
        return ipvs.lab.run(NODE, ["docker", "logs", statuses()[name]["containerID"].rpartition("/")[2]]).split()

    ipvs.until(lambda: sum("running" in one["state"] for one in statuses().values()) == len(asked) - 1, 180)
    ipvs.until(lambda: all(said(name) for name in asked if name != "missing"), 60)
    for name in ("usual", "default"):
        assert said(name) == ["docker-default", "(enforce)", "wrote"], name
    assert said("free") == ["unconfined", "wrote"]
    assert said("own")[:2] == ["team", "(enforce)"]
    assert "wrote" not in said("own")
    waiting = statuses()["missing"]["state"]["waiting"]
    assert waiting["reason"] == "CreateContainerConfigError"
    assert "profile nobody-loaded-it: it is not loaded on this node" in waiting["message"]
    # no restart of anything: it starts once somebody has loaded it
    ipvs.lab.run(
        NODE, ["sh", "-c", f"echo '{profile.replace('team', 'nobody-loaded-it')}' | apparmor_parser --replace"]
    )
    ipvs.until(lambda: "running" in statuses()["missing"]["state"], 180)
    ipvs.delete("confined")


@pytest.mark.parametrize("skew_s", [3600.0, -3600.0], ids=["ahead", "behind"])
def test_a_clock_an_hour_wrong_delays_nothing(ipvs: LabCluster, skew_s: float) -> None:
    ends_well = ["sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait"]
    steady, crashing, later = (
        f"{name}-{'ahead' if skew_s > 0 else 'behind'}" for name in ("steady", "crashing", "later")
    )
    ipvs.create(steady, ends_well)
    ipvs.until(lambda: ipvs.ready(steady), 300)
    before = ipvs.container(steady)["containerID"]
    ipvs.lab.clock_skew(NODE, skew_s)
    try:
        ipvs.create(crashing, ["sh", "-c", "sleep 1; exit 1"])
        ipvs.create(later, ends_well)
        ipvs.until(lambda: ipvs.ready(later), 300)
        # the first restart is at once, the second after a back-off, which is counted from an end on the node's clock
        ipvs.until(lambda: ipvs.container(crashing)["restartCount"] >= 2, 400)
        for name in (crashing, later):
            ipvs.delete(name, grace_s=5)
        ipvs.until(lambda: ipvs.gone(crashing) and ipvs.gone(later), 300)
        assert ipvs.container(steady)["containerID"] == before
    finally:
        ipvs.lab.clock_skew(NODE, -skew_s)
    ipvs.delete(steady)
    ipvs.until(lambda: ipvs.gone(steady), 300)

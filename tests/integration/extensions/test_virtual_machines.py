"""Virtual machines by kubectl: real API server, scheduler, daemon and exec; guests are played (test_virtctl.py too)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import yaml

from minik8s_modules.api import objects
from tests.support.apiserver import Answer
from tests.support.kubectl import kubectl_path
from tests.support.machines_world import EXTENSION, ROOT, World, machine
from tests.support.waiting import until


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("machines")) as found:
        yield found


def test_a_machine_is_applied_runs_is_stopped_and_started(world: World) -> None:
    world.apply(machine("one"))
    world.wait("one", "Running")
    (pod,) = world.pods("one")
    assert objects.name(pod).startswith("virt-launcher-one-")
    world.act("one", "stop")
    world.wait("one", "Stopped")
    assert not world.pods("one")
    world.act("one", "start")
    world.wait("one", "Running")
    assert objects.uid(world.pods("one")[0]) != objects.uid(pod)
    assert until(lambda: (objects.condition(world.vm("one"), "AgentConnected") or {}).get("status") == "True")


def test_listings_have_kubevirts_columns(world: World) -> None:
    world.apply(machine("listed"))
    world.wait("listed", "Running")
    (head, row) = world.kubectl("get", "vm", "listed").stdout.splitlines()
    assert head.split() == ["NAME", "AGE", "STATUS", "READY"]
    assert row.split()[2:] == ["Running", "True"]
    (head, row) = world.kubectl("get", "vmi", "listed", "-o", "wide").stdout.splitlines()
    assert head.split() == ["NAME", "AGE", "PHASE", "IP", "NODENAME", "READY", "LIVE-MIGRATABLE", "PAUSED"]
    assert row.split()[2] == "Running"
    assert row.split()[-2:] == ["True", "False"]


def test_a_guest_that_ends_is_followed_by_its_strategy(world: World) -> None:
    world.apply(machine("again", "RerunOnFailure"))
    world.wait("again", "Running")
    first = objects.uid(world.vmi("again"))
    world.type("again", "crash")
    world.wait("again", "CrashLoopBackOff", "Starting")
    failure = until(lambda: objects.status(world.vm("again")).get("startFailure"))
    assert failure["consecutiveFailCount"] == 1
    until(lambda: objects.uid(world.vmi("again")) not in {"", first}, 120)
    world.wait("again", "Running")
    world.type("again", "poweroff")
    world.wait("again", "Stopped")
    until(lambda: not world.vmi("again") and not world.pods("again"))


def test_what_a_guest_waits_for_stands_in_its_conditions(world: World) -> None:
    lost = machine("lost")
    lost["spec"]["template"]["spec"]["volumes"] = [{"name": "root", "persistentVolumeClaim": {"claimName": "nowhere"}}]
    large = machine("large")
    large["spec"]["template"]["spec"]["nodeSelector"] = {"there": "is-none"}
    world.apply(lost, large)
    world.wait("lost", "ErrorPvcNotFound")
    assert "nowhere not found" in (objects.condition(world.vm("lost"), "Ready") or {})["message"]
    world.wait("large", "ErrorUnschedulable")
    world.kubectl("delete", "vm", "lost", "large")
    assert not world.vm("lost")


def test_a_machine_is_deleted_with_all_it_has(world: World) -> None:
    world.apply(machine("brief"))
    world.wait("brief", "Running")
    world.kubectl("delete", "vm", "brief", "--timeout=60s")
    until(lambda: not world.vmi("brief") and not world.pods("brief"))


def test_a_daemon_that_is_killed_goes_on_where_it_was(world: World) -> None:
    world.apply(machine("surviving"))
    world.daemon.kill9()
    world.daemon.start()
    world.wait("surviving", "Running")
    assert len(world.pods("surviving")) == 1


def test_a_change_of_the_template_asks_for_a_restart(world: World) -> None:
    world.apply(machine("changed"))
    world.wait("changed", "Running")
    again = machine("changed")
    again["spec"]["template"]["spec"]["domain"]["memory"]["guest"] = "96Mi"
    world.apply(again)
    until(lambda: (objects.condition(world.vm("changed"), "RestartRequired") or {}).get("status") == "True")
    before = objects.uid(world.vmi("changed"))
    world.act("changed", "restart")
    until(lambda: objects.uid(world.vmi("changed")) not in {"", before}, 120)
    until(lambda: objects.condition(world.vm("changed"), "RestartRequired") is None)


def test_a_field_that_is_not_implemented_is_refused_by_name(world: World) -> None:
    wrong = machine("wrong")
    wrong["spec"]["template"]["spec"]["domain"]["devices"]["gpus"] = [{"name": "one"}]
    done = world.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(wrong), check=False).stderr
    assert "spec.template.spec.domain.devices.gpus" in done
    assert "not implemented" in done


def test_a_replica_set_keeps_instances_and_scales(world: World) -> None:
    template = machine("set")["spec"]["template"]
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "set"}}, "template": template}
    meta = {"name": "set", "namespace": "default"}
    world.apply(
        {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet", "metadata": meta, "spec": spec}
    )
    ready = ("get", "vmirs", "set", "-o", "jsonpath={.status.readyReplicas}")
    until(lambda: world.kubectl(*ready).stdout == "2", 120)
    world.kubectl("scale", "vmirs", "set", "--replicas=1")
    until(lambda: world.kubectl(*ready).stdout == "1", 120)


def test_kubectl_writes_a_screen_into_a_file(world: World) -> None:
    seen = machine("seen")
    seen["spec"]["template"]["spec"]["domain"]["machine"]["type"] = "q35"
    world.apply(seen)
    world.wait("seen", "Running")
    plugin = world.folder / "kubectl-vm"
    plugin.write_text(f'#!/bin/sh\nexec {sys.executable} -m minik8s_virtual_machines.cli "$@"\n')
    plugin.chmod(0o755)
    kubectl = world.folder / "kubectl"
    kubectl.symlink_to(kubectl_path())
    path = f"{world.folder}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PYTHONPATH": f"{ROOT}:{EXTENSION}", "KUBECONFIG": str(world.server.kubeconfig)}

    def asked(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [str(kubectl), "vm", "screenshot", *words]
        return subprocess.run(argv, env=env, cwd=world.folder, capture_output=True, text=True, check=False, timeout=120)

    done = asked("seen", "-o", "screen.png")
    assert (done.returncode, done.stdout) == (0, "screen.png: the screen of seen\n"), done.stderr
    assert (world.folder / "screen.png").read_bytes().startswith(b"\x89PNG")
    done = asked("nobody", "-n", "default")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "nobody" in done.stderr
    assert not (world.folder / "nobody.png").exists()


def test_a_drain_is_held_up_where_the_strategy_says_so(world: World) -> None:
    kept = machine("kept", evictionStrategy="LiveMigrate")
    world.apply(kept, machine("moved"))
    for name in ("kept", "moved"):
        world.wait(name, "Running")
    result = _evict(world, "kept")
    assert result.code == 429
    assert b"LiveMigrate" in result.body
    before = objects.uid(world.vmi("moved"))
    assert _evict(world, "moved").code == 201
    until(lambda: objects.uid(world.vmi("moved")) not in {"", before}, 120)
    world.wait("moved", "Running")


def _evict(world: World, name: str) -> Answer:
    pod = objects.name(world.pods(name)[0])
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "default"}}
    return world.server.request("POST", f"/api/v1/namespaces/default/pods/{pod}/eviction", body)

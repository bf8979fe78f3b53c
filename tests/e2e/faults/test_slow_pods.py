"""A slow pull, a slow init container and a long grace hold up no other pod: a pass never waits.

Others become Ready while one is slow, which it is for longer than anybody waits here. By night their create → Ready is
measured as well: without the slow one, while it is slow, and without it again.
"""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable

import pytest

from minik8s_modules.api.kinds import POD
from tests.support.clusters.installed import IMAGE, Installed, is_ready
from tests.support.docker.slow_registry import Registry, slow_registry

MOST_DELAY_S = 0.5
HELD_UP_S = 5.0  # whoever waits for one of the slow ones waits longer
READY_S = 60
SAMPLES = 6
ROUNDS = 3  # other load on the machine only ever adds; who waits for a slow pod is late in every round
STALL_S = 15.0
SLEEP = ["sleep", "36000"]
Slow = Callable[[Installed, str, Registry], Callable[[], bool]]
"""Makes a pod slow, and returns whether it still is."""
STUBBORN = ["sh", "-c", "trap '' TERM; while true; do sleep 1; done"]


def remove_image(registry: Registry) -> None:
    """Remove what was pulled."""
    argv = ["docker", "image", "rm", registry.name("slow")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def times_s(cluster: Installed, namespace: str, count: int, pause_s: float = 0.0) -> list[float]:
    """Return create → Ready of ``count`` pods, one after the other, as a watch sees it."""
    found = []
    for number in range(count):
        name = f"quick-{time.monotonic_ns()}-{number}"
        version = cluster.pod(name, namespace)["metadata"]["resourceVersion"]
        began = time.monotonic()
        watch = cluster.admin.watch(
            POD, namespace, resource_version=version, field_selector=f"metadata.name={name}", timeout_s=60
        )
        assert any(event.type == "MODIFIED" and is_ready(event.object) for event in watch), (
            f"{name} was not Ready in 60 s"
        )
        watch.close()
        found.append(time.monotonic() - began)
        cluster.admin.delete(POD, name, namespace, grace_s=0)
        time.sleep(pause_s)
    return found


def slow_pull(cluster: Installed, namespace: str, registry: Registry) -> Callable[[], bool]:
    """Start a pod whose image does not come; return whether it still does not."""
    container = {"name": "app", "image": registry.name("slow"), "command": SLEEP}
    cluster.pod("slow-pull", namespace, containers=[container])
    assert registry.asked.wait(60), "nobody asked for the image"
    return lambda: waiting_for(cluster, namespace, "slow-pull") == "ContainerCreating"


def slow_init(cluster: Installed, namespace: str, _registry: Registry) -> Callable[[], bool]:
    """Start a pod whose init container takes two minutes; return whether it still runs."""
    init = {"name": "prepare", "image": IMAGE, "command": ["sleep", "120"]}
    cluster.pod("slow-init", namespace, initContainers=[init])

    def running() -> bool:
        status = cluster.pods(namespace)["slow-init"]["status"]
        return any("running" in one["state"] for one in status.get("initContainerStatuses", []))

    cluster.until(running)
    return running


def slow_grace(cluster: Installed, namespace: str, _registry: Registry) -> Callable[[], bool]:
    """Delete a pod that does not end by itself within its grace; return whether it still lives."""
    cluster.pod("slow-grace", namespace, STUBBORN)
    cluster.until(lambda: cluster.ready("slow-grace", namespace))
    pod = cluster.admin.delete(POD, "slow-grace", namespace, grace_s=120)
    return lambda: len(cluster.containers(pod["metadata"]["uid"], alive=True)) == 2


def waiting_for(cluster: Installed, namespace: str, name: str) -> str:
    """Return why the pod's container waits, "" when it does not."""
    statuses = cluster.pods(namespace)[name]["status"].get("containerStatuses") or [{}]
    return str(statuses[0].get("state", {}).get("waiting", {}).get("reason", ""))


def delays_nobody(alone: list[float], beside: list[float]) -> bool:
    """Return whether pods are no later by more than the bound: the usual one, and all but one."""
    usual = statistics.median(beside) - statistics.median(alone)
    late = sorted(beside)[-2] - sorted(alone)[-2]
    return usual <= MOST_DELAY_S and late <= MOST_DELAY_S and max(beside) < HELD_UP_S + max(alone)


def remove_all(cluster: Installed, namespace: str) -> None:
    """Remove the pods, and wait until their containers are gone."""
    for name in cluster.pods(namespace):
        cluster.admin.delete(POD, name, namespace, grace_s=0)
    cluster.until(lambda: not any(f"_{namespace}_" in name for name in cluster.containers()))


def measured(cluster: Installed, namespace: str, slow: Slow) -> tuple[list[float], list[float]]:
    """Return times without and with the slow pod, which is slow all the while; without: before or after, the longer."""
    before = times_s(cluster, namespace, SAMPLES)
    with slow_registry() as registry:
        still_slow = slow(cluster, namespace, registry)
        beside = times_s(cluster, namespace, SAMPLES)
        assert still_slow()
        remove_all(cluster, namespace)
    after = times_s(cluster, namespace, SAMPLES)
    return max(before, after, key=statistics.median), beside


SLOW = pytest.mark.parametrize("slow", [slow_pull, slow_init, slow_grace], ids=lambda each: each.__name__)


@SLOW
def test_others_become_ready_while_a_pod_is_slow(cluster: Installed, namespace: str, slow: Slow) -> None:
    with slow_registry() as registry:
        still_slow = slow(cluster, namespace, registry)
        times_s(cluster, namespace, 2)
        assert still_slow()
        remove_all(cluster, namespace)


@SLOW
def test_a_slow_pod_delays_no_other(cluster: Installed, namespace: str, slow: Slow) -> None:
    rounds: list[tuple[list[float], list[float]]] = []
    while not rounds or (len(rounds) < ROUNDS and not delays_nobody(*rounds[-1])):
        rounds.append(measured(cluster, namespace, slow))
    assert delays_nobody(*rounds[-1]), rounds


def test_all_three_at_once_for_a_quarter_of_a_minute(cluster: Installed, namespace: str) -> None:
    before = times_s(cluster, namespace, SAMPLES)
    with slow_registry() as registry:
        checks = [slow(cluster, namespace, registry) for slow in (slow_pull, slow_init, slow_grace)]
        began = time.monotonic()
        rounds: list[list[float]] = []
        while time.monotonic() - began < STALL_S:
            rounds.append(times_s(cluster, namespace, SAMPLES, pause_s=0.1))
        assert all(check() for check in checks)
        registry.release()
        cluster.until(lambda: cluster.ready("slow-pull", namespace))
        remove_all(cluster, namespace)
        remove_image(registry)
    after = times_s(cluster, namespace, SAMPLES)
    alone = max(before, after, key=statistics.median)
    assert any(delays_nobody(alone, beside) for beside in rounds), (alone, rounds)

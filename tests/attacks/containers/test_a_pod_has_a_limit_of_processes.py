"""Attack: a fork bomb. One pod starts processes until its node has no number left, and nobody can start anything.

The bomb here is bounded: it wants 3,000 processes that sleep.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, cast

from minik8s_modules.module_utils.minik8s.core import labels
from minik8s_modules.module_utils.minik8s.pods import cgroups, pod_cgroup
from minik8s_modules.reconcile.values import resources
from minik8s_modules.reconcile.values.values import Settings
from tests.support.node import TestNode
from tests.support.waiting import until

LIMIT = 200
NO_POD: dict[str, Any] = {"spec": {"containers": [{"name": "app"}]}}
BOMB = "i=0; while [ $i -lt 3000 ]; do sleep 600 & i=$((i+1)); done"
# The shell that forks ends when it is refused; the container lives on, and needs no process to say so.
AFTER_IT = f"sh -c '{BOMB}'; : >/tmp/over; exec sleep 600"
TRIGGER = f"until [ -e /tmp/go ]; do sleep 0.1; done; {AFTER_IT}"


class Group(NamedTuple):
    """A pod's cgroup, as far as it is about processes."""

    folder: Path

    def number(self, name: str) -> int:
        """Return the number in a file."""
        return int((self.folder / name).read_text())


def limits(pids: int) -> dict[str, int]:
    """Return what the reconciler declares of a pod without requests."""
    return cast("dict[str, int]", resources.pod_cgroup(NO_POD, pids))


def start(node: TestNode, pods: list[dict[str, Any]], containers: list[dict[str, Any]]) -> dict[str, str]:
    """Bring pods up; return the containers' ids by key."""
    node.run("network", node.network())
    assert not node.run("sandboxes", {one["pod"]["uid"]: one for one in pods})["errors"]
    result = node.run("containers", {f"{one['pod']['uid']}/{one['name']}": one for one in containers})
    assert not result["errors"], result["errors"]
    return {key: str(seen["id"]) for key, seen in result["status"].items()}


def group_of(node: TestNode, uid: str) -> Group:
    """Return the pod's cgroup, as the kernel knows it."""
    found = [inspect for each in node.ids(labels.SANDBOX) if (inspect := node.docker.inspect(each))]
    (pause,) = [each for each in found if each["Config"]["Labels"][labels.POD_UID] == uid]
    paths = pod_cgroup.paths_of(node.name, uid, pause["State"]["Pid"])
    version_1 = f"{cgroups.ROOT}/pids{paths['pids']}" if "pids" in paths else ""
    return Group(Path(version_1 or cgroups.ROOT + paths[""]))


def wait_for_the_end_of_the_bomb(node: TestNode, container: str) -> None:
    """Wait until the bomb has all it wanted, or was refused more; looks from outside, for exec needs a process."""
    inspect = node.docker.inspect(container)
    assert inspect
    until(Path(f"/proc/{inspect['State']['Pid']}/root/tmp/over").exists)


def test_a_bomb_stays_within_its_pods_limit_and_another_pod_goes_on(node: TestNode) -> None:
    bad, good = (node.pod(number, cgroup=limits(LIMIT)) for number in (7, 8))
    bomb = node.container(bad, entrypoint=["sh", "-c", AFTER_IT])
    exploding, neighbour = start(node, [bad, good], [bomb, node.container(good)]).values()
    group = group_of(node, bad["pod"]["uid"])
    wait_for_the_end_of_the_bomb(node, exploding)
    assert group.number("pids.current") <= LIMIT
    assert node.execute(neighbour, "sh", "-c", "for i in 1 2 3; do sh -c 'echo $$' | wc -l; done") == "1\n1\n1\n"


def test_a_pod_from_before_gets_its_limit_while_it_runs(node: TestNode) -> None:
    pod = node.pod(7, cgroup=limits(0))
    ids = start(node, [pod], [node.container(pod, entrypoint=["sh", "-c", TRIGGER])])
    changed = {pod["pod"]["uid"]: {**pod, "cgroup": limits(LIMIT)}}
    planned = node.run("sandboxes", changed, check=True)
    assert [step["action"] for step in planned["steps"]] == ["limits"]
    assert f"pids={LIMIT}" in str(planned["diff"])
    assert node.run("sandboxes", changed)["steps"] == planned["steps"]
    (container,) = ids.values()
    node.execute(container, "touch", "/tmp/go")
    group = group_of(node, pod["pod"]["uid"])
    wait_for_the_end_of_the_bomb(node, container)
    assert group.number("pids.current") <= LIMIT
    assert container in node.ids("app")


def test_a_limit_that_somebody_took_away_comes_back(node: TestNode) -> None:
    pod = node.pod(7, cgroup=limits(LIMIT))
    start(node, [pod], [node.container(pod)])
    group = group_of(node, pod["pod"]["uid"])
    (group.folder / "pids.max").write_text("max")
    drifted = node.run("sandboxes", {pod["pod"]["uid"]: pod})
    assert [step["action"] for step in drifted["steps"]] == ["limits"]
    assert group.number("pids.max") == LIMIT


def test_a_pod_has_a_limit_where_nobody_has_set_one() -> None:
    assert 0 < Settings().pod_pids_limit <= 32768 // 8

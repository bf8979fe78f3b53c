"""The two example packages at work: a sticky node, and a group that starts together or not at all."""

from __future__ import annotations

import importlib.util
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from minik8s_modules.api.kinds import CRON_JOB, DAEMON_SET, DEPLOYMENT, JOB, NODE, POD, REPLICA_SET, STATEFUL_SET
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.scheduler.cluster.cache import ClusterCache
from minik8s_modules.scheduler.deciding.profile import Workbench
from minik8s_modules.scheduler.framework.infos import PodInfo
from minik8s_modules.scheduler.framework.points import CycleState
from minik8s_modules.scheduler.framework.statuses import Code
from minik8s_modules.scheduler.profiles import building
from minik8s_modules.scheduler.profiles.configuration import Enabled, PluginSet, ProfileSettings, Settings
from tests.unit.scheduler.conftest import Start
from tests.unit.scheduler.worlds import condition_of, node, node_of, pod, until

PACKAGES = Path(__file__).parents[4] / "examples" / "scheduler-plugins"


class Entry:
    """An entry point of a package that is not installed."""

    def __init__(self, package: str) -> None:
        project = tomllib.loads((PACKAGES / package / "pyproject.toml").read_text())["project"]
        ((self.name, value),) = project["entry-points"]["minik8s.scheduler_plugins"].items()
        module, _, self._attribute = value.partition(":")
        spec = importlib.util.spec_from_file_location(module, PACKAGES / package / f"{module}.py")
        assert spec is not None
        assert spec.loader is not None
        self.module: ModuleType = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)

    def load(self) -> Any:
        """Return the plugin's class."""
        return getattr(self.module, self._attribute)


@pytest.fixture
def begin(start: Start, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def begin(package: str, **arguments: object) -> None:
        entry = Entry(package)
        monkeypatch.setattr(building, "foreign", lambda: {entry.name: entry})
        own = ProfileSettings(
            plugins={"multiPoint": PluginSet((Enabled(entry.name, 1),))}, arguments={entry.name: arguments}
        )
        start(Settings((own,), backoff_s=(0.05, 0.2)))

    return begin


def owned(name: str, owner: JsonObject, kind: str) -> JsonObject:
    made = pod(name)
    meta = owner["metadata"]
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": meta["name"], "uid": meta["uid"], "controller": True}
    made["metadata"]["ownerReferences"] = [reference]
    return made


def is_known_as_closed(api: FakeApi, host: str, numbers: Iterator[int]) -> bool:
    """Return whether the scheduler has heard that a node takes no pods: nodes and pods come by two watches."""
    probe = f"probe{next(numbers)}"
    api.create(POD, pod(probe, nodeSelector={"host": host}))
    until(lambda: node_of(api, probe) or condition_of(api, probe))
    return not node_of(api, probe)


def test_what_an_owner_ran_on_once_it_runs_on_always(api: FakeApi, begin: Callable[..., None]):
    for name in "abc":
        api.create(NODE, node(name, labels={"host": name}))
    top = api.create(DEPLOYMENT, {"metadata": {"name": "vm", "namespace": "default"}})
    below = owned("vm-1", top, "Deployment")
    below = api.create(REPLICA_SET, {"metadata": below["metadata"]})
    begin("sticky-node")
    api.create(POD, owned("first", below, "ReplicaSet"))
    until(lambda: node_of(api, "first"))
    home = node_of(api, "first")
    until(lambda: api.get(DEPLOYMENT, "vm", "default")["metadata"].get("annotations"))
    assert api.get(DEPLOYMENT, "vm", "default")["metadata"]["annotations"] == {"sticky.minik8s.io/node": home}
    for number in range(3):
        api.create(POD, owned(f"next{number}", below, "ReplicaSet"))
    until(lambda: all(node_of(api, f"next{number}") == home for number in range(3)))
    api.create(POD, pod("free"))
    until(lambda: node_of(api, "free"))
    cordoned = api.get(NODE, home)
    cordoned["spec"]["unschedulable"] = True
    api.update(NODE, cordoned)
    until(partial(is_known_as_closed, api, home, count()))
    api.create(POD, owned("later", below, "ReplicaSet"))
    until(lambda: f"node(s) were not {home}" in condition_of(api, "later").get("message", ""))
    assert node_of(api, "later") == ""
    opened = api.get(NODE, home)
    del opened["spec"]["unschedulable"]
    api.update(NODE, opened)
    until(lambda: node_of(api, "later") == home)


def member(name: str, size: int, cpu: str = "1") -> JsonObject:
    made = pod(name, containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}])
    made["metadata"]["labels"] = {"gang.minik8s.io/name": "g", "gang.minik8s.io/size": str(size)}
    return made


def test_a_group_starts_together(api: FakeApi, begin: Callable[..., None]):
    api.create(NODE, node("a"))
    begin("gang", timeoutSeconds=600)
    for number in range(2):
        api.create(POD, member(f"m{number}", 3))
    api.create(POD, pod("alone"))
    until(lambda: node_of(api, "alone") == "a")
    assert not any(node_of(api, f"m{number}") for number in range(2))
    api.create(POD, member("m2", 3))
    until(lambda: all(node_of(api, f"m{number}") == "a" for number in range(3)))


def test_a_pod_whose_binding_may_still_fail_completes_no_group():
    cache, bench = ClusterCache(), Workbench()
    cache.update_node(None, node("a"))
    gang = Entry("gang").load()({}, bench)
    cache.assume(PodInfo.of(member("m0", 2)), "a")
    last = PodInfo.of(member("m1", 2))
    bench.current = cache.snapshot()
    status, _ = gang.permit(CycleState(), last, "a")
    assert status.code is Code.WAIT
    bound = member("m0", 2)
    bound["spec"]["nodeName"] = "a"
    cache.update_pod(member("m0", 2), bound)
    bench.current = cache.snapshot()
    assert gang.permit(CycleState(), last, "a") == (None, 0.0)


def test_a_group_that_has_no_room_frees_its_places_for_others(api: FakeApi, begin: Callable[..., None]):
    api.create(NODE, node("a", cpu="2"))
    begin("gang", timeoutSeconds=0.5)
    for number in range(3):
        api.create(POD, member(f"m{number}", 3))
    until(lambda: "waited too long" in condition_of(api, "m0").get("message", "") or
          "waited too long" in condition_of(api, "m1").get("message", "") or
          "another pod of its group" in condition_of(api, "m0").get("message", ""))  # fmt: skip
    assert not any(node_of(api, f"m{number}") for number in range(3))
    api.create(POD, pod("other", containers=[{"name": "c", "resources": {"requests": {"cpu": "2"}}}], priority=5))
    until(lambda: node_of(api, "other") == "a")
    assert not any(node_of(api, f"m{number}") for number in range(3))


def test_the_sticky_nodes_rights_are_those_it_needs():
    found = list(yaml.safe_load_all((PACKAGES / "sticky-node" / "rights.yaml").read_text()))
    roles = {one["metadata"]["name"]: one["rules"] for one in found if one["kind"] == "ClusterRole"}
    verbs = {
        one["subjects"][0]["name"]: {verb for rule in roles[one["roleRef"]["name"]] for verb in rule["verbs"]}
        for one in found if one["kind"] == "ClusterRoleBinding"
    }  # fmt: skip
    assert verbs == {"system:kube-scheduler": {"get", "patch"}, "system:minik8s:reconciler": {"get"}}
    named = {
        (rule["apiGroups"][0], resource) for rules in roles.values() for rule in rules for resource in rule["resources"]
    }
    assert named == {
        (kind.group, kind.plural) for kind in (CRON_JOB, DAEMON_SET, DEPLOYMENT, JOB, REPLICA_SET, STATEFUL_SET)
    }

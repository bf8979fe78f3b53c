"""What the scheduler would decide, asked by others: plans, explanations."""

from __future__ import annotations

from functools import cache

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.scheduler.deciding.cycle import Decision, Judged, decide, explain
from minik8s_modules.scheduler.deciding.profile import Workbench
from minik8s_modules.scheduler.framework.infos import PodInfo, scheduler_of
from minik8s_modules.scheduler.framework.snapshot import Snapshot
from minik8s_modules.scheduler.profiles.building import bench
from minik8s_modules.scheduler.profiles.configuration import ProfileSettings, policy_settings


@cache
def _settings() -> dict[str, ProfileSettings]:
    return {one.name: one for one in policy_settings().profiles}


def _bench(pod: JsonObject) -> Workbench | None:
    found = _settings().get(scheduler_of(pod))
    return None if found is None else bench(found)


def decide_node(pod: JsonObject, snapshot: Snapshot) -> Decision:
    """Return the node for ``pod``, or why there is none, by the profile of its scheduler's name."""
    made = _bench(pod)
    if made is None or made.profile is None:
        return Decision("", f"it waits for a scheduler named {scheduler_of(pod)}")
    info = PodInfo.of(pod)
    for plugin in made.profile.pre_enqueue:
        if (why := plugin.pre_enqueue(info)) is not None:
            return Decision("", why.message)
    return decide(pod, snapshot, made)


def explain_nodes(pod: JsonObject, snapshot: Snapshot) -> list[Judged]:
    """Return what every node comes to for ``pod``; nothing for a pod of another scheduler."""
    made = _bench(pod)
    return [] if made is None else explain(pod, snapshot, made)

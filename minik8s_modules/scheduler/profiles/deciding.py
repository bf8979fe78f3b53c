"""What schedulers would decide, asked by others: plans, explanations.

``Profiles`` decides by what the cluster's schedulers say they run with (``published.py``), with plugins that are not in
tree where they are installed here, too; what cannot be replayed is told instead. Such plugins read the cluster, and
write nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import REPLICA_SET, REPLICATION_CONTROLLER, SERVICE, STATEFUL_SET
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.scheduler.deciding.cycle import Decision, Judged, decide, explain
from minik8s_modules.scheduler.deciding.guard import Guard
from minik8s_modules.scheduler.deciding.profile import PluginFailed, PluginHangs, Profile, Workbench
from minik8s_modules.scheduler.framework.infos import PodInfo, scheduler_of
from minik8s_modules.scheduler.framework.snapshot import Snapshot, Workload
from minik8s_modules.scheduler.framework.storage import Storage
from minik8s_modules.scheduler.profiles.building import bench
from minik8s_modules.scheduler.profiles.configuration import policy_settings
from minik8s_modules.scheduler.profiles.published import PublishedProfiles

SPREAD_BY = (SERVICE, REPLICATION_CONTROLLER, REPLICA_SET, STATEFUL_SET)
"""The kinds by which pods are spread that say nothing themselves."""
T = TypeVar("T")
_GUARD = Guard()


class Unknown(Exception):
    """What a profile would decide cannot be predicted here; the message says why."""


class Profiles:
    """The profiles of a cluster's schedulers, for one question.

    Args:
        known: what they say they run with; nothing stands for what runs without a configuration.
        api: reads for plugins that are not in tree.
    """

    def __init__(self, known: PublishedProfiles | None = None, api: Any = None) -> None:
        self._known: PublishedProfiles = known or {one.name: one for one in policy_settings().profiles}
        self._api = None if api is None else _Reading(api)
        self._made: dict[str, tuple[Workbench, Profile]] = {}
        self._hanging: dict[str, str] = {}

    def decide(self, pod: JsonObject, snapshot: Snapshot) -> Decision:
        """Return the node for ``pod``, or why there is none or none can be told."""
        try:
            made, profile = self._bench(pod)
            return self._asked(lambda: _decide(pod, snapshot, made, profile), made, profile)
        except Unknown as why:
            return Decision("", str(why))

    def explain(self, pod: JsonObject, snapshot: Snapshot) -> list[Judged]:
        """Return what every node comes to for ``pod``. Raises Unknown."""
        made, profile = self._bench(pod)
        return self._asked(lambda: explain(pod, snapshot, made), made, profile)

    def _bench(self, pod: JsonObject) -> tuple[Workbench, Profile]:
        name = scheduler_of(pod)
        if name in self._hanging:
            raise Unknown(self._hanging[name])
        if name not in self._made:
            found = self._known.get(name)
            if found is None:
                raise Unknown(f"it waits for a scheduler named {name}")
            if isinstance(found, str):
                raise Unknown(_unknown(name, found))
            try:
                made = bench(found, self._api)
            except ConfigurationError as error:
                raise Unknown(_unknown(name, error)) from error
            assert made.profile is not None  # noqa: S101 - set when the profile is made
            self._made[name] = made, made.profile
        return self._made[name]

    def _asked(self, what: Callable[[], T], made: Workbench, profile: Profile) -> T:
        if not profile.foreign:
            return what()
        try:
            return _GUARD.call(what, lambda: made.running, profile.foreign)
        except PluginHangs as failure:
            self._hanging[profile.name] = _unknown(profile.name, failure)
            raise Unknown(self._hanging[profile.name]) from failure
        except PluginFailed as failure:
            raise Unknown(_unknown(profile.name, failure)) from failure
        except Exception as error:
            message = f'running "{made.running[0]}" {made.running[1]} plugin: {type(error).__name__}: {error}'
            raise Unknown(_unknown(profile.name, message)) from error


def _unknown(name: str, why: object) -> str:
    return f"the decision of scheduler {name} cannot be predicted here: {why}"


def _decide(pod: JsonObject, snapshot: Snapshot, made: Workbench, profile: Profile) -> Decision:
    info = PodInfo.of(pod)
    for plugin in profile.pre_enqueue:
        made.running = (plugin.name, "PreEnqueue")
        if (why := made.checked(plugin.pre_enqueue(info))) is not None:
            return Decision("", why.message)
    return decide(pod, snapshot, made)


class _Reading:
    """The API for plugins whose decisions are only replayed."""

    def __init__(self, api: Any) -> None:
        self.get, self.list, self._api = api.get, api.list, api

    def raw(self, method: str, *args: Any, **options: Any) -> Any:
        """Return what the server answers to a GET."""
        if method != "GET":
            raise PermissionError(f"{method}: a decision that is only replayed writes nothing")
        return self._api.raw(method, *args, **options)


class Scene(NamedTuple):
    """What decisions depend on besides pods and nodes.

    Attributes:
        namespaces: their labels, for terms that select namespaces by them.
        workloads: objects of ``SPREAD_BY``.
        budgets: PodDisruptionBudgets, for preemption.
        storage: claims, volumes and classes; None decides nothing by them.
    """

    profiles: Profiles
    namespaces: tuple[JsonObject, ...] = ()
    workloads: tuple[JsonObject, ...] = ()
    budgets: tuple[JsonObject, ...] = ()
    storage: Storage | None = None

    def snapshot(self, pod: JsonObject, nodes: Iterable[JsonObject], placed: Sequence[JsonObject]) -> Snapshot:
        """Return the cluster as the decision about ``pod`` sees it."""
        labels = {objects.name(one): objects.labels(one) for one in self.namespaces}
        found = Snapshot.of(nodes, placed, len(placed), labels, self.storage)
        space = objects.namespace(pod)
        found.workloads = {space: tuple(Workload.of(one) for one in self.workloads if objects.namespace(one) == space)}
        found.budgets = self.budgets
        return found


def decide_node(pod: JsonObject, snapshot: Snapshot) -> Decision:
    """Return the node for ``pod``, or why there is none, where no scheduler has a configuration."""
    return Profiles().decide(pod, snapshot)

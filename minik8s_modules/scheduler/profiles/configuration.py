"""KubeSchedulerConfiguration v1: what a file says, checked; an error names file, line and key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from minik8s_modules.scheduler.framework.infos import DEFAULT_SCHEDULER
from minik8s_modules.scheduler.profiles.arguments import arguments_of
from minik8s_modules.scheduler.profiles.located import Located
from minik8s_modules.scheduler.profiles.registry import DEFAULTS, IN_TREE, REFUSED, foreign

API_VERSION, KIND = "kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration"
POINTS: Mapping[str, str] = {
    "preEnqueue": "pre_enqueue", "queueSort": "less", "preFilter": "pre_filter", "filter": "filter",
    "postFilter": "post_filter", "preScore": "pre_score", "score": "score", "reserve": "reserve", "permit": "permit",
    "preBind": "pre_bind", "bind": "bind", "postBind": "post_bind",
}  # fmt: skip
"""The method that a plugin has at each point."""
POLICIES: Mapping[str, str] = {"round-robin": "RoundRobin", "random": "Random", "label-affinity": "LabelAffinity"}
"""The Score plugins of the original's policies."""
_ELSEWHERE = {
    "parallelism": "one thread decides",
    "extenders": "scheduler extenders (webhooks) are not supported; write a plugin",
    "healthzBindAddress": "set metrics.listen in the daemon's own configuration file",
    "metricsBindAddress": "set metrics.listen in the daemon's own configuration file",
    "enableProfiling": "profiling over HTTP is not supported",
    "enableContentionProfiling": "profiling over HTTP is not supported",
    "delayCacheUntilActive": "a scheduler that does not lead follows the cluster, so that it can begin at once",
}
_KNOWN = (
    "apiVersion", "clientConnection", "kind", "leaderElection", "percentageOfNodesToScore", "podInitialBackoffSeconds",
    "podMaxBackoffSeconds", "profiles",
)  # fmt: skip
_DAY_S = 86_400
_BACKOFF_S = (1, 10)


@dataclass(frozen=True)
class Enabled:
    """A plugin at a point; weight 0 stands for what is usual."""

    name: str
    weight: int
    where: Located | None = None


@dataclass(frozen=True)
class PluginSet:
    """What one point says: more plugins, and fewer."""

    enabled: tuple[Enabled, ...] = ()
    disabled: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ProfileSettings:
    """One profile as a file says it."""

    name: str = DEFAULT_SCHEDULER
    percentage: int = 0
    plugins: Mapping[str, PluginSet] = field(default_factory=dict)
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    where: Located | None = None


@dataclass(frozen=True)
class Settings:
    """A whole configuration; ``elect`` says whether one of several schedulers leads, under which name."""

    profiles: tuple[ProfileSettings, ...]
    backoff_s: tuple[float, float] = _BACKOFF_S
    elect: bool = True
    lease: str = "minik8s-scheduler"
    kubeconfig: str = ""


def policy_settings(policy: str = "") -> Settings:
    """Return what holds without a file: the default profile, or a policy in its place, and all policies."""
    own = ProfileSettings() if not policy else replace(_policy(policy), name=DEFAULT_SCHEDULER)
    return Settings((own, *map(_policy, POLICIES)))


def _policy(name: str) -> ProfileSettings:
    sets = {
        point: PluginSet((Enabled(POLICIES[name], weight),), frozenset({"*"}))
        for point, weight in (("score", 1), ("preScore", 0))
    }
    return ProfileSettings(name, plugins=sets)


def settings(file: Located) -> Settings:
    """Return what a file says. Raises ConfigurationError."""
    if not isinstance(file.value, Mapping):
        raise file.wrong(f"it must be a {KIND}")
    for name, why in _ELSEWHERE.items():
        if name in file.value:
            raise file.at(name).wrong(why)
    fields = dict(file.mapping(_KNOWN))
    file.at("apiVersion").text(API_VERSION)
    file.at("kind").text(KIND)
    percentage = fields["percentageOfNodesToScore"].number(0, 100) if "percentageOfNodesToScore" in fields else 0
    known = {**IN_TREE, **foreign()}
    profiles = [_profile(one, percentage, known) for one in file.at("profiles").items()] or [
        ProfileSettings(percentage=percentage)
    ]
    names = [one.name for one in profiles]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise file.at("profiles").at(index).at("schedulerName").wrong(f"another profile is named {name}, too")
    elect, lease = _election(file.at("leaderElection"))
    connection = dict(file.at("clientConnection").mapping(("kubeconfig",)))
    kubeconfig = connection["kubeconfig"].text() if connection else ""
    return Settings(tuple(profiles), _backoff(fields, file), elect, lease, kubeconfig)


def _backoff(fields: Mapping[str, Located], file: Located) -> tuple[float, float]:
    first, most = (
        fields[name].number(1, _DAY_S) if name in fields else usual
        for name, usual in zip(("podInitialBackoffSeconds", "podMaxBackoffSeconds"), _BACKOFF_S, strict=True)
    )
    if first > most:
        raise file.at("podMaxBackoffSeconds").wrong(f"it must not be less than podInitialBackoffSeconds, {first}")
    return first, most


def _election(located: Located) -> tuple[bool, str]:
    fields = dict(located.mapping(("leaderElect", "resourceName")))
    elect = fields["leaderElect"].flag() if "leaderElect" in fields else True
    return elect, fields["resourceName"].text() if "resourceName" in fields else "minik8s-scheduler"


def _profile(located: Located, percentage: int, known: Mapping[str, Any]) -> ProfileSettings:
    fields = dict(located.mapping(("schedulerName", "percentageOfNodesToScore", "plugins", "pluginConfig")))
    name = fields["schedulerName"].text() if "schedulerName" in fields else DEFAULT_SCHEDULER
    if "percentageOfNodesToScore" in fields:
        percentage = fields["percentageOfNodesToScore"].number(0, 100)
    sets = {
        point: _plugin_set(one, known, scored=point in {"score", "multiPoint"})
        for point, one in located.at("plugins").mapping(("multiPoint", *POINTS))
    }
    return ProfileSettings(name, percentage, sets, _plugin_config(located.at("pluginConfig"), known), located)


def _plugin_config(located: Located, known: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for one in located.items():
        list(one.mapping(("name", "args")))
        name = _known(one.at("name"), known)
        if name in found:
            raise one.at("name").wrong(f"{name} has arguments already")
        args = one.at("args")
        found[name] = arguments_of(name, args) if name in IN_TREE else args.value or {}
    return found


def _plugin_set(located: Located, known: Mapping[str, Any], *, scored: bool) -> PluginSet:
    list(located.mapping(("enabled", "disabled")))
    enabled: list[Enabled] = []
    for one in located.at("enabled").items():
        fields = dict(one.mapping(("name", "weight")))
        name = _known(one.at("name"), known)
        if any(other.name == name for other in enabled):
            raise one.at("name").wrong(f"{name} is enabled there already")
        if "weight" in fields and not scored:
            raise fields["weight"].wrong("only scores have weights")
        enabled.append(Enabled(name, fields["weight"].number(1, 1000) if "weight" in fields else 0, one.at("name")))
    disabled = []
    for one in located.at("disabled").items():
        list(one.mapping(("name",)))
        disabled.append("*" if one.at("name").value == "*" else _known(one.at("name"), known))
    return PluginSet(tuple(enabled), frozenset(disabled))


def _known(located: Located, known: Mapping[str, Any]) -> str:
    name = located.text()
    if name in REFUSED:
        raise located.wrong(f"there is no {name}: {REFUSED[name]}")
    if name not in known:
        raise located.wrong(f"there is no plugin {name}; there are {', '.join(sorted(known))}")
    return name


def listed(profile: ProfileSettings) -> tuple[Enabled, ...]:
    """Return the plugins of ``multiPoint``: the defaults but those that are disabled, then those that are enabled more.

    One that is enabled again stands where it stood, with its new weight (default_plugins.go, mergePluginSet).
    """
    more = profile.plugins.get("multiPoint", PluginSet())
    again = {one.name: one for one in more.enabled}
    defaults = () if "*" in more.disabled else [one for one in DEFAULTS if one[0] not in more.disabled]
    kept = [again.pop(name) if name in again else Enabled(name, weight) for name, weight in defaults]
    return (*kept, *again.values())

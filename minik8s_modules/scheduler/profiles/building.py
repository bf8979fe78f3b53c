"""Makes the plugins of a profile and puts them at their points, in Kubernetes' order.

At a point come first the plugins that it names again although ``multiPoint`` has them, then those of ``multiPoint``,
then the others that it names (framework/runtime/framework.go, expandMultiPointPlugins).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.scheduler.deciding.profile import Profile, Workbench
from minik8s_modules.scheduler.profiles.configuration import (
    POINTS,
    Enabled,
    PluginSet,
    ProfileSettings,
    Settings,
    listed,
)
from minik8s_modules.scheduler.profiles.registry import DEFAULTS, IN_TREE, foreign

_USUAL = {name: weight for name, weight in DEFAULTS if weight}
_NEEDED = {"queueSort": "pods are ordered by one", "bind": "pods are bound by one"}


def benches(settings: Settings, api: Any = None) -> dict[str, Workbench]:
    """Return a workbench with its profile for each profile, by name. Raises ConfigurationError."""
    found = {one.name: bench(one, api) for one in settings.profiles}
    sorts = {one.profile.queue_sort.name for one in found.values() if one.profile is not None}
    if len(sorts) > 1:
        raise ConfigurationError(f"all profiles must order the queue alike, not by {' and '.join(sorted(sorts))}")
    return found


def bench(settings: ProfileSettings, api: Any = None) -> Workbench:
    """Return a workbench with the profile that ``settings`` describe. Raises ConfigurationError."""
    made = Workbench(api)
    plugins: dict[str, Any] = {}
    many = listed(settings)
    for one in (*many, *(one for point in settings.plugins.values() for one in point.enabled)):
        if one.name not in plugins:
            plugins[one.name] = _make(one, settings, made)
    points = {point: _at(point, method, settings, many, plugins) for point, method in POINTS.items()}
    for point, why in _NEEDED.items():
        if not points[point] or (point == "queueSort" and len(points[point]) > 1):
            names = ", ".join(one.name for one, _ in points[point]) or "none"
            raise _wrong(settings, f"plugins.{point} has {names}: {why}")
    made.profile = _profile(settings, points, frozenset(plugins) - IN_TREE.keys())
    if (sort := made.profile.queue_sort.name) in made.profile.foreign:
        raise _wrong(settings, f"plugins.queueSort has {sort}: only a plugin in tree may order the queue")
    return made


def _profile(
    settings: ProfileSettings, points: Mapping[str, list[tuple[Any, int]]], outside: frozenset[str]
) -> Profile:
    at = {point: tuple(plugin for plugin, _ in found) for point, found in points.items()}
    return Profile(
        name=settings.name, queue_sort=at["queueSort"][0], pre_enqueue=at["preEnqueue"], pre_filter=at["preFilter"],
        filter=at["filter"], post_filter=at["postFilter"], pre_score=at["preScore"], score=tuple(points["score"]),
        reserve=at["reserve"], permit=at["permit"], pre_bind=at["preBind"], bind=at["bind"], post_bind=at["postBind"],
        percentage=settings.percentage, foreign=outside,
    )  # fmt: skip


def _make(one: Enabled, settings: ProfileSettings, made: Workbench) -> Any:
    arguments = settings.arguments.get(one.name, {})
    try:
        factory = IN_TREE[one.name] if one.name in IN_TREE else foreign()[one.name].load()
        plugin = factory(arguments, made)
        name = plugin.name
    except Exception as error:
        message = f"plugin {one.name} cannot be made: {type(error).__name__}: {error}"
        raise one.where.wrong(message) if one.where else _wrong(settings, message) from error
    if name != one.name:
        raise _wrong(settings, f"plugin {one.name} calls itself {name!r}")
    return plugin


def _wrong(settings: ProfileSettings, message: str) -> ConfigurationError:
    if settings.where is not None:
        return settings.where.wrong(message)
    return ConfigurationError(f"profile {settings.name}: {message}")


def _at(
    point: str, method: str, settings: ProfileSettings, many: tuple[Enabled, ...], plugins: Mapping[str, Any]
) -> list[tuple[Any, int]]:
    """Return the plugins at one point with their weights, in their order."""
    own = settings.plugins.get(point, PluginSet())
    for one in own.enabled:
        if not hasattr(plugins[one.name], method):
            message = f"{one.name} has nothing to do at {point}"
            raise one.where.wrong(message) if one.where else _wrong(settings, message)
    named = {one.name for one in own.enabled}
    everywhere = {one.name: one for one in many}
    shared = [
        one for one in many
        if hasattr(plugins[one.name], method) and one.name not in named
        and "*" not in own.disabled and one.name not in own.disabled
    ]  # fmt: skip
    first = [one for one in own.enabled if one.name in everywhere]
    last = [one for one in own.enabled if one.name not in everywhere]
    found = []
    for one in (*first, *shared, *last):
        broad = everywhere[one.name].weight if one.name in everywhere else 0
        found.append((plugins[one.name], one.weight or broad or _USUAL.get(one.name, 1)))
    return found

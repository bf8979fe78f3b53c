"""What schedulers run with, as they say it themselves: a KubeSchedulerConfiguration on the Lease by which they lead.

Explanations and plans decide by it (``deciding.py``). Whoever may write Leases in kube-system can write it, so it is
read like any input: what makes no sense concerns its own profile alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.scheduler.framework.infos import DEFAULT_SCHEDULER
from minik8s_modules.scheduler.profiles.configuration import (
    API_VERSION,
    KIND,
    PluginSet,
    ProfileSettings,
    Settings,
    settings,
)
from minik8s_modules.scheduler.profiles.located import Located

ANNOTATION = "minik8s.io/scheduler-configuration"
NAMESPACE = "kube-system"
_FIRST = "minik8s-scheduler"
PublishedProfiles = Mapping[str, ProfileSettings | str]
"""By scheduler name, its profile, or why it cannot be read."""


def as_annotations(chosen: Settings) -> dict[str, str]:
    """Return what a scheduler puts on its Lease."""
    profiles = [_as_profile(one) for one in chosen.profiles]
    body = {"apiVersion": API_VERSION, "kind": KIND, "profiles": profiles}
    return {ANNOTATION: json.dumps(body, separators=(",", ":"))}


def _as_profile(one: ProfileSettings) -> JsonObject:
    profile: JsonObject = {"schedulerName": one.name, "percentageOfNodesToScore": one.percentage}
    plugins = {point: _as_set(found) for point, found in one.plugins.items()}
    arguments = [{"name": name, "args": dict(args)} for name, args in one.arguments.items()]
    return profile | ({"plugins": plugins} if plugins else {}) | ({"pluginConfig": arguments} if arguments else {})


def _as_set(found: PluginSet) -> JsonObject:
    enabled = [{"name": one.name} | ({"weight": one.weight} if one.weight else {}) for one in found.enabled]
    return {"enabled": enabled, "disabled": [{"name": name} for name in sorted(found.disabled)]}


def read_published(leases: Iterable[JsonObject]) -> dict[str, ProfileSettings | str]:
    """Return the profiles that the Leases of kube-system name; of two of a name the cluster's own scheduler's."""
    found: dict[str, ProfileSettings | str] = {}
    for lease in sorted(leases, key=lambda one: (objects.name(one) != _FIRST, objects.name(one))):
        if (text := objects.annotations(lease).get(ANNOTATION)) is not None:
            for name, one in _profiles(text, f"Lease {NAMESPACE}/{objects.name(lease)}").items():
                found.setdefault(name, one)
    return found


def _profiles(text: str, where: str) -> dict[str, ProfileSettings | str]:
    try:
        document = json.loads(text)
        raw: Any = document["profiles"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        return {DEFAULT_SCHEDULER: f"{where}: annotation {ANNOTATION}: it is no {KIND}: {error}"}
    found: dict[str, ProfileSettings | str] = {}
    for one in raw if isinstance(raw, list) else ():
        name = one.get("schedulerName") if isinstance(one, Mapping) else None
        if isinstance(name, str):
            found.setdefault(name, _profile({**document, "profiles": [one]}, where))
    return found


def _profile(document: JsonObject, where: str) -> ProfileSettings | str:
    try:
        return settings(Located(document, where, {})).profiles[0]
    except ConfigurationError as error:
        return str(error)

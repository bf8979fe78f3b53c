"""CSI drivers that want to be called by this node: what they say of it, and what they are told.

Source: kubelet's plugin manager (``pkg/kubelet/pluginmanager``) and ``pkg/volume/csi`` (``RegisterPlugin``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Any, NamedTuple

from ..core.paths import PLUGINS_REGISTRY
from . import csi_calls
from .csi_calls import Caller, Plugin, Refused

INFO_S = 5.0


class Registered(NamedTuple):
    """What each driver says of the node, by its name, and why others could not be asked, by their sockets' names."""

    drivers: dict[str, dict[str, Any]]
    errors: dict[str, str]


def register(known: Collection[str] = (), *, check: bool = False, folder: str = PLUGINS_REGISTRY) -> Registered:
    """Ask every driver about the node; registrars of drivers that are not ``known`` are told what came of it."""
    found, errors = csi_calls.plugins(folder)
    drivers: dict[str, dict[str, Any]] = {}
    for plugin in found:
        why = ""
        try:
            drivers[plugin.name] = _info(plugin)
        except Refused as refused:
            why = errors[plugin.path.rpartition("/")[2]] = f"{plugin.name}: {refused}"
        if not check and (why or plugin.name not in known):
            _notify(plugin, why)
    return Registered(drivers, errors)


def _info(plugin: Plugin) -> dict[str, Any]:
    with contextlib.closing(Caller(plugin.endpoint, INFO_S)) as driver:
        info = driver.call("csi.v1.Node/NodeGetInfo")
    if not info["node_id"]:
        raise Refused("NodeGetInfo names no node_id")
    topology = (info["topology"] or {}).get("segments") or {}
    return {"node_id": info["node_id"], "max_volumes": info["max_volumes_per_node"], "topology": topology}


def _notify(plugin: Plugin, why: str) -> None:
    """Tell a registrar whether its driver is registered; one that is told an error ends, and so is started again."""
    with contextlib.suppress(Refused), contextlib.closing(Caller(plugin.path, csi_calls.REGISTER_S)) as registrar:
        method = "pluginregistration.Registration/NotifyRegistrationStatus"
        registrar.call(method, plugin_registered=not why, error=why)

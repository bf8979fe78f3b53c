"""Admission: what is done to a write, and asked of it, besides its own kind's rules. ``PLUGINS`` is the order.

A plugin changes the new object (``mutate``, before validation) or refuses it (``validate``, after). Writes the server
makes for itself carry no asker and pass no plugin. Order and meaning follow kube-apiserver's
``--enable-admission-plugins`` (pkg/kubeapiserver/options/plugins.go).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from minik8s_modules.api.kinds import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver import escalation, node_access
from minik8s_modules.apiserver.backend import Backend
from minik8s_modules.apiserver.incoming import Options
from minik8s_modules.apiserver.target import Target
from minik8s_modules.apiserver.write import Operation, Write


class Plugin(NamedTuple):
    """One member of the chain: which writes it sees, and what it does; ``kinds`` None is all."""

    name: str
    phase: Literal["mutate", "validate"]
    operations: tuple[Operation, ...]
    kinds: tuple[Kind, ...] | None
    act: Callable[[Write], None]


_CREATE_UPDATE: tuple[Operation, ...] = ("create", "update")

_ALL: tuple[Operation, ...] = ("create", "update", "delete")

PLUGINS: tuple[Plugin, ...] = (
    Plugin("NodeRestriction", "validate", _ALL, node_access.KINDS, node_access.restrict),
    Plugin("RoleEscalation", "validate", _CREATE_UPDATE, (ROLE, CLUSTER_ROLE), escalation.check_role),
    Plugin(
        "BindEscalation", "validate", _CREATE_UPDATE, (ROLE_BINDING, CLUSTER_ROLE_BINDING), escalation.check_binding
    ),
)


def run(
    phase: Literal["mutate", "validate"],
    backend: Backend,
    operation: Operation,
    target: Target,
    obj: JsonObject | None,
    old: JsonObject | None,
    options: Options,
) -> None:
    """Let the plugins of ``phase`` see a write; whatever they raise is the client's answer."""
    if options.asker is None:
        return
    write = Write(backend, operation, target, obj, old, options, options.asker)
    for plugin in PLUGINS:
        if (
            plugin.phase == phase
            and operation in plugin.operations
            and (plugin.kinds is None or target.kind in plugin.kinds)
        ):
            plugin.act(write)

"""Every daemon that the roles declare, as the module minik8s_daemons gets it on one machine that is everything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from jinja2 import StrictUndefined
from jinja2.nativetypes import NativeEnvironment

from minik8s_modules.module_utils.minik8s.install.confinement import Confinement
from minik8s_modules.module_utils.minik8s.install.daemons import Daemon

ROLES = Path(__file__).resolve().parents[3] / "roles"
MODULE = "minik8s_daemons"
_VARIABLES: dict[str, Any] = {
    "minik8s_several": False,
    "coredns_built": "/opt/minik8s/bin/coredns",
    **yaml.safe_load((ROLES / "minik8s/defaults/main.yml").read_text()),
}
_JINJA = NativeEnvironment(undefined=StrictUndefined)


def declared() -> dict[str, Daemon]:
    """Return the daemons by name; their commands are not the real ones."""
    variables = yaml.safe_load((ROLES / "control_plane/vars/main.yml").read_text())
    known = {**_VARIABLES, "control_plane_peers": _templated(variables["control_plane_peers"], _VARIABLES)}
    others = [entry for entry in _entries() if "control_plane_daemon" not in str(entry.get("confinement"))]
    made = [_made(entry, known) for entry in [*others, *variables["control_plane_daemons"]]]
    return {daemon.name: daemon for daemon in made}


def _made(entry: dict[str, Any], variables: dict[str, Any]) -> Daemon:
    known = {name: _templated(entry[name], variables) for name in ("name", "user", "confinement") if name in entry}
    confinement = Confinement(**known.get("confinement", {}))
    user = known.get("user", "root")
    return Daemon(known["name"], entry["description"], ("/bin/true",), user, confinement=confinement)


def _entries() -> Iterator[dict[str, Any]]:
    for path in sorted(ROLES.glob("*/tasks/*.yml")):
        for task in _tasks(yaml.safe_load(path.read_text()) or []):
            yield from task.get(MODULE, {}).get("daemons", [])


def _tasks(tasks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for task in tasks:
        yield task
        yield from _tasks(task.get("block", []))


def _templated(value: Any, variables: dict[str, Any]) -> Any:
    if isinstance(value, str):
        return _JINJA.from_string(value).render(variables)
    if isinstance(value, dict):
        return {key: _templated(one, variables) for key, one in value.items()}
    return [_templated(one, variables) for one in value] if isinstance(value, list) else value

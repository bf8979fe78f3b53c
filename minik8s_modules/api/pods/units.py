"""A Pod as a unit of systemd on a host of an inventory group: an entry of ``minik8s_units``, or why it is none. Pure.

The provider ``ansible`` declares the entry, and a plan shows the unit that it makes. Values of variables never stand
in it; they travel apart.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.carried_fields import GRACE_S, Carrier, mounts_of, refusals
from minik8s_modules.api.pods.scripts import script_of, unfit
from minik8s_modules.api.pods.slurm import IMAGE
from minik8s_modules.api.quantities import to_bytes, to_milli

DOMAIN = "ansible.minik8s.io"
GROUP = f"{DOMAIN}/group"
"""Label of the node."""
USERS = f"{DOMAIN}/users"
"""Annotation of the node: as whom units may run, separated by commas; the first is taken where a Pod names none."""
ROLE, PLAYBOOK, HOSTS, CHECK = (f"{DOMAIN}/{name}" for name in ("role", "playbook", "hosts", "check"))
USER = f"{DOMAIN}/user"
_RESTART = {"Never": "no", "OnFailure": "on-failure", "Always": "always"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_DIRECTORY = re.compile(r"/[^\x00-\x1f\x7f\\]*\Z")
_RESOURCES = frozenset({"cpu", "memory"})
_CARRIER = Carrier(
    "a unit of systemd",
    frozenset({"restartPolicy", "terminationGracePeriodSeconds", "hostNetwork"}),
    frozenset({"command", "args", "workingDir", "env", "envFrom", "resources", "imagePullPolicy"}),
)


class NoUnit(ValueError):
    """The Pod cannot be a unit; the message names the field and says what to do."""


class DeclaredUnit(NamedTuple):
    """The entry of a unit, the values that travel beside it, and the host that the Pod names ("" for any)."""

    entry: JsonObject
    environment: dict[str, str]
    host: str


def is_unit(pod: JsonObject) -> bool:
    """Return whether the Pod names neither a role nor a playbook."""
    said = objects.annotations(pod)
    return not said.get(ROLE) and not said.get(PLAYBOOK)


def declared_unit(pod: JsonObject, users: Sequence[str]) -> DeclaredUnit:
    """Return what ``pod``, whose variables are resolved, becomes; ``users`` are those that it may run as.

    Raises:
        NoUnit: it cannot be one.
    """
    container = _container(pod)
    said = objects.annotations(pod)
    if CHECK in said:
        raise NoUnit(f"annotation {CHECK}: a unit is not checked; `minik8s plan` shows it")
    environment = _environment(container)
    if not container.get("command"):
        raise NoUnit(f"spec.containers[0].command: set it (or the annotation {ROLE}, to have a role run)")
    script = script_of(container, environment)
    if why := unfit(script):
        raise NoUnit(f"spec.containers[0].command, args: {why}")
    limits = (container.get("resources") or {}).get("limits") or {}
    if unknown := sorted({*limits, *((container.get("resources") or {}).get("requests") or {})} - _RESOURCES):
        raise NoUnit(f"resources {unknown[0]}: a unit may ask for cpu and memory only")
    grace_s = objects.metadata(pod).get("deletionGracePeriodSeconds")
    entry: JsonObject = {
        "name": f"{objects.namespace(pod)}/{objects.name(pod)}",
        "user": _user(said, users),
        "script": script,
        "restart": _RESTART[objects.spec(pod).get("restartPolicy", "Always")],
        "directory": _directory(container),
        "grace_s": int(objects.spec(pod).get("terminationGracePeriodSeconds", GRACE_S) if grace_s is None else grace_s),
    }
    if limits.get("cpu"):
        entry["cpu_milli"] = max(1, to_milli(limits["cpu"]))
    if limits.get("memory"):
        entry["memory_bytes"] = max(1, to_bytes(limits["memory"]))
    if environment:
        entry["values"] = hashlib.sha256(json.dumps(environment, sort_keys=True).encode()).hexdigest()
    return DeclaredUnit(entry, environment, _host(said))


def without_variables(pod: JsonObject) -> JsonObject:
    """Return ``pod`` as it declares itself: what its variables resolve to changes with Secrets and Services."""
    containers = [{**one, "env": []} for one in objects.containers(pod)]
    return {**pod, "spec": {**objects.spec(pod), "containers": containers}}


def _container(pod: JsonObject) -> JsonObject:
    if len(objects.containers(pod)) != 1:
        raise NoUnit("spec.containers: a unit has one program; make a Pod of each")
    container = objects.containers(pod)[0]
    if container.get("image", "").partition(":")[0] != IMAGE:
        raise NoUnit(f"spec.containers[0].image: no image runs on these machines; write {IMAGE}")
    if objects.spec(pod).get("securityContext") or container.get("securityContext"):
        raise NoUnit(f"securityContext: a unit has none; name its user by the annotation {USER}")
    if mounts_of(container):
        raise NoUnit("spec.containers[0].volumeMounts: a unit has no volumes; pass what it needs by env")
    for why in refusals(pod, _CARRIER):
        raise NoUnit(why)
    return container


def _user(said: Mapping[str, str], users: Sequence[str]) -> str:
    user = said.get(USER) or (users[0] if users else "")
    if not users:
        raise NoUnit(f"this node runs roles and playbooks only: name one by {ROLE} or {PLAYBOOK}")
    if user not in users:
        raise NoUnit(f"annotation {USER} {user!r:.80}: this node runs units as {', '.join(users)}")
    return user


def _host(said: Mapping[str, str]) -> str:
    host = said.get(HOSTS, "").strip()
    if "," in host:
        raise NoUnit(f"annotation {HOSTS}: a unit runs on one host; name one, or none to have it chosen")
    return host


def _directory(container: JsonObject) -> str:
    folder = container.get("workingDir") or "/"
    if not _DIRECTORY.match(folder):
        raise NoUnit(f"spec.containers[0].workingDir {folder!r:.80}: give an absolute path without control characters")
    return str(folder)


def _environment(container: JsonObject) -> dict[str, str]:
    found = {}
    for variable in container.get("env") or []:
        if variable.get("valueFrom") is not None:
            raise NoUnit(f"env {variable['name']}: its valueFrom is not known to this provider")
        if not _NAME.match(variable["name"]):
            raise NoUnit(f"env {variable['name']!r:.80}: systemd knows no variable of such a name")
        value = str(variable.get("value") or "")
        if why := unfit(value):
            raise NoUnit(f"env {variable['name']}: {why}; correct what its value comes from")
        found[variable["name"]] = value
    return found

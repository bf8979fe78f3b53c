"""A Pod as a run of Ansible, or the reason why it cannot be one. Pure but for what it looks up.

What a Pod says is data: names of roles, playbooks and hosts are looked up among those that the configuration allows,
and variables stand below one name of ours, marked unsafe. So a Pod sets no connection, no variable of a role that the
role does not read from there, and no template.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.carried_fields import Carrier, mounts_of, refusals
from minik8s_modules.api.pods.slurm import IMAGE
from minik8s_modules.api.pods.units import CHECK, HOSTS, PLAYBOOK, ROLE
from minik8s_modules.virtual.errors import InvalidInput
from minik8s_modules.virtual.providers.ansible_runs.settings import Settings

STEERING = (ROLE, PLAYBOOK, HOSTS, CHECK)
VARIABLE = "minik8s_pod"
"""Of a play: ``name``, ``namespace``, ``uid`` and ``env`` of the Pod."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_CARRIER = Carrier(
    "a run of Ansible",
    frozenset({"restartPolicy", "terminationGracePeriodSeconds"}),
    frozenset({"env", "envFrom", "resources", "imagePullPolicy"}),
)


class RunRequest(NamedTuple):
    """A run: the play that is written for it or the playbook that is there, its hosts, variables, and check mode."""

    play: str
    playbook: Path | None
    hosts: tuple[str, ...]
    variables: str
    check: bool


class _Unsafe(str):
    """A text that Ansible must not take for a template."""


class _Dumper(yaml.SafeDumper):
    """Writes such texts with their tag."""


_Dumper.add_representer(_Unsafe, lambda dumper, text: dumper.represent_scalar("!unsafe", str(text), style='"'))


def asked(pod: JsonObject, settings: Settings) -> RunRequest:
    """Return what is to be run for ``pod``, whose variables are resolved.

    Raises:
        InvalidInput: the Pod cannot be a run; the message names the field and says what to do.
    """
    _check_fields(pod)
    said = objects.annotations(pod)
    role, playbook = said.get(ROLE, ""), said.get(PLAYBOOK, "")
    if bool(role) == bool(playbook):
        raise InvalidInput(f"annotations {ROLE} and {PLAYBOOK}: name exactly one of them")
    if said.get(CHECK, "false") not in {"true", "false"}:
        raise InvalidInput(f'annotation {CHECK} {said[CHECK]!r:.80} must be "true" or "false"')
    hosts = _hosts(said.get(HOSTS, ""), settings)
    if playbook:
        where, play = _named(PLAYBOOK, playbook, settings.playbooks, "*.yml"), ""
    else:
        where, play = None, _play(pod, _named(ROLE, role, settings.roles, "*/").name, hosts, settings)
    return RunRequest(play, where, hosts, _variables(pod), said.get(CHECK) == "true")


def remarks(pod: JsonObject) -> Iterator[str]:
    """Yield what a run's Pod asks for that nobody does, and that is no reason to refuse it."""
    for container in objects.containers(pod):
        for name in sorted((container.get("resources") or {}).get("limits") or {}):
            yield f"resources.limits.{name}: nothing limits a run of Ansible; its requests take room on the node"


def _check_fields(pod: JsonObject) -> None:
    if len(objects.containers(pod)) != 1:
        raise InvalidInput("spec.containers: a run of Ansible is one container")
    container = objects.containers(pod)[0]
    if container.get("image", "").partition(":")[0] != IMAGE:
        raise InvalidInput(f"spec.containers[0].image: no image runs on these machines; write {IMAGE}")
    if objects.spec(pod).get("restartPolicy", "Always") != "Never":
        raise InvalidInput(
            "spec.restartPolicy: a run ends, and is run once; choose Never, and a Job to have it tried again"
        )
    if mounts_of(container):
        raise InvalidInput("spec.containers[0].volumeMounts: a run has no volumes; pass what it needs by env")
    for why in refusals(pod, _CARRIER):
        raise InvalidInput(why)


def _named(annotation: str, name: str, folder: Path | None, pattern: str) -> Path:
    """Return what the annotation names: only what stands in the folder by that very name."""
    there = {path.name.removesuffix(".yml"): path for path in folder.glob(pattern)} if folder is not None else {}
    if not _NAME.match(name) or name not in there:
        raise InvalidInput(f"annotation {annotation} {name!r:.80}: there are {', '.join(sorted(there)) or 'none'}")
    return there[name]


def _hosts(said: str, settings: Settings) -> tuple[str, ...]:
    wanted = tuple(part.strip() for part in said.split(",") if part.strip())
    if strange := [name for name in wanted if name not in settings.hosts]:
        raise InvalidInput(f"annotation {HOSTS}: {strange[0]!r:.80} is no host of the group {settings.group}")
    return wanted or settings.hosts


def _play(pod: JsonObject, role: str, hosts: tuple[str, ...], settings: Settings) -> str:
    play = {
        "name": f"Pod {objects.namespace(pod)}/{objects.name(pod)}",
        "hosts": [*hosts],
        "become": settings.become,
        "roles": [{"role": role}],
    }
    return yaml.safe_dump([play], sort_keys=False)


def _variables(pod: JsonObject) -> str:
    container = objects.containers(pod)[0]
    environment: dict[str, Any] = {}
    for variable in container.get("env") or []:
        if variable.get("valueFrom") is not None:
            raise InvalidInput(f"env {variable['name']}: its valueFrom is not known to this provider")
        if not _VARIABLE.match(variable["name"]):
            raise InvalidInput(f"env {variable['name']!r:.80}: Ansible knows no variable of such a name")
        environment[variable["name"]] = _Unsafe(variable.get("value") or "")
    told = {
        "name": objects.name(pod),
        "namespace": objects.namespace(pod),
        "uid": objects.uid(pod),
        "env": environment,
    }
    return yaml.dump({VARIABLE: told}, Dumper=_Dumper, allow_unicode=True, sort_keys=True)

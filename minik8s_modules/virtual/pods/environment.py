"""The environment of a virtual node's Pod, resolved before the provider gets it; virtual-kubelet's ``podutils``.

``env``, ``envFrom``, fieldRef, resourceFieldRef and the variables of Services become plain ``env`` (with the code that
real nodes have, ``reconcile/values/environment.py``). What is missing and mandatory is an Event and an error: the Pod
stays Pending and is tried again. What is missing and optional is an Event.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.reconcile.values.environment import ConfigurationMissing, SecretValue, environment
from minik8s_modules.reconcile.values.values import PodInputs, Settings
from minik8s_modules.virtual.provider import Resources

_NAMES = {"configMap": "ConfigMap", "secret": "Secret"}


class MissingReference(TemporaryError):
    """The Pod's environment names what is not there; it may come."""


class Reference(NamedTuple):
    """A ConfigMap or Secret that a variable comes from; ``key`` "" is all of it."""

    kind: str
    name: str
    key: str
    optional: bool


class Problem(NamedTuple):
    """Something that is missing, as an Event tells it."""

    reason: str
    message: str
    mandatory: bool


class Surroundings(NamedTuple):
    """What an environment is made from beside the Pod and what it refers to.

    Attributes:
        node: the Pod's node.
        api_address: HOST:PORT at which Pods reach the API server, "" where that is not told.
        links: variables of the Services of a namespace.
    """

    node: JsonObject
    api_address: str = ""
    links: Callable[[str], Mapping[str, str]] = lambda _: {}


def resolved(
    pod: JsonObject, resources: Resources, around: Surroundings, tell: Callable[[Problem], None]
) -> JsonObject:
    """Return a copy of ``pod`` whose containers have nothing but plain variables.

    Raises:
        MissingReference: something mandatory is missing; ``tell`` was called with it.
    """
    found = _looked_up(pod, resources)
    problems = [*find_problems(pod, found)]
    for problem in problems:
        tell(problem)
    missing = [problem.message for problem in problems if problem.mandatory]
    if missing:
        raise MissingReference("; ".join(missing))
    inputs = _inputs(pod, found, around)
    made = copy.deepcopy(pod)
    for _, _, container in objects.all_containers(made):
        container["env"] = _plain(made, container, inputs)
        container.pop("envFrom", None)
    return made


def _plain(pod: JsonObject, container: JsonObject, inputs: PodInputs) -> list[JsonObject]:
    try:
        known = environment(pod, container, inputs)
    except ConfigurationMissing as error:
        raise MissingReference(f"container {container['name']}: {error}") from error
    return [{"name": name, "value": _text(value)} for name, value in known.variables.items()]


def _text(value: str | SecretValue) -> str:
    return value if isinstance(value, str) else value.value.decode("utf-8", "surrogateescape")


def _inputs(pod: JsonObject, found: Mapping[tuple[str, str], JsonObject | None], around: Surroundings) -> PodInputs:
    def of(kind: str) -> dict[str, JsonObject]:
        space = objects.namespace(pod)
        return {f"{space}/{name}": obj for (one, name), obj in found.items() if one == kind and obj is not None}

    return PodInputs(
        node=around.node,
        configmaps=of("configMap"),
        secrets=of("secret"),
        images=frozenset(),
        pulls={},
        address=str(objects.status(pod).get("podIP") or "") or None,
        errors={},
        settings=Settings(api_address=around.api_address),
        links=around.links(objects.namespace(pod)),
    )


def references(pod: JsonObject) -> Iterator[Reference]:
    """Yield what the variables of ``pod`` come from."""
    for _, _, container in objects.all_containers(pod):
        for source in container.get("envFrom") or []:
            yield from _named(source, "Ref")
        for variable in container.get("env") or []:
            if not variable.get("value"):
                yield from _named(variable.get("valueFrom") or {}, "KeyRef")


def _named(source: Mapping[str, Any], suffix: str) -> Iterator[Reference]:
    for kind in _NAMES:
        wanted = source.get(f"{kind}{suffix}")
        if wanted is not None:
            optional = bool(wanted.get("optional"))
            yield Reference(kind, str(wanted.get("name") or ""), str(wanted.get("key") or ""), optional)


def _looked_up(pod: JsonObject, resources: Resources) -> dict[tuple[str, str], JsonObject | None]:
    space = objects.namespace(pod)
    ask = {"configMap": resources.config_map, "secret": resources.secret}
    wanted = dict.fromkeys((each.kind, each.name) for each in references(pod))
    return {(kind, name): ask[kind](space, name) for kind, name in wanted}


def find_problems(pod: JsonObject, found: Mapping[tuple[str, str], JsonObject | None]) -> Iterator[Problem]:
    """Yield what is missing of what the variables of ``pod`` come from, with upstream's reasons."""
    for each in dict.fromkeys(references(pod)):
        obj = found.get((each.kind, each.name))
        called, must = _NAMES[each.kind], "Optional" if each.optional else "Mandatory"
        full = f"{objects.namespace(pod)}/{each.name}"
        if obj is None:
            yield Problem(f"{must}{called}NotFound", f'{called} "{full}" not found', not each.optional)
        elif each.key and each.key not in (obj.get("data") or {}):
            text = f'key "{each.key}" does not exist in {called} "{full}"'
            yield Problem(f"{must}{called}KeyNotFound", text, not each.optional)

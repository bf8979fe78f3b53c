"""The objects of a workload, from files that name ``{{ .Index }}`` and little more (Go's text/template)."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Callable
from pathlib import Path

import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from tests.benchmarks.deciding.scheduler_perf.operations import NotUnderstood

_OPERAND = r"\.Index|\.Count|\d+"
_ACTION = re.compile(
    rf"\{{\{{\s*(?:(?P<function>mod|div)\s+(?P<left>{_OPERAND})\s+(?P<right>{_OPERAND})|(?P<plain>{_OPERAND}))\s*\}}\}}"
)
BASE_NODE: JsonObject = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {},
    "status": {
        "capacity": {"cpu": "4", "memory": "32Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
"""What a node is that has no template (``makeBaseNode``)."""
BASE_POD: JsonObject = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "pod-"},
    "spec": {
        "containers": [
            {
                "name": "pause",
                "image": "registry.k8s.io/pause:3.10",
                "ports": [{"containerPort": 80}],
                "resources": {
                    "limits": {"cpu": "100m", "memory": "500Mi"},
                    "requests": {"cpu": "100m", "memory": "500Mi"},
                },
            }
        ]
    },
}
"""What a pod is that has no template (``makeBasePod``)."""

Template = Callable[[int, int], JsonObject]
"""Makes the object of an index out of a count."""


def template(file: Path) -> Template:
    """Return what makes the objects of a file.

    Raises:
        NotUnderstood: there is an action in it that is not understood.
    """
    text = file.read_text(encoding="utf-8")
    if "{{" in _ACTION.sub("", text):
        raise NotUnderstood(f"{file}: only .Index and .Count, with mod and div, are understood between braces")
    if "{{" not in text:
        whole = yaml.safe_load(text)
        return lambda _index, _count: copy.deepcopy(whole)
    return lambda index, count: _filled(text, index, count)


def _filled(text: str, index: int, count: int) -> JsonObject:
    made: JsonObject = yaml.safe_load(_ACTION.sub(functools.partial(_value, {".Index": index, ".Count": count}), text))
    return made


def _value(values: dict[str, int], found: re.Match[str]) -> str:
    def number(operand: str) -> int:
        return values[operand] if operand in values else int(operand)

    if found["plain"]:
        return str(number(found["plain"]))
    left, right = number(found["left"]), number(found["right"])
    return str(left % right if found["function"] == "mod" else left // right)


def node(made: JsonObject, name: str, labels: JsonObject) -> JsonObject:
    """Return a node that can take pods: named, labelled with its name and ``labels``, all of it allocatable."""
    meta = {"name": name, **{key: value for key, value in objects.metadata(made).items() if key != "generateName"}}
    status = objects.status(made)
    own = {"kubernetes.io/hostname": meta["name"], **(meta.get("labels") or {}), **labels}
    allocatable = status.get("allocatable") or status.get("capacity") or {}
    return {**made, "metadata": {**meta, "labels": own}, "status": {**status, "allocatable": allocatable}}


def within(made: JsonObject, namespace: str) -> JsonObject:
    """Return an object in a namespace."""
    return {**made, "metadata": {**objects.metadata(made), "namespace": namespace}}

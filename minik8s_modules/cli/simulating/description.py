"""What is simulated, read into objects: documents of node groups, and manifests as they are applied or printed.

A document with ``nodes`` declares groups; all others are objects or Lists, so that what ``kubectl get -o yaml`` prints
is a description, too. What a person wrote is defaulted and checked as the API server does it; what has a UID comes from
a cluster, which has done so.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from minik8s_modules.api import objects
from minik8s_modules.api.defaulting.defaults import apply_defaults
from minik8s_modules.api.errors import BadRequest, Cause
from minik8s_modules.api.kinds import NODE, POD, Kind
from minik8s_modules.api.lifecycle.strategy import prepare_create
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.resources import node_allocatable, pod_requests
from minik8s_modules.api.schema.structural import type_errors
from minik8s_modules.api.validation import validate_create
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.base.config import Configuration
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.original.manifests import documents, objects_of
from minik8s_modules.cli.simulating.cluster import kind_of
from minik8s_modules.controllers.simulation.simulated_cluster import placeholder_uid

GROUP = "simulation.minik8s.io/group"
"""The label by which nodes of a group are told apart from others."""
_INDEX = "{index}"
_NUMBERED = re.compile(r"[-_.]?\d+\Z")
_MOST_NODES = 20_000


class Description(NamedTuple):
    """What files say: objects that a simulation regards, and how many there are of each kind that it does not."""

    objects: tuple[JsonObject, ...]
    left_out: Mapping[str, int]


def read(paths: Sequence[str], namespace: str, now: datetime, *, recursive: bool = False) -> Description:
    """Return what files say.

    Raises:
        UsageError: a file cannot be read, or holds what cannot be created.
        ConfigurationError: a group of nodes is not declared right.
    """
    found: list[JsonObject] = []
    left_out: Counter[str] = Counter()
    for document, where in _documents(paths, recursive=recursive):
        if isinstance(document, dict) and "nodes" in document and "kind" not in document:
            found += (_created(NODE, node, where, now) for node in _declared(document, where, now))
            continue
        for obj, _ in objects_of(document, where, namespace):
            kind = kind_of(obj)
            if kind is None:
                left_out[str(obj["kind"])] += 1
            elif not objects.is_deleting(obj):
                found.append(_created(kind, obj, where, now))
    return Description(tuple(found), left_out)


def group_of(node: JsonObject) -> str:
    """Return the group a node belongs to: what its label says, else its name without the number at its end."""
    name = objects.name(node)
    return objects.labels(node).get(GROUP) or _NUMBERED.sub("", name) or name


def new_nodes(like: JsonObject, count: int, taken: Iterable[str]) -> list[JsonObject]:
    """Return ``count`` nodes more that are as one of a group is."""
    names, group = set(taken), group_of(like)
    made: list[JsonObject] = []
    number = 0
    while len(made) < count:
        number += 1
        name = f"{group}-new-{number}"
        if name not in names:
            made.append(_node_named(like, name, group))
    return made


def _node_named(like: JsonObject, name: str, group: str) -> JsonObject:
    labels = {**objects.labels(like), "kubernetes.io/hostname": name, GROUP: group}
    spec = {field: value for field, value in objects.spec(like).items() if field in {"taints"}}
    return {
        "apiVersion": "v1", "kind": "Node", "spec": spec, "status": copy.deepcopy(objects.status(like)),
        "metadata": {"name": name, "labels": labels, "uid": placeholder_uid("", f"Node/{name}")},
    }  # fmt: skip


def _documents(paths: Sequence[str], *, recursive: bool) -> Iterator[tuple[Any, str]]:
    """Yield the documents of files; JSON, of which a snapshot may be megabytes, is not read as YAML."""
    for path in paths:
        text = b""
        if path.endswith(".json") and Path(path).is_file():
            text = Path(path).read_bytes()
        try:
            yield orjson.loads(text), path
        except orjson.JSONDecodeError:
            yield from documents([path], recursive=recursive)


def _declared(document: JsonObject, where: str, now: datetime) -> Iterator[JsonObject]:
    told = Configuration(document, where)
    rows = told.rows("nodes")
    _all_known(told)
    for at, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise UsageError(f"{where}: nodes[{at}] must be a mapping with name, count and capacity, not {row!r}")
        yield from _group(Configuration(row, f"{where}: nodes[{at}]"), now)


def _group(row: Configuration, now: datetime) -> Iterator[JsonObject]:
    name, count, capacity = row.text("name"), row.number("count", 1), row.mapping("capacity")
    labels = row.mapping("labels") if row.has("labels") else {}
    taints = row.rows("taints") if row.has("taints") else []
    _all_known(row)
    if not 0 <= count <= _MOST_NODES:
        raise UsageError(f"{row.file}: count must be from 0 to {_MOST_NODES}, not {count}")
    if count > 1 and _INDEX not in name:
        raise UsageError(f"{row.file}: name must contain {_INDEX} where count is more than one")
    group = name.replace(_INDEX, "").rstrip("-_.") or name
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": rfc3339(now), "lastTransitionTime": rfc3339(now)}
    for index in range(count):
        called = name.replace(_INDEX, str(index))
        own = {"kubernetes.io/hostname": called, GROUP: group, **labels}
        yield {
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": called, "labels": own}, "spec": {"taints": taints},
            "status": {"capacity": capacity, "allocatable": capacity, "conditions": [ready]},
        }  # fmt: skip


def _all_known(told: Configuration) -> None:
    if unread := told.unread():
        raise UsageError(f"{told.file}: no such field: {', '.join(unread)}")


def _created(kind: Kind, obj: JsonObject, where: str, now: datetime) -> JsonObject:
    """Return an object as the API server would store it. Raises UsageError."""
    called = f"{where}: {kind.kind} {objects.name(obj) or objects.metadata(obj).get('generateName', '')}"
    obj = copy.deepcopy(obj)
    causes = type_errors(kind, obj)
    if not causes:
        try:
            causes = _prepared(kind, obj, now)
            _counted(kind, obj)
        except (BadRequest, ValueError) as error:
            raise UsageError(f"{called}: {error}") from error
    if causes:
        raise UsageError(f"{called}: {'; '.join(map(str, causes))}")
    return obj


def _prepared(kind: Kind, obj: JsonObject, now: datetime) -> list[Cause]:
    if objects.uid(obj):
        return []
    apply_defaults(kind, obj)
    space = objects.namespace(obj)
    key = objects.name(obj) if kind == POD else f"{kind.kind}/{objects.name(obj)}"
    prepare_create(kind, obj, namespace=space, now=now, uid=placeholder_uid(space, key), name_suffix="00000")
    return validate_create(kind, obj)


def _counted(kind: Kind, obj: JsonObject) -> None:
    """Raise ValueError where a quantity is none."""
    if kind == NODE:
        node_allocatable(obj)
    if kind == POD:
        pod_requests(obj)
    template = objects.dig(obj, "spec", "template")
    if isinstance(template, dict):
        pod_requests(template)

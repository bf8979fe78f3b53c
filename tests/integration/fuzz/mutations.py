"""Manifests that are almost right, by number: the same number gives the same manifest on every machine.

A manifest begins as a valid one (of the examples, the original's, or a sample of any kind). Fields that its type knows
are added with plausible values (``grow``), then parts are replaced, removed, renamed, doubled or moved (``mutate``).
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.schema.shapes import Shape, kind_shape

Place = tuple[Any, ...]
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 1.5, 65536, 2**31, 2**63, -(2**63) - 1, 1e308, "", " ", "x", "x" * 254, "é", "\u0000",
    "a\nb", "../..", "{{ 7 * 7 }}", "$(id)", "0x10", "1e9999", "-1Gi", "∞", "NaN", "1", "true", "2026-13-40T25:61:61Z",
    "2026-01-01T00:00:00Z", "10.0.0.256", "::1", "a/b/c", "UPPER", "-dash", [], [None], [[]], [{}], {}, {"": ""},
    {"a": None}, {"a": {"a": {"a": {}}}}, ["a", "a"], [{"name": "a"}, {"name": "a"}], {"$patch": "delete"},
]  # fmt: skip
_TEXTS = [
    "a", "web", "default", "app", "busybox:1", "/data", "/", "100m", "1Gi", "Always", "Never", "TCP", "http", "80",
    "ClusterFirst", "None", "RuntimeDefault", "kubernetes.io/hostname", "In", "Exists", "Equal", "NoSchedule",
    "10.0.0.1", "10.0.0.0/8", "example.test", "*.example.test", "50%", "Utilization", "Resource", "cpu", "memory",
    "ReadWriteOnce", "Filesystem", "Delete", "Retain", "* * * * *", "Forbid", "system:nodes", "apps/v1", "Pod",
    "Parallel",
]  # fmt: skip
_NUMBERS = [0, 1, 2, 3, 30, 80, 300, 420, 443, 1000, 8080, 30080, 65535, -1]


def value_of(shape: Shape, dice: random.Random, depth: int = 0) -> Any:
    """Return a plausible value of a type; deep ones end in empty ones."""
    if shape.kind == "object":
        names = list(shape.fields) if depth < 5 else list(shape.required)
        chosen = {name for name in names if name in shape.required or dice.random() < 2.0 / (len(names) or 1)}
        return {name: value_of(shape.fields[name], dice, depth + 1) for name in sorted(chosen)}
    if shape.kind == "list":
        return [value_of(shape.item, dice, depth + 1) for _ in range(dice.choice([0, 1, 1, 2]))]
    if shape.kind == "map":
        return {dice.choice(_TEXTS): value_of(shape.item, dice, depth + 1) for _ in range(dice.choice([0, 1, 2]))}
    scalars: dict[str, Callable[[], Any]] = {
        "string": lambda: dice.choice(_TEXTS),
        "integer": lambda: dice.choice(_NUMBERS),
        "number": lambda: dice.choice([*_NUMBERS, 0.5]),
        "boolean": lambda: dice.random() < 0.5,
        "quantity": lambda: dice.choice(["1", "100m", "1Gi", "0", "-1", 2]),
        "intstr": lambda: dice.choice([1, 80, "http", "50%", "x"]),
    }
    return scalars[shape.kind]() if shape.kind in scalars else dice.choice([{}, {"a": 1}, "x", None])


def places(value: Any, path: Place = ()) -> list[Place]:
    """Return every place in a value, the value itself first."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, each in inner for place in places(each, (*path, key)))]


def at(value: Any, place: Place) -> Any:
    """Return what stands at a place."""
    for key in place:
        value = value[key]
    return value


def shape_at(shape: Shape | None, place: Place) -> Shape | None:
    """Return the type of a place, None where it is not known."""
    for key in place:
        if shape is None:
            return None
        shape = shape.items if isinstance(key, int) else shape.below(key)
    return shape


def grow(kind: Kind, obj: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    """Return the object with one more field somewhere, of a type that fits."""
    grown = copy.deepcopy(obj)
    found = [place for place in places(grown) if isinstance(at(grown, place), dict)]
    place = dice.choice(found)
    shape = shape_at(kind_shape(kind), place)
    if shape is None or shape.kind not in {"object", "map"}:
        return grown
    names = [name for name in shape.fields if name not in at(grown, place)] if shape.kind == "object" else _TEXTS
    if names:
        name = dice.choice(names)
        inner = shape.below(name)
        at(grown, place)[name] = value_of(inner, dice) if inner is not None else dice.choice(_TEXTS)
    return grown


def mutate(obj: dict[str, Any], dice: random.Random) -> Any:
    """Return the object with one part replaced, removed, renamed, doubled or put elsewhere."""
    changed = copy.deepcopy(obj)
    found = places(changed)[1:]
    place = dice.choice(found)
    holder, key = at(changed, place[:-1]), place[-1]
    how = dice.randrange(6)
    if how <= 1:
        holder[key] = copy.deepcopy(dice.choice(ODD))
    elif how == 2:
        del holder[key]
    elif how == 3 and isinstance(key, str):
        holder[dice.choice([key.upper(), f"{key}x", key[:-1], "", "name"])] = holder.pop(key)
    elif how == 4 and isinstance(holder, list):
        holder.append(copy.deepcopy(holder[key]))
    else:
        holder[key] = copy.deepcopy(at(changed, dice.choice(found)))
    return changed


def manifest(kind: Kind, base: dict[str, Any], number: int) -> Any:
    """Return the manifest of a number: grown up to three times, mutated up to twice."""
    dice = random.Random(number)
    obj: Any = base
    for _ in range(dice.choice([0, 1, 1, 2, 3])):
        obj = grow(kind, obj, dice)
    for _ in range(dice.choice([0, 1, 1, 2])):
        obj = mutate(obj, dice) if isinstance(obj, dict) and len(obj) > 1 else obj
    return obj

"""Nothing a client can write makes the API room fail in any other way than by a Status.

Objects are drawn from the schemas: right types with odd values for the rules, and any JSON for what runs before types
are checked. The seed is fixed, so a failure repeats.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest

from minik8s_modules.api.defaulting.conversion import from_storage, stored_kind, to_storage
from minik8s_modules.api.defaulting.defaults import apply_defaults
from minik8s_modules.api.defaulting.dialect import to_canonical
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.field_selectors import parse_field_selector, selectable_fields
from minik8s_modules.api.kinds import KINDS, POD
from minik8s_modules.api.lifecycle.strategy import graceful_deletion, prepare_create, prepare_update
from minik8s_modules.api.merging.patch import json_patch
from minik8s_modules.api.merging.strategic_merge import strategic_merge
from minik8s_modules.api.schema import structural
from minik8s_modules.api.selectors import parse_label_selector
from minik8s_modules.api.tables.printers import table_columns, table_row
from minik8s_modules.api.validation import validate_create, validate_update, warnings
from tests.unit.api import samples

EACH = pytest.mark.parametrize("kind", KINDS.all(), ids=lambda kind: f"{kind.kind}.{kind.group}")
TEXTS = [
    "",
    "a",
    "web",
    "../x",
    "A_b",
    "x" * 300,
    "\0",
    "{{ x }}",
    "a\n",
    "tcp",
    "None",
    "10.0.0.1",
    "::1",
    "Always",
    "é",
]
NUMBERS = [-1, 0, 1, 80, 65536, 2**31 - 1]
QUANTITIES = ["0", "1", "-1", "100m", "1Gi", 2, 0.5, "9999E", "1e3"]
DEEPEST = 9


def refused_or(attempt: Callable[..., Any], *arguments: Any) -> Any:
    """Return what ``attempt`` returns, None when it is refused with a Status that says why."""
    try:
        return attempt(*arguments)
    except StatusError as refused:
        return None if refused.message else pytest.fail("refused without a word")


class Drawn:
    """Random values of a shape."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def value(self, shape: structural.Shape, depth: int = 0) -> Any:
        """Return a value that the shape's type allows."""
        if self.random.random() < 0.05:
            return None
        if shape.kind == "object":
            return self._object(shape, depth)
        if shape.items is not None:
            return self._items(shape, depth)
        return self._scalar(shape)

    def _object(self, shape: structural.Shape, depth: int) -> dict[str, Any]:
        names = list(shape.fields)
        if depth > DEEPEST:
            return {}
        chance = 0.6 if depth < 3 else 3 / max(len(names), 3)
        return {name: self.value(shape.fields[name], depth + 1) for name in names if self.random.random() < chance}

    def _items(self, shape: structural.Shape, depth: int) -> Any:
        assert shape.items is not None
        count = self.random.randint(0, 2)
        if shape.kind == "list":
            return [self.value(shape.items, depth + 1) for _ in range(count)]
        return {self.random.choice(TEXTS): self.value(shape.items, depth + 1) for _ in range(count)}

    def _scalar(self, shape: structural.Shape) -> Any:
        choices: dict[str, list[Any]] = {
            "string": TEXTS, "integer": NUMBERS, "number": [1.5, 0], "boolean": [True, False], "quantity": QUANTITIES,
            "intstr": [*NUMBERS, *TEXTS], "any": [{}, {"a": None}],
        }  # fmt: skip
        formats = {"date-time": ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123456+01:00"], "byte": ["", "eA=="]}
        return self.random.choice(formats.get(shape.format, choices[shape.kind]))

    def json(self, depth: int = 0) -> Any:
        """Return any JSON."""
        kind = self.random.randint(0, 7 if depth < 4 else 4)
        simple = [None, True, self.random.choice(NUMBERS), 1.5, self.random.choice(TEXTS)]
        if kind < len(simple):
            return simple[kind]
        if kind == 5:
            return [self.json(depth + 1) for _ in range(self.random.randint(0, 3))]
        names = ["metadata", "spec", "Spec", "containers", "ports", "protocol", "annotations", "labels", "name", "data"]
        return {self.random.choice(names): self.json(depth + 1) for _ in range(self.random.randint(0, 4))}


@EACH
def test_odd_values_of_the_right_types(kind):
    drawn = Drawn(seed=7)
    for _ in range(150):
        obj = drawn.value(structural.kind_shape(kind)) or {}
        assert not structural.type_errors(kind, obj)
        apply_defaults(kind, obj)
        obj = to_storage(kind, obj)
        stored = stored_kind(kind)
        obj["metadata"].pop("resourceVersion", None)
        obj["metadata"].pop("namespace", None)
        prepare_create(stored, obj, namespace="default", now=samples.NOW, uid=samples.UID, name_suffix="abcde")
        assert all(cause.message for cause in validate_create(stored, obj))
        warnings(stored, obj)
        graceful_deletion(stored, obj, {}, samples.NOW)
        assert len(table_row(kind, from_storage(kind, obj), samples.NOW)) == len(table_columns(kind))


@EACH
def test_one_walk_tells_of_any_field_that_cannot_be_read(kind):
    drawn, readable = Drawn(seed=29), 0
    for _ in range(100):
        obj = drawn.value(structural.kind_shape(kind)) or {}
        assert structural.is_readable(kind, obj)
        assert to_canonical(kind, obj, known=True) == to_canonical(kind, obj)
        spoilt = spoil(drawn, structural.kind_shape(kind), obj)
        told = structural.type_errors(kind, spoilt) or structural.unknown_fields(kind, spoilt)
        assert structural.is_readable(kind, spoilt) == (not told)
        readable += not told
    assert readable < 90


def spoil(drawn: Drawn, shape: structural.Shape, value: Any) -> Any:
    """Return the value with one part of it replaced by any JSON, or with a field that the shape may not have."""
    if not value or not isinstance(value, (dict, list)) or drawn.random.random() < 0.2:
        return {**value, "Odd": 1} if isinstance(value, dict) and shape.kind == "object" else drawn.json()
    if isinstance(value, list):
        at = drawn.random.randrange(len(value))
        return [*value[:at], spoil(drawn, shape.item, value[at]), *value[at + 1 :]]
    name = drawn.random.choice(list(value))
    inner = shape.below(name)
    return {**value, name: drawn.json() if inner is None else spoil(drawn, inner, value[name])}


@EACH
def test_odd_updates(kind):
    drawn = Drawn(seed=11)
    old = samples.created(samples.sample(kind))
    for subresource in ("", "status", "finalize"):
        for _ in range(60):
            new = drawn.value(structural.kind_shape(kind)) or {}
            before = copy.deepcopy(old)
            apply_defaults(kind, new)
            prepare_update(kind, new, old, subresource)
            validate_update(kind, new, old, subresource)
            assert old == before


@EACH
def test_any_json_is_looked_at_without_failing(kind):
    drawn = Drawn(seed=13)
    for _ in range(300):
        obj = {"metadata": drawn.json(), "spec": drawn.json(), "data": drawn.json()}
        canonical = to_canonical(kind, obj)
        structural.unknown_fields(kind, canonical)
        causes = structural.type_errors(kind, canonical)
        assert all(cause.message for cause in causes)
        assert structural.is_readable(kind, canonical) == (not (causes or structural.unknown_fields(kind, canonical)))
        if not causes:
            apply_defaults(kind, canonical)


def test_any_patch_is_refused_or_carried_out():
    drawn = Drawn(seed=17)
    pod = samples.created(samples.sample(POD))
    for _ in range(500):
        before, patch = copy.deepcopy(pod), {"spec": drawn.json(), "metadata": drawn.json()}
        refused_or(strategic_merge, POD, pod, patch)
        refused_or(json_patch, pod, drawn.json())
        assert pod == before


def test_any_operation_is_refused_or_carried_out():
    drawn = Drawn(seed=19)
    paths = [
        "",
        "/",
        "/spec",
        "/spec/containers/0",
        "/spec/containers/-",
        "/metadata/name/x",
        "/a~1b",
        "x",
        "/spec/containers/9",
        3,
    ]
    for _ in range(500):
        ops = [
            {
                "op": drawn.random.choice(["add", "remove", "replace", "move", "copy", "test", "nope", 3]),
                "path": drawn.random.choice(paths),
                "from": drawn.random.choice(paths),
                "value": drawn.json(),
            }
            for _ in range(2)
        ]
        refused_or(json_patch, samples.sample(POD), ops)


def test_any_selector_is_refused_or_read():
    drawn = random.Random(23)
    alphabet = [
        "a",
        "b/c",
        "=",
        "==",
        "!=",
        "!",
        ",",
        "(",
        ")",
        "in",
        "notin",
        " ",
        "<",
        ">",
        "1",
        "\0",
        "é",
        "\\",
        "metadata.name",
    ]
    for _ in range(3000):
        text = "".join(drawn.choice(alphabet) for _ in range(drawn.randint(0, 8)))
        refused_or(parse_label_selector, text)
        refused_or(parse_field_selector, POD, text)


@EACH
def test_every_selectable_field_reads_any_object(kind):
    drawn = Drawn(seed=29)
    for read in selectable_fields(kind).values():
        for _ in range(20):
            assert isinstance(read({"metadata": drawn.json(), "spec": drawn.json(), "status": drawn.json()}), str)

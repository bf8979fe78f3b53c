"""What a list by labels lets through is what the labels say, however they are held."""

from __future__ import annotations

import itertools

import orjson
import pytest

from minik8s_modules.api.kinds import POD
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.reads.selection import select
from minik8s_modules.store.cached import CachedObject

LABELS: tuple[dict[str, str], ...] = (
    {},
    {"app": "web"},
    {"app": "web", "tier": "front"},
    {"app": ""},
    {"tier": "web"},
    {"app": "web-2", "n": "7"},
    {"note": '","app":"web'},  # no API server takes such a value: but labels decide, not how they are written
    {'x"app': "web"},
    {"app": "wéb"},
)


def _items() -> list[CachedObject]:
    made = []
    for number, labels in enumerate(LABELS):
        data = orjson.dumps({"metadata": {"name": f"p{number}", "namespace": "default", "labels": labels}})
        made.append(CachedObject(f"{POD.prefix}default/p{number}", data, number + 1, labels))
    return made


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("app=web", [1, 2]),
        ("app", [1, 2, 3, 5, 8]),
        ("app=", [3]),
        ("!app", [0, 4, 6, 7]),
        ("app!=web", [0, 3, 4, 5, 6, 7, 8]),
        ("app in (web,web-2)", [1, 2, 5]),
        ("app notin (web),app", [3, 5, 8]),
        ("app=web,tier=front", [2]),
        ("n>6", [5]),
        ("n<7", []),
    ],
)
def test_a_list_by_labels_has_those_whose_labels_say_so(text, expected):
    chosen = select(Target(POD, "", ""), {"labelSelector": text}).chosen(_items())
    assert [LABELS.index(dict(item.labels)) for item in chosen] == expected


def test_a_list_by_labels_is_what_each_object_alone_would_be():
    items = _items()
    conditions = ("app=web", "app", "!tier", "tier!=front", "app in (web,)", "n>1", "x")
    for two in itertools.permutations(conditions, 2):
        selection = select(Target(POD, "", ""), {"labelSelector": ",".join(two)})
        assert selection.chosen(items) == [item for item in items if selection.matches(item)]

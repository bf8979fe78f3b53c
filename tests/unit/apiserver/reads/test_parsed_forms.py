"""Who looks at very many objects leaves none of them parsed: a parsed form is eight times its bytes, and would stay."""

from __future__ import annotations

from datetime import UTC, datetime

import orjson
import pytest

from minik8s_modules.api.kinds import POD
from minik8s_modules.apiserver.http import presenting
from minik8s_modules.apiserver.http.negotiation import METADATA, Form
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.reads.selection import select
from minik8s_modules.store.cached import PARSED_EVENTS, CachedObject

FEW, MANY = 3, PARSED_EVENTS + 1


def _pods(count: int) -> list[CachedObject]:
    found = []
    for number in range(count):
        name = f"p{number}"
        pod = {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [], "nodeName": "n"}}
        found.append(CachedObject(POD.key("default", name), orjson.dumps(pod), number, {}))
    return found


def _parsed(items: list[CachedObject]) -> int:
    return sum(item.peek() is item.peek() for item in items)


@pytest.mark.parametrize("form", [Form("table"), METADATA])
def test_a_table_of_many_keeps_none(form: Form):
    items = _pods(MANY)
    found = orjson.loads(presenting.many(POD, form, items, {}, datetime.now(UTC)))
    assert len(found["items" if form is METADATA else "rows"]) == MANY
    assert _parsed(items) == 0


def test_a_table_of_few_keeps_what_the_next_one_needs():
    items = _pods(FEW)
    presenting.many(POD, Form("table"), items, {}, datetime.now(UTC))
    assert _parsed(items) == FEW


@pytest.mark.parametrize(("count", "kept"), [(FEW, FEW), (MANY, 0)])
def test_a_field_selector_over_many_keeps_none(count: int, kept: int):
    items = _pods(count)
    chosen = select(Target(POD, "", ""), {"fieldSelector": "spec.nodeName=n"}).chosen(items)
    assert len(chosen) == count
    assert _parsed(items) == kept

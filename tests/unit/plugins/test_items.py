"""Lines and the order of items, without Ansible."""

from __future__ import annotations

import json
from typing import Any

import pytest

from minik8s_modules.plugins.live.items import BadLine, Cancel, Item, Stop, WorkQueue, parse

GOOD: dict[str, Any] = {
    "id": "i",
    "host": "n0",
    "check": True,
    "token": [1, 2],
    "sections": {"network": {"mode": "full"}},
}


def item(item_id: str, host: str) -> Item:
    return Item(item_id, host, check=False, token=[], sections={})


def test_a_line_is_an_item_a_cancel_or_a_stop() -> None:
    assert parse(json.dumps(GOOD).encode()) == Item("i", "n0", True, [1, 2], {"network": {"mode": "full"}})  # noqa: FBT003
    assert parse(b'{"op": "cancel", "id": "i"}') == Cancel("i")
    assert parse(b'{"op": "stop"}') == Stop()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{{{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "expected an object, got list"),
        (b'{"op": "dance", "id": "i"}', "unknown op 'dance'"),
        (b'{"op": "cancel"}', "id must be"),
    ],
)
def test_another_line_is_refused_with_its_reason(line: bytes, reason: str) -> None:
    with pytest.raises(BadLine, match=reason):
        parse(line)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", 3),
        ("id", ""),
        ("host", None),
        ("check", "yes"),
        ("token", [1, True]),
        ("token", "1"),
        ("sections", {}),
        ("sections", {"network": []}),
        ("sections", {"network": {"_ansible_tmpdir": "/x"}}),
        ("sections", {"network": {"_raw_params": "x"}}),
        ("sections", {"network": {"a\n": "x"}}),
    ],
)
def test_a_field_of_the_wrong_type_is_named(field: str, value: Any) -> None:
    with pytest.raises(BadLine, match=field) as caught:
        parse(json.dumps({**GOOD, field: value}).encode())
    assert caught.value.item_id == (None if field == "id" else "i")


def test_a_host_has_one_item_at_a_time_and_slots_bound_the_hosts() -> None:
    queue = WorkQueue(2)
    for name, host in (("a", "n0"), ("b", "n0"), ("c", "n1"), ("d", "n2")):
        queue.add(item(name, host))
    taken = [queue.take(), queue.take(), queue.take()]
    assert [each.id for each in taken if each] == ["a", "c"]
    queue.finish(item("c", "n1"))
    assert queue.take() == item("d", "n2")
    queue.finish(item("a", "n0"))
    assert queue.take() == item("b", "n0")
    assert queue.take() is None


def test_a_busy_host_does_not_starve_others() -> None:
    queue = WorkQueue(1)
    for name, host in (("a", "n0"), ("b", "n0"), ("c", "n1")):
        queue.add(item(name, host))
    order = []
    while current := queue.take():
        order.append(current.id)
        queue.finish(current)
    assert order == ["a", "c", "b"]
    assert len(queue) == 0


def test_a_waiting_item_can_be_withdrawn_and_a_running_one_cannot() -> None:
    queue = WorkQueue(1)
    queue.add(item("a", "n0"))
    queue.add(item("b", "n0"))
    queue.take()
    assert queue.cancel("a") is None
    assert queue.cancel("b") == item("b", "n0")
    queue.finish(item("a", "n0"))
    assert queue.take() is None
    assert not queue.knows("b")


def test_a_host_that_leaves_loses_its_waiting_items() -> None:
    queue = WorkQueue(1)
    for name in ("a", "b", "c"):
        queue.add(item(name, "n0"))
    queue.take()
    assert [each.id for each in queue.drop_waiting("n0")] == ["b", "c"]
    assert queue.drop_waiting("n9") == []
    queue.finish(item("a", "n0"))
    assert queue.hosts() == set()

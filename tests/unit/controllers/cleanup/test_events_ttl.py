"""Events are deleted an hour after they last happened."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from minik8s_modules.api.kinds import EVENT, Kind
from minik8s_modules.base.clock import FakeClock, rfc3339, rfc3339_micro
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.client.interface import ObjectList
from minik8s_modules.controllers.cleanup.events import EventController, dated, decide_events

CLOCK = FakeClock()


def event(**given: object) -> dict[str, object]:
    return {"metadata": {"name": "e", "namespace": "default", "resourceVersion": "5"}, **given}


def ago(minutes: int) -> str:
    return rfc3339(CLOCK.now() - timedelta(minutes=minutes))


@pytest.mark.parametrize(
    ("expected", "over"),
    [
        ({"lastTimestamp": ago(61)}, True),
        ({"lastTimestamp": ago(59)}, False),
        ({"firstTimestamp": ago(600), "lastTimestamp": ago(1)}, False),
        ({"lastTimestamp": None, "eventTime": rfc3339_micro(CLOCK.now() - timedelta(hours=2))}, True),
        ({"lastTimestamp": ago(90), "series": {"lastObservedTime": ago(2)}}, False),
        ({"lastTimestamp": "nonsense"}, False),
        ({}, False),
    ],
)
def test_which_events_are_over(expected, over):
    assert bool(decide_events([event(**expected)], CLOCK.now())) is over
    assert decide_events([dated(event(**expected))], CLOCK.now()) == decide_events([event(**expected)], CLOCK.now())


def test_of_thousands_of_events_a_sweep_holds_who_they_are_and_when_they_happened():
    api, asked = FakeApi(CLOCK), dict[str, Any]()
    found = api.list

    def noted(kind: Kind, **more: Any) -> ObjectList:
        asked.update(more)
        return found(kind, **more)

    api.list = noted  # type: ignore[method-assign, assignment]
    api.create(EVENT, event(message="a long story", lastTimestamp=ago(1)))
    EventController(api, CLOCK).sweep()
    assert asked["limit"]
    assert [{*kept} for kept in found(EVENT, **asked).items] == [{"metadata", "lastTimestamp", "eventTime", "series"}]


def test_a_sweep_deletes_what_is_over_unless_it_has_happened_again():
    api = FakeApi(CLOCK)
    for name, minutes in (("old", 70), ("young", 5), ("again", 70)):
        metadata = {"name": name, "namespace": "default", "creationTimestamp": ago(70)}
        api.create(EVENT, {"metadata": metadata, "lastTimestamp": ago(minutes)})
    delete = api.delete

    def happen_first(kind, name, namespace, **options):
        if name == "again":
            api.patch(EVENT, "again", "default", {"count": 2, "lastTimestamp": ago(0)})
        return delete(kind, name, namespace, **options)

    api.delete = happen_first  # type: ignore[method-assign, assignment]  # the event happens between list and delete
    EventController(api, CLOCK).sweep()
    assert {item["metadata"]["name"] for item in api.list(EVENT).items} == {"young", "again"}

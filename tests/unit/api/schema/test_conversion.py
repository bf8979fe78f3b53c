"""Events of both groups are the same objects."""

from __future__ import annotations

import pytest

from minik8s_modules.api.defaulting.conversion import from_storage, stored_kind, to_storage
from minik8s_modules.api.kinds import EVENT, EVENTS_EVENT, KINDS
from minik8s_modules.api.schema import structural
from tests.unit.api import samples

CORE = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"name": "web.1", "namespace": "default"},
    "action": "Binding",
    "count": 3,
    "eventTime": "2026-01-01T00:00:00.000000Z",
    "firstTimestamp": "2026-01-01T00:00:00Z",
    "involvedObject": {"kind": "Pod", "name": "web", "namespace": "default"},
    "lastTimestamp": "2026-01-01T00:01:00Z",
    "message": "hello",
    "reason": "Scheduled",
    "related": {"kind": "Node", "name": "n1"},
    "reportingComponent": "scheduler",
    "reportingInstance": "scheduler-1",
    "series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"},
    "source": {"component": "scheduler"},
    "type": "Normal",
}


def test_events_of_both_groups_are_the_same_objects():
    new = from_storage(EVENTS_EVENT, CORE)
    assert (new["apiVersion"], new["regarding"]["name"], new["note"]) == ("events.k8s.io/v1", "web", "hello")
    assert not structural.unknown_fields(EVENTS_EVENT, new)
    assert set(new) == set(structural.kind_shape(EVENTS_EVENT).fields)
    assert to_storage(EVENTS_EVENT, new) == CORE
    assert samples.created(CORE).items() >= {k: v for k, v in CORE.items() if k != "metadata"}.items()


def test_both_are_kept_under_one_prefix():
    assert EVENTS_EVENT.prefix == EVENT.prefix
    assert stored_kind(EVENTS_EVENT) is EVENT


@pytest.mark.parametrize("kind", [kind for kind in KINDS.all() if kind.storage is None], ids=lambda kind: kind.kind)
def test_other_kinds_are_kept_as_they_are(kind):
    obj = samples.sample(kind)
    assert to_storage(kind, obj) is obj
    assert from_storage(kind, obj) is obj

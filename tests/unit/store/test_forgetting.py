"""What a resource's ring of events forgets, as nobody may look at it any more."""

from __future__ import annotations

from minik8s_modules.store.cached import CachedObject, CacheEvent, Resource
from minik8s_modules.store.encoding import with_revision
from tests.support.watching import stored

KEY = "/registry/core/pods/default/web"


def written(resource: Resource, revision: int) -> CacheEvent:
    event = resource.apply(KEY, revision, CachedObject(KEY, with_revision(stored("web"), revision)[0], revision, {}))
    assert event is not None
    resource.remember(event)
    return event


def test_an_object_that_stands_loses_its_parsed_form_once_and_what_it_replaced_each_time() -> None:
    resource = Resource(0, ring_events=1000)
    first, second = written(resource, 1), written(resource, 2)
    resource.forget_old()
    before = second.current.object
    resource.forget_old()
    kept, replaced = second.current.object, first.current.object
    assert kept is not before
    for _ in range(3):
        resource.forget_old()
        assert second.current.object is kept
        assert first.current.object is not replaced
        replaced = first.current.object
    third = written(resource, 3)
    resource.forget_old()
    resource.forget_old()
    assert second.current.object is not kept
    assert third.current.object == {**kept, "metadata": {**kept["metadata"], "resourceVersion": "3"}}

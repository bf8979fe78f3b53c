"""The informer's copy and what its handlers are told, over reconnects, expiry and refusals."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api.kinds import POD
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.fake import FakeApi, passing_error
from minik8s_modules.client.informer import Informer
from tests.support.waiting import until

Name = str | None
Changes = queue.Queue[tuple[Name, Name]]


def pod(name: str, node: str = "", namespace: str = "default") -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"nodeName": node}}


def names(old: dict[str, Any] | None, new: dict[str, Any] | None) -> tuple[Name, Name]:
    return (old["metadata"]["name"] if old else None, new["metadata"]["name"] if new else None)


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def informer(api: FakeApi) -> Iterator[Informer]:
    informer = Informer(
        api, POD, clock=FakeClock(), random=lambda: 0.5, indexes={"node": lambda p: p["spec"]["nodeName"]}
    )
    yield informer
    informer.stop()


@pytest.fixture
def changes(informer: Informer) -> Changes:
    changes: Changes = queue.Queue()
    informer.add_handler(lambda old, new: changes.put(names(old, new)))
    return changes


def started(informer: Informer) -> None:
    informer.start()
    assert informer.wait_synced(60)


def test_it_lists_then_follows_changes(api, informer, changes):
    api.create(POD, pod("a"))
    started(informer)
    assert changes.get(timeout=60) == (None, "a")
    created = api.create(POD, pod("b"))
    assert changes.get(timeout=60) == (None, "b")
    api.update(POD, {**created, "spec": {"nodeName": "n"}})
    assert changes.get(timeout=60) == ("b", "b")
    assert informer.get("default", "b")["spec"] == {"nodeName": "n"}
    api.delete(POD, "a", "default")
    assert changes.get(timeout=60) == ("a", None)
    assert informer.get("default", "a") is None
    assert [p["metadata"]["name"] for p in informer.list()] == ["b"]
    assert int(informer.resource_version) > int(created["metadata"]["resourceVersion"])


def test_an_index_follows_its_objects(api, informer, changes):
    created = api.create(POD, pod("a", "one"))
    started(informer)
    changes.get(timeout=60)
    assert len(informer.by_index("node", "one")) == 1
    api.update(POD, {**created, "spec": {"nodeName": "two"}})
    changes.get(timeout=60)
    assert informer.by_index("node", "one") == []
    assert [p["metadata"]["name"] for p in informer.by_index("node", "two")] == ["a"]


def test_a_cut_watch_resumes_without_losing_or_doubling(api, informer, changes):
    started(informer)
    api.create(POD, pod("a"))
    assert changes.get(timeout=60) == (None, "a")
    with api.changed:
        api.create(POD, pod("b"))
        api.fail(ApiUnreachable("down"), passing_error())
        api.cut_watches()
    assert changes.get(timeout=60) == (None, "b")
    assert changes.empty()
    assert [call[0] for call in api.calls].count("list") == 1


def test_after_an_expired_revision_handlers_hear_only_the_differences(api, informer, changes):
    for name in ("stays", "goes", "turns"):
        api.create(POD, pod(name))
    started(informer)
    assert {changes.get(timeout=60) for _ in range(3)} == {(None, "stays"), (None, "goes"), (None, "turns")}
    with api.changed:
        # all of it happens while the informer is cut off and cannot reach the lock
        api.cut_watches()
        api.delete(POD, "goes", "default")
        api.update(POD, pod("turns", "n"))
        api.create(POD, pod("new"))
        api.compact()
    assert {changes.get(timeout=60) for _ in range(3)} == {("goes", None), ("turns", "turns"), (None, "new")}
    assert {p["metadata"]["name"] for p in informer.list()} == {"stays", "turns", "new"}


def test_a_handler_added_late_hears_what_is_there(api, informer):
    api.create(POD, pod("a"))
    started(informer)
    heard = []
    informer.add_handler(lambda old, new: heard.append(names(old, new)))
    assert heard == [(None, "a")]


def test_a_field_selector_sees_an_object_leave_as_deleted(api):
    informer = Informer(api, POD, field_selector="spec.nodeName=")
    changes: Changes = queue.Queue()
    informer.add_handler(lambda old, new: changes.put(names(old, new)))
    created = api.create(POD, pod("a"))
    informer.start()
    assert changes.get(timeout=60) == (None, "a")
    api.update(POD, {**created, "spec": {"nodeName": "n"}})
    assert changes.get(timeout=60) == ("a", None)
    informer.stop()


def test_it_survives_a_handler_that_raises(api, informer):
    started(informer)
    heard: Changes = queue.Queue()
    broken = [True]

    def handler(old, new):
        if broken.pop() if broken else False:
            raise KeyError("a defect in a handler")
        heard.put(names(old, new))

    informer.add_handler(handler)
    api.create(POD, pod("a"))
    api.create(POD, pod("b"))
    assert heard.get(timeout=60) == (None, "b")
    assert {p["metadata"]["name"] for p in informer.list()} == {"a", "b"}


def test_an_object_that_is_not_to_be_read_is_as_if_not_there_until_it_is_mended(api):
    sound = api.create(POD, pod("was", "one"))
    bad = api.create(POD, {**pod("bad"), "spec": "text"})
    read = lambda p: p["spec"]["nodeName"].upper()  # noqa: E731
    informer = Informer(api, POD, clock=FakeClock(), random=lambda: 0.5, read=read)
    heard: Changes = queue.Queue()
    informer.add_handler(lambda old, new: heard.put(names(old, new)))
    started(informer)
    assert heard.get(timeout=60) == (None, "was")
    api.update(POD, {**sound, "spec": 5})
    assert heard.get(timeout=60) == ("was", None)
    api.update(POD, {**bad, "spec": {"nodeName": "one"}})
    assert heard.get(timeout=60) == (None, "bad")
    assert [p["metadata"]["name"] for p in informer.list()] == ["bad"]
    assert [call[0] for call in api.calls].count("list") == 1
    informer.stop()


@pytest.mark.parametrize("spec", ["text", ["x"], 5, {"containers": [5]}, {"nodeName": ["x"]}])
def test_an_object_that_cannot_be_read_is_kept_and_keeps_no_other_from_being_told(api, spec):
    api.create(POD, {**pod("bad"), "spec": spec})
    transform = lambda p: {**p, "spec": {"nodeName": p["spec"]["nodeName"]}}  # noqa: E731
    indexes = {"node": lambda p: p["spec"]["nodeName"].upper()}
    informer = Informer(api, POD, clock=FakeClock(), random=lambda: 0.5, indexes=indexes, transform=transform)
    heard: Changes = queue.Queue()

    def handler(old, new):
        assert (new or old or {})["spec"]["nodeName"].upper(), "it cannot be read"
        heard.put(names(old, new))

    informer.add_handler(lambda old, new: (new or old or {})["spec"]["nodeName"].upper())
    informer.add_handler(handler)
    api.create(POD, pod("a", "one"))
    started(informer)
    assert heard.get(timeout=60) == (None, "a")
    mended = api.update(POD, {**api.get(POD, "bad", "default"), "spec": {"nodeName": "one"}})
    assert heard.get(timeout=60) == ("bad", "bad")
    assert {p["metadata"]["name"] for p in informer.by_index("node", "ONE")} == {"a", "bad"}
    api.update(POD, {**mended, "spec": spec})
    api.create(POD, pod("b", "one"))
    assert heard.get(timeout=60) == (None, "b")
    assert {p["metadata"]["name"] for p in informer.by_index("node", "ONE")} == {"a", "b"}
    assert [call[0] for call in api.calls].count("list") == 1
    assert (informer.get("default", "bad") or {})["spec"] == spec
    informer.stop()


@pytest.mark.parametrize("names", [[], ["a"]])
def test_its_first_list_is_told_once_it_counts_as_complete(api, names: list[str]):
    told: queue.Queue[bool] = queue.Queue()
    for name in names:
        api.create(POD, pod(name))
    known = Informer(api, POD, on_synced=lambda: told.put(known.wait_synced(0)))
    known.start()
    assert told.get(timeout=60)
    api.compact()
    api.cut_watches()
    api.create(POD, pod("later"))
    until(lambda: known.get("default", "later") is not None)
    assert told.empty()
    known.stop()

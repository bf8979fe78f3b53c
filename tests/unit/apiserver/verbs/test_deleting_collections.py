"""deletecollection: as much as a list with the same arguments has, and no longer than a request may take."""

from __future__ import annotations

import base64

import orjson
import pytest

from minik8s_modules.api.errors import Timeout
from minik8s_modules.api.kinds import CONFIG_MAP
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.reads.reading import Listing
from minik8s_modules.apiserver.reads.selection import select
from minik8s_modules.apiserver.verbs import deleting, writing
from minik8s_modules.base.clock import FakeClock

PLACE = Target(CONFIG_MAP, "default")


def made(backend: Backend, options: Options, count: int) -> None:
    for number in range(count):
        writing.create(backend, PLACE, {"metadata": {"name": f"c{number}"}}, options)


def left(backend: Backend) -> list[str]:
    return [item.key.rpartition("/")[2] for item in backend.cache.list(CONFIG_MAP.prefix).items]


def delete(backend: Backend, options: Options, **arguments: str) -> Listing:
    return deleting.delete_collection(backend, select(PLACE, arguments), arguments, {}, options)


def test_a_limit_is_a_page_and_the_token_goes_on_behind_it(backend: Backend, options: Options) -> None:
    made(backend, options, 5)
    first = delete(backend, options, limit="2")
    assert first.meta["remainingItemCount"] == 3
    writing.create(backend, PLACE, {"metadata": {"name": "c9"}}, options)
    second = delete(backend, options, **{"limit": "2", "continue": first.meta["continue"]})
    assert [item.key[-2:] for item in first.items + second.items] == ["c0", "c1", "c2", "c3"]
    third = delete(backend, options, **{"limit": "2", "continue": second.meta["continue"]})
    assert "continue" not in third.meta
    assert left(backend) == ["c9"]  # it was not there when the first page was asked for


def labelled(backend: Backend, options: Options, name: str, app: str) -> None:
    writing.create(backend, PLACE, {"metadata": {"name": name, "labels": {"app": app}}}, options)


def relabel(backend: Backend, options: Options, name: str, app: str) -> None:
    target = PLACE._replace(name=name)
    obj = orjson.loads(backend.get(target).data)
    writing.update(backend, target, {**obj, "metadata": {**obj["metadata"], "labels": {"app": app}}}, options)


def test_what_is_no_longer_selected_or_was_made_anew_stays_whatever_revision_is_named(
    backend: Backend, options: Options
) -> None:
    for name in ("a", "b", "c", "d"):
        labelled(backend, options, name, "mine")
    before = str(backend.cache.revision)
    relabel(backend, options, "b", "theirs")
    deleting.delete(backend, PLACE._replace(name="c"), {}, options)
    labelled(backend, options, "c", "mine")  # another object by the same name
    changed = PLACE._replace(name="d")
    writing.update(backend, changed, {**orjson.loads(backend.get(changed).data), "data": {"x": "y"}}, options)
    exact = {"labelSelector": "app=mine", "resourceVersion": before, "resourceVersionMatch": "Exact"}
    assert [item.key[-1] for item in delete(backend, options, **exact).items] == ["a", "d"]
    assert left(backend) == ["b", "c"]


def test_a_token_that_nobody_issued_selects_nothing_of_the_past(backend: Backend, options: Options) -> None:
    labelled(backend, options, "a", "mine")
    before = backend.cache.revision
    relabel(backend, options, "a", "theirs")
    forged = base64.urlsafe_b64encode(orjson.dumps({"rv": before, "last": CONFIG_MAP.prefix + "default/"})).decode()
    assert delete(backend, options, **{"labelSelector": "app=mine", "continue": forged}).items == []
    assert left(backend) == ["a"]


def test_an_object_that_is_relabelled_while_it_is_deleted_stays(
    backend: Backend, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    labelled(backend, options, "a", "mine")
    removed = backend.store.delete

    def late(key: str, revision: int) -> int:
        monkeypatch.undo()
        relabel(backend, options, "a", "theirs")
        return removed(key, revision)

    monkeypatch.setattr(backend.store, "delete", late)
    assert delete(backend, options, labelSelector="app=mine").items == []
    assert left(backend) == ["a"]


def test_a_request_ends_after_its_time_and_another_one_goes_on(
    backend: Backend, options: Options, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(backend, options, 5)
    one = deleting.delete

    def slow(*args: object) -> deleting.Deleted:
        clock.advance(25.0)
        return one(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(deleting, "delete", slow)
    with pytest.raises(Timeout, match="3 of 5 configmaps were deleted"):
        delete(backend, options)
    assert left(backend) == ["c3", "c4"]
    assert len(delete(backend, options).items) == 2
    assert left(backend) == []

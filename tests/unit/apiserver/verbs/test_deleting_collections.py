"""deletecollection: as much as a list with the same arguments has, and no longer than a request may take."""

from __future__ import annotations

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

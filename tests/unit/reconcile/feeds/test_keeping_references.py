"""What pods refer to is kept for a while after the last of them, for the next one; by name it ends at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minik8s_modules.api.kinds import CONFIG_MAP, Kind
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.client.informer import Informer
from minik8s_modules.reconcile.feeds.references import KEPT_S, ReferencedObjects
from tests.unit.reconcile.loop.test_loop import until
from tests.unit.reconcile.worlds import UID, pod

POD = pod(spec={"volumes": [{"name": "settings", "configMap": {"name": "shop"}}]})


class World:
    """What pods refer to, with the caches that were made and what is to be called later."""

    def __init__(self, *, by_name: bool = False) -> None:
        self.api = FakeApi()
        self.made: list[Informer] = []
        self.ended: list[Informer] = []
        self.later: list[tuple[float, Callable[[], None]]] = []

        def later(delay_s: float, call: Callable[[], None]) -> None:
            self.later.append((delay_s, call))

        self.known = ReferencedObjects(self._make, lambda _: None, by_name=by_name, later=later)

    def _make(self, kind: Kind, space: str, _name: str) -> Informer:
        made, ended = Informer(self.api, kind, space), self.ended
        stop = made.stop

        def noted() -> None:
            ended.append(made)
            stop()

        made.stop = noted  # type: ignore[method-assign]
        self.made.append(made)
        return made

    def follow(self) -> None:
        """Follow the pod until all is there."""
        self.known.follow(POD)
        until(lambda: self.known.ready(UID))

    def pass_time(self) -> None:
        """Call what is to be called."""
        calls, self.later = self.later, []
        for _, call in calls:
            call()


def test_the_next_pod_finds_what_the_last_one_left():
    world = World()
    world.api.create(CONFIG_MAP, {"metadata": {"name": "shop", "namespace": "default"}, "data": {"a": "1"}})
    world.follow()
    world.known.forget(UID)
    assert world.known.of(UID, "ConfigMap") == {}
    world.known.follow(POD)
    assert world.known.ready(UID)
    assert world.known.of(UID, "ConfigMap")["default/shop"]["data"] == {"a": "1"}
    world.pass_time()
    assert (len(world.made), world.ended) == (1, [])
    world.known.stop()


def test_what_was_needed_again_is_kept_as_long_after_that():
    world = World()
    world.follow()
    world.known.forget(UID)
    first, world.later = world.later, []
    world.follow()
    world.known.forget(UID)
    first[0][1]()
    assert world.ended == []
    world.pass_time()
    assert world.ended == world.made


def test_a_time_that_passes_after_the_end_ends_nothing_more():
    world = World()
    world.follow()
    world.known.forget(UID)
    world.known.stop()
    world.pass_time()
    assert world.ended == world.made


def test_a_cache_that_does_not_stop_keeps_no_other_from_it(caplog: pytest.LogCaptureFixture):
    world, both = World(), ("settings", "others")
    volumes = [
        {"name": name, kind: {field: name}}
        for name, kind, field in zip(both, ("configMap", "secret"), ("name", "secretName"), strict=True)
    ]
    world.known.follow(pod(spec={"volumes": volumes}))
    until(lambda: world.known.ready(UID))

    def fails() -> None:
        raise RuntimeError("a defect")

    world.made[0].stop = fails  # type: ignore[method-assign]
    world.known.forget(UID)
    world.pass_time()
    assert world.ended == world.made[1:]
    assert "did not stop" in caplog.text


@pytest.mark.parametrize(("by_name", "after_s"), [(False, KEPT_S), (True, 0.0)])
def test_what_nobody_needs_any_more_ends(by_name: bool, after_s: float):  # noqa: FBT001
    world = World(by_name=by_name)
    world.follow()
    world.known.forget(UID)
    assert [delay_s for delay_s, _ in world.later] == [after_s]
    world.pass_time()
    assert world.ended == world.made
    world.follow()
    assert len(world.made) == 2
    world.known.forget(UID)
    world.pass_time()
    assert world.ended == world.made

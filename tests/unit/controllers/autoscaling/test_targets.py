"""Which scales are read and changed for an autoscaler: those of its own namespace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from urllib3.response import HTTPResponse

from minik8s_modules.api.kinds import Kind
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.silences import Silences
from minik8s_modules.controllers.autoscaling.autoscalers import Scale
from minik8s_modules.controllers.autoscaling.readings import ASK_S
from minik8s_modules.controllers.autoscaling.targets import Targets
from tests.support.servers.autoscaled import answer

SCALE = {"metadata": {"name": "a"}, "spec": {"replicas": 2}, "status": {"replicas": 1, "selector": "app=a"}}


class Served:
    """Answers every path with a scale."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def raw(
        self,
        method: str,
        path: str,
        body: bytes | None = None,  # noqa: ARG002 - as clients have it
        headers: Mapping[str, str] | None = None,  # noqa: ARG002
        wait_s: float = 0.0,  # noqa: ARG002
    ) -> HTTPResponse:
        """Answer."""
        self.asked.append(f"{method} {path}")
        return answer(200, SCALE)


def kind(*, namespaced: bool) -> Kind:
    return Kind("example.com", "v1", "Fleet", "fleets", "", namespaced=namespaced, subresources=("scale",))


def test_a_scale_is_read_and_changed_in_the_namespace_of_its_autoscaler() -> None:
    served = Served()
    targets = Targets(served, {}, Silences(FakeClock()))
    assert targets.scale(kind(namespaced=True), "team-a", "a") == Scale(2, 1, "app=a")
    assert targets.change(kind(namespaced=True), "team-a", "a", 2, 3) == ""
    path = "/apis/example.com/v1/namespaces/team-a/fleets/a/scale"
    assert served.asked == [f"GET {path}", f"GET {path}", f"PUT {path}"]


def test_what_lies_in_no_namespace_is_not_found() -> None:
    served = Served()
    targets = Targets(served, {}, Silences(FakeClock()))
    text = "the server could not find the requested resource"
    assert targets.scale(kind(namespaced=False), "team-a", "a") == text
    assert targets.change(kind(namespaced=False), "team-a", "a", 2, 3) == text
    assert served.asked == []


def test_who_serves_scales_and_keeps_silent_is_waited_for_shortly_and_not_again_at_once() -> None:
    clock, waited = FakeClock(), list[float]()

    class Hanging(Served):
        """Never answers."""

        def raw(self, method: str, path: str, *_: object, wait_s: float = 0.0) -> HTTPResponse:
            """Keep silent."""
            waited.append(wait_s)
            clock.advance(wait_s)
            raise ApiUnreachable(f"{method} {path}: Read timed out.")

    targets = Targets(Hanging(), {}, Silences(clock))
    for text in ("Read timed out", "has kept silent", "has kept silent"):
        with pytest.raises(ApiUnreachable, match=text):
            targets.scale(kind(namespaced=True), "team-a", "a")
    with pytest.raises(ApiUnreachable, match="has kept silent"):
        targets.change(kind(namespaced=True), "team-a", "a", 2, 3)
    assert waited == [ASK_S]


def test_who_answers_slowly_that_somebody_else_has_scaled_keeps_no_silence() -> None:
    clock = FakeClock()

    class Slow(Served):
        """Answers after two seconds."""

        def raw(self, *arguments: Any, **options: Any) -> HTTPResponse:
            """Answer."""
            clock.advance(2)
            return super().raw(*arguments, **options)

    targets = Targets(Slow(), {}, Silences(clock))
    with pytest.raises(TemporaryError, match="scaled by somebody else"):
        targets.change(kind(namespaced=True), "team-a", "a", 1, 3)
    assert targets.change(kind(namespaced=True), "team-a", "a", 2, 3) == ""


def test_a_change_that_hangs_is_tried_again_later_while_scales_are_read() -> None:
    clock = FakeClock()

    class Stuck(Served):
        """Takes no change."""

        def raw(self, method: str, *arguments: Any, **options: Any) -> HTTPResponse:
            """Answer what only reads."""
            found = super().raw(method, *arguments, **options)
            if method == "PUT":
                clock.advance(30)
                raise ApiUnreachable("Read timed out.")
            return found

    served = Stuck()
    targets = Targets(served, {}, Silences(clock))
    for text in ("Read timed out", "has kept silent", "has kept silent"):
        assert targets.scale(kind(namespaced=True), "team-a", "a") == Scale(2, 1, "app=a")
        with pytest.raises(ApiUnreachable, match=text):
            targets.change(kind(namespaced=True), "team-a", "a", 2, 3)
    assert sum(each.startswith("PUT") for each in served.asked) == 1

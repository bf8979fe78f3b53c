"""What quotas count of extensions' objects: listed again and again, apart from other counts, and never guessed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import ServiceUnavailable
from minik8s_modules.api.kinds import CONFIG_MAP, RESOURCE_QUOTA, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.quotas import of_others
from minik8s_modules.base.clock import FakeClock, SystemClock
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.client.transport import READ_TIMEOUT_S
from minik8s_modules.controllers.cleanup.extensions import Extended
from minik8s_modules.controllers.core.steps import WriteStatus
from minik8s_modules.controllers.policy import extension_quotas
from minik8s_modules.controllers.policy.extension_quotas import LOOK_S, ExtensionQuotaController, decide_counts
from minik8s_modules.controllers.policy.quotas import QuotaController, decide_quota
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from tests.support.waiting import until
from tests.support.workloads import NOW, SPACE

FLUNDER = Kind("wardle.example.com", "v1", "Flunder", "flunders", "")
FISCHER = Kind("wardle.example.com", "v1", "Fischer", "fischers", "")
NAME = "count/flunders.wardle.example.com"
AWAY = Extended((), {"wardle.example.com/v1": "away"})


class Api(FakeApi):
    """An API with an extension, which may be silent about its objects."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.offered, self.silent = Extended((FLUNDER,), {}), False

    def list(self, kind: Kind, *args: Any, **kwargs: Any) -> Any:
        """Return objects."""
        if kind == FLUNDER and self.silent:
            raise ServiceUnavailable("service unavailable")
        return super().list(kind, *args, **kwargs)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    monkeypatch.setattr(extension_quotas, "LOOK_S", 0.05)
    api = Api()
    context = Context(api, EventRecorder(api, "test"), Informers(api))
    running = (QuotaController(context), ExtensionQuotaController(context, lambda: api.offered))
    context.informers.start()
    for each in running:
        each.start()
    yield api
    for each in running:
        each.stop()
    context.informers.stop()
    context.pool.shutdown()


def make(api: FakeApi, kind: Kind, name: str, space: str = SPACE) -> None:
    api.create(kind, {"metadata": {"name": name, "namespace": space}})


def limited(api: FakeApi, **hard: str) -> None:
    api.create(RESOURCE_QUOTA, {"metadata": {"name": "all", "namespace": SPACE}, "spec": {"hard": hard}})


def used(api: FakeApi) -> dict[str, str]:
    return dict(objects.status(api.get(RESOURCE_QUOTA, "all", SPACE)).get("used") or {})


def test_objects_of_an_extension_are_counted_beside_others(api: Api):
    make(api, FLUNDER, "a")
    make(api, FLUNDER, "elsewhere", "other")
    make(api, CONFIG_MAP, "settings")
    limited(api, **{NAME: "4", "configmaps": "9"})
    until(lambda: used(api) == {NAME: "1", "configmaps": "1"})
    make(api, FLUNDER, "b")
    until(lambda: used(api)[NAME] == "2")
    api.delete(FLUNDER, "a", SPACE)
    until(lambda: used(api)[NAME] == "1")
    api.delete(CONFIG_MAP, "settings", SPACE)
    until(lambda: used(api) == {NAME: "1", "configmaps": "0"})


def test_the_last_count_of_an_extension_that_is_away_stays_and_others_go_on(api: Api):
    make(api, FLUNDER, "a")
    make(api, CONFIG_MAP, "settings")
    limited(api, **{NAME: "4", "configmaps": "9"})
    until(lambda: used(api) == {NAME: "1", "configmaps": "1"})
    api.silent = True
    api.delete(CONFIG_MAP, "settings", SPACE)
    until(lambda: used(api) == {NAME: "1", "configmaps": "0"})
    api.delete(FLUNDER, "a", SPACE)
    api.silent = False
    until(lambda: used(api)[NAME] == "0")


def test_an_extension_that_keeps_silent_is_not_asked_again_for_the_next_quota(monkeypatch: pytest.MonkeyPatch):
    api, clock, waited = FakeApi(SystemClock()), FakeClock(), list[str]()
    context = Context(api, EventRecorder(api, "test"), Informers(api), clock)
    controller = ExtensionQuotaController(context, lambda: Extended((FLUNDER,), {}))

    def hangs(_kind: Kind, namespace: str) -> Any:
        waited.append(namespace)
        clock.advance(READ_TIMEOUT_S)
        raise ApiUnreachable("Read timed out.")

    monkeypatch.setattr(api, "list", hangs)
    for space in ("shop", "bank"):
        assert controller._counts({NAME}, space) == {}
    assert waited == ["shop"]
    context.pool.shutdown()


def test_one_kind_that_hangs_leaves_an_extensions_others_counted(monkeypatch: pytest.MonkeyPatch):
    api, clock, waited = FakeApi(SystemClock()), FakeClock(), list[str]()
    context = Context(api, EventRecorder(api, "test"), Informers(api), clock)
    controller = ExtensionQuotaController(context, lambda: Extended((FLUNDER, FISCHER), {}))
    real = api.list

    def listed(kind: Kind, namespace: str) -> Any:
        if kind != FLUNDER:
            return real(kind, namespace)
        waited.append(namespace)
        clock.advance(READ_TIMEOUT_S)
        raise ApiUnreachable("Read timed out.")

    monkeypatch.setattr(api, "list", listed)
    other = "count/fischers.wardle.example.com"
    for _ in range(6):
        assert controller._counts({NAME, other}, "shop") == {other: "0"}
        clock.advance(LOOK_S)
    assert len(waited) == 3
    context.pool.shutdown()


def test_nothing_is_told_of_an_extension_that_never_answered(api: Api):
    api.offered = AWAY
    limited(api, **{NAME: "4", "count/nobody.example.com": "1", "configmaps": "9"})
    until(lambda: used(api) == {"count/nobody.example.com": "0", "configmaps": "0"})


@pytest.mark.parametrize(
    ("extended", "listed", "wanted"),
    [
        (Extended((FLUNDER,), {}), {FLUNDER: 3}, {NAME: "3"}),
        (Extended((FLUNDER,), {}), {}, {}),
        (AWAY, {}, {}),
        (Extended((FLUNDER,), {"wardle.example.com/v2": "away"}), {FLUNDER: 3}, {NAME: "3"}),
        (Extended((), {"example.com/v1": "away"}), {}, {NAME: "0"}),
    ],
)
def test_what_is_known_of_a_count(extended: Extended, listed: dict[Kind, int], wanted: dict[str, str]):
    assert decide_counts({NAME}, extended, listed) == wanted


def test_only_counts_of_other_groups_are_left_to_others():
    hard = {NAME: "1", "count/pods": "1", "count/deployments.apps": "1", "requests.cpu": "1", "pods": "1"}
    apps = Kind("apps", "v1", "Deployment", "deployments", "")
    assert of_others({"spec": {"hard": hard}}, [apps, CONFIG_MAP]) == {NAME}


def test_what_others_count_stays_as_it_is():
    quota: JsonObject = {"metadata": {"namespace": SPACE}, "spec": {"hard": {NAME: "4", "configmaps": "9"}}}

    def written(**status: Any) -> Any:
        (step,) = decide_quota({**quota, "status": status}, [], NOW, {NAME})
        assert isinstance(step, WriteStatus)
        return step.status["used"]

    assert written() == {"configmaps": "0"}
    assert written(used={NAME: "3", "configmaps": "2", "gone": "1"}) == {NAME: "3", "configmaps": "0"}

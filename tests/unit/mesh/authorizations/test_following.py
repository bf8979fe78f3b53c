"""The copies of AuthorizationPolicies: complete, or not ready."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import CUSTOM_RESOURCE_DEFINITION
from minik8s_modules.api.network.authorization import AUTHORIZATION_POLICY
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.mesh.authorizations.following import Builds, PolicyCopies
from minik8s_modules.mesh.messages import try_to_enforce
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from tests.support.authorization import define, policy
from tests.support.waiting import until

LONG_S = 30.0


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi(FakeClock())
    define(api)
    api.create(AUTHORIZATION_POLICY, policy("own"))
    return api


@contextmanager
def running(api: FakeApi, builds: Builds) -> Iterator[PolicyCopies]:
    """Yield copies that are kept."""
    clock = FakeClock()
    context = Context(api, EventRecorder(api, "c", clock=clock), Informers(api), clock)
    made = PolicyCopies(context, builds)
    made.start()
    context.informers.start()
    yield made
    made.stop()
    context.informers.stop()
    context.pool.shutdown()


@pytest.fixture
def copies(api: FakeApi) -> Iterator[PolicyCopies]:
    with running(api, try_to_enforce) as made:
        yield made


def test_who_follows_is_told_of_the_namespaces_that_change(api: FakeApi, copies: PolicyCopies):
    until(lambda: copies.ready and copies.get())
    told: list[set[str]] = []
    copies.follow(told.append)
    api.create(AUTHORIZATION_POLICY, policy("more", namespace="bank"))
    until(lambda: any("bank" in spaces for spaces in told))  # perhaps with the first, if that is told as late
    told.clear()
    api.delete(AUTHORIZATION_POLICY, "own", "shop")
    until(lambda: {"shop"} in told)
    api.delete(CUSTOM_RESOURCE_DEFINITION, "authorizationpolicies.security.istio.io")
    until(lambda: copies.ready and not copies.get())


def test_a_policy_of_which_nothing_can_be_made_denies_everything_and_is_told_of_once(
    api: FakeApi, caplog: pytest.LogCaptureFixture
):
    api.create(AUTHORIZATION_POLICY, policy("bad", {}, app="web"))
    asked: list[str] = []

    def builds(made: JsonObject) -> None:
        asked.append(objects.name(made))
        if objects.name(made) == "bad":
            raise RuntimeError("no such message")

    with running(api, builds) as copies:
        until(lambda: copies.ready and len(copies._last.get("shop", ())) == 2)
        bad, own = copies.get()["shop"]
        assert own["spec"] == policy("own")["spec"]
        assert bad["spec"] == {"selector": {"matchLabels": {"app": "web"}}, "action": "DENY", "rules": [{}]}
        assert copies.get()["shop"][0] is bad, "what has not changed is not read again"
        assert copies.fault_of(bad) == "no Envoy can be told of it: RuntimeError('no such message')"
        assert not copies.fault_of(own)
    assert sorted(asked) == ["bad", "own"]
    (told,) = [each.getMessage() for each in caplog.records if "cannot be read" in each.getMessage()]
    assert "shop/bad cannot be read and denies everything: RuntimeError('no such message')" in told


def test_what_is_told_of_a_policy_that_cannot_be_read_is_short_and_any_server_takes_it(api: FakeApi):
    api.create(AUTHORIZATION_POLICY, {**policy("odd"), "spec": {"\ud800" + 1000 * "x": {}}})
    with running(api, try_to_enforce) as copies:
        until(lambda: copies.ready and len(copies.get().get("shop", ())) == 2)
        fault = copies.fault_of(copies.get()["shop"][0])
    assert fault.startswith("spec.\\ud800xxx")
    assert len(fault.encode()) == 300


def test_while_a_definition_becomes_another_nobody_takes_its_objects_for_gone(
    api: FakeApi, copies: PolicyCopies, monkeypatch: pytest.MonkeyPatch
):
    until(lambda: copies.ready and copies.get())
    between, go_on, found = threading.Event(), threading.Event(), list[list[str]]()
    forget = copies._informers.forget

    def slowly(kind: Kind) -> None:
        forget(kind)
        between.set()
        assert go_on.wait(LONG_S)

    monkeypatch.setattr(copies._informers, "forget", slowly)
    old = api.get(CUSTOM_RESOURCE_DEFINITION, "authorizationpolicies.security.istio.io")
    names = {**objects.status(old)["acceptedNames"], "shortNames": ["other"]}
    changed = {**old, "status": {**objects.status(old), "acceptedNames": names}}
    api.update(CUSTOM_RESOURCE_DEFINITION, changed, subresource="status")
    assert between.wait(LONG_S)

    def read() -> None:
        while not copies.ready:
            threading.Event().wait(0.01)
        found.append([objects.name(each) for each in copies.get().get("shop", ())])

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    threading.Event().wait(0.2)  # it has had the time to see that nothing is there
    go_on.set()
    reader.join(LONG_S)
    assert found == [["own"]]

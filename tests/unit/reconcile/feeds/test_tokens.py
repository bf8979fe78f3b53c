"""Tokens are asked for once, renewed at 80 % of their life, kept through refusals, and shown nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import SERVICE_ACCOUNT, Kind
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.reconcile.feeds.tokens import TokenBook
from minik8s_modules.reconcile.pods.desired import decide_pod
from minik8s_modules.reconcile.pods.pod_context import CREATING
from minik8s_modules.reconcile.values.values import TokenNeed, Tokens
from tests.unit.reconcile.worlds import T0, UID, inputs, observations, pod

NEED = TokenNeed("", 1000)
VOLUME = {"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 1000}}]}}
POD = pod({"volumes": [VOLUME], "serviceAccountName": "robot"})


class Server(FakeApi):
    """Answers token requests; ``missing`` accounts are refused."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Mapping[str, Any]] = []
        self.missing = False

    def create(self, kind: Kind, obj: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
        """Return the TokenRequest with a token of its number."""
        assert (kind, fields) == (SERVICE_ACCOUNT, {"subresource": "token"})
        self.asked.append(obj)
        if self.missing:
            raise NotFound(SERVICE_ACCOUNT, "robot")
        return {"spec": {"expirationSeconds": 1000}, "status": {"token": f"token {len(self.asked)}"}}


class World:
    """A book over a server; the test is its only thread."""

    def __init__(self) -> None:
        self.clock, self.server, self.changes = FakeClock(), Server(), list[frozenset[str]]()
        self.book = TokenBook(self.server, self.changes.append, self.clock)
        self.book.follow(POD)

    def value(self) -> bytes | None:
        """Return the token the pod has."""
        return self.book.of(UID).values.get(NEED)


@pytest.fixture
def world() -> World:
    return World()


def test_a_token_is_bound_to_its_pod_and_asked_for_once(world: World):
    assert not world.book.ready(POD)
    for _ in range(3):
        world.book.sync(UID)
    assert world.book.ready(POD)
    assert world.value() == b"token 1"
    (asked,) = world.server.asked
    assert asked["metadata"] == {"name": "robot", "namespace": "default"}
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": UID}
    assert asked["spec"] == {"audiences": [], "expirationSeconds": 1000, "boundObjectRef": bound}
    assert world.changes == [frozenset({UID})]


def test_a_token_is_renewed_at_four_fifths_of_its_life(world: World):
    world.book.sync(UID)
    world.clock.advance(799)
    world.book.sync(UID)
    assert world.value() == b"token 1"
    world.clock.advance(2)
    world.book.sync(UID)
    assert world.value() == b"token 2"


def test_an_old_token_stays_while_no_new_one_is_given(world: World):
    world.book.sync(UID)
    world.clock.advance(900)
    world.server.missing = True
    with pytest.raises(NotFound):
        world.book.sync(UID)
    assert world.value() == b"token 1"
    assert world.book.of(UID).errors == {}
    world.server.missing = False
    world.book.sync(UID)
    assert world.value() == b"token 3"


def test_a_refusal_is_told_and_ends_when_the_account_is_there(world: World):
    world.server.missing = True
    with pytest.raises(NotFound):
        world.book.sync(UID)
    assert world.book.ready(POD)
    assert world.book.of(UID).errors == {NEED: 'serviceaccounts "robot" not found'}
    world.server.missing = False
    world.book.sync(UID)
    assert world.book.of(UID).errors == {}


def test_a_pod_that_is_gone_has_no_tokens(world: World):
    world.book.sync(UID)
    world.book.forget(UID)
    world.clock.advance(5000)
    world.book.sync(UID)
    assert world.book.of(UID) == Tokens()
    assert len(world.server.asked) == 1


def test_another_token_changes_the_files_and_no_container():
    def decide(token: str) -> Any:
        running = observations([{"sandbox": 0}, {"container": "app", "attempt": 0}])
        return decide_pod(POD, running, inputs({"tokens": [["", 1000, token]]}), T0)

    first, second = decide("first"), decide("second")
    assert first.entries["containers"] == second.entries["containers"]
    assert first.entries["secrets"] != second.entries["secrets"]
    assert first.entries["volumes"] != second.entries["volumes"]
    assert "first" not in repr(first), "a decision may be logged"
    assert CREATING not in second.waiting.values()


def test_tokens_are_not_shown():
    assert "s3cret" not in repr(Tokens({NEED: b"s3cret"}))
    assert "s3cret" not in str(inputs({"tokens": [["", 1000, "s3cret"]]}))

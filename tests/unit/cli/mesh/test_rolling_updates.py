"""``minik8s rollout`` of RollingUpdates: states are asked for, an end is followed to, all else stays kubectl's."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import ROLLING_UPDATE
from minik8s_modules.cli.commands import build_parser
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.main import own_words
from minik8s_modules.client.fake import FakeApi
from tests.support.waiting import until

SPEC: dict[str, Any] = {"serviceRef": "web", "port": 80, "newPodSpec": {}}


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi()
    made = api.create(ROLLING_UPDATE, {"metadata": {"name": "to-2", "namespace": "shop"}, "spec": SPEC})
    api.update(ROLLING_UPDATE, {**made, "status": {"phase": "Running", "total": 3, "updated": 1}}, subresource="status")
    return api


def run(api: FakeApi, *words: str) -> int:
    given = build_parser().parse_args(["rollout", *words, "-n", "shop"])
    return int(given.command(api, given))


def phase(api: FakeApi, name: str) -> None:
    api.patch(ROLLING_UPDATE, "to-2", "shop", {"status": {"phase": name, "updated": 3}}, subresource="status")


@pytest.mark.parametrize(
    ("words", "is_own"),
    [
        ("rollout status ru/to-2", True),
        ("rollout undo rollingupdate to-2 -n shop", True),
        ("-n shop rollout abort rollingupdates/to-2", True),
        ("rollout status deploy/web", False),
        ("rollout undo deployment rollingupdate", False),
        ("rollout", False),
    ],
)
def test_a_rollout_of_anything_else_is_kubectls(words: str, is_own: bool):  # noqa: FBT001 - a case's word
    assert (own_words(words.split()) is not None) == is_own


@pytest.mark.parametrize(
    ("action", "state"), [("pause", "Paused"), ("resume", "Running"), ("abort", "Aborted"), ("undo", "Undone")]
)
def test_a_state_is_asked_for(api: FakeApi, action: str, state: str):
    assert run(api, action, "ru/to-2") == 0
    assert api.get(ROLLING_UPDATE, "to-2", "shop")["spec"]["state"] == state


def test_one_update_is_named(api: FakeApi):
    for words in (["ru/"], ["ru"], ["deploy/web"], ["ru/a", "b"]):
        with pytest.raises(UsageError):
            run(api, "undo", *words)
    with pytest.raises(NotFound):
        run(api, "undo", "ru", "nobody")


def test_it_is_followed_to_its_end(api: FakeApi, capsys: pytest.CaptureFixture[str]):
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(run(api, "status", "ru/to-2")))
    thread.start()
    phase(api, "Finished")
    thread.join(60)
    assert codes == [0]
    assert capsys.readouterr().out.splitlines()[-1] == "Finished, 3 of 3 Pods updated"


def test_one_that_was_undone_is_no_success(api: FakeApi):
    api.patch(ROLLING_UPDATE, "to-2", "shop", {"spec": {"state": "Undone"}})
    phase(api, "Undone")
    assert run(api, "status", "ru/to-2") == 1
    assert run(api, "status", "ru/to-2", "--watch=false") == 0


def test_one_that_is_deleted_meanwhile_is_told(api: FakeApi, capsys: pytest.CaptureFixture[str]):
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(run(api, "status", "ru/to-2")))
    thread.start()
    until(lambda: "Running" in capsys.readouterr().out)
    api.delete(ROLLING_UPDATE, "to-2", "shop")
    thread.join(60)
    assert codes == [1]

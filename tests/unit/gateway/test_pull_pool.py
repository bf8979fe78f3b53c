"""Every pull is answered once; a node's slow pulls hold up no other node's."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.gateway.errors import DockerUnavailable, PullCancelled, PullFailed
from minik8s_modules.gateway.messages import PullRequest
from minik8s_modules.gateway.pulls import Pulls


class ScriptedPull:
    """Ends as its image is named: ``slow`` only when cancelled or released."""

    release = threading.Event()

    def __init__(self, image: str) -> None:
        self.image = image
        self.cancelled = threading.Event()

    def run(self) -> str:
        """End as the image is named."""
        if self.image == "slow":
            while not self.release.wait(0.005):
                if self.cancelled.is_set():
                    raise PullCancelled("cancelled")
        if self.image == "refused":
            raise PullFailed("pull access denied for refused")
        if self.image == "cut":
            raise DockerUnavailable("cut")
        if self.image == "defect":
            raise KeyError("a defect")
        return f"sha256:{self.image}"

    def cancel(self) -> None:
        """Let it end."""
        self.cancelled.set()


@pytest.fixture
def answers() -> queue.Queue[dict[str, Any]]:
    return queue.Queue()


@pytest.fixture
def pulls(answers: queue.Queue[dict[str, Any]]) -> Iterator[Pulls]:
    ScriptedPull.release.clear()
    pulls = Pulls(answers.put, lambda _path, _node, image, _auth: ScriptedPull(image), per_node=2)
    yield pulls
    ScriptedPull.release.set()
    pulls.stop()


def ask(pulls: Pulls, pull_id: str, image: str, node: str = "n") -> None:
    pulls.start(PullRequest(pull_id, node, image, ()), "/docker.sock")


@pytest.mark.parametrize(
    ("image", "ok", "reason", "message"),
    [
        ("fine", True, "", ""),
        ("refused", False, "ErrImagePull", "pull access denied for refused"),
        ("cut", False, "ErrImagePull", "cut"),
        ("defect", False, "ErrImagePull", "KeyError: 'a defect'"),
    ],
)
def test_every_end_is_an_answer(pulls, answers, image, ok, reason, message):
    ask(pulls, "1", image)
    answer = answers.get(timeout=60)
    assert (answer["op"], answer["id"], answer["node"], answer["image"]) == ("pulled", "1", "n", image)
    assert (answer["ok"], answer["reason"], answer["message"]) == (ok, reason, message)
    assert answer["image_id"] == ("sha256:fine" if ok else "")


def test_a_full_node_holds_up_no_other(pulls, answers):
    for number in range(3):
        ask(pulls, f"slow{number}", "slow")
    ask(pulls, "other", "fine", node="m")
    assert answers.get(timeout=60)["id"] == "other"


def test_running_and_queued_pulls_can_be_cancelled(pulls, answers):
    for number in range(3):
        ask(pulls, f"slow{number}", "slow")
    for number in (2, 1, 0):
        pulls.cancel(f"slow{number}")
    pulls.cancel("unknown")
    got = [answers.get(timeout=60) for _ in range(3)]
    assert {answer["reason"] for answer in got} == {"Cancelled"}
    assert {answer["id"] for answer in got} == {"slow0", "slow1", "slow2"}


def test_an_id_under_way_is_one_pull(pulls, answers):
    ask(pulls, "1", "slow")
    ask(pulls, "1", "slow")
    ScriptedPull.release.set()
    assert answers.get(timeout=60)["ok"]
    with pytest.raises(queue.Empty):
        answers.get(timeout=0.1)

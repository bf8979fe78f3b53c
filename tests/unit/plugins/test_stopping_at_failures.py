"""An item stops at its first failure, whichever way a call tells it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from minik8s_modules.plugins.live.items import Item
from minik8s_modules.plugins.live.play import JOINED
from minik8s_modules.plugins.live.worker import ItemWorker

DONE = {"network": {"changed": True}, "secrets": {"changed": True}}


class Worker(ItemWorker):
    """Runs an item here, with calls that end as a test says."""

    def __init__(self, answers: dict[str, dict[str, Any]]) -> None:
        self._sections = dict.fromkeys((JOINED, "network", "secrets", "facts"))
        self._prepare = lambda *_: None
        self._answers, self.sent = answers, list[str]()
        self._final_q = SimpleNamespace(send=lambda _kind, found: self.sent.append(found[0]))

    def _task_of(self, section: str) -> Any:
        return section

    def _execute(self, task: Any) -> dict[str, Any]:
        return {**self._answers[task]}


@pytest.mark.parametrize(
    ("answer", "sent"),
    [
        ({"sections": DONE}, ["network", "secrets", "facts"]),
        ({"sections": {"network": {}}}, ["network", "secrets"]),
        ({"sections": {}}, ["network"]),
        ({}, ["network"]),
        ({"failed": True, "msg": "no", "sections": DONE}, ["network", "secrets"]),
        ({"unreachable": True, "msg": "gone"}, ["network"]),
    ],
)
def test_nothing_is_called_after_a_call_that_lacks_a_section(answer: dict[str, Any], sent: list[str]) -> None:
    worker = Worker({JOINED: answer, "facts": {"facts": {}}})
    sections: dict[str, dict[str, Any]] = {"network": {}, "secrets": {}, "facts": {}}
    worker._run_item(Item("i", "n0", check=False, token=[1, 7], sections=sections))
    assert worker.sent == sent

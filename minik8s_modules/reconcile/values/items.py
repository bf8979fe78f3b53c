"""The words the loop and the runner exchange: one item is a node and the sections of it that changed.

``loop.py`` makes items, ``runner.py`` has Ansible realize them and answers with one outcome per item.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, Protocol

from minik8s_modules.api.objects import JsonObject

Purpose = Literal["reconcile", "check", "housekeeping"]
"""Who asked for an item, and so who is given its outcome: the loop, a plan, or housekeeping."""

OutcomeStatus = Literal["ok", "failed", "unreachable", "cancelled"]

FACTS = "facts"
"""Pseudo-section: a task of the same name runs ``minik8s_facts`` and answers with the node's facts."""


class SectionRequest(NamedTuple):
    """The options of one section's module (docs/reference/node-document.md), such as node, mode and entries."""

    options: JsonObject


class WorkItem(NamedTuple):
    """One pass over one node; ``token`` is (cluster epoch, resourceVersion of the shard's Lease), () for facts."""

    id: str
    node: str
    check: bool
    token: tuple[int, int] | tuple[()]
    sections: Mapping[str, SectionRequest]
    purpose: Purpose = "reconcile"


class Outcome(NamedTuple):
    """What became of an item: each section's module result, and why it failed where it did."""

    id: str
    node: str
    status: OutcomeStatus
    sections: Mapping[str, JsonObject]
    message: str
    purpose: Purpose = "reconcile"
    """That of the item."""


OnOutcome = Callable[[Outcome], None]


class Runner(Protocol):
    """Realizes items; a host has one pass at a time and its further items wait in order."""

    def start(self) -> None:
        """Start; items may be submitted from now on."""

    def submit(self, item: WorkItem) -> None:
        """Queue ``item``; thread-safe; exactly one outcome follows, from another thread."""

    def cancel(self, item_id: str) -> None:
        """Ask for the item to end early; its outcome says ``cancelled`` unless it was done already."""

    def stop(self) -> None:
        """End; waiting items come back as ``cancelled``."""

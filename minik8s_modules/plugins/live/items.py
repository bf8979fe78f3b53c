"""Work items: what one line on the item socket means, and which item may run next.

An item is one JSON line, ``{"id", "host", "check", "token", "sections": {section: options}}``, and is answered by a
line when it is done; its results are ansible-runner's events. Items of housekeeping have ``-keep`` in their id. A
host has one pass at a time; its further items wait in order.

Pure. `serving.py` reads lines, asks here, and starts one `worker.ItemWorker` per item.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict, deque
from typing import Any, NamedTuple

OPTION = re.compile(r"[a-z][a-z0-9_]*\Z")


class Item(NamedTuple):
    """One pass over one host: the module options of each section that is to be converged."""

    id: str
    host: str
    check: bool
    token: list[int]
    sections: dict[str, dict[str, Any]]


class Cancel(NamedTuple):
    """Forget the item ``id``, or end its worker."""

    id: str


class Stop(NamedTuple):
    """Take no further item; the run ends when all known ones are answered."""


class BadLine(Exception):
    """A line that is no request.

    Attributes:
        item_id: the id the line carried, or None when it carried none that can be used.
    """

    def __init__(self, reason: str, item_id: str | None = None) -> None:
        super().__init__(reason)
        self.item_id = item_id


def parse(line: bytes) -> Item | Cancel | Stop:
    """Return what ``line`` (JSON, without its line feed) asks for.

    Raises:
        BadLine: it is not JSON, or a field is missing or has the wrong type; the message names the field.
    """
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadLine(f"not JSON: {error}") from error
    if not isinstance(request, dict):
        raise BadLine(f"expected an object, got {type(request).__name__}")
    operation = request.get("op", "item")
    if operation == "stop":
        return Stop()
    item_id = request.get("id")
    if not isinstance(item_id, str) or not item_id:
        raise BadLine("id must be a non-empty string")
    if operation == "cancel":
        return Cancel(item_id)
    if operation != "item":
        raise BadLine(f"unknown op {operation!r}: use cancel or stop, or leave it out for an item", item_id)
    return _item(item_id, request)


def _item(item_id: str, request: dict[str, Any]) -> Item:
    host, check = request.get("host"), request.get("check", False)
    token, sections = request.get("token", []), request.get("sections")
    if not isinstance(host, str) or not host:
        raise BadLine("host must be a non-empty string", item_id)
    if not isinstance(check, bool):
        raise BadLine("check must be true or false", item_id)
    if not isinstance(token, list) or not all(type(number) is int for number in token):
        raise BadLine("token must be a list of integers", item_id)
    if not isinstance(sections, dict) or not sections:
        raise BadLine("sections must be a non-empty object", item_id)
    for section, options in sections.items():
        if not isinstance(options, dict):
            raise BadLine(f"sections.{section} must be an object of module options", item_id)
        wrong = [name for name in options if not OPTION.match(name)]
        if wrong:
            raise BadLine(f"sections.{section}: {wrong[0]!r} is not the name of a module option", item_id)
    return Item(item_id, host, check, token, sections)


class WorkQueue:
    """At most one running item a host, further ones in order; at most ``slots`` running hosts.

    A host stands in ``_ready`` while it has waiting items and none running, so taking the next item is O(1).
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._waiting: dict[str, deque[Item]] = {}
        self._ready: OrderedDict[str, None] = OrderedDict()
        self._active: dict[str, Item] = {}
        self._ids: set[str] = set()

    def __len__(self) -> int:
        """Return how many items wait or run."""
        return len(self._ids)

    def knows(self, item_id: str) -> bool:
        """Return whether the item is waiting or running."""
        return item_id in self._ids

    def hosts(self) -> set[str]:
        """Return the hosts that have a waiting or running item."""
        return self._waiting.keys() | self._active.keys()

    def add(self, item: Item) -> None:
        """Put ``item`` behind all items its host has."""
        self._ids.add(item.id)
        self._waiting.setdefault(item.host, deque()).append(item)
        if item.host not in self._active:
            self._ready[item.host] = None

    def take(self) -> Item | None:
        """Return the next item to run, which then runs; None when all slots are busy or nothing can run."""
        if len(self._active) >= self.slots or not self._ready:
            return None
        host, _ = self._ready.popitem(last=False)
        waiting = self._waiting[host]
        item = self._active[host] = waiting.popleft()
        if not waiting:
            del self._waiting[host]
        return item

    def finish(self, item: Item) -> None:
        """The running ``item`` has been answered; its host may run its next one."""
        self._ids.discard(item.id)
        self._active.pop(item.host, None)
        if item.host in self._waiting:
            self._ready[item.host] = None

    def cancel(self, item_id: str) -> Item | None:
        """Take the waiting item ``item_id`` out and return it; None when it does not wait."""
        for host, waiting in self._waiting.items():
            for item in waiting:
                if item.id == item_id:
                    self._withdraw(host, [item])
                    return item
        return None

    def drop_waiting(self, host: str) -> list[Item]:
        """Take all waiting items of ``host`` out and return them; a running one goes on."""
        items = list(self._waiting.get(host, ()))
        self._withdraw(host, items)
        return items

    def _withdraw(self, host: str, items: list[Item]) -> None:
        for item in items:
            self._waiting[host].remove(item)
            self._ids.discard(item.id)
        if host in self._waiting and not self._waiting[host]:
            del self._waiting[host]
            self._ready.pop(host, None)

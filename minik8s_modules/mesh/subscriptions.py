"""What one sidecar has asked for and been told of one type of resource: Envoy's delta protocol. Pure.

Source: xDS protocol, "Incremental xDS": a first request without names asks for all; others add and take away names. An
answer to what was sent carries its nonce, and an error if the sidecar kept what it had.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from typing import NamedTuple

WILDCARD = "*"
MOST_BYTES = 4 << 20
"""Of the names that one sidecar may have asked for of a type; those of 10,000 ports of Services are below 1 MB."""


class Difference(NamedTuple):
    """What is to be sent: names of resources that are new or other, and of those that are gone."""

    changed: list[str]
    removed: list[str]

    def __bool__(self) -> bool:
        """Return whether there is anything to send."""
        return bool(self.changed or self.removed)


class Sent(NamedTuple):
    """What a response had in it."""

    names: frozenset[tuple[str, str]]
    """Of resources, each with its type."""
    place: str
    """What the first of them is about."""
    known_since_s: float
    """When it was decided, or asked for, by the loop's clock."""


class TooMuch(Exception):
    """A sidecar has asked for more than is kept for it."""


class Subscription:
    """One type of resource on one stream."""

    def __init__(self) -> None:
        self._everything = False
        self._names: set[str] = set()
        self._begun = False
        self._known: dict[str, str] = {}
        self._gone: set[str] = set()

    def ask(self, subscribe: Collection[str], unsubscribe: Iterable[str], known: Mapping[str, str]) -> None:
        """Take a request: names it adds and takes away, and versions that a sidecar has from an earlier stream.

        Raises:
            TooMuch: its names come to more than ``MOST_BYTES``; the pilot is everybody's.
        """
        if not self._begun:
            self._everything = not subscribe
            self._known.update(known)
        self._begun = True
        self._everything = (self._everything or WILDCARD in subscribe) and WILDCARD not in unsubscribe
        asked = set(subscribe) - {WILDCARD}
        self._names |= asked
        # who asks again for a name wants it again, also one that there is not
        for name in asked & self._known.keys() - known.keys():
            del self._known[name]
        self._gone -= asked
        for name in set(unsubscribe):
            self._names.discard(name)
            self._known.pop(name, None)
            self._gone.discard(name)
        size = sum(map(len, self._names)) + sum(map(len, self._known))
        if size > MOST_BYTES:
            raise TooMuch(f"names of {size} characters were requested; at most {MOST_BYTES} are kept")

    def difference(self, versions: Mapping[str, str], on_demand: Collection[str] = ()) -> Difference:
        """Return what the sidecar lacks of resources with these versions; a name that there is not is gone.

        Who asks for all is not told of what is there ``on_demand``.
        """
        wanted = {name: versions[name] for name in self._names & versions.keys()}
        if self._everything:
            all_told = {each: versions[each] for each in versions.keys() - on_demand} if on_demand else versions
            wanted = {**all_told, **wanted}
        changed = sorted(name for name, version in wanted.items() if self._known.get(name) != version)
        removed = (self._known.keys() | self._names) - versions.keys() - self._gone
        return Difference(changed, sorted(removed))

    def covers(self, names: Set[str]) -> bool:
        """Return whether all of ``names`` were asked for."""
        return self._everything or names <= self._names

    def asks_for(self, name: str) -> bool:
        """Return whether a name was asked for by itself."""
        return name in self._names

    def has(self, name: str, version: str | None) -> bool:
        """Return whether a resource was sent in this version, and is still wanted."""
        return version is not None and self._known.get(name) == version

    def holds(self, name: str) -> bool:
        """Return whether a resource was sent in some version, and not taken away."""
        return name in self._known

    def forget(self, names: Iterable[str]) -> None:
        """Have resources sent again, as if the sidecar had none of them."""
        for name in names:
            self._known.pop(name, None)

    def sent(self, versions: Mapping[str, str], difference: Difference) -> None:
        """Note that ``difference`` was sent."""
        self._known.update({name: versions[name] for name in difference.changed})
        self._gone -= set(difference.changed)
        for name in difference.removed:
            self._known.pop(name, None)
            if name in self._names:
                self._gone.add(name)

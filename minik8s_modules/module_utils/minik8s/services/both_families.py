"""Rules of both families as one backend: each has its own, told apart by what their rules' tables begin with.

Each family's changes are a transaction of their own. The names of what the second one knows and of the aspects of its
fixed part begin with the same word, so that nothing of the first changes when the second comes or goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .conntrack import Lost
from .families import family_of
from .ipvs import Ipvs
from .nftables import Nftables
from .services_plan import FixedPart, Rule, Rules

SECOND = "ipv6 "


def known_of(known: Mapping[str, str], *, second: bool) -> dict[str, str]:
    """Return what one family knows of all that was remembered."""
    if not second:
        return {name: value for name, value in known.items() if not name.startswith(SECOND)}
    return {name.removeprefix(SECOND): value for name, value in known.items() if name.startswith(SECOND)}


class BothFamilies:
    """The backend of a dataplane with addresses of IPv4 and IPv6."""

    def __init__(self, first: Nftables | Ipvs, second: Nftables | Ipvs) -> None:
        self._first, self._second = first, second
        self.name = first.name

    def _of(self, rule: Rule) -> tuple[Nftables | Ipvs, Rule]:
        if rule.table.startswith(SECOND):
            return self._second, rule._replace(table=rule.table.removeprefix(SECOND))
        return self._first, rule

    def _split(self, rules: Iterable[Rule]) -> tuple[list[Rule], list[Rule]]:
        first, second = list[Rule](), list[Rule]()
        for rule in rules:
            part, own = self._of(rule)
            (second if part is self._second else first).append(own)
        return first, second

    def rules_of(self, entry: Mapping[str, Any]) -> list[Rule]:
        """Return the rules of one service port, in the table of its address."""
        if family_of(entry["address"]) is self._first.family:
            return self._first.rules_of(entry)
        return [rule._replace(table=SECOND + rule.table) for rule in self._second.rules_of(entry)]

    def shown(self, rule: Rule) -> tuple[str, str]:
        """Return a rule as (what, text) for people."""
        part, own = self._of(rule)
        return part.shown(own)

    def place_of(self, rule: Rule) -> str:
        """Return where a rule listens, for people."""
        part, own = self._of(rule)
        return part.place_of(own)

    def udp_flow(self, rule: Rule) -> Lost | None:
        """Return what clients send over UDP that a rule has to do with."""
        part, own = self._of(rule)
        return part.udp_flow(own)

    def found(self) -> FixedPart:
        """Return how the fixed parts are and should be."""
        first, second = self._first.found(), self._second.found()
        return FixedPart({**first.seen, **_second(second.seen)}, {**first.wanted, **_second(second.wanted)})

    def mend(self, aspect: str) -> None:
        """Make one aspect of a fixed part right."""
        part = self._second if aspect.startswith(SECOND) else self._first
        part.mend(aspect.removeprefix(SECOND))

    def read(self, rules: Iterable[Rule] | None) -> Rules:
        """Return all rules of ours, or those with the keys of ``rules``."""
        first, second = (None, None) if rules is None else self._split(rules)
        return {**self._first.read(first), **_second(self._second.read(second))}

    def write(self, delete: Iterable[Rule], add: Iterable[Rule]) -> None:
        """Carry the changes out, one transaction a family."""
        for part, gone, new in zip((self._first, self._second), self._split(delete), self._split(add), strict=True):
            if gone or new:
                part.write(gone, new)

    def tidy(self, rules: Rules) -> None:
        """Remove what no rule of all ``rules`` needs."""
        self._first.tidy({table: found for table, found in rules.items() if not table.startswith(SECOND)})
        own = {table.removeprefix(SECOND): found for table, found in rules.items() if table.startswith(SECOND)}
        self._second.tidy(own)

    def known(self) -> dict[str, str]:
        """Return what the next pass is to be given back."""
        return {**self._first.known(), **_second(self._second.known())}

    def remove(self) -> None:
        """Remove everything of ours."""
        self._first.remove()
        self._second.remove()

    def close(self) -> None:
        """Let go of sockets."""
        self._first.close()
        self._second.close()


def _second(found: Mapping[str, Any]) -> dict[str, Any]:
    return {SECOND + name: value for name, value in found.items()}

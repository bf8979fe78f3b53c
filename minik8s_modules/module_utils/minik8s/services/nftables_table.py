"""The fixed part of our nf_tables table: written by ``nft -f``, recognized by digests of its chains.

What nft prints differs between versions, so rules are not compared as text: after they were written the kernel's own
bytes of each chain are digested, and a later pass compares (``known``). The table's comment tells whose it is; one
with another comment is never touched.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Mapping

from ..core.faults import KeyFault
from ..network import nftables_wire as wire_words
from ..network.netfilter import mark_of
from ..network.wire import Wire
from .services_plan import FixedPart


def run_nft(text: str) -> None:
    """Feed the nft program.

    Raises:
        KeyFault: NetworkNotReady, it is not installed or refuses.
    """
    if not shutil.which("nft"):
        raise KeyFault("NetworkNotReady", "the command nft is not installed on this node (package nftables)")
    done = subprocess.run(["nft", "-f", "-"], input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise KeyFault("NetworkNotReady", f"nft -f -: {done.stderr.strip()[:300]}")


def head_of(table: str, node: str) -> str:
    """Return the line that makes a node's table."""
    return f'add table {in_words(table)} {{ comment "{mark_of(node)}"; }}'


def in_words(table: str) -> str:
    """Return a table as nft writes it: with its family, which is ip where it says none."""
    return table if " " in table else f"ip {table}"


def chains_text(table: str, chains: Mapping[str, list[str]]) -> list[str]:
    """Return the lines that make chains hold exactly their rules; a first rule ``type …`` is the hook."""
    lines = []
    for name, body in chains.items():
        hook = f" {{ {body[0]}; }}" if body[0].startswith("type ") else ""
        lines += [f"add chain {in_words(table)} {name}{hook}", f"flush chain {in_words(table)} {name}"]
    for name, body in chains.items():
        lines += [f"add rule {in_words(table)} {name} {rule}" for rule in body if not rule.startswith("type ")]
    return lines


class FixedTable:
    """One table; ``chains`` are the fixed ones, ``text`` makes them and the maps."""

    def __init__(
        self, wire: Wire, node: str, name: str, chains: Iterable[str], text: str, known: Mapping[str, str]
    ) -> None:
        self._wire, self._mark, self.name = wire, mark_of(node), name
        self._chains, self._text = list(chains), text
        self.known = dict(known)
        """Digests of chains as they were after they had been written, by name; "" is that of the text."""
        self.seen: dict[str, str] = {}

    def found(self) -> FixedPart:
        """Return how the fixed part is and should be.

        Raises:
            KeyFault: the table is somebody else's.
        """
        wanted = in_words(self.name)
        comment = wire_words.comment_of(self._wire, self.name)
        if comment is None:
            return FixedPart({"table": ""}, {"table": wanted})
        if comment != self._mark:
            raise KeyFault("NetworkNotReady", f"table {wanted} exists and is not ours (comment {comment!r}); remove it")
        self.seen = wire_words.fingerprints(self._wire, self.name)
        wrong = [name for name in self._chains if not self.is_right(name)]
        if not wrong and self.known.get("") != wire_words.digest_of(self._text):
            wrong = ["definition"]
        return FixedPart({"table": f"changed: {', '.join(wrong)}" if wrong else wanted}, {"table": wanted})

    def is_right(self, chain: str) -> bool:
        """Return whether a chain is as it was written."""
        return chain in self.seen and self.seen[chain] == self.known.get(chain)

    def mend(self) -> None:
        """Write the fixed part; a table of another shape is replaced, its elements are then read as missing."""
        try:
            run_nft(self._text)
        except KeyFault:
            own = in_words(self.name)
            run_nft(f"add table {own}\ndelete table {own}\n{self._text}")
        self.learn(self._chains)
        self.known[""] = wire_words.digest_of(self._text)

    def learn(self, chains: Iterable[str]) -> None:
        """Remember chains as they are now."""
        self.seen = wire_words.fingerprints(self._wire, self.name)
        self.known.update({name: self.seen[name] for name in chains})

    def remove(self) -> None:
        """Remove the table with everything in it, if it is ours."""
        if wire_words.comment_of(self._wire, self.name) == self._mark:
            run_nft(f"delete table {in_words(self.name)}\n")

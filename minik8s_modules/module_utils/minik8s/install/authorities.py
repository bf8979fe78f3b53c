"""Exchanging an authority for a new one while both are trusted in between. Pure: texts of PEM in, texts and names out.

Four files: ``certificate`` holds every trusted authority, the signing one first; ``key`` is its key; the new pair waits
in ``<certificate>.next`` and ``<key>.next``. How far an exchange has come is read from them alone, so a run that was
killed anywhere is continued by the next one:

    settled    one certificate, nothing waits
    preparing  a new key waits; once its certificate is trusted too, it may sign
    switched   the new one signs, the old one is still trusted
"""

from __future__ import annotations

import re
from typing import NamedTuple

PHASES = ("observe", "prepare", "switch", "finish")
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----\n?")


class AuthorityFiles(NamedTuple):
    """What stands in the files: trusted certificates in their order, the waiting one ("" for none), a waiting key."""

    trusted: tuple[str, ...]
    waiting: str
    waiting_key: bool


class AuthorityStep(NamedTuple):
    """One effect: ``write`` the trusted certificates, ``take`` the waiting key, ``remove`` the waiting certificate."""

    action: str
    trusted: tuple[str, ...]
    reason: str


class TooEarly(ValueError):
    """The phase needs an earlier one first."""


def certificates_in(text: str) -> tuple[str, ...]:
    """Return the PEM blocks of ``text``, each with its newline."""
    return tuple(block if block.endswith("\n") else block + "\n" for block in _PEM.findall(text))


def stage(found: AuthorityFiles) -> str:
    """Return how far the exchange has come."""
    if found.waiting_key:
        return "preparing"
    return "switched" if len(found.trusted) > 1 else "settled"


def plan_exchange(phase: str, found: AuthorityFiles) -> list[AuthorityStep]:
    """Return the steps of ``phase``; none when it is over already.

    Raises:
        TooEarly: ``switch`` before the new authority is trusted, ``finish`` before it signs.
    """
    if phase == "prepare":
        return _prepare(found)
    if phase == "switch":
        return _switch(found)
    if phase == "finish":
        return _finish(found)
    return []


def _prepare(found: AuthorityFiles) -> list[AuthorityStep]:
    if stage(found) != "preparing" or found.waiting in found.trusted:
        return []
    return [AuthorityStep("write", (*found.trusted[:1], found.waiting), "the new authority is trusted, too")]


def _switch(found: AuthorityFiles) -> list[AuthorityStep]:
    if stage(found) != "preparing":
        return []
    if not found.waiting or found.waiting not in found.trusted:
        raise TooEarly("the new authority is not trusted yet; prepare first")
    others = tuple(each for each in found.trusted if each != found.waiting)
    steps = [AuthorityStep("write", (found.waiting, *others), "the new authority comes first")]
    take = [
        AuthorityStep("take", (), "the new authority signs"),
        AuthorityStep("remove", (), "no authority is waiting any more"),
    ]
    return take if found.trusted[:1] == (found.waiting,) else steps + take


def _finish(found: AuthorityFiles) -> list[AuthorityStep]:
    if stage(found) == "preparing":
        raise TooEarly("the new authority does not sign yet; switch first")
    steps = [AuthorityStep("remove", (), "no authority is waiting any more")] if found.waiting else []
    if stage(found) == "switched":
        steps.append(AuthorityStep("write", found.trusted[:1], "the old authority is no longer trusted"))
    return steps


def waiting_place(place: str) -> str:
    """Return where the new file waits that will stand at ``place``."""
    return place + ".next"

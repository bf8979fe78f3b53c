"""The controls of controls.yml, what answers each of them, and what is said of the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import yaml

HERE = Path(__file__).resolve().parent
WAYS = frozenset({"command", "not_applicable", "manual"})


class Control(NamedTuple):
    """One control; exactly one of ``command``, ``not_applicable`` and ``manual`` says something."""

    number: str
    title: str
    command: str = ""
    gap: str = ""
    not_applicable: str = ""
    manual: str = ""


class Verdict(NamedTuple):
    """What is said of a control; ``good`` is False where something has to be done."""

    word: str
    told: str
    good: bool


def read(path: Path = HERE / "controls.yml") -> list[Control]:
    """Return the controls.

    Raises:
        ValueError: one has no answer or two, or a gap without a command.
    """
    document: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    found = [Control(number, **fields) for number, fields in document.items()]
    for control in found:
        if len(WAYS & document[control.number].keys()) != 1 or (control.gap and not control.command):
            raise ValueError(f"control {control.number} needs one of {', '.join(sorted(WAYS))}; a gap needs a command")
    return found


def judge(control: Control, code: int, said: str) -> Verdict:
    """Return the verdict on a control whose command ended with ``code``; those without one are judged alike."""
    if control.not_applicable or control.manual:
        word = "not applicable" if control.not_applicable else "manual"
        return Verdict(word, control.not_applicable or control.manual, good=True)
    last = (said.strip().splitlines() or [""])[-1]
    if code == 0:
        return (
            Verdict("FAIL", f"no longer a gap: {last}", good=False) if control.gap else Verdict("pass", last, good=True)
        )
    return Verdict("not met", control.gap, good=True) if control.gap else Verdict("FAIL", last, good=False)

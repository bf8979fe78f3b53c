"""What a person sees: aligned tables, colours only where a terminal reads them."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from minik8s_modules.api.errors import StatusError

RED, GREEN, YELLOW, CYAN, BOLD = "31", "32", "33", "36", "1"
# words of status columns by what they tell; what is not here keeps the terminal's colour
_WORDS = {
    GREEN: {"Running", "Ready", "Active", "Bound", "Available", "Approved", "Approved,Issued", "Complete", "Succeeded"},
    YELLOW: {"Pending", "ContainerCreating", "PodInitializing", "Terminating", "Released", "Suspended", "Completed"},
    RED: {"Failed", "Error", "Unknown", "NotReady", "Lost", "Denied", "Evicted", "OOMKilled"},
}
_COLOURS = {word: colour for colour, words in _WORDS.items() for word in words}
_FAULTS = ("BackOff", "Err", "Failed", "Invalid", "Error")


class Paint:
    """Wraps text in ANSI colours when ``stream`` is a terminal and NO_COLOR (no-color.org) is unset."""

    def __init__(self, stream: TextIO | None = None) -> None:
        stream = stream or sys.stdout
        self._on = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def __call__(self, text: str, colour: str) -> str:
        """Return ``text``, coloured if this output shows colours."""
        return f"\x1b[{colour}m{text}\x1b[0m" if self._on and text else text

    def status(self, text: str) -> str:
        """Return the word of a status column in the colour of what it tells; blanks around it are kept."""
        word = text.strip()
        colour = _COLOURS.get(word.split(",")[0], "")
        if not colour and any(fault in word for fault in _FAULTS):
            colour = RED
        return self(text, colour) if colour else text


def fail(what: str | Exception, where: str = "") -> None:
    """Print what went wrong, and ``where``, to standard error; a server's refusal is worded as kubectl words it."""
    message = f"Error from server ({what.reason})" if isinstance(what, StatusError) and what.reason else "error"
    print(Paint(sys.stderr)(f"{message}: {f'{where}: ' if where else ''}{what}", RED), file=sys.stderr)


def warn(text: str) -> None:
    """Print a warning to standard error."""
    print(Paint(sys.stderr)(f"Warning: {text}", YELLOW), file=sys.stderr)


@contextlib.contextmanager
def progress(what: str) -> Iterator[None]:
    """Say on a terminal what is being waited for, and for how long; standard error, and gone when it is over."""
    if not sys.stderr.isatty():
        yield
        return
    over = threading.Event()

    def tell() -> None:
        seconds = 0
        while not over.wait(1.0):
            seconds += 1
            print(f"\r{what}, {seconds} s", end="", file=sys.stderr, flush=True)
        if seconds:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


def aligned(header: Sequence[str], rows: Iterable[Sequence[str]], paint: Paint | None = None) -> str:
    """Return a table with columns three spaces apart, as kubectl prints; without a header if it is empty.

    With ``paint`` the header is bold, and what stands below STATUS or PHASE has the colour of what it tells.
    """
    lines = [[" ".join(cell.splitlines()) for cell in row] for row in rows]
    everything = [list(header), *lines] if header else lines
    if not everything:
        return ""
    widths = [max(len(line[column]) for line in everything) for column in range(len(everything[0]))]
    status = {index for index, name in enumerate(header) if name in {"STATUS", "PHASE", "CONDITION"}}
    shown = ["   ".join(_cells(line, widths, status, paint)).rstrip() for line in lines]
    if header:
        top = "   ".join(_cells(header, widths, set(), None)).rstrip()
        shown.insert(0, paint(top, BOLD) if paint else top)
    return "\n".join(shown)


def _cells(line: Sequence[str], widths: Sequence[int], status: set[int], paint: Paint | None) -> list[str]:
    padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
    if paint is None:
        return padded
    return [paint.status(cell) if index in status else cell for index, cell in enumerate(padded)]


def coloured_diff(lines: Iterable[str], paint: Paint) -> str:
    """Return unified diff ``lines`` with additions green, removals red and positions cyan."""
    colours = {"+": GREEN, "-": RED, "@": CYAN}
    return "\n".join(paint(line, colours[line[0]]) if line[:1] in colours else line for line in lines)

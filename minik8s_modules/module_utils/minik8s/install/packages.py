"""Which packages a machine has: the files of dpkg and apt, or rpm, are asked themselves.

Ansible's modules for packages load the whole index of a distribution before they see that nothing is to be done: 0.5 to
3.5 s of CPU for each role that needs a package. This takes 20 ms for all of them together.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

Run = Callable[[Sequence[str]], str]
STATUS, EXTENDED = Path("/var/lib/dpkg/status"), Path("/var/lib/apt/extended_states")
RPM = ("rpm", "--query", "--queryformat", "%{NAME}\\n")
INSTALLED = "ok installed"  # after what is wanted of it: install, or hold
NATIVE = "dpkg"  # a package that is there in one architecture, the machine's


def present_by_apt(names: Iterable[str], status: str, extended: str) -> list[str]:
    """Return which of ``names`` are installed in the machine's architecture, and not only for another package's sake.

    Args:
        names: Of packages; one with a version or an architecture counts as missing.
        status: The text of dpkg's file.
        extended: The text of apt's file, which says what came for another package's sake; apt removes that with it.
    """
    found = [(one["Package"], one.get("Architecture", "")) for one in _stanzas(status, INSTALLED)]
    native = dict(found).get(NATIVE, "")
    automatic = {
        one["Package"] for one in _stanzas(extended, "1", "Auto-Installed") if one.get("Architecture") == native
    }
    there = {name for name, architecture in found if architecture in {native, "all"}} - automatic
    return [name for name in names if name in there]


def _stanzas(text: str, ending: str, field: str = "Status") -> Iterator[dict[str, str]]:
    """Yield the fields of one line of each paragraph whose ``field`` ends with ``ending``."""
    for paragraph in text.split("\n\n"):
        lines = (line.partition(": ") for line in paragraph.splitlines() if not line.startswith(" "))
        fields = {name: value for name, colon, value in lines if colon}
        if "Package" in fields and fields.get(field, "").endswith(ending):
            yield fields


def present_by_rpm(names: Sequence[str], run: Run) -> list[str]:
    """Return which of ``names`` rpm knows; it has a sentence in place of each name that it does not know."""
    there = set(run([*RPM, *names]).splitlines()) if names else set()
    return [name for name in names if name in there]


def said(argv: Sequence[str]) -> str:
    """Return what a program printed, whatever its status; nothing where it is missing."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"}
        )
    except FileNotFoundError:
        return ""
    return done.stdout


def text_of(path: Path) -> str:
    """Return the text of a file, nothing where it is missing."""
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

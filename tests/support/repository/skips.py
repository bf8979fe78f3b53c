"""Fails when a test was skipped that ``tests/SKIPS.md`` does not list with its reason.

Run as ``python -m tests.support.repository.skips REPORT...`` on the JUnit reports of pytest.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

LIST = Path(__file__).resolve().parents[2] / "SKIPS.md"
ROW = re.compile(r"^\| *`?(?P<test>[^|`]+?)`? *\| *(?P<reason>[^|]+?) *\|$")


class Skip(NamedTuple):
    """A test (``module::name``) and the reason why it is, or may be, skipped."""

    test: str
    reason: str


def allowed(text: str) -> list[Skip]:
    """Return the rows of the table in ``text``."""
    rows = (ROW.match(line) for line in text.splitlines())
    found = [Skip(row["test"], row["reason"]) for row in rows if row]
    return [skip for skip in found if skip.test != "test" and set(skip.test) != {"-"}]


def skipped(report: str) -> list[Skip]:
    """Return the skipped tests of a JUnit report; an expected failure is none."""
    return [
        Skip(f"{case.get('classname', '')}::{case.get('name', '')}", str(entry.get("message", "")))
        for case in ElementTree.fromstring(report).iter("testcase")
        for entry in case.iter("skipped")
        if entry.get("type") != "pytest.xfail"
    ]


def unlisted(found: Iterable[Skip], rows: Sequence[Skip]) -> list[Skip]:
    """Return those of ``found`` that no row allows."""
    return [
        skip for skip in found if not any(_named(row.test, skip.test) and skip.reason == row.reason for row in rows)
    ]


def _named(pattern: str, test: str) -> bool:
    """Return whether ``pattern`` names ``test``; only ``*`` is special (brackets stand in the names of tests)."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), test) is not None


def main(reports: Sequence[str]) -> int:
    """Return 1 and name the skips when there are unlisted ones, else 0; 2 when there is no report."""
    if not reports:
        sys.stderr.write("skips: name the JUnit reports of pytest\n")
        return 2
    found = [skip for report in reports for skip in skipped(Path(report).read_text(encoding="utf-8"))]
    wrong = unlisted(found, allowed(LIST.read_text(encoding="utf-8")))
    for skip in wrong:
        sys.stderr.write(f"skips: {skip.test} was skipped, not listed with this reason: {skip.reason}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

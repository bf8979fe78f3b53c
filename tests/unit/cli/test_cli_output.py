"""Tables line up, and colours are for terminals only."""

from __future__ import annotations

import io

import pytest

from minik8s_modules.cli.output import Paint, aligned


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """It is one."""
        return True


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_columns_line_up_with_and_without_colours(monkeypatch):
    rows = [["web", "Running"], ["a-long-name", "CrashLoopBackOff"]]
    text = aligned(["NAME", "STATUS"], rows, Paint(io.StringIO()))
    assert text == "NAME          STATUS\nweb           Running\na-long-name   CrashLoopBackOff"
    painted = aligned(["NAME", "STATUS"], rows, Paint(Terminal()))
    assert "\x1b[32mRunning" in painted
    assert "\x1b[31mCrashLoopBackOff" in painted
    monkeypatch.setenv("NO_COLOR", "1")
    assert aligned(["NAME", "STATUS"], rows, Paint(Terminal())) == text

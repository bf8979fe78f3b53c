"""Tables line up, colours are for terminals only, and JSONPath means what kubectl's does."""

from __future__ import annotations

import io

import pytest

from minik8s_modules.cli import jsonpath
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.generating import seconds
from minik8s_modules.cli.output import Paint, Progress, aligned, as_yaml

POD = {
    "metadata": {"name": "web", "labels": {"a.b/c": "x"}},
    "items": [{"n": 1, "t": "a"}, {"n": 2, "t": "b"}, {"n": 3}],
}


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


def test_progress_is_for_terminals():
    pipe, terminal = io.StringIO(), Terminal()
    for stream in (pipe, terminal):
        progress = Progress(stream)
        progress.tell("waiting")
        progress.clear()
    assert pipe.getvalue() == ""
    assert terminal.getvalue() == "\r\x1b[Kwaiting\r\x1b[K"


def test_texts_of_several_lines_are_blocks():
    assert as_yaml({"script": "a\nb\n"}) == "script: |\n  a\n  b"


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("{.metadata.name}", ["web"]),
        ("metadata.name", ["web"]),
        ("$.metadata.name", ["web"]),
        (".metadata.labels.a\\.b/c", ["x"]),
        (".metadata.labels['a.b/c']", ["x"]),
        (".items[0].n", [1]),
        (".items[-1].n", [3]),
        (".items[9].n", []),
        (".items[0:2].n", [1, 2]),
        (".items[*].t", ["a", "b"]),
        ('.items[?(@.t=="b")].n', [2]),
        (".items[?(@.n>=2)].n", [2, 3]),
        (".items[?(@.t)].n", [1, 2]),
        ("..n", [1, 2, 3]),
        (".nothing.here", []),
    ],
)
def test_paths(path, found):
    assert jsonpath.find(path, POD) == found


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{.metadata.name}: {.items[*].n}", "web: 1 2 3"),
        ('{range .items[*]}{.n}{"\\t"}{.t}{"\\n"}{end}', "1\ta\n2\tb\n3\t\n"),
        ("{range .items[*]}{range .x}{end}{.n},{end}", "1,2,3,"),
        ("{.metadata.labels}", '{"a.b/c":"x"}'),
    ],
)
def test_templates(template, text):
    assert jsonpath.render(template, POD) == text


@pytest.mark.parametrize("template", ["{.a", "{range .items[*]}{.n}", "{end}", "{.items[}", "{.items[?(x)]}"])
def test_templates_that_are_none_are_refused(template):
    with pytest.raises(UsageError):
        jsonpath.render(template, POD)


@pytest.mark.parametrize(("text", "found"), [("90s", 90), ("1h30m", 5400), ("600", 600)])
def test_durations(text, found):
    assert seconds(text) == found


@pytest.mark.parametrize("text", ["x", "1d", "s"])
def test_durations_that_are_none_are_refused(text):
    with pytest.raises(UsageError):
        seconds(text)

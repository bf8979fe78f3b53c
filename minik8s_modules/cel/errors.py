"""What goes wrong with a CEL expression: when it is compiled (with line and column) or when it runs.

``CelError``
├── ``CompileError``           the text is not an expression of this environment; ``issues`` has one entry a mistake
│   ├── ``CelSyntaxError``     it cannot be parsed
│   ├── ``CelTypeError``       names or types do not fit
│   └── ``ProgramError``       a constant cannot be used, as a regular expression that is none
├── ``EvaluationError``        an error value of CEL: ``&&``, ``||`` and macros may absorb it
└── ``CostExceeded``           the budget is used up: nothing absorbs it
"""

from __future__ import annotations

from dataclasses import dataclass

ASCII = range(128)
MOST_ISSUES = 100  # that one message tells (cel-go, common/errors.go)
LONGEST_SNIPPET = 16384  # characters of a line that a message repeats (cel-go, common/error.go)


class CelError(Exception):
    """Any failure of this room."""


@dataclass(frozen=True)
class Issue:
    """One mistake: what, and where (line from 1, column from 0, in code points)."""

    message: str
    line: int
    column: int


class CompileError(CelError):
    """An expression that cannot be used; the message is worded and laid out as cel-go does it."""

    def __init__(self, source: str, issues: list[Issue]) -> None:
        self.issues = sorted(issues, key=lambda issue: (issue.line, issue.column))
        lines = source.split("\n")
        shown = [_display(issue, lines) for issue in self.issues[:MOST_ISSUES]]
        if len(self.issues) > MOST_ISSUES:
            shown.append(f"{len(self.issues) - MOST_ISSUES} more errors were truncated")
        super().__init__("\n".join(shown))


class CelSyntaxError(CompileError):
    """The text cannot be parsed."""


class CelTypeError(CompileError):
    """A name is not declared, or types do not fit."""


class ProgramError(CompileError):
    """A constant that cannot be used, for example a regular expression that is none."""

    def __init__(self, message: str) -> None:
        super().__init__("", [])
        self.args = (message,)


class EvaluationError(CelError):
    """An error value of CEL, for example ``no such key: x`` or ``division by zero``."""


class CostExceeded(CelError):
    """An evaluation used more than its budget."""

    def __init__(self, message: str = "operation cancelled: actual cost limit exceeded") -> None:
        super().__init__(message)


def no_such_overload(detail: str = "") -> EvaluationError:
    """The error of a function that has no form for the values it was given."""
    return EvaluationError(f"no such overload{': ' + detail if detail else ''}")


def issue_at(source: str, offset: int, message: str) -> Issue:
    """Return the issue at a position given in code points from the start of the text."""
    before = source[:offset]
    return Issue(message, before.count("\n") + 1, offset - (before.rfind("\n") + 1))


def _display(issue: Issue, lines: list[str]) -> str:
    text = f"ERROR: <input>:{issue.line}:{issue.column + 1}: {issue.message}"
    line = lines[issue.line - 1] if issue.line <= len(lines) else ""
    if len(line) > LONGEST_SNIPPET:
        return text
    line = line.replace("\t", " ")
    dots = "".join("." if ord(letter) in ASCII else "\uff0e" for letter in line[: issue.column])
    mark = "^" if ord(line[issue.column : issue.column + 1] or " ") in ASCII else "\uff3e"
    return f"{text}\n | {line}\n | {dots}{mark}"

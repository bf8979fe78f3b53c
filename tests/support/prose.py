"""Refuses phrases that stop a reader, for ``make lint``: the table "Words we do not use" of docs/reference/glossary.md.

A phrase is looked for in documentation, code (messages, docstrings, comments) and playbooks alike, in any case, and
also where a line breaks in it. Run as ``python -m tests.support.prose``; exits with 1 when it finds one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
GLOSSARY = "docs/reference/glossary.md"
SUFFIXES = (".md", ".py", ".yml", ".yaml", ".j2", ".c", ".toml", "Makefile")
# manifests of others, generated code, and what no user reads
LEFT_OUT = (GLOSSARY, "examples/original/", "minik8s_modules/store/stubs/", "tests/", "CHANGELOG.md")


def phrases(glossary: str) -> dict[str, str]:
    """Return what to write by each phrase that is not used, from the last table of the glossary."""
    rows = glossary[glossary.index("| not | but |") :].splitlines()[2:]
    cells = [row.strip("| ").partition(" | ") for row in rows if row.startswith("|")]
    return {left: right for left, _, right in cells}


def findings(text: str, unwanted: Mapping[str, str]) -> Iterator[tuple[int, str, str]]:
    """Yield line, phrase and what to write instead, for each unwanted phrase in ``text``."""
    words = {re.sub(r"\s+", " ", phrase).lower(): better for phrase, better in unwanted.items()}
    gap = r"(?:\s|[#*\"'](?=\s|\w))+"  # a phrase may go on behind a comment's sign, or in the next literal
    pattern = "|".join(gap.join(map(re.escape, phrase.split())) for phrase in sorted(words, key=len, reverse=True))
    for match in re.finditer(rf"\b(?:{pattern})\b", text, re.IGNORECASE):
        phrase = " ".join(re.findall(r"[\w-]+", match.group())).lower()
        yield text.count("\n", 0, match.start()) + 1, match.group(), words.get(phrase, "see the glossary")


def main() -> int:
    """Print each finding as ``file:line: message``; return 1 if there are any."""
    unwanted = phrases((REPOSITORY / GLOSSARY).read_text(encoding="utf-8"))
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    found = 0
    for name in listed.stdout.splitlines():
        if name.endswith(SUFFIXES) and not name.startswith(LEFT_OUT) and (REPOSITORY / name).is_file():
            for line, phrase, better in findings((REPOSITORY / name).read_text(encoding="utf-8"), unwanted):
                print(f"{name}:{line}: {' '.join(phrase.split())!r}: write {better}")
                found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

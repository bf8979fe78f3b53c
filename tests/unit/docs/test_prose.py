"""The prose linter finds unwanted phrases wherever they break, and knows the glossary's table."""

from __future__ import annotations

from tests.support.prose import GLOSSARY, REPOSITORY, findings, phrases

UNWANTED = {"anew": "again", "is spoken here": "is supported"}


def test_a_phrase_is_found_across_lines_comments_and_literals() -> None:
    assert list(findings("made anew", UNWANTED)) == [(1, "anew", "again")]
    assert [
        line for line, _, _ in findings('x = 1\n# WebSocket is\n# spoken here\n"is "\n"spoken here"', UNWANTED)
    ] == [2, 4]
    assert list(findings("a renewed try is not spoken here_after", UNWANTED)) == []


def test_the_glossary_has_phrases() -> None:
    unwanted = phrases((REPOSITORY / GLOSSARY).read_text(encoding="utf-8"))
    assert len(unwanted) > 10
    assert all(unwanted.values())

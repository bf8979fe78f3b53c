"""Stacks become shares: a function counts once a sample, however often it stands in the stack."""

from __future__ import annotations

from tests.benchmarks.profile import Share, shares


def test_shares_are_of_samples_and_of_functions_not_lines():
    stacks = ["main (a.py:1);work (b.py:5);work (b.py:7) 6", "main (a.py:2);rest (b.py:9) 3", "main (a.py:3) 1"]
    assert shares(stacks) == [
        Share(100.0, 10.0, "main (a.py)"),
        Share(60.0, 60.0, "work (b.py)"),
        Share(30.0, 30.0, "rest (b.py)"),
    ]


def test_no_sample_is_no_share():
    assert shares([]) == []

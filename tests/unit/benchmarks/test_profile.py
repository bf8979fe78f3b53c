"""Stacks become shares: a function counts once a sample, however often it stands in the stack."""

from __future__ import annotations

import json

from tests.benchmarks.profile_pod import requests
from tests.benchmarks.shares import Share, shares


def test_shares_are_of_samples_and_of_functions_not_lines():
    stacks = ["main (a.py:1);work (b.py:5);work (b.py:7) 6", "main (a.py:2);rest (b.py:9) 3", "main (a.py:3) 1"]
    assert shares(stacks) == [
        Share(100.0, 10.0, "main (a.py)"),
        Share(60.0, 60.0, "work (b.py)"),
        Share(30.0, 30.0, "rest (b.py)"),
    ]


def test_no_sample_is_no_share():
    assert shares([]) == []


def test_requests_are_counted_by_who_asks_for_what_once_they_are_answered():
    pod = {"user": {"username": "kim"}, "verb": "patch", "objectRef": {"resource": "pods", "subresource": "status"}}
    events = [
        {**pod, "stage": "RequestReceived"},
        {**pod, "stage": "ResponseComplete"},
        {**pod, "stage": "ResponseComplete"},
        {"user": {"username": "lee"}, "verb": "get", "requestURI": "/readyz", "stage": "ResponseComplete"},
    ]
    assert requests(json.dumps(event).encode() for event in events) == {
        "kim patch pods/status": 2,
        "lee get /readyz": 1,
    }

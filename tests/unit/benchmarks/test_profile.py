"""Stacks become shares: a function counts once a sample, however often it stands in the stack."""

from __future__ import annotations

import json
import threading
import time

import psutil

from tests.benchmarks.profile_pod import requests, threads
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


def test_threads_tell_what_they_used_and_how_often_they_waited():
    found, me = {"test": psutil.Process()}, ("test", threading.get_native_id())
    before = threads(found)[me]
    for _ in range(3):
        time.sleep(0.001)
    used_ms, waits = threads(found)[me]
    assert used_ms > before[0] > 0
    assert waits >= before[1] + 3

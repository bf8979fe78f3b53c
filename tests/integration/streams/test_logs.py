"""kubectl logs against a real API server, gateway and dockerd."""

from __future__ import annotations

import re
import time

from tests.integration.streams.conftest import Streaming

COUNT = "for i in 1 2 3; do echo line $i; done; sleep 0.2; echo oops >&2; sleep 3600"


def test_the_whole_log_and_parts_of_it(streaming: Streaming) -> None:
    streaming.pod("plain", COUNT)
    whole = "line 1\nline 2\nline 3\noops\n"
    streaming.until(lambda: streaming.kubectl("logs", "plain").stdout == whole)
    assert streaming.kubectl("logs", "plain", "--tail=2").stdout == "line 3\noops\n"
    assert streaming.kubectl("logs", "plain", "--tail=0").stdout == ""
    assert streaming.kubectl("logs", "plain", "--limit-bytes=9").stdout == "line 1\nli"
    stamped = streaming.kubectl("logs", "plain", "--timestamps", "--tail=1").stdout
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z oops\n", stamped)


def test_since_leaves_out_what_is_older(streaming: Streaming) -> None:
    streaming.pod("aging", "echo old; sleep 3; echo new; sleep 3600")
    streaming.until(lambda: "new" in streaming.kubectl("logs", "aging").stdout)
    assert streaming.kubectl("logs", "aging", "--since=2s").stdout == "new\n"
    assert streaming.kubectl("logs", "aging", "--since-time=2020-01-01T00:00:00Z").stdout == "old\nnew\n"
    assert streaming.kubectl("logs", "aging", "--since=1h").stdout == "old\nnew\n"


def test_following_ends_with_the_container(streaming: Streaming) -> None:
    streaming.pod("short", "for i in 1 2 3 4; do echo tick $i; sleep 0.3; done")
    began = time.monotonic()
    done = streaming.kubectl("logs", "-f", "short")
    assert done.stdout == "tick 1\ntick 2\ntick 3\ntick 4\n"
    assert time.monotonic() - began < 10

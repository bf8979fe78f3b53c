"""What API servers send, and what is no request."""

from __future__ import annotations

import pytest

from minik8s_modules.gateway.streams.opening import docker_query
from minik8s_modules.streams.commands import SUCCESS, exit_status
from minik8s_modules.streams.consoles import Resize, size_of
from minik8s_modules.streams.requests import parse

HEAD = (
    b"GET /nodes/n%2F1/pods/u-1/log?namespace=s&pod=web&container=a+b&follow=true&command=a&command=%26b HTTP/1.1\r\n"
    b"Host: x\r\nUpgrade: Y: z\r\n\r\n"
)


def test_a_request_is_taken_apart() -> None:
    request = parse(HEAD)
    assert (request.node, request.uid, request.what) == ("n/1", "u-1", "log")
    assert request.container == "a b"
    assert request.flag("follow")
    assert not request.flag("tty")
    assert request.options["command"] == ["a", "&b"]
    assert request.headers == {"host": "x", "upgrade": "Y: z"}


@pytest.mark.parametrize(
    "head",
    [
        b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /nodes/n/pods/u/log HTTP/1.0\r\n\r\n",
        b"GET /nodes/n HTTP/1.1\r\nx",
        b"GET /nodes/n/pods/u/log?pod=web HTTP/1.1\r\n\r\n",
        b"GET /nodes/n/pods/u/log?namespace=s&pod= HTTP/1.1\r\n\r\n",
    ],
)
def test_anything_else_is_none(head: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(head)


def test_log_options_in_dockers_words() -> None:
    options = b"namespace=s&pod=web&follow=true&tailLines=0&since=12.5&timestamps=true&stream=Stderr"
    head = b"GET /nodes/n/pods/u/log?" + options + b" HTTP/1.1\r\n\r\n"
    assert docker_query(parse(head)) == {
        "stdout": "0", "stderr": "1", "follow": "1", "timestamps": "1", "tail": "0", "since": "12.5",
    }  # fmt: skip


def test_an_exit_code_is_told_as_kubectl_reads_it() -> None:
    assert exit_status(0) is SUCCESS
    status = exit_status(7)
    assert status["reason"] == "NonZeroExitCode"
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "7"}]


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"Width":"x","Height":1}', b"\xff"])
def test_a_size_that_is_none_is_ignored(text: bytes) -> None:
    assert size_of(text) is None


def test_a_size() -> None:
    assert size_of(b'{"Width":80,"Height":24}') == Resize(24, 80)

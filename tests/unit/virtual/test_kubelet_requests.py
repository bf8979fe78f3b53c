"""What a kubelet is asked for; ported from virtual-kubelet's ``node/api`` (``TestParseLogOptions``)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from minik8s_modules.virtual.errors import InvalidInput
from minik8s_modules.virtual.provider import ContainerLogOptions
from minik8s_modules.virtual.serving.requests import KubeletRequest, log_options, parse


def _parsed(target: str, *headers: str) -> KubeletRequest:
    return parse("\r\n".join([f"GET {target} HTTP/1.1", *headers]).encode())


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("/containerLogs/ns/pod/app", ("log", "ns", "pod", "app")),
        ("/exec/ns/pod/app?command=ls", ("exec", "ns", "pod", "app")),
        ("/exec/ns/pod/some-uid/app?command=ls", ("exec", "ns", "pod", "app")),
        ("/attach/ns/pod/app", ("attach", "ns", "pod", "app")),
        ("/portForward/ns/pod", ("portforward", "ns", "pod", "")),
        ("/pods", ("pods", "", "", "")),
        ("/runningpods/", ("runningpods", "", "", "")),
        ("/stats/summary", ("summary", "", "", "")),
        ("/metrics/resource", ("resource", "", "", "")),
    ],
)
def test_paths_name_what_is_meant(target: str, found: tuple[str, ...]) -> None:
    request = _parsed(target)
    assert (request.what, request.namespace, request.pod, request.container) == found


@pytest.mark.parametrize("target", ["/", "/exec/ns/pod", "/containerLogs/ns//app", "/run/ns/pod/app", "/portForward/x"])
def test_nothing_else_is_served(target: str) -> None:
    with pytest.raises(LookupError, match="nothing is served"):
        _parsed(target)


def test_kubelets_names_of_streams_are_ours() -> None:
    stream = _parsed(
        "/exec/ns/pod/app?input=1&output=1&error=1&tty=1&command=sh&command=-c", "Upgrade: SPDY/3.1"
    ).stream
    assert stream.channels() == ["stdin", "stdout"]
    assert stream.flag("tty")
    assert stream.options["command"] == ["sh", "-c"]
    assert stream.headers == {"upgrade": "SPDY/3.1"}
    assert _parsed("/attach/ns/pod/app?output=1&error=1").stream.channels() == ["stdout", "stderr"]


def test_ports_come_in_either_form() -> None:
    assert _parsed("/portForward/ns/pod?port=80,81&port=82").stream.options["ports"] == ["80", "81", "82"]


def test_options_of_logs() -> None:
    query = "tailLines=3&limitBytes=9&timestamps=true&follow=true&previous=true&sinceTime=2026-01-01T00:00:00Z"
    wanted = ContainerLogOptions(3, 9, True, True, True, 0, datetime(2026, 1, 1, tzinfo=UTC))  # noqa: FBT003
    assert log_options(_parsed(f"/containerLogs/ns/pod/app?{query}")) == wanted
    assert log_options(_parsed("/containerLogs/ns/pod/app")) == ContainerLogOptions()
    assert log_options(_parsed("/containerLogs/ns/pod/app?sinceSeconds=5&tailLines=0")).since_seconds == 5


@pytest.mark.parametrize(
    "query", ["tailLines=-1", "tailLines=x", "limitBytes=0", "sinceSeconds=0", "sinceTime=now",
              "sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z"],
)  # fmt: skip
def test_options_that_cannot_be_used_are_refused(query: str) -> None:
    with pytest.raises(InvalidInput):
        log_options(_parsed(f"/containerLogs/ns/pod/app?{query}"))

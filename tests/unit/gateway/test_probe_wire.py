"""What probes send and how their ends are worded: kubelet's words, frames by RFC 9113."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from minik8s_modules.gateway.messages import BadMessage, Probe
from minik8s_modules.gateway.messages import parse as parse_message
from minik8s_modules.gateway.probing.checks import BadCheck, Check, Result, counted, parse, worth_telling
from minik8s_modules.gateway.probing.wire import (
    Cause,
    grpc_request,
    http_request,
    message_of,
    read_states,
    request_of,
    table_of,
)
from tests.support.docker.pause import http_check


def action(**changes: Any) -> dict[str, Any]:
    return {"host": "10.0.0.1", "port": 80, "path": "/", "scheme": "http", "headers": [], **changes}


def test_a_request_is_made_as_kubelet_makes_it():
    headers = [("Host", "shop"), ("X-Who", "me"), ("Accept", "")]
    lines = http_request(action(path="/a b\u00e9?x=1", headers=headers)).decode().split("\r\n")
    assert lines[0] == "GET /a%20b%C3%A9?x=1 HTTP/1.1"
    assert "Host: shop" in lines
    assert "X-Who: me" in lines
    assert not any(line.startswith("Accept") for line in lines)
    assert any(line.startswith("User-Agent: kube-probe/") for line in lines)
    assert lines[-3:] == ["Connection: close", "", ""]


def test_a_header_cannot_smuggle_a_line():
    assert b"evil" not in http_request(action(headers=[("X", "a\r\nevil: 1")]))


def test_a_grpc_request_names_its_service():
    found = grpc_request({"host": "10.0.0.1", "port": 1, "service": "shop"})
    assert found.startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert b"/grpc.health.v1.Health/Check" in found
    assert found.endswith(b"\x00\x00\x00\x00\x06\x0a\x04shop")


@pytest.mark.parametrize(
    ("kind", "cause", "text"),
    [
        ("http", Cause("http", 500), "HTTP probe failed with statuscode: 500"),
        ("http", Cause("errno", 111), 'Get "http://10.0.0.1:80/": dial tcp 10.0.0.1:80: connect: connection refused'),
        ("http", Cause("timeout"), "awaiting headers)"),
        ("http", Cause("closed"), 'Get "http://10.0.0.1:80/": EOF'),
        ("tcp", Cause("errno", 113), "dial tcp 10.0.0.1:80: connect: no route to host"),
        ("tcp", Cause("timeout"), "dial tcp 10.0.0.1:80: i/o timeout"),
        ("grpc", Cause("grpc", 2), 'service unhealthy (responded with "NOT_SERVING")'),
        ("grpc", Cause("grpc", -1), "health protocol"),
        ("grpc", Cause("timeout"), 'timeout: failed to connect service "10.0.0.1:80" within 1s'),
    ],
)
def test_failures_are_worded_as_kubelet_words_them(kind: str, cause: Cause, text: str):
    check = parse(http_check("c/readiness", "10.0.0.1", 80))._replace(kind=kind)
    assert not cause.good()
    assert text in message_of(check, cause)


def test_a_table_is_lines_and_its_states_read_back():
    check = parse(http_check("c/readiness", "10.0.0.1", 80))
    assert table_of([(check, 0.5)], "7") == (
        f"+ c/readiness http 10.0.0.1 80 500 1000 1000 1 2 {request_of(check).hex()}\n= 7\n".encode()
    )
    generation, found = read_states("! 7 c/readiness:f:2:http:500 gone/x:s:1:ok:0", {check.id: check})
    assert generation == "7"
    assert found == {check.id: Result("failure", -2, "HTTP probe failed with statuscode: 500")}
    with pytest.raises(ValueError, match="no state"):
        read_states("hello there 1", {})


@pytest.mark.parametrize(
    "message",
    [
        "f:1:errno:9999999999999999999999", "f:1:http:-7", "f:99999999999999999999:http:500", "f:-1:http:500",
        "f:1:root:0", "z:1:http:500", "f:1:http:" + "9" * 5000, "f:x:http:500", "f:1:http", "::::",
    ],
)  # fmt: skip
def test_whatever_a_pause_container_says_is_a_result_or_no_line(message: str):
    """A pod that shares its process namespace can write in the program's name."""
    check = parse(http_check("c/readiness", "10.0.0.1", 80))
    try:
        _, found = read_states(f"! 7 c/readiness:{message}", {check.id: check})
    except (ValueError, KeyError):
        return
    assert len(orjson.dumps({name: result.to_json() for name, result in found.items()})) < 200
    assert all("malformed" in result.message for result in found.values())


def test_thresholds_count_results_in_a_row():
    check = parse(http_check("c/x", "10.0.0.1", 1, success=2, failure=2))
    states, result = [], Result()
    for good in (True, True, False, True, False, False, True, True):
        result = counted(check, result, good=good, message="no")
        states.append(result.state)
    assert states == ["unknown", "success", "success", "success", "success", "failure", "failure", "success"]


def test_only_news_is_told():
    check = parse(http_check("c/x", "10.0.0.1", 1))
    assert worth_telling(Result(), Result("success", 1), check)
    assert not worth_telling(Result("success", 1), Result("success", 2), check)
    assert worth_telling(Result("success", 1), Result("success", -1, "a"), check)
    assert not worth_telling(Result("failure", -7, "a"), Result("failure", -8, "a"), check)
    assert worth_telling(Result("failure", -8, "a"), Result("failure", -9, "b"), check)


@pytest.mark.parametrize(
    "changes", [{"http": None}, {"exec": []}, {"id": "a b"}, {"http": {"host": "h", "port": 0}}, {"started_at": "soon"}]
)
def test_a_check_that_is_none_is_refused(changes: dict[str, Any]):
    with pytest.raises(BadCheck):
        parse({**http_check("c/x", "10.0.0.1", 80), **changes})


def test_a_probe_message_carries_checks():
    line = b'{"op":"probe","node":"n","pod":"p","sandbox":"s","checks":[{"id":"a","container":"c","sleep":1}]}\n'
    found = parse_message(line)
    assert isinstance(found, Probe)
    assert isinstance(found.checks[0], Check)
    with pytest.raises(BadMessage, match="a check must name one of"):
        parse_message(line.replace(b'"sleep":1', b'"nap":1'))

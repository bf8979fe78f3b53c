"""Checks that the gateway runs itself, against real sockets; commands are tested on Docker."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.gateway.probing.checks import parse
from minik8s_modules.gateway.probing.pod import PodChecks
from minik8s_modules.gateway.probing.running import Outcome, grpc_answer, http_answer, run_once
from minik8s_modules.gateway.probing.wire import Cause
from minik8s_modules.gateway.streams.reaching import Door
from tests.support.pause import http_check
from tests.support.pki import Authority

HERE = Door("/nowhere.sock", None)
OK = b"HTTP/1.1 204 No Content\r\n\r\n"


@asynccontextmanager
async def serving(answer: bytes, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        writer.write(answer)
        await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def outcome(answer: bytes, context: ssl.SSLContext | None = None, **changes: Any) -> Outcome:
    async def run() -> Outcome:
        async with serving(answer, context) as port:
            check = http_check("c/r", "127.0.0.1", port)
            check["http"] |= changes.pop("http", {})
            return await run_once(parse({**check, **changes}), HERE)

    return asyncio.run(run())


def test_http_is_read_by_its_status():
    assert outcome(OK) == Outcome(good=True)
    assert outcome(b"HTTP/1.1 500 Oh\r\n\r\n") == Outcome(good=False, message="HTTP probe failed with statuscode: 500")
    assert "malformed" in outcome(b"hello").message


def test_a_hook_is_content_with_any_answer():
    assert outcome(b"HTTP/1.1 500 Oh\r\n\r\n", once=True).good


def test_https_is_probed_without_checking_the_certificate(tmp_path: Path):
    issued = Authority(tmp_path, "nobody you know").issue("server", "elsewhere")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.cert, issued.key)
    assert outcome(OK, context, http={"scheme": "HTTPS"}).good
    assert not outcome(OK, http={"scheme": "HTTPS"}).good


def test_what_does_not_answer_in_time_fails():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        check = http_check("c/r", "127.0.0.1", silent.getsockname()[1], timeout_s=0.1)
        assert "context deadline exceeded" in asyncio.run(run_once(parse(check), HERE)).message


def test_a_sleeping_hook_sleeps():
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    check = parse({"id": "c/h", "container": "c", "once": True, "timeout_s": 9, "sleep": 3})
    assert asyncio.run(run_once(check, HERE, sleep)).good
    assert slept == [3.0]


@pytest.mark.parametrize(
    ("got", "cause"),
    [
        (b"", None),
        (b"\x00\x00\x07\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x02\x08\x01", Cause("grpc", 1)),
        (b"\x00\x00\x05\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00", Cause("grpc", 0)),
        (b"\x00\x00\x01\x01\x05\x00\x00\x00\x01\x88", Cause("grpc", -1)),
        (b"\x00\x00\x07\x00", None),
    ],
    ids=["nothing", "serving", "unknown", "trailers only", "half a frame"],
)
def test_frames_tell_the_serving_status(got: bytes, cause: Cause | None):
    assert grpc_answer(got) == cause


def test_an_empty_answer_is_an_early_end():
    assert http_answer(b"") == Cause("closed")


def pod_checks(act: Callable[[PodChecks], Awaitable[None]]) -> list[dict[str, Any]]:
    """Return what a pod's checks tell while ``act`` goes on."""
    told: list[dict[str, Any]] = []

    async def run() -> None:
        pod = PodChecks(lambda: HERE, told.append)
        await act(pod)
        await pod.close()

    asyncio.run(run())
    return told


def sleeping(seconds: float, timeout_s: float) -> Any:
    return parse({"id": "c/h", "container": "c", "once": True, "timeout_s": timeout_s, "sleep": seconds})


def test_a_hook_runs_once_and_keeps_its_result():
    async def act(pod: PodChecks) -> None:
        for _ in range(3):
            await pod.declare("s", [sleeping(0, 5)])
            await asyncio.sleep(0.05)

    told = pod_checks(act)
    assert [each["c/h"].state for each in told] == ["unknown", "success", "success", "success"]


def test_a_hook_under_way_is_broken_off_when_its_time_is_shortened():
    async def act(pod: PodChecks) -> None:
        await pod.declare("s", [sleeping(60, 60)])
        await asyncio.sleep(0.05)
        await pod.declare("s", [sleeping(60, 0.1)])
        async with asyncio.timeout(20):
            while pod.results["c/h"].state == "unknown":
                await asyncio.sleep(0.01)

    assert pod_checks(act)[-1]["c/h"].state == "failure"


def test_what_is_not_declared_any_more_is_forgotten():
    async def act(pod: PodChecks) -> None:
        await pod.declare("s", [sleeping(60, 60)])
        await pod.declare("s", [])

    assert pod_checks(act)[-1] == {}

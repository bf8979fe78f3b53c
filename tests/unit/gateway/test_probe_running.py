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

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.gateway.probing.answers import Answers
from minik8s_modules.gateway.probing.checks import parse
from minik8s_modules.gateway.probing.pod import PodChecks
from minik8s_modules.gateway.probing.running import Outcome, run_once
from minik8s_modules.gateway.streams.reaching import NodeRoute
from minik8s_modules.streams.answers import read_answers
from minik8s_modules.streams.passing import Channel, pair
from tests.support.docker.pause import http_check
from tests.support.pki import Authority

HERE = NodeRoute("/nowhere.sock", None)
OK = b"HTTP/1.1 204 No Content\r\n\r\n"


@asynccontextmanager
async def serving(answer: bytes, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError), contextlib.closing(writer):
            await reader.read(4096)
            writer.write(answer)
            await writer.drain()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@asynccontextmanager
async def reading() -> AsyncIterator[Answers]:
    """What the gateway asks, and minik8s-streams at its other end."""
    ours, theirs = pair()
    answers = Answers()
    answers.use(ours)
    reader = asyncio.create_task(read_answers(Channel(theirs, 3)))
    try:
        yield answers
    finally:
        answers.close()
        await reader


async def ran(check: JsonObject) -> Outcome | None:
    async with reading() as answers:
        return await run_once(parse(check), HERE, answers)


def outcome(answer: bytes, context: ssl.SSLContext | None = None, **changes: Any) -> Outcome:
    async def run() -> Outcome | None:
        async with serving(answer, context) as port:
            check = http_check("c/r", "127.0.0.1", port)
            check["http"] |= changes.pop("http", {})
            return await ran({**check, **changes})

    found = asyncio.run(run())
    assert found is not None
    return found


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
        found = asyncio.run(ran(check))
        assert found is not None
        assert "context deadline exceeded" in found.message


def test_a_port_that_nobody_listens_on_is_told():
    found = asyncio.run(ran(http_check("c/r", "127.0.0.1", 1)))
    assert found is not None
    assert "connection refused" in found.message


def test_nothing_is_known_while_nobody_reads_answers():
    async def run() -> Outcome | None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            check = http_check("c/r", "127.0.0.1", silent.getsockname()[1])
            return await run_once(parse(check), HERE, Answers())

    assert asyncio.run(run()) is None


def test_nothing_is_known_when_the_reader_dies_in_the_middle():
    async def run() -> Outcome | None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            ours, theirs = pair()
            answers = Answers()
            answers.use(ours)
            check = http_check("c/r", "127.0.0.1", silent.getsockname()[1], timeout_s=60)
            running = asyncio.create_task(run_once(parse(check), HERE, answers))
            taken = await Channel(theirs, 3).receive()
            assert taken is not None
            assert len(taken.descriptors) == 2
            theirs.close()
            del taken
            return await running

    assert asyncio.run(run()) is None


@pytest.mark.parametrize(
    "fields",
    [{}, {"word": "fine", "number": 1}, {"word": "http", "number": 1 << 40}, {"word": "http", "number": "200"}],
)
def test_an_answer_that_is_none_is_malformed(fields: JsonObject):
    async def run() -> Outcome | None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            ours, theirs = pair()
            answers = Answers()
            answers.use(ours)
            check = http_check("c/r", "127.0.0.1", silent.getsockname()[1])
            running = asyncio.create_task(run_once(parse(check), HERE, answers))
            reader = Channel(theirs, 3)
            taken = await reader.receive()
            assert taken is not None
            back = Channel(taken.descriptors[0].socket())
            await back.send(fields)
            found = await running
            for each in (back, reader, answers):
                each.close()
            return found

    found = asyncio.run(run())
    assert found is not None
    assert "malformed" in found.message


def test_a_sleeping_hook_sleeps():
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    check = parse({"id": "c/h", "container": "c", "once": True, "timeout_s": 9, "sleep": 3})
    assert asyncio.run(run_once(check, HERE, Answers(), sleep)) == Outcome(good=True)
    assert slept == [3.0]


def pod_checks(act: Callable[[PodChecks], Awaitable[None]]) -> list[dict[str, Any]]:
    """Return what a pod's checks tell while ``act`` goes on."""
    collected: list[dict[str, Any]] = []

    async def run() -> None:
        pod = PodChecks(lambda: HERE, collected.append, Answers())
        await act(pod)
        await pod.close()

    asyncio.run(run())
    return collected


def sleeping(seconds: float, timeout_s: float) -> Any:
    return parse({"id": "c/h", "container": "c", "once": True, "timeout_s": timeout_s, "sleep": seconds})


def test_a_hook_runs_once_and_keeps_its_result():
    async def act(pod: PodChecks) -> None:
        for _ in range(3):
            await pod.declare("s", [sleeping(0, 5)])
            await asyncio.sleep(0.05)

    result = pod_checks(act)
    assert [each["c/h"].state for each in result] == ["unknown", "success", "success", "success"]


def test_a_hook_under_way_is_broken_off_when_its_time_is_shortened():
    async def act(pod: PodChecks) -> None:
        await pod.declare("s", [sleeping(60, 60)])
        await asyncio.sleep(0.05)
        await pod.declare("s", [sleeping(60, 0.1)])
        async with asyncio.timeout(60):
            while pod.results["c/h"].state == "unknown":
                await asyncio.sleep(0.01)

    assert pod_checks(act)[-1]["c/h"].state == "failure"


def test_what_is_not_declared_any_more_is_forgotten():
    async def act(pod: PodChecks) -> None:
        await pod.declare("s", [sleeping(60, 60)])
        await pod.declare("s", [])

    assert pod_checks(act)[-1] == {}


def test_a_probe_that_nobody_can_read_is_not_counted_and_a_hook_waits():
    async def act(pod: PodChecks) -> None:
        async with serving(OK) as port, reading() as answers:
            probe = {**http_check("c/r", "127.0.0.1", port), "period_s": 0.02, "failure": 1}
            probe["http"]["scheme"] = "HTTPS"  # a pause program would not run it
            hook = {**http_check("c/h", "127.0.0.1", port), "once": True, "timeout_s": 60}
            await pod.declare("s", [parse(probe), parse(hook)])
            await asyncio.sleep(0.3)
            assert {result.state for result in pod.results.values()} == {"unknown"}
            pod._answers = answers
            async with asyncio.timeout(60):
                while {result.state for result in pod.results.values()} != {"failure", "success"}:
                    await asyncio.sleep(0.01)

    assert pod_checks(act)[-1]["c/h"].state == "success"

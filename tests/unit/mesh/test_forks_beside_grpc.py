"""Tests fork (a pass that is killed, a flood of requests) in processes in which others have used gRPC."""

from __future__ import annotations

import asyncio
import os
import threading

import grpc
import grpc.aio


async def _call(stop: threading.Event, begun: threading.Event) -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        method = channel.unary_unary("/none/none")
        while not stop.is_set():
            try:
                await method(b"", timeout=60)
            except grpc.aio.AioRpcError:  # there is no such method
                begun.set()
    await server.stop(0)


def test_a_child_of_a_process_that_uses_grpc_lives() -> None:
    stop, begun = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_call(stop, begun)))
    thread.start()
    try:
        assert begun.wait(60)
        ends = []
        for _ in range(60):
            child = os.fork()
            if not child:
                os._exit(0)
            ends.append(os.waitpid(child, 0)[1])
    finally:
        stop.set()
        thread.join(60)
    assert ends == [0] * 60

"""An HTTPS listener with one request a connection, on a thread and an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import threading
from collections.abc import Awaitable, Callable

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.sockets import listening
from minik8s_modules.streams.connections import BUFFER_BYTES, Connection
from minik8s_modules.streams.requests import HEAD_BYTES

log = logging.getLogger(__name__)

HANDSHAKE_S, STOP_S = 10.0, 5.0
# each is some file descriptors and up to a megabyte, and some come before anybody has said who they are
MOST = 1000


class Serving:
    """Listens on ``host``:``port`` (0: any free one, see ``port``) from its making on.

    Args:
        name: of the thread.
        host: the address.
        port: its port.
        context: TLS, with who is let in.
        answer: answers the request of a connection, which is closed after it.

    Raises:
        ConfigurationError: it cannot listen there.
    """

    def __init__(
        self, name: str, host: str, port: int, context: ssl.SSLContext, answer: Callable[[Connection], Awaitable[None]]
    ) -> None:
        self._context, self._answer = context, answer
        try:
            self._socket = listening(host, port)
        except OSError as error:
            raise ConfigurationError(f"serving.listen: cannot listen on {host}:{port}: {error.strerror}") from error
        self.port = int(self._socket.getsockname()[1])
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Close the listener and cut all connections."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(STOP_S)
        self._socket.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(self._listen())
        try:
            self._loop.run_forever()
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
            self._loop.close()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(
            self._connected,
            sock=self._socket,
            ssl=self._context,
            limit=max(HEAD_BYTES, BUFFER_BYTES),
            ssl_handshake_timeout=HANDSHAKE_S,
        )

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        client = Connection(reader, writer)
        if task is None or len(self._tasks) >= MOST:
            client.close()
            return
        self._tasks.add(task)
        try:
            await self._answer(client)
        except (OSError, EOFError) as error:
            log.debug("a request ended: %s", error)
        except Exception:
            log.exception("a request failed")
        finally:
            self._tasks.discard(task)
            with contextlib.suppress(RuntimeError):  # the loop is being closed
                client.close()

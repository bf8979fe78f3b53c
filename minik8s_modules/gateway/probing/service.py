"""All checks of all pods: one thread with one asyncio loop, told what to run, telling what came of it.

Nothing is stored. What a dead gateway knew comes back when the reconciler declares its pods again: from the pause
programs at once, from commands after their next runs.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.gateway.probing.answers import Answers
from minik8s_modules.gateway.probing.checks import Check, Result, results_of
from minik8s_modules.gateway.probing.pod import PodChecks
from minik8s_modules.gateway.streams.reaching import Routes

log = logging.getLogger(__name__)

Publish = Callable[[JsonObject], None]
Key = tuple[str, str]
"""Node and pod UID."""


class Probing:
    """Runs the declared checks; all methods may be called from any thread."""

    def __init__(self, routes: Routes, publish: Publish) -> None:
        self._routes = routes
        self._publish = publish
        self._answers = Answers()
        self._pods: dict[Key, PodChecks] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="probing", daemon=True)
        self._ending = threading.Event()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End all checks; pause programs go on."""
        if not self._thread.is_alive():
            self._loop.close()
            return
        self._do(self._close())
        self._ending.set()
        self._thread.join(5)

    def declare(self, node: str, pod: str, sandbox: str, checks: Iterable[Check]) -> None:
        """Have exactly ``checks`` run for the pod; none at all forgets it."""
        self._do(self._declare((node, pod), sandbox, tuple(checks)))

    def keep(self, nodes: Iterable[str]) -> None:
        """Forget the pods of all other nodes."""
        self._do(self._keep(frozenset(nodes)))

    def gone(self, node: str, container: str) -> None:
        """Forget the pod whose pause container is destroyed."""
        self._do(self._gone(node, container))

    def tell(self, publish: Publish) -> None:
        """Give ``publish`` what is known of every pod."""
        if self._thread.is_alive() and not self._ending.is_set():
            self._loop.call_soon_threadsafe(self._tell_all, publish)

    def answered_over(self, connected: socket.socket) -> None:
        """Have answers read by the process behind this connection from now on."""
        self._do(self._use(connected))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        if not self._thread.is_alive() or self._ending.is_set():
            work.close()  # what is asked before the beginning or after the end asks for nothing
            return
        asyncio.run_coroutine_threadsafe(_safely(work), self._loop)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _tell_all(self, publish: Publish) -> None:
        for (node, pod), checks in self._pods.items():
            publish(checked(node, pod, checks.results))

    async def _declare(self, key: Key, sandbox: str, checks: tuple[Check, ...]) -> None:
        if not checks:
            await self._forget(key)
            return
        pod = self._pods.get(key)
        if pod is None:
            node = key[0]
            pod = PodChecks(lambda: self._routes(node), self._teller(key), self._answers)
            self._pods[key] = pod
        await pod.declare(sandbox, checks)

    def _teller(self, key: Key) -> Callable[[dict[str, Result]], None]:
        return lambda results: self._publish(checked(*key, results))

    async def _forget(self, key: Key) -> None:
        pod = self._pods.pop(key, None)
        if pod is not None:
            await pod.close()

    async def _keep(self, nodes: frozenset[str]) -> None:
        for key in [key for key in self._pods if key[0] not in nodes]:
            await self._forget(key)

    async def _gone(self, node: str, container: str) -> None:
        for key in [key for key, pod in self._pods.items() if key[0] == node and pod.sandbox == container]:
            await self._forget(key)

    async def _use(self, connected: socket.socket) -> None:
        self._answers.use(connected)

    async def _close(self) -> None:
        await self._keep(frozenset())
        self._answers.close()
        self._loop.stop()


async def _safely(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:
        log.exception("probing: a declaration could not be applied")


def checked(node: str, pod: str, results: dict[str, Result]) -> JsonObject:
    """Return the message that tells all results of a pod."""
    return {"op": "checked", "node": node, "pod": pod, "results": results_of(results)}

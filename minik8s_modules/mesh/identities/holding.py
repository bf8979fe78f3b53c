"""The certificate of one sidecar's stream: asked for when the sidecar asks for it, renewed at half of its life.

A signer that gives none is asked again and again; the sidecar keeps what it has, which is good for the other half.
All streams of a Pod share its turns, and a request keeps its turn until it is answered, also when its stream is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from datetime import UTC, datetime

from minik8s_modules.api.errors import StatusError
from minik8s_modules.base.backoff import Backoff
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.mesh.identities.issuing import Issued
from minik8s_modules.mesh.identities.turns import Turns

log = logging.getLogger(__name__)
_AGAIN = Backoff(initial_s=1.0, maximum_s=60.0)


class Holder:
    """See the top of this file; belongs to the event loop.

    Args:
        issue: returns a new certificate; blocks.
        pool: where it does.
        turns: when it may.
        told: called with each new certificate.
        whose: the Pod's key among turns, and in the log.
    """

    def __init__(
        self,
        issue: Callable[[], Issued],
        pool: Executor,
        turns: Turns,
        told: Callable[[Issued], None],
        whose: str,
    ) -> None:
        self._issue = issue
        self._pool = pool
        self._turns = turns
        self._told = told
        self._whose = whose
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Ask for one, if that has not begun."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def end(self) -> None:
        """Renew it no more."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                issued = await self._issued()
            except (StatusError, TemporaryError, ValueError) as error:
                failures += 1
                log.warning("the sidecar of Pod %s gets no certificate (yet): %s", self._whose, error)
                await asyncio.sleep(_AGAIN.delay_s(failures))
                continue
            failures = 0
            self._told(issued)
            await asyncio.sleep(max(1.0, (issued.renewal - datetime.now(UTC)).total_seconds()))

    async def _issued(self) -> Issued:
        while wait_s := self._turns.take(self._whose):
            await asyncio.sleep(wait_s)
        future = self._pool.submit(self._issue)
        future.add_done_callback(lambda _: self._turns.end(self._whose))
        return await asyncio.wrap_future(future)

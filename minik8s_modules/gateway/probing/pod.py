"""The checks of one pod: who runs each, and what is known of them. Lives in the loop of service.py.

Repeating network checks go to the pod's pause program; commands, HTTPS, hooks, and everything where there is no such
program are run here. The declared set is the whole: a check that is no longer in it is broken off and forgotten.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from datetime import UTC, datetime
from typing import Any

from minik8s_modules.base.backoff import RECONNECT
from minik8s_modules.base.errors import Minik8sError
from minik8s_modules.gateway.probing.answers import Answers
from minik8s_modules.gateway.probing.checks import Check, Result, counted, worth_telling
from minik8s_modules.gateway.probing.prober import Prober, closed_quietly, has_prober
from minik8s_modules.gateway.probing.running import Outcome, run_once
from minik8s_modules.gateway.streams.dockerd import Dockerd
from minik8s_modules.gateway.streams.reaching import NodeRoute

log = logging.getLogger(__name__)

OnResults = Callable[[dict[str, Result]], None]
# a hook that nobody could tell of is asked again
_AGAIN_S = 1.0
_NETWORK = frozenset({"http", "tcp", "grpc"})


def now() -> datetime:
    """Return this machine's time."""
    return datetime.now(UTC)


def _is_light(check: Check) -> bool:
    """Return whether a pause program can run the check."""
    return not check.once and check.kind in _NETWORK and check.action.get("scheme") != "https"


class PodChecks:
    """Runs what is declared of one pod; ``tell`` gets all its results whenever one has changed."""

    def __init__(self, route: Callable[[], NodeRoute | None], on_results: OnResults, answers: Answers) -> None:
        self._route = route
        self._answers = answers
        self._tell = on_results
        self._sandbox = ""
        self._checks: dict[str, Check] = {}
        self._results: dict[str, Result] = {}
        self._runs: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._prober: Prober | None = None
        self._link: asyncio.Task[None] | None = None
        self._by_prober = True

    @property
    def results(self) -> dict[str, Result]:
        """What is known, by check."""
        return dict(self._results)

    @property
    def sandbox(self) -> str:
        """The Docker id of the pause container the checks belong to."""
        return self._sandbox

    async def declare(self, sandbox: str, checks: Iterable[Check]) -> None:
        """Run exactly ``checks`` from now on."""
        if sandbox != self._sandbox:
            await self._unlink()
            self._sandbox, self._by_prober = sandbox, True
        self._checks = {check.id: check for check in checks}
        self._results = {name: self._results.get(name, Result()) for name in self._checks}
        for gone in self._runs.keys() - self._checks.keys():
            await closed_quietly(self._runs.pop(gone))
        self._changed.set()
        self._changed = asyncio.Event()
        await self._distribute()
        self._tell(self.results)

    async def close(self) -> None:
        """End everything."""
        await self._unlink()
        for task in self._runs.values():
            await closed_quietly(task)
        self._runs.clear()

    async def _distribute(self) -> None:
        light = {name: check for name, check in self._checks.items() if self._by_prober and _is_light(check)}
        for name, check in self._checks.items():
            if name not in light and name not in self._runs:
                run = self._once if check.once else self._repeat
                self._runs[name] = asyncio.create_task(_logged(run, name))
        if self._link is None and light:
            self._link = asyncio.create_task(_logged(self._stay_linked, self._sandbox))
        elif self._prober is not None:
            try:
                await self._prober.declare(light)
            except OSError:
                log.debug("pause container %.12s: the attachment is broken; it is made again", self._sandbox)

    async def _unlink(self) -> None:
        if self._link is not None:
            await closed_quietly(self._link)
        self._link = self._prober = None

    async def _stay_linked(self, sandbox: str) -> None:
        """Keep attached to the pause program until it turns out that there is none."""
        failures = 0
        while True:
            route = self._route()
            try:
                if route is not None:
                    docker = Dockerd(route.docker_socket)
                    found = await has_prober(docker, sandbox)
                    if found is False:
                        await self._go_without()
                        return
                    self._prober = Prober(docker, sandbox, now)
                    light = {name: check for name, check in self._checks.items() if _is_light(check)}
                    await self._prober.declare(light)
                    failures = 0
                    await self._prober.follow(self._on_results)
            except (Minik8sError, OSError, EOFError) as error:
                log.info("pause container %.12s: %s", sandbox, error)
            failures += 1
            await asyncio.sleep(RECONNECT.delay_s(failures))

    async def _go_without(self) -> None:
        self._by_prober, self._prober, self._link = False, None, None
        await self._distribute()

    def _on_results(self, found: dict[str, Result]) -> None:
        if any(self._results.get(name) != result for name, result in found.items()):
            self._results |= found
            self._tell(self.results)

    async def _repeat(self, name: str) -> None:
        check = self._checks[name]
        await asyncio.sleep(check.delay_s(now()))
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            run = asyncio.create_task(self._run(check))
            try:
                await self._await_run(check, run)
            finally:
                run.cancel()
            await asyncio.sleep(max(0.0, began + check.period_s - loop.time()))

    async def _await_run(self, check: Check, run: asyncio.Task[Outcome | None]) -> None:
        """Count a run's outcome; one that is late fails every period until it ends, for Docker cannot end it."""
        await asyncio.wait({run}, timeout=check.timeout_s)
        if run.done():
            self._count(check, run.result())
        while not run.done():
            late = f"command timed out: {check.action!r} timed out after {check.timeout_s:g}s"
            self._count(check, Outcome(good=False, message=late))
            await asyncio.wait({run}, timeout=check.period_s)

    def _count(self, check: Check, outcome: Outcome | None) -> None:
        if outcome is None:
            return
        before = self._results[check.id]
        after = counted(check, before, good=outcome.good, message=outcome.message)
        self._results[check.id] = after
        if worth_telling(before, after, check):
            self._tell(self.results)

    async def _run(self, check: Check) -> Outcome | None:
        route = self._route()
        if route is None:
            return Outcome(good=False, message="the node is not connected")
        return await run_once(check, route, self._answers)

    async def _run_until_answered(self, check: Check) -> Outcome:
        """Run a hook, again if nobody could tell how it went."""
        while (outcome := await self._run(check)) is None:
            await asyncio.sleep(_AGAIN_S)
        return outcome

    async def _once(self, name: str) -> None:
        """Run a hook; its timeout may be shortened while it runs, as a pod's grace may."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        run = asyncio.create_task(self._run_until_answered(self._checks[name]._replace(timeout_s=float(1 << 20))))
        try:
            while not run.done():
                left_s = began + self._checks[name].timeout_s - loop.time()
                if left_s <= 0:
                    break
                changed = asyncio.create_task(self._changed.wait())
                await asyncio.wait({run, changed}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
            outcome = run.result() if run.done() else Outcome(good=False, message="it did not end in time")
        finally:
            run.cancel()
        took_s = round(loop.time() - began, 3)
        self._results[name] = Result("success" if outcome.good else "failure", 1, outcome.message, took_s)
        self._tell(self.results)


async def _logged(work: Callable[[str], Coroutine[Any, Any, None]], name: str) -> None:
    try:
        await work(name)
    except Exception:
        log.exception("check %s failed unexpectedly", name)

"""Image pulls, each in a thread of its node's pool: a slow node or registry holds up only its own node's ninth pull."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, Protocol

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.gateway import messages
from minik8s_modules.gateway.engine import Engine, Pull
from minik8s_modules.gateway.errors import PullCancelled, PullFailed
from minik8s_modules.gateway.messages import PullRequest

log = logging.getLogger(__name__)


PULLS_PER_NODE = 8


class ImagePull(Protocol):
    """One pull."""

    def run(self) -> str:
        """Return the image's id; PullFailed, PullCancelled or DockerUnavailable otherwise."""

    def cancel(self) -> None:
        """Break it off."""


Auths = Sequence[Mapping[str, str]]


def docker_pull(socket_path: str, node: str, image: str, auths: Auths) -> ImagePull:
    """Return the pull of ``image`` by the dockerd behind ``socket_path``."""
    tries = [Pull(Engine(socket_path, node), socket_path, image, auth) for auth in auths or (None,)]
    return tries[0] if len(tries) == 1 else PullInTurn(tries)


class PullInTurn:
    """The same pull with one credential after the other, until a registry takes one; as kubelet does."""

    def __init__(self, tries: Sequence[ImagePull]) -> None:
        self._tries = tries

    def run(self) -> str:
        """Return the image's id; what ``ImagePull.run`` raises, and of refusals the last one's."""
        for each in self._tries[:-1]:
            try:
                return each.run()
            except PullFailed as error:
                log.info("a credential was rejected; trying the next: %s", error)
        return self._tries[-1].run()

    def cancel(self) -> None:
        """Break off the one under way, and those that would follow."""
        for each in self._tries:
            each.cancel()


class _Running(NamedTuple):
    pull: ImagePull
    future: Future[None]


class Pulls:
    """All pulls under way; every request is answered exactly once through ``publish``."""

    def __init__(
        self,
        publish: Callable[[JsonObject], None],
        make: Callable[[str, str, str, Auths], ImagePull] = docker_pull,
        per_node: int = PULLS_PER_NODE,
    ) -> None:
        self._publish = publish
        self._make = make
        self._per_node = per_node
        self._lock = threading.Lock()
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._running: dict[str, _Running] = {}

    def start(self, request: PullRequest, socket_path: str) -> None:
        """Queue the pull; a request whose id is under way already is that pull."""
        with self._lock:
            if request.id in self._running:
                return
            pool = self._pools.get(request.node)
            if pool is None:
                pool = ThreadPoolExecutor(self._per_node, thread_name_prefix=f"pull-{request.node}")
                self._pools[request.node] = pool
            pull = self._make(socket_path, request.node, request.image, request.auth)
            self._running[request.id] = _Running(pull, pool.submit(self._run, request, pull))

    def cancel(self, pull_id: str) -> None:
        """Break a pull off, queued or running; unknown ids are ignored: the answer may be on its way."""
        with self._lock:
            running = self._running.get(pull_id)
        if running is not None:
            running.pull.cancel()

    def stop(self) -> None:
        """Break all pulls off."""
        with self._lock:
            running, pools = [*self._running.values()], [*self._pools.values()]
        for each in running:
            each.pull.cancel()
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, request: PullRequest, pull: ImagePull) -> None:
        try:
            answer = messages.pulled(request, pull.run())
        except PullCancelled as error:
            answer = messages.not_pulled(request, "Cancelled", str(error))
        except (PullFailed, TemporaryError) as error:
            answer = messages.not_pulled(request, "ErrImagePull", str(error))
        except Exception as error:
            log.exception("pull %s failed", request.id)  # and it is answered, as every request
            answer = messages.not_pulled(request, "ErrImagePull", f"{type(error).__name__}: {error}")
        with self._lock:
            self._running.pop(request.id, None)
        self._publish(answer)

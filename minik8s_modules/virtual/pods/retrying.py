"""What fails is tried again: a while with growing pauses, then every few minutes, for as long as it is wanted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from minik8s_modules.api.errors import StatusError
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.runtime.queue import Key, WorkQueue
from minik8s_modules.virtual.errors import ProviderError

log = logging.getLogger(__name__)

MAX_RETRIES = 20
RESYNC_S = 300.0


class Again(TemporaryError):
    """It did not work this time, or something has to happen first; the key comes back."""


def trying(queue: WorkQueue[Key], act: Callable[[Key], None], stop: threading.Event) -> Callable[[Key], None]:
    """Return ``act`` for the workers of ``queue``: they try what raises ``MAX_RETRIES`` times, then every ``RESYNC_S``.

    virtual-kubelet forgets a key after so many failures; a back end that was away for longer is still found here.
    """

    def attempt(key: Key) -> None:
        if stop.is_set():
            return
        try:
            act(key)
        except Exception as error:
            failures = queue.failures(key)
            if failures == 0 and not isinstance(error, TemporaryError | StatusError | ProviderError):
                log.exception("%s", key)  # a defect, perhaps: told once, with where it happened
            if failures < MAX_RETRIES:
                raise Again(str(error)) from error
            log.warning("%s: failed %d times, tried again in %d s: %s", key, MAX_RETRIES, RESYNC_S, error)
            queue.add_after(key, RESYNC_S)

    return attempt

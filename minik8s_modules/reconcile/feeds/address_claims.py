"""Claims and gives back addresses beside the loop: several at once, since each is one write to the API."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from weakref import WeakValueDictionary

from minik8s_modules.api import objects
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.reconcile.values.addresses import AddressBook, AddressesExhausted

log = logging.getLogger(__name__)
_THREADS = 8
_RETRY_S = 10.0
"""How soon a pod without an address looks again when no release has woken it."""


class AddressClaims:
    """``look_again(uids)`` wakes pods that may get an address now. Thread-safe; holds no lock while it calls."""

    def __init__(self, book: AddressBook, look_again: Callable[[Iterable[str]], None]) -> None:
        self._book = book
        self._look_again = look_again
        self._lock = threading.Lock()
        self._refused: dict[str, str] = {}
        self._releasing: dict[str, bool] = {}  # uid -> asked again meanwhile: there may be a claim that was not seen
        self._turns: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()  # to release a pod's address
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="claim")

    def stop(self) -> None:
        """Begin nothing new."""
        self._pool.shutdown(cancel_futures=True)

    def refusal(self, uid: str) -> str:
        """Return why the pod got no address, "" when none was refused."""
        with self._lock:
            return self._refused.get(uid, "")

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        with self._lock:
            self._refused.pop(uid, None)

    def claim(self, pods: Sequence[JsonObject], node: str, cidr: str) -> None:
        """Claim an address for each pod, side by side; a pod that gets none has a ``refusal`` then.

        Raises:
            ApiUnreachable, StatusError: a claim was not recorded; the others are.
        """
        failures = list(self._pool.map(lambda pod: self._claim_one(pod, node, cidr), pods))
        for failure in failures:
            if failure is not None:
                raise failure

    def _claim_one(self, pod: JsonObject, node: str, cidr: str) -> TemporaryError | StatusError | None:
        try:
            self._book.claim(pod, node, cidr)
        except AddressesExhausted as error:
            uid = objects.uid(pod)
            with self._lock:
                self._refused[uid] = str(error)
            timer = threading.Timer(_RETRY_S, self._retry, [uid])
            timer.daemon = True
            timer.start()
        except (TemporaryError, StatusError) as error:
            return error
        return None

    def _retry(self, uid: str) -> None:
        self.forget(uid)
        self._look_again([uid])

    def on_released(self) -> None:
        """An address came free: whoever was refused one looks again."""
        with self._lock:
            waiting, self._refused = [*self._refused], {}
        self._look_again(waiting)

    def release_later(self, uid: str) -> None:
        """Give the pod's address back soon; who asks meanwhile gets one more look. Failures are left to later asks."""
        with self._lock:
            under_way = uid in self._releasing
            self._releasing[uid] = under_way
        if under_way:
            return
        try:
            self._pool.submit(self._release, uid)
        except RuntimeError:  # stopped
            log.debug("address of pod %s is left to who comes next", uid)

    def _release(self, uid: str) -> None:
        try:
            self.release(uid)
            while self._asked_again(uid):
                self.release(uid)
        except Exception as error:
            with self._lock:
                del self._releasing[uid]
            if not isinstance(error, (TemporaryError, StatusError)):
                raise
            log.info("address of pod %s is not released yet: %s", uid, error)

    def _asked_again(self, uid: str) -> bool:
        """Return whether somebody asked since the last look at the pod's claims; if nobody did, that was the last."""
        with self._lock:
            if not self._releasing[uid]:
                del self._releasing[uid]
                return False
            self._releasing[uid] = False
            return True

    def release(self, uid: str) -> None:
        """Give the pod's address back; raises as the API does, and repeating is safe.

        The loop and who removes the pod ask at the same time: one asks the API, and the other one waits for that.
        """
        with self._lock:
            turn = self._turns.setdefault(uid, threading.Lock())
        with turn:
            for claim in self._book.claims_of(uid):
                self._book.release(claim)

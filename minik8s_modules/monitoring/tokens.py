"""Keeps the file with the token of a service account, for a program on this machine that is no pod.

Prometheus reads the file at each scrape. The token lives an hour and is replaced after 48 minutes; while the API server
does not answer, it is tried again every few seconds, and the old token stays.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import SERVICE_ACCOUNT
from minik8s_modules.base.backoff import Backoff
from minik8s_modules.base.clock import Clock, SystemClock
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.base.files import replace_file
from minik8s_modules.client.interface import Api

log = logging.getLogger(__name__)
LIFETIME_S = 3600
_RENEW_AT = 0.8
_MODE = 0o640
_RETRY = Backoff(initial_s=1.0, maximum_s=30.0)


class TokenFile:
    """The token of ``namespace``/``account`` in ``path``, from ``start`` on."""

    def __init__(self, api: Api, namespace: str, account: str, path: Path, clock: Clock | None = None) -> None:
        self._api = api
        self._namespace, self._account = namespace, account
        self._path = path
        self._clock = clock or SystemClock()
        self._failures = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="token", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End; the file stays."""
        self._stop.set()

    def renew(self) -> float:
        """Write a new token and return in how many seconds it is to be replaced; never raises."""
        try:
            body = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "metadata": {"name": self._account, "namespace": self._namespace},
                "spec": {"expirationSeconds": LIFETIME_S},
            }
            answer = self._api.create(SERVICE_ACCOUNT, body, subresource="token")
            replace_file(self._path, str(answer["status"]["token"]).encode(), _MODE)
            lifetime_s = float(answer["spec"]["expirationSeconds"])
        except (StatusError, TemporaryError, OSError, KeyError) as error:
            self._failures += 1
            delay_s = _RETRY.delay_s(self._failures)
            level = logging.WARNING if self._failures == 1 else logging.DEBUG
            whose = f"{self._namespace}/{self._account}"
            log.log(level, "no new token of %s in %s: %s; again in %.0f s", whose, self._path, error, delay_s)
            return delay_s
        self._failures = 0
        return lifetime_s * _RENEW_AT

    def _run(self) -> None:
        while not self._stop.is_set():
            self._clock.wait(self._stop, self.renew())

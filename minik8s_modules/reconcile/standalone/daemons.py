"""The three daemons of a node's own reconciler, as children that end with their parent.

A child that ends by itself is started again with back-off; one that cannot use its configuration (exit code 2) ends us.
They have a session of their own: Ctrl-C on our terminal is for us to answer, in order.
"""

from __future__ import annotations

import ctypes
import logging
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minik8s_modules.base.backoff import Backoff
from minik8s_modules.base.clock import Clock
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.reconcile.standalone.stream_user import User

log = logging.getLogger(__name__)
RESTART = Backoff(initial_s=0.5, maximum_s=30.0)
HEALTHY_S = 60.0
"""A child that lived so long starts its back-off over."""
STOP_S = 30.0
UNUSABLE = 2
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_libc = ctypes.CDLL(None, use_errno=True)  # loaded before any fork: a child only makes the call


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Child:
    """One daemon: ``python -m MODULE --config FILE``. Start it in the main thread, with which it ends."""

    def __init__(
        self,
        module: str,
        config: Path,
        clock: Clock,
        environment: Mapping[str, str] | None = None,
        user: User | None = None,
    ) -> None:
        self.name = module.split(".")[1]
        self._argv = [sys.executable, "-m", module, "--config", str(config)]
        self._clock = clock
        self._environment = environment
        # a user of its own has no further groups
        self._user: dict[str, Any] = {"user": user.uid, "group": user.gid, "extra_groups": ()} if user else {}
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0
        self._failures = 0
        self._start_at_s = 0.0

    def start(self) -> None:
        """Start it now."""
        self._started_s = self._clock.monotonic()
        self._process = subprocess.Popen(
            self._argv,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - one call of a loaded library
            env=self._environment,
            **self._user,
        )

    def attend(self) -> None:
        """Start it again if it has ended and it is time.

        Raises:
            ConfigurationError: it cannot use its configuration.
        """
        now_s = self._clock.monotonic()
        if self._process is None:
            if now_s >= self._start_at_s:
                self.start()
            return
        code = self._process.poll()
        if code is None:
            return
        self._process = None
        if code == UNUSABLE:
            raise ConfigurationError(f"the {self.name} does not start; its own log has the reason")
        self._failures = 1 if now_s - self._started_s >= HEALTHY_S else self._failures + 1
        self._start_at_s = now_s + RESTART.delay_s(self._failures)
        log.warning("the %s has ended (%s) and is started again", self.name, code)

    def stop(self) -> None:
        """End it, politely at first."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            log.warning("the %s does not end; it is killed", self.name)
            process.kill()
            process.wait()

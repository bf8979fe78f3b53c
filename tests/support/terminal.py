"""A program on a terminal of its own, for those that do not work without one."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time

PATIENCE_S = 90.0


class Terminal:
    """A program on a terminal of its own; what it shows is kept."""

    def __init__(self, argv: list[str]) -> None:
        self._own, theirs = pty.openpty()
        self._process = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
        os.close(theirs)
        self._seen = b""

    def __enter__(self) -> Terminal:
        """Return it, running."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait(60)
        os.close(self._own)

    def expect(self, text: bytes) -> None:
        """Wait until the program has shown ``text``."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self._seen:
            assert time.monotonic() < deadline, self._seen
            if select.select([self._own], [], [], 1)[0]:
                try:
                    self._seen += os.read(self._own, 4096)
                except OSError as error:  # it ended
                    raise AssertionError(self._seen) from error

    def type(self, data: bytes) -> None:
        """Type ``data``."""
        os.write(self._own, data)

    def wait(self) -> int:
        """Wait until it has ended; return its exit code."""
        return self._process.wait(60)

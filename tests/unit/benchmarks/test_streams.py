"""How long a command takes in the benchmark of streams: one that fails, hangs or is interrupted leaves nothing."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from tests.benchmarks.server import streams

HANGS = ["sleep", "600"]


def test_a_command_that_hangs_is_told_as_too_late_and_one_that_fails_by_its_status(monkeypatch: pytest.MonkeyPatch):
    assert streams.spent_ms(["true"]) > 0
    with pytest.raises(subprocess.CalledProcessError) as failed:
        streams.spent_ms(["sh", "-c", "exit 7"])
    assert failed.value.returncode == 7
    monkeypatch.setattr(streams, "LATE_S", 0.01)
    with pytest.raises(subprocess.TimeoutExpired):
        streams.spent_ms(HANGS)


def test_a_command_ends_with_a_benchmark_that_is_interrupted(monkeypatch: pytest.MonkeyPatch):
    made: list[Interrupted] = []

    class Interrupted(subprocess.Popen[bytes]):
        """A process during whose life somebody presses ^C."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.pressed = False
            made.append(self)

        def wait(self, timeout: float | None = None) -> int:
            if not self.pressed:
                self.pressed = True
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        streams.spent_ms(HANGS)
    assert [process.returncode for process in made] == [-9]

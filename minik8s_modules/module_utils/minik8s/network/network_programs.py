"""Calls of programs that attach pods (CNI plugins, Weave): what goes wrong is NetworkNotReady, with its cause."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence

from ..core.faults import KeyFault

SHOWN = 400
"""So many characters of what a program printed are told."""
Done = subprocess.CompletedProcess[str]


def printed(done: Done) -> str:
    """Return what a program that failed printed, or its exit code; not cut."""
    return done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"


def call(
    program: str,
    argv: Sequence[str],
    environment: Mapping[str, str],
    timeout_s: float,
    text: str = "",
    cause: Callable[[Done], str] = printed,
) -> str:
    """Run a program with ``text`` as its input and return what it printed; ``program`` names the call in messages.

    Raises:
        KeyFault: NetworkNotReady, it cannot be run, did not answer within ``timeout_s`` seconds, or failed.
    """
    try:
        done = subprocess.run(
            argv, input=text, env=environment, cwd="/", capture_output=True, text=True, errors="replace",
            timeout=timeout_s, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise KeyFault("NetworkNotReady", f"{program} did not answer within {timeout_s:.0f} s and was killed") from None
    except OSError as error:
        raise KeyFault("NetworkNotReady", f"{program} cannot be run: {error}") from error
    if done.returncode != 0:
        raise KeyFault("NetworkNotReady", f"{program} failed: {cause(done)[:SHOWN]}")
    return done.stdout

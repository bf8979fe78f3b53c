"""Fencing: one writer at a time on a node, and never an older one after a newer one.

The lock is a flock, held until the last effect; the kernel lets go of it when the process dies. Runs by hand and the
re-apply oneshot give no token: they take the lock and leave the recorded token alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from typing import Any, Callable

from .digests import canonical
from .faults import PassFault
from .files import read_json, remove_leftovers, write_atomically
from .lock_holder import holder_of
from .paths import lock_path, token_path

WAIT_S = 10.0  # a pass begins nothing after 2 s; the longest single Docker call decides the rest
POLL_S = 0.01
TOKEN_PARTS = 2  # epoch, revision


@contextlib.contextmanager
def hold_node(state_dir: str, *, check: bool = False) -> Iterator[None]:
    """Hold the node's lock; a check run shares it, and needs none on a node without a state directory.

    Raises:
        PassFault: another writer held it for longer than ``WAIT_S``.
    """
    if check and not os.path.exists(lock_path(state_dir)):
        yield
        return
    if not check:
        os.makedirs(os.path.join(state_dir, "documents"), mode=0o700, exist_ok=True)
    with open(lock_path(state_dir), "rb" if check else "ab") as lock:
        _acquire(lock, fcntl.LOCK_SH if check else fcntl.LOCK_EX)
        if not check:
            remove_leftovers(state_dir)
            remove_leftovers(os.path.join(state_dir, "documents"))
        yield


def _acquire(lock: Any, how: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            fcntl.flock(lock, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise PassFault(
                    f"{lock.name} was held by another run for {WAIT_S:g} s: {holder_of(lock)}; "
                    "run this again once it has ended"
                ) from None
            time.sleep(POLL_S)
        else:
            return


def stored_token(state_dir: str) -> list[int] | None:
    """Return the newest token seen on this node as [epoch, revision], or None."""
    found = read_json(token_path(state_dir))
    token = found.get("token") if isinstance(found, dict) else None
    return token if isinstance(token, list) and len(token) == TOKEN_PARTS else None


def is_fenced(state_dir: str, token: list[int] | None) -> bool:
    """Return whether a newer token than ``token`` was seen here; no token is never fenced."""
    stored = stored_token(state_dir)
    return bool(token and stored and list(token) < stored)


def record_token(state_dir: str, token: list[int] | None, checkpoint: Callable[[str], None]) -> None:
    """Record ``token`` before the first effect unless the disk has it; ``checkpoint`` is called before the write."""
    if not token or stored_token(state_dir) == list(token):
        return
    checkpoint("token")
    write_atomically(token_path(state_dir), canonical({"token": list(token)}), sync=True)

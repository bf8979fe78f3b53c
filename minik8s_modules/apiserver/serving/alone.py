"""A server of one worker, whose socket a shell holds, which starts the worker again.

gunicorn's arbiter is an interpreter of 12 MB; with one worker, what it does takes a shell some lines and 0.3 MB. The
program reads its configuration, binds its socket and becomes the shell; the shell runs the program, which finds the
socket and serves. As below the arbiter, a connection waits for a worker that has been killed, or that has ended since
there is a new configuration, and is not refused. A worker that hangs is ended by the kernel.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from gunicorn import sock
from gunicorn.arbiter import Arbiter

if TYPE_CHECKING:
    from minik8s_modules.apiserver.serving.server import ApiServer

log = logging.getLogger(__name__)

SHELL = "/bin/sh"
START_ALL = 3
"""The exit code of a worker that needs another socket: the shell ends with it, and whoever started that starts all."""
SEVERAL = 4
"""The exit code of a worker that is to be one of several: the shell becomes their arbiter, with the sockets."""
FAILED = 255
"""The exit code of a worker that has served and met an error: as after a signal, another one begins."""
_HELD = "MINIK8S_LISTENERS"

_PROGRAM = """
ending=
trap 'ending=1; while kill -TERM $! 2>/dev/null; do sleep 0.1; done' TERM INT
trap 'kill -HUP $! 2>/dev/null' HUP
while [ -z "$ending" ]; do
  "$@" &
  code=0
  while kill -0 $! 2>/dev/null; do wait $!; code=$?; done
  [ -z "$ending" ] || exit 0
  [ "$code" -ne 4 ] || { trap '' HUP; exec "$@"; }
  [ "$code" -ne 0 ] && [ "$code" -ne 129 ] || continue
  [ "$code" -gt 128 ] || exit "$code"
  echo "minik8s-apiserver: the worker ended with code $code; another one begins" >&2
  sleep 1
done
"""
"""A signal ends ``wait``, which then has to go on. SIGTERM is repeated until the worker has ended: one that reaches the
child of a fork before it has forgotten the shell's traps is lost there. SIGHUP ends a worker that is not yet ready for
it (129), and it begins again; the arbiter of several ignores it until it handles signals, and then looks once more. 142
is a worker that hung. A worker that fails at once shall not keep a core busy, so there is a pause."""


class Held(NamedTuple):
    """What a shell holds: its process, the address that is bound, and the descriptors of its sockets."""

    shell: int
    place: str
    descriptors: list[int]


def held() -> Held | None:
    """Return what a shell holds for this process, or held as this process; None where there is no shell."""
    match os.environ.pop(_HELD, "").split():
        case [shell, place, descriptors]:
            return Held(int(shell), place, [int(each) for each in descriptors.split(",")])
    return None


def become_shell(server: ApiServer, place: str, descriptors: Sequence[int] = ()) -> NoReturn:
    """Bind the server's sockets, unless there are ``descriptors`` of these, and go on as the shell that holds them."""
    listeners = sock.create_sockets(server.cfg, Arbiter(server).log, descriptors)
    for each in listeners:
        os.set_inheritable(each.fileno(), True)  # noqa: FBT003 - it has no name
    os.environ[_HELD] = f"{os.getpid()} {place} {','.join(str(each.fileno()) for each in listeners)}"
    again = [sys.executable, *sys.orig_argv[1:]]
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # no shell can trap what was ignored at its start, as below nohup
    os.execv(SHELL, [SHELL, "-c", _PROGRAM, "minik8s-apiserver", *again])  # noqa: S606 - these are our own arguments


def serve(server: ApiServer, found: Held) -> None:
    """Be the one worker, until it ends."""
    arbiter = Arbiter(server)
    cfg, listeners = server.cfg, sock.create_sockets(server.cfg, arbiter.log, found.descriptors)
    worker: Any = arbiter.worker_class(1, found.shell, listeners, server, cfg.timeout, cfg, arbiter.log)
    worker.be_alone()
    try:
        worker.init_process()
    except Exception:
        if not worker.booted:
            raise
        log.exception("the worker ends")
        sys.exit(FAILED)
    finally:
        cfg.worker_exit(arbiter, worker)

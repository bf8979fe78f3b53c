"""A server of one worker, whose socket a shell holds, which starts the worker again.

gunicorn's arbiter is an interpreter of 12 MB; with one worker, what it does takes a shell ten lines and 0.3 MB. The
program reads its configuration, binds its socket and becomes the shell; the shell runs the program, which finds the
socket and serves. As below the arbiter, a connection waits for a worker that has been killed, or that has ended since
there is a new configuration, and is not refused. A worker that hangs is ended by the kernel.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from gunicorn import sock
from gunicorn.arbiter import Arbiter

if TYPE_CHECKING:
    from minik8s_modules.apiserver.serving.server import ApiServer

SHELL = "/bin/sh"
START_ALL = 3
"""The exit code of a worker that needs another socket: the shell ends with it, and whoever started that starts all."""
SEVERAL = 4
"""The exit code of a worker that is to be one of several: the shell becomes their arbiter, with the sockets."""
_HELD = "MINIK8S_LISTENERS"

_PROGRAM = """
ending=
trap 'ending=1; kill -TERM $! 2>/dev/null' TERM INT
trap 'kill -HUP $! 2>/dev/null' HUP
while :; do
  "$@" &
  [ -z "$ending" ] || kill -TERM $!
  code=0
  while kill -0 $! 2>/dev/null; do wait $!; code=$?; done
  [ -z "$ending" ] || exit "$code"
  [ "$code" -ne 4 ] || { trap '' HUP; exec "$@"; }
  [ "$code" -eq 0 ] || [ "$code" -gt 128 ] || exit "$code"
done
"""
"""A signal ends ``wait``, which then has to go on. One before there is a worker, or between two, is for the next.

A SIGHUP before the arbiter handles it would end it, with the sockets: it ignores that, and looks again once it is
ready.
"""


def held() -> list[int]:
    """Return the descriptors of the sockets that a shell holds for this process, none where there is no shell."""
    return [int(each) for each in os.environ.pop(_HELD, "").split(",") if each]


def become_shell(server: ApiServer) -> NoReturn:
    """Bind the server's sockets and go on as the shell that holds them."""
    listeners = sock.create_sockets(server.cfg, Arbiter(server).log)
    for each in listeners:
        os.set_inheritable(each.fileno(), True)  # noqa: FBT003 - it has no name
    os.environ[_HELD] = ",".join(str(each.fileno()) for each in listeners)
    again = [sys.executable, *sys.orig_argv[1:]]
    os.execv(SHELL, [SHELL, "-c", _PROGRAM, "minik8s-apiserver", *again])  # noqa: S606 - these are our own arguments


def serve(server: ApiServer, descriptors: Sequence[int]) -> None:
    """Be the one worker, until it ends."""
    arbiter = Arbiter(server)
    cfg, listeners = server.cfg, sock.create_sockets(server.cfg, arbiter.log, descriptors)
    worker: Any = arbiter.worker_class(1, os.getppid(), listeners, server, cfg.timeout, cfg, arbiter.log)
    worker.be_alone()
    try:
        worker.init_process()
    finally:
        cfg.worker_exit(arbiter, worker)

"""The controller's end of a warm interpreter: call it, start it, know when it cannot help.

A call is one connection (a local Unix socket; for warm_ssh the ssh master forwards it):
64 hex digits naming the archive → one byte, known or not → the archive if not → the request → the answer.
`server.py` is the other end.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from minik8s_modules.plugins.warm.options import PYTHON
from minik8s_modules.plugins.warm.payload import Payload

LENGTH = struct.Struct(">I")
MAX_ANSWER_BYTES = 64 << 20
CONNECT_TIMEOUT_S = 15.0  # for the first byte: an idle server answers in a millisecond
PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid
# on a node our package is not: each file becomes a module of its name, which those after it import
_SHIPPED = """\
import sys, types
for name, text in {modules!r}.items():
    sys.modules[name] = module = types.ModuleType(name)
    exec(compile(text, name.rpartition(".")[2] + ".py", "exec"), module.__dict__)
"""
IDLE_S = 30.0  # after its last call, until the interpreter exits


class Result(NamedTuple):
    """What a connection plugin's ``exec_command`` returns."""

    code: int
    out: bytes
    err: bytes


class NotServing(OSError):
    """Nobody took the call; nothing has been run."""


class CallLost(OSError):
    """The interpreter went away during the call; the module may have run in part."""


def server_script(directory: str, idle_s: float = IDLE_S, python: str = PYTHON, *, keep_code: bool = False) -> bytes:
    """Return the Python source that starts a server below ``directory`` on the node, for the user who runs it.

    With ``keep_code``, the directory stays with what was compiled, for the next server.
    """
    settings = {"path": server_path(directory, python=python), "idle_s": idle_s, "keep_code": keep_code}
    return f"{_source()}module.main({settings!r})\n".encode()


def server_path(directory: str, source: bytes | None = None, python: str = PYTHON) -> str:
    """Return the server's socket; another version of its source has another one, and so has another interpreter."""
    return f"{directory}/{hashlib.sha256((source or _source().encode()) + python.encode()).hexdigest()[:12]}.sock"


@functools.cache
def _source() -> str:
    return shipped("leftovers", "compiled", "imports", "calls", "server")


def shipped(*names: str) -> str:
    """Return Python source that makes files of this folder modules where our package is not; ``module`` is the last."""
    texts = {name: Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8") for name in names}
    return _SHIPPED.format(modules={f"{__package__}.{name}": text for name, text in texts.items()})


def call(path: str, payload: Payload) -> Result:
    """Run the module of ``payload`` behind the socket ``path``.

    Raises:
        NotServing: nobody listens there, or not as us or root; start a server and call again.
        CallLost: the answer did not come; call again once (modules are idempotent).
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        _offer(connection, path, payload)
        try:
            head = LENGTH.unpack(_read(connection, LENGTH.size))[0]
            if head > MAX_ANSWER_BYTES:
                return Result(1, b"", b"warm interpreter: answer of %d bytes is over the limit" % head)
            answer = json.loads(_read(connection, head))
        except (OSError, ValueError) as error:
            raise CallLost(f"warm interpreter: no answer: {error}") from error
    return Result(answer["code"], _bytes(answer["out"]), _bytes(answer["err"]))


def _offer(connection: socket.socket, path: str, payload: Payload) -> None:
    request = json.dumps({"params": payload.params, "profile": payload.profile, "module": payload.module}).encode()
    try:
        connection.settimeout(CONNECT_TIMEOUT_S)
        connection.connect(path)
        _check_peer(connection)
        connection.sendall(payload.key.encode())
        known = _read(connection, 1)
        connection.settimeout(None)  # the task's own timeout ends a long module
        archive = b"" if known == b"Y" else LENGTH.pack(len(payload.archive)) + payload.archive
        connection.sendall(archive + LENGTH.pack(len(request)) + request)
    except OSError as error:
        raise NotServing(error.errno or errno.ECONNRESET, f"warm interpreter at {path}: {error}") from error


def _check_peer(connection: socket.socket) -> None:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
    owner = PEER.unpack(raw)[1]
    if owner not in {0, os.geteuid()}:
        raise PermissionError(errno.EPERM, f"the socket is served by user {owner}")


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(min(size - len(data), 1 << 20))
        if not piece:
            raise ConnectionResetError(errno.ECONNRESET, "connection closed")
        data += piece
    return bytes(data)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def run(path: str, payload: Payload, start: Callable[[], None]) -> Result | None:
    """Call; where nobody serves, ``start`` and call again; a lost call is repeated once.

    Returns:
        The module's result, or None when no warm interpreter can be had: use the plain way.
    """
    lost = 0
    for attempt in range(3):
        try:
            return call(path, payload)
        except CallLost as error:
            lost += 1
            if lost > 1:
                return Result(1, b"", f"{error}; the module's process ended twice".encode())
        except NotServing:
            if attempt == 2:  # noqa: PLR2004  the last one
                break
            start()
    return None

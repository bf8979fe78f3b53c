"""What runs module calls in a warm interpreter: the template of an archive, and the child it forks for each call.

A *template* has imported what an archive (what AnsiballZ ships) holds; a *child* of it runs one call and dies with its
caller. A template imports what its children had to import, so that the next child has it. Standard library only, Python
3.8 and newer: it travels with `server.py`, which makes the first template and passes it connections.
"""

from __future__ import annotations

import array
import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import struct
import sys
import threading
import traceback
import zipfile

LENGTH = struct.Struct(">I")
MODULE_UMASK = 0o022  # root's usual one, so that a module makes the same files without us
LEARN_BYTES = 60000  # below a pipe's capacity, so that a child never blocks on it


def read_exact(connection: socket.socket, size: int) -> bytes:
    """Return exactly ``size`` bytes; EOFError when the peer has gone."""
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(min(size - len(data), 1 << 20))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)


def read_frame(connection: socket.socket) -> bytes:
    """Return the body of a frame: 4 bytes of length, then the body."""
    return read_exact(connection, LENGTH.unpack(read_exact(connection, LENGTH.size))[0])


class Child:
    """One call, in the process forked for it."""

    def __init__(self, connection: socket.socket, learn_fd: int) -> None:
        self._connection, self._learn_fd = connection, learn_fd

    def run(self) -> None:
        """Run the module, answer, tell what it imported."""
        request = json.loads(read_frame(self._connection))
        os.umask(MODULE_UMASK)
        os.setsid()
        threading.Thread(target=self._die_with_caller, daemon=True).start()
        outputs = self._redirect()
        before = set(sys.modules)
        code = self._call(request)
        sys.stdout.flush()
        sys.stderr.flush()
        self._answer(code, outputs)
        new = [name for name in set(sys.modules) - before if not name.startswith("ansible.modules")]
        if new:
            os.write(self._learn_fd, json.dumps(sorted(new)).encode()[:LEARN_BYTES] + b"\n")

    def _die_with_caller(self) -> None:
        """End the module and all it started when the caller goes away: timeout, cancel, crash."""
        with contextlib.suppress(OSError):
            self._connection.recv(1)
        os.killpg(0, signal.SIGKILL)

    def _redirect(self) -> list[int]:
        """Send output to memory (a full pipe would block the module), read input from nowhere."""
        outputs = [os.memfd_create(name) for name in ("out", "err")]
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, fd in enumerate(outputs, 1):
            os.dup2(fd, number)
        sys.stdout, sys.stderr = (
            open(fd, "w", closefd=False, encoding="utf-8", errors="surrogateescape")  # noqa: SIM115  for life
            for fd in (1, 2)
        )
        return outputs

    def _call(self, request: dict[str, str]) -> int:
        from ansible.module_utils._internal._ansiballz import _loader  # noqa: PLC0415  comes with the archive

        try:
            _loader.run_module(
                json_params=request["params"].encode(),
                profile=request["profile"],
                module_fqn=request["module"],
                modlib_path=sys.path[0],
                extensions={},
            )
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:  # noqa: BLE001  whatever a module raises is its result
            traceback.print_exc()
        return 1

    def _answer(self, code: int, outputs: list[int]) -> None:
        texts = []
        for fd in outputs:
            with os.fdopen(fd, "rb") as file:
                file.seek(0)
                texts.append(file.read().decode("utf-8", "surrogateescape"))
        body = json.dumps({"code": code, "out": texts[0], "err": texts[1]}).encode()
        self._connection.sendall(LENGTH.pack(len(body)) + body)


class Template:
    """The process that has an archive imported.

    Over ``control`` it gets connections, and forks a child for each; and archives of other modules, and forks the
    template of that: the modules of one release share nearly all code, so a sibling has its imports at once.
    """

    def __init__(self, archive: str, control: socket.socket) -> None:
        self._archive, self._control = archive, control
        sys.path.insert(0, archive)
        import_all(archive)
        self._calls: set[int] = set()
        self._learn_fd, self._teach_fd = os.pipe()
        self._wake_fd, self._woken_fd = os.pipe()
        for fd in (self._wake_fd, self._woken_fd):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._woken_fd, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Fork, learn and reap until the server has gone."""
        gc.freeze()  # what a collection does not walk through stays shared by all processes
        selector = selectors.DefaultSelector()
        selector.register(self._control, selectors.EVENT_READ, self._take)
        selector.register(self._learn_fd, selectors.EVENT_READ, self._learn)
        selector.register(self._wake_fd, selectors.EVENT_READ, self._reap)
        while True:
            for key, _ in selector.select():
                key.data()

    def _take(self) -> None:
        """A connection comes alone (``c``), a sibling's control socket with its archive (``t<path>``)."""
        data, extra, _, _ = self._control.recvmsg(4096, socket.CMSG_SPACE(4))
        if not data:
            os._exit(0)
        fds = array.array("i")
        for _, _, piece in extra:
            fds.frombytes(piece[: fds.itemsize])
        with socket.socket(fileno=fds[0]) as passed:
            passed.settimeout(None)
            child = os.fork()
            if child == 0:
                self._become(data, passed)
            if data == b"c":
                self._calls.add(child)

    def _become(self, data: bytes, passed: socket.socket) -> None:
        try:
            gc.disable()  # a sibling never collects: it would copy the pages it shares
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._control.close()
            for fd in (self._learn_fd, self._wake_fd, self._woken_fd):
                os.close(fd)
            if data == b"c":
                gc.enable()
                Child(passed, self._teach_fd).run()
            else:
                os.close(self._teach_fd)
                sys.path.remove(self._archive)
                keep_imports(self._archive, data[1:].decode())
                Template(data[1:].decode(), passed).serve()
        finally:
            os._exit(0)

    def _learn(self) -> None:
        for line in os.read(self._learn_fd, 1 << 16).splitlines():
            with contextlib.suppress(ValueError):  # cut off
                import_names(json.loads(line))
        gc.freeze()

    def _reap(self) -> None:
        """Bury children; tell the server of each call that has ended (a sibling is no call)."""
        os.read(self._wake_fd, 4096)
        with contextlib.suppress(ChildProcessError):
            while child := os.waitpid(-1, os.WNOHANG)[0]:
                if child in self._calls:
                    self._calls.discard(child)
                    self._control.sendall(b"d")


def checksums(archive: str) -> dict[str, int]:
    """Return the CRC of each Python file of ``archive`` by its module's name."""
    with zipfile.ZipFile(archive) as file:
        found = {info.filename: info.CRC for info in file.infolist()}
    suffixes = ("/__init__.py", ".py")
    return {
        name[: -len(suffix)].replace("/", "."): crc
        for name, crc in found.items()
        for suffix in suffixes
        if name.endswith(suffix) and (suffix == suffixes[0] or not name.endswith(suffixes[0]))
    }


def import_all(archive: str) -> None:
    """Import all module_utils of ``archive``: they are there because its module imports them."""
    for name in checksums(archive):
        if name.startswith("ansible.module_utils.") and "_extensions" not in name and "_respawn" not in name:
            with contextlib.suppress(Exception):  # the module itself will say what is wrong
                importlib.import_module(name)


def import_names(names: list[str]) -> None:
    """Import what can be imported of ``names``: some stand for nothing that can be (`__mp_main__`)."""
    for name in names:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def keep_imports(old: str, new: str) -> None:
    """Make what was imported from archive ``old`` count as imported from ``new``, if its code is the same there."""
    before, after = checksums(old), checksums(new)
    loaded = [name for name in sys.modules if name == "ansible" or name.startswith("ansible.")]
    is_same = all(before.get(name) == after[name] for name in loaded if name in after)
    for name in loaded:
        module = sys.modules[name]
        if not is_same or name not in after:
            del sys.modules[name]
        elif hasattr(module, "__path__"):
            module.__path__ = [entry.replace(old, new, 1) for entry in module.__path__]

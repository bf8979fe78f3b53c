"""Node side of the warm connections: an interpreter that has Ansible's basics imported and waits for module calls.

Shipped over standard input with one line behind it that calls ``main``; standard library only, Python 3.8 and newer.
Three kinds of process: the *server* accepts connections; a *template* per archive (what AnsiballZ ships) has the
archive's modules imported; a forked *child* of it runs one call and dies with its caller. A template imports what its
children had to import, so that the next child has it. The server exits ``idle_s`` after its last call has ended,
and its templates with it. It takes calls from its owner and root only. `client.py` is the other end.
One file although it is long: it travels as one script.
"""

from __future__ import annotations

import array
import base64
import contextlib
import fcntl
import gc
import hashlib
import importlib
import json
import os
import selectors
import shutil
import signal
import socket
import stat
import struct
import sys
import threading
import time
import traceback
import zipfile
from pathlib import Path

LENGTH = struct.Struct(">I")
PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid
HANDSHAKE_S = 10.0  # a client that stalls before its request must not keep others out for long
MAX_ARCHIVE_BYTES = 64 << 20
MAX_TEMPLATES = 16  # one per module; more means old versions
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


class Handle:
    """A template as the server sees it."""

    def __init__(self, control: socket.socket) -> None:
        self.control, self.active = control, 0


class Server:
    """Accepts calls and hands them to the template of their archive."""

    def __init__(self, path: str, owner: int, idle_s: float) -> None:
        self._path, self._owner, self._idle_s = path, owner, idle_s
        self._work = Path(path + ".archives")
        shutil.rmtree(self._work, ignore_errors=True)  # of a server that was killed
        self._work.mkdir(mode=0o700)
        self._templates: dict[str, Handle] = {}
        self._selector = selectors.DefaultSelector()
        self._last = time.monotonic()
        self._listener = self._listen()

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        temporary = f"{self._path}.{os.getpid()}"
        os.umask(0o177)
        listener.bind(temporary)
        os.umask(0o077)
        os.chown(temporary, self._owner, -1)
        listener.listen(64)
        Path(temporary).rename(self._path)
        self._inode = Path(self._path).stat().st_ino
        listener.settimeout(0)
        self._selector.register(listener, selectors.EVENT_READ, None)
        return listener

    def serve(self) -> None:
        """Serve until no call has been running for ``idle_s``."""
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # templates need no burial
        while (timeout := self._left()) > 0:
            for key, _ in self._selector.select(timeout):
                if key.data is None:
                    self._accept()
                else:
                    self._hear(key.data)
        shutil.rmtree(self._work, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            if Path(self._path).stat().st_ino == self._inode:
                Path(self._path).unlink()

    def _left(self) -> float:
        if any(handle.active for handle in self._templates.values()):
            self._last = time.monotonic()
        return self._last + self._idle_s - time.monotonic()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        with connection:
            connection.settimeout(HANDSHAKE_S)
            try:
                peer = PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
                if peer[1] in (0, self._owner):
                    self._hand_over(connection)
            except (OSError, EOFError, ValueError):
                return
            finally:
                self._last = time.monotonic()

    def _hand_over(self, connection: socket.socket) -> None:
        key = read_exact(connection, 64).decode("ascii")
        handle = self._templates.get(key)
        connection.sendall(b"Y" if handle else b"N")
        if handle is None:
            handle = self._templates[key] = self._new_template(key, connection)
        message = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [connection.fileno()]))]
        try:
            handle.control.sendmsg([b"c"], message)
            handle.active += 1
        except OSError:
            self._forget(key)

    def _new_template(self, key: str, connection: socket.socket) -> Handle:
        size = LENGTH.unpack(read_exact(connection, LENGTH.size))[0]
        data = read_exact(connection, size) if size <= MAX_ARCHIVE_BYTES else b""
        if hashlib.sha256(data).hexdigest() != key:
            raise ValueError("the archive is not the one announced")
        archive = self._work / (key[:16] + ".zip")
        archive.write_bytes(base64.b64decode(data))
        if len(self._templates) >= MAX_TEMPLATES:
            self._forget(next(iter(self._templates)))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            if not self._ask_sibling(str(archive), theirs) and os.fork() == 0:
                self._become_template(str(archive), theirs, [ours, connection, self._listener])
        self._selector.register(ours, selectors.EVENT_READ, key)
        return Handle(ours)

    def _ask_sibling(self, archive: str, control: socket.socket) -> bool:
        """Have a template that is there fork the new one; returns whether it was asked."""
        message = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [control.fileno()]))]
        for key in list(self._templates):
            try:
                self._templates[key].control.sendmsg([b"t" + archive.encode()], message)
            except OSError:
                self._forget(key)
            else:
                return True
        return False

    def _become_template(self, archive: str, control: socket.socket, foreign: list[socket.socket]) -> None:
        try:
            self._selector.close()
            for other in [*foreign, *(handle.control for handle in self._templates.values())]:
                other.close()
            Template(archive, control).serve()
        finally:
            os._exit(1)

    def _hear(self, key: str) -> None:
        """One byte is one call that has ended; the end is the end of the template."""
        handle = self._templates[key]
        try:
            ended = handle.control.recv(4096)
        except OSError:
            ended = b""
        handle.active -= len(ended)
        self._last = time.monotonic()
        if not ended:
            self._forget(key)

    def _forget(self, key: str) -> None:
        handle = self._templates.pop(key)
        self._selector.unregister(handle.control)
        handle.control.close()


def prepare_directory(directory: str, owner: int) -> None:
    """Make ``directory`` one that only ``owner`` can enter; refuse one that somebody else made."""
    with contextlib.suppress(FileExistsError):
        Path(directory).mkdir(mode=0o700, parents=True)
        os.chown(directory, owner, -1)
    found = os.lstat(directory)
    if found.st_uid != owner or found.st_mode != stat.S_IFDIR | stat.S_IRWXU:
        raise SystemExit(f"{directory} must be a directory of user {owner} with mode 0700; remove it")


def caller() -> int:
    """Return the user who started this, before sudo made it root."""
    return int(os.environ.get("SUDO_UID", "0")) if os.getuid() == 0 else os.getuid()


def is_served(path: str) -> bool:
    """Return whether a server accepts connections at ``path``."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(path) == 0


def main(settings: dict[str, object]) -> None:
    """Start a server in the background unless one is there; prints its socket when it can be called.

    ``{uid}`` in the path stands for the owner: who called, before sudo.
    """
    owner = caller()
    path = str(settings["path"]).replace("{uid}", str(owner))
    prepare_directory(str(Path(path).parent), owner)
    lock = os.open(path + ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)  # two callers at once start one server
    if is_served(path):
        sys.stdout.write(path + "\n")
        return
    ready, tell = os.pipe()
    if os.fork() == 0:
        os.close(lock)
        os.close(ready)
        serve_in_background(path, owner, float(str(settings["idle_s"])), tell)
    os.close(tell)
    if not os.read(ready, 1):
        raise SystemExit("the warm interpreter could not start")
    sys.stdout.write(path + "\n")


def serve_in_background(path: str, owner: int, idle_s: float, tell: int) -> None:
    """Leave the caller's session, serve, exit."""
    try:
        os.setsid()
        os.chdir("/")
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        server = Server(path, owner, idle_s)
        os.write(tell, b"r")
        os.close(tell)
        server.serve()
    finally:
        os._exit(0)

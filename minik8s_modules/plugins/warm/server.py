"""Node side of the warm connections: an interpreter that has Ansible's basics imported and waits for module calls.

Shipped over standard input with the files that it imports before and one line behind it that calls ``main``; standard
library only, Python 3.8 and newer. Three kinds of process: the *server* here accepts connections; a *template* has the
modules of archives imported whose common code is equal, and a forked *child* of it runs calls (`calls.py`). The server
exits ``idle_s`` after its last call has ended, and its templates with it. It takes calls from its owner and root only.
`client.py` is the other end.
"""

from __future__ import annotations

import array
import base64
import contextlib
import fcntl
import hashlib
import os
import selectors
import shutil
import signal
import socket
import stat
import struct
import sys
import time
import zipfile
from pathlib import Path

from minik8s_modules.plugins.warm.calls import LENGTH, Template, read_exact
from minik8s_modules.plugins.warm.compiled import Compiled, checksums, clear

PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid
HANDSHAKE_S = 10.0  # a client that stalls before its request must not keep others out for long
MAX_ARCHIVE_BYTES = 64 << 20
MAX_TEMPLATES = 8  # one for each release; what is not ours may have code of another
MAX_ARCHIVES = 64  # of a template: one for each module and its file's version


class Handle:
    """A template as the server sees it: its archives by their keys, and the CRC of each file of theirs."""

    def __init__(self, control: socket.socket) -> None:
        self.control, self.active = control, 0
        self.archives: dict[str, str] = {}
        self.files: dict[str, int] = {}

    def fits(self, files: dict[str, int]) -> bool:
        """Return whether an archive of ``files`` has nothing that is other code here."""
        is_equal = all(self.files.get(name, crc) == crc for name, crc in files.items())
        return is_equal and len(self.archives) < MAX_ARCHIVES

    def add(self, key: str, archive: str, files: dict[str, int]) -> None:
        """Note an archive that the template has."""
        self.archives[key] = archive
        self.files.update(files)


class Server:
    """Accepts calls and hands them to the template of their archive."""

    def __init__(self, path: str, owner: int, idle_s: float, code: str) -> None:
        self._path, self._owner, self._idle_s, self._code = path, owner, idle_s, code
        self._work = Path(path + ".archives")
        shutil.rmtree(self._work, ignore_errors=True)  # of a server that was killed
        self._work.mkdir(mode=0o700)
        if code:
            clear(code)
        self._templates: list[Handle] = []
        self._may_fork_siblings = True
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
        self._leave()

    def _leave(self) -> None:
        """Take away all files, unless another server has come meanwhile; the directory too, unless it has code."""
        with contextlib.suppress(OSError):
            lock = lock_of(self._path)
            if Path(self._path).stat().st_ino == self._inode:
                shutil.rmtree(self._work, ignore_errors=True)
                Path(self._path).unlink()
                Path(self._path + ".lock").unlink()
                Path(self._path).parent.rmdir()
            os.close(lock)

    def _left(self) -> float:
        if any(handle.active for handle in self._templates):
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
            except (OSError, EOFError, ValueError, zipfile.BadZipFile):
                return
            finally:
                self._last = time.monotonic()

    def _hand_over(self, connection: socket.socket) -> None:
        key = read_exact(connection, 64).decode("ascii")
        handle = next((one for one in self._templates if key in one.archives), None)
        connection.sendall(b"Y" if handle else b"N")
        if handle is None:
            handle = self._prepared(key, self._received(key, connection), connection)
        archive = handle.archives[key]
        if not self._pass_on(handle, archive, connection):  # nothing of the call has been read, so another may run it
            self._pass_on(self._prepared(key, archive, connection), archive, connection)

    def _pass_on(self, handle: Handle, archive: str, connection: socket.socket) -> bool:
        """Pass a call to a template; returns whether it was there to take it."""
        message = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [connection.fileno()]))]
        handle.active += 1
        try:
            handle.control.sendmsg([b"c" + archive.encode()], message)
        except OSError:
            self._bury(handle)
            return False
        return True

    def _received(self, key: str, connection: socket.socket) -> str:
        size = LENGTH.unpack(read_exact(connection, LENGTH.size))[0]
        data = read_exact(connection, size) if size <= MAX_ARCHIVE_BYTES else b""
        if hashlib.sha256(data).hexdigest() != key:
            raise ValueError("the archive is not the one announced")
        archive = self._work / (key[:16] + ".zip")
        archive.write_bytes(base64.b64decode(data))
        return str(archive)

    def _prepared(self, key: str, archive: str, connection: socket.socket) -> Handle:
        """Return the template that has an archive from now on: one with equal code, or a new one."""
        files = checksums(archive)
        for handle in [one for one in self._templates if one.fits(files)]:
            try:
                handle.control.sendmsg([b"a" + archive.encode()])
            except OSError:
                self._forget(handle)
            else:
                handle.add(key, archive, files)
                return handle
        handle = self._new_template(archive, connection)
        handle.add(key, archive, files)
        return handle

    def _new_template(self, archive: str, connection: socket.socket) -> Handle:
        if len(self._templates) >= MAX_TEMPLATES:
            self._forget(self._templates[0])
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            if not self._ask_sibling(archive, theirs) and os.fork() == 0:
                self._become_template(archive, theirs, [ours, connection, self._listener])
        handle = Handle(ours)
        self._templates.append(handle)
        self._selector.register(ours, selectors.EVENT_READ, handle)
        return handle

    def _ask_sibling(self, archive: str, control: socket.socket) -> bool:
        """Have a template that is there fork the new one; returns whether it was asked."""
        message = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [control.fileno()]))]
        for handle in list(self._templates) if self._may_fork_siblings else ():
            try:
                handle.control.sendmsg([b"t" + archive.encode()], message)
            except OSError:
                self._forget(handle)
            else:
                return True
        return False

    def _become_template(self, archive: str, control: socket.socket, foreign: list[socket.socket]) -> None:
        try:
            self._selector.close()
            for other in [*foreign, *(handle.control for handle in self._templates)]:
                other.close()
            compiled = Compiled(self._code)
            compiled.install()
            Template(archive, control, compiled).serve()
        finally:
            os._exit(1)

    def _hear(self, handle: Handle) -> None:
        """One byte is one call that has ended; the end is the end of the template."""
        if handle not in self._templates:
            return  # forgotten since its socket was found to be readable
        try:
            ended = handle.control.recv(4096)
        except OSError:
            ended = b""
        handle.active -= len(ended)
        self._last = time.monotonic()
        if not ended:
            self._bury(handle)

    def _bury(self, handle: Handle) -> None:
        """Forget a template that has ended."""
        # with a call: it may be what it has of other code that ends it, so from now on each begins with nothing
        self._may_fork_siblings = self._may_fork_siblings and not handle.active
        self._forget(handle)

    def _forget(self, handle: Handle) -> None:
        self._templates.remove(handle)
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


def lock_of(path: str) -> int:
    """Return the descriptor of the lock of a socket, which is held from now on.

    Raises:
        FileNotFoundError: The directory is gone, or the file went while it was waited for.
    """
    lock = os.open(path + ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        same = os.fstat(lock).st_ino == Path(path + ".lock").stat().st_ino
    except FileNotFoundError:
        same = False
    if not same:
        os.close(lock)
        raise FileNotFoundError(path)
    return lock


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
    lock = None
    while lock is None:
        prepare_directory(str(Path(path).parent), owner)
        with contextlib.suppress(FileNotFoundError):  # a server that ends takes the directory away
            lock = lock_of(path)  # two callers at once start one server
    if is_served(path):
        sys.stdout.write(path + "\n")
        return
    ready, tell = os.pipe()
    if os.fork() == 0:
        os.close(lock)
        os.close(ready)
        code = str(Path(path).with_name("code")) if settings["keep_code"] else ""
        serve_in_background(path, owner, float(str(settings["idle_s"])), code, tell)
    os.close(tell)
    if not os.read(ready, 1):
        raise SystemExit("the warm interpreter could not start")
    sys.stdout.write(path + "\n")


def serve_in_background(path: str, owner: int, idle_s: float, code: str, tell: int) -> None:
    """Leave the caller's session, serve, exit."""
    try:
        os.setsid()
        os.chdir("/")
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        server = Server(path, owner, idle_s, code)
        os.write(tell, b"r")
        os.close(tell)
        server.serve()
    finally:
        os._exit(0)

"""Node side of the warm connections: an interpreter that has Ansible's basics imported and waits for module calls.

Shipped over standard input with the files that it imports before and one line behind it that calls ``main``; standard
library only, Python 3.8 and newer. The *server* here accepts connections; a *template* has the modules of archives
imported whose common code is equal, and a forked *child* of it runs calls (`calls.py`). The first template is the
server itself, for another interpreter takes 6 MB; those of other releases are processes of their own. The server exits
``idle_s`` after its last call has ended, and its templates with it. It takes calls from its owner and root only.

`client.py` is the other end.
"""

from __future__ import annotations

import array
import base64
import contextlib
import fcntl
import functools
import hashlib
import os
import selectors
import shutil
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
    """A template as the server sees it: its archives by their keys, and the CRC of each file of theirs.

    It is another process, behind ``control``, or this one: ``here``.
    """

    def __init__(self, control: socket.socket | None = None) -> None:
        self.control, self.active = control, 0
        self.here: Template | None = None
        self.archives: dict[str, str] = {}
        self.files: dict[str, int] = {}

    def fits(self, files: dict[str, int]) -> bool:
        """Return whether an archive of ``files`` has nothing that is other code here."""
        is_equal = all(self.files.get(name, crc) == crc for name, crc in files.items())
        return is_equal and len(self.archives) < MAX_ARCHIVES

    def tell(self, message: bytes, passed: socket.socket | None = None) -> None:
        """Give the template a message; see `Template.do`.

        Raises:
            OSError: It has gone, or can do nothing more.
        """
        if self.control is not None:
            fds = array.array("i", [passed.fileno()] if passed else [])
            self.control.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)] if passed else [])
        elif self.here is not None:
            try:
                self.here.do(message, passed)
            except (Exception, SystemExit) as error:  # whatever it is would have ended a template of its own
                raise OSError("this template failed") from error

    def add(self, key: str, archive: str, files: dict[str, int]) -> None:
        """Note an archive that the template has."""
        self.archives[key] = archive
        self.files.update(files)


class Here(Template):
    """The template that the server is."""

    def __init__(self, archive: str, compiled: Compiled, server: Server, handle: Handle) -> None:
        super().__init__(archive, None, compiled)
        self._server, self._handle = server, handle

    def ended(self) -> None:
        """Note that a call has ended."""
        self._server.ended(self._handle, 1)

    def close_all(self, kept: socket.socket) -> None:
        """Close what a forked process is not to have, but ``kept``."""
        super().close_all(kept)
        self._server.close_all(kept)


class Server:
    """Accepts calls and hands them to the template of their archive."""

    def __init__(self, path: str, owner: int, idle_s: float, code: str) -> None:
        self._path, self._owner, self._idle_s, self._code = path, owner, idle_s, code
        for left in Path(path).parent.glob(f"{Path(path).name}.archives.*"):  # of servers that were killed
            if left.suffix == f".{os.getpid()}" or not Path(f"/proc/{left.suffix[1:]}").exists():
                shutil.rmtree(left, ignore_errors=True)
        self._work = Path(f"{path}.archives.{os.getpid()}")  # the one before may still have calls that read its own
        self._work.mkdir(mode=0o700)
        if code:
            clear(code)
        self._templates: list[Handle] = []
        self._is_spoilt = False
        self._connection: socket.socket | None = None
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
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        return listener

    def serve(self) -> None:
        """Serve until no call has been running for ``idle_s``; a spoilt one takes no more, and ends with its calls."""
        while (left := self._left()) > 0 and (self._is_busy() or not self._is_spoilt):
            here = self._templates[0].here if self._templates else None
            until_next = here.send_away() if here else None
            ready = self._selector.select(left if until_next is None else min(left, until_next))
            # who has ended is known before anybody calls, who may have been told of it already
            for key, _ in sorted(ready, key=lambda each: each[0].data == self._accept):
                if not self._is_spoilt or key.data != self._accept:
                    key.data()
            if self._is_spoilt and self._listener.fileno() >= 0:
                self._stop_listening()
        self._leave()

    def _stop_listening(self) -> None:
        """Let another server have the place."""
        self._selector.unregister(self._listener)
        self._listener.close()
        with contextlib.suppress(OSError):
            lock = lock_of(self._path)
            if self._has_place():
                Path(self._path).unlink()
            os.close(lock)

    def _leave(self) -> None:
        """Take away all files, unless another server has come meanwhile; the directory too, unless it has code."""
        shutil.rmtree(self._work, ignore_errors=True)
        with contextlib.suppress(OSError):
            lock = lock_of(self._path)
            if self._has_place() or not Path(self._path).exists():
                Path(self._path).unlink(missing_ok=True)
                Path(self._path + ".lock").unlink()
                Path(self._path).parent.rmdir()
            os.close(lock)

    def _has_place(self) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return Path(self._path).stat().st_ino == self._inode
        return False

    def _is_busy(self) -> bool:
        return any(handle.active for handle in self._templates)

    def _left(self) -> float:
        if self._is_busy():
            self._last = time.monotonic()
        return self._last + self._idle_s - time.monotonic()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        self._connection = connection
        with connection:
            connection.settimeout(HANDSHAKE_S)
            try:
                peer = PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
                if peer[1] in (0, self._owner):
                    self._hand_over(connection)
            except (OSError, EOFError, ValueError, zipfile.BadZipFile):
                return
            finally:
                self._connection = None
                self._last = time.monotonic()

    def _hand_over(self, connection: socket.socket) -> None:
        key = read_exact(connection, 64).decode("ascii")
        handle = next((one for one in self._templates if key in one.archives), None)
        connection.sendall(b"Y" if handle else b"N")
        if handle is None:
            handle = self._prepared(key, self._received(key, connection))
        archive = handle.archives[key]
        # nothing of the call has been read, so another may run it
        if not self._pass_on(handle, archive, connection) and handle.here is None:
            # one that has ended before it could take it ended over what it has of other code
            self._is_spoilt = not self._pass_on(self._prepared(key, archive), archive, connection) or self._is_spoilt

    def _pass_on(self, handle: Handle, archive: str, connection: socket.socket) -> bool:
        """Pass a call to a template; returns whether it was there to take it."""
        try:
            handle.tell(b"c" + archive.encode(), connection)
        except OSError:
            self._bury(handle)
            return False
        handle.active += 1
        return True

    def _received(self, key: str, connection: socket.socket) -> str:
        size = LENGTH.unpack(read_exact(connection, LENGTH.size))[0]
        data = read_exact(connection, size) if size <= MAX_ARCHIVE_BYTES else b""
        if hashlib.sha256(data).hexdigest() != key:
            raise ValueError("the archive is not the one announced")
        archive = self._work / (key[:16] + ".zip")
        archive.write_bytes(base64.b64decode(data))
        return str(archive)

    def _prepared(self, key: str, archive: str) -> Handle:
        """Return the template that has an archive from now on: one with equal code, or a new one."""
        files = checksums(archive)
        for handle in [one for one in self._templates if one.fits(files)]:
            try:
                handle.tell(b"a" + archive.encode())
            except OSError:
                self._forget(handle)
            else:
                handle.add(key, archive, files)
                return handle
        handle = self._new_template(archive)
        handle.add(key, archive, files)
        return handle

    def _new_template(self, archive: str) -> Handle:
        if len(self._templates) >= MAX_TEMPLATES:
            self._forget(self._templates[1])
        if not self._templates:
            return self._first_template(archive)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        handle = Handle(ours)
        self._templates.append(handle)
        self._selector.register(ours, selectors.EVENT_READ, functools.partial(self._hear, handle))
        with theirs:
            self._templates[0].tell(b"t" + archive.encode(), theirs)
        return handle

    def _first_template(self, archive: str) -> Handle:
        """Become a template; what fails in that leaves a server that ends."""
        self._is_spoilt = True
        handle, compiled = Handle(), Compiled(self._code)
        compiled.install()
        handle.here = Here(archive, compiled, self, handle)
        handle.here.begin(self._selector)
        self._templates.append(handle)
        self._is_spoilt = False
        return handle

    def close_all(self, kept: socket.socket) -> None:
        """Close what a forked process is not to have, but ``kept``: callers and templates wait for its end."""
        for each in (self._listener, self._connection, *(handle.control for handle in self._templates)):
            if each is not None and each is not kept:
                each.close()

    def _hear(self, handle: Handle) -> None:
        """One byte is one call that has ended; the end is the end of the template."""
        if handle not in self._templates:
            return  # forgotten since its socket was found to be readable
        count = 0
        with contextlib.suppress(OSError):
            count = len(handle.control.recv(4096)) if handle.control else 0
        self.ended(handle, count)
        if not count:
            self._bury(handle)

    def _bury(self, handle: Handle) -> None:
        """Forget a template that has ended."""
        # with a call: it may be what it has of other code that ends it, so the next server begins with nothing
        self._is_spoilt = self._is_spoilt or handle.active > 0
        self._forget(handle)

    def ended(self, handle: Handle, count: int) -> None:
        """Note that calls have ended."""
        handle.active -= count
        self._last = time.monotonic()

    def _forget(self, handle: Handle) -> None:
        if handle.control is None:
            self._is_spoilt = True
            return
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

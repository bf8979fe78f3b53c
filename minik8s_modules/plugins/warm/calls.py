"""What runs module calls in a warm interpreter: a template that has archives imported, and the children it forks.

A *template* has imported what archives (what AnsiballZ ships) hold: one archive for each module, and those of one
release share nearly all code, so that they have one template. A *child* of it runs a call and dies with its caller. One
that ran a module of ours to its end, and was left as it was before (`leftovers.py`), stays a few seconds for the next
call, of whichever module: fork, pages copied and the end of a process are three quarters of a small call's CPU. Modules
that are not ours have a child each. A template imports what its children had to import, so that the next child has it.
Standard library only, Python 3.8 and newer: it travels with `server.py`, which is the first template itself.
"""

from __future__ import annotations

import array
import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import struct
import sys
import threading
import time
import traceback

from minik8s_modules.plugins.warm.compiled import OURS, Compiled
from minik8s_modules.plugins.warm.imports import import_all, import_names, keep_imports, share_imports
from minik8s_modules.plugins.warm.leftovers import Before, Values

LENGTH = struct.Struct(">I")
MODULE_UMASK = 0o022  # root's usual one, so that a module makes the same files without us
LEARN_BYTES = 60000  # below a pipe's capacity, so that a child never blocks on it
STAY_S = 3.0  # as long as a worker of the play: a Pod's next item comes within a second or two
MOST_WAITING = 2  # the next call may come while the child of the one before looks at what was left
MOST_CALLS = 200  # what grows unseen does not grow for long


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
    """Runs calls, one after the other, in a process that was forked for the first of them."""

    def __init__(self, control: socket.socket, learn_fd: int, values: Values) -> None:
        self._control, self._learn_fd, self._values = control, learn_fd, values

    def run(self, connection: socket.socket, archive: str) -> None:
        """Run ``connection``'s call, and each that the template passes on while nothing is left behind."""
        os.setsid()
        outputs = self._redirect()
        before = Before(self._values)
        for left in reversed(range(MOST_CALLS)):
            stays = self._serve(connection, archive, outputs)
            if new := self._values.imported():
                os.write(self._learn_fd, json.dumps(sorted(new)).encode()[:LEARN_BYTES] + b"\n")
            if not left or not stays or not before.holds_again():
                return
            connection.close()
            self._control.sendall(b"i")
            connection, archive = self._next()

    def _next(self) -> tuple[socket.socket, str]:
        data, extra, _, _ = self._control.recvmsg(4096, socket.CMSG_SPACE(4))
        if not extra:
            os._exit(0)  # waited long enough, or the template has gone
        return socket.socket(fileno=_descriptor(extra)), data[1:].decode()

    def _serve(self, connection: socket.socket, archive: str, outputs: list[int]) -> bool:
        """Answer one call; return whether its module is one that another may follow in this process."""
        request = json.loads(read_frame(connection))
        os.umask(MODULE_UMASK)
        answered = threading.Event()
        watch = threading.Thread(target=self._die_with_caller, args=(connection, answered), daemon=True)
        watch.start()
        code = self._call(request, archive)
        sys.stdout.flush()
        sys.stderr.flush()
        texts = [_taken(fd) for fd in outputs]
        answered.set()
        body = json.dumps({"code": code, "out": texts[0], "err": texts[1]}).encode()
        connection.sendall(LENGTH.pack(len(body)) + body)
        with contextlib.suppress(OSError):  # the caller has gone already
            connection.shutdown(socket.SHUT_RDWR)  # what was sent arrives all the same; ends the watch
        watch.join()
        # whoever wrote a module that is not ours counts on a process that ends
        return code == 0 and not texts[1] and request["module"].rpartition(".")[2].startswith(OURS)

    def _die_with_caller(self, connection: socket.socket, answered: threading.Event) -> None:
        """End the module and all it started when the caller goes away: timeout, cancel, crash."""
        with contextlib.suppress(OSError):
            connection.recv(1)
        if not answered.is_set():
            os.killpg(0, signal.SIGKILL)

    def _redirect(self) -> list[int]:
        """Send output to memory (a full pipe would block the module), read input from nowhere."""
        outputs = [os.memfd_create(name) for name in ("out", "err")]
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        for number, fd in enumerate(outputs, 1):
            os.dup2(fd, number)
        sys.stdout, sys.stderr = (
            open(fd, "w", closefd=False, encoding="utf-8", errors="surrogateescape")  # noqa: SIM115  for life
            for fd in (1, 2)
        )
        return outputs

    def _call(self, request: dict[str, str], archive: str) -> int:
        from ansible.module_utils._internal._ansiballz import _loader  # noqa: PLC0415  comes with the archive

        try:
            _loader.run_module(
                json_params=request["params"].encode(),
                profile=request["profile"],
                module_fqn=request["module"],
                modlib_path=archive,
                extensions={},
            )
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:  # noqa: BLE001  whatever a module raises is its result
            traceback.print_exc()
        return 1


def _taken(fd: int) -> str:
    """Return what was written into memory, and make it empty for the next call."""
    data = os.pread(fd, os.fstat(fd).st_size, 0)
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)
    return data.decode("utf-8", "surrogateescape")


def _descriptor(extra: list[tuple[int, int, bytes]]) -> int:
    fds = array.array("i")
    for _, _, piece in extra:
        fds.frombytes(piece[: fds.itemsize])
    return fds[0]


class Worker:
    """A child as its template sees it: it runs a call, or waits for one since ``idle_since``, or is to end.

    ``archives`` is how many its template had when it was forked: it knows no module of a later one.
    """

    def __init__(self, control: socket.socket, archives: int) -> None:
        self.control, self.archives = control, archives
        self.is_busy, self.idle_since = True, 0.0

    @property
    def waits(self) -> bool:
        """Return whether it can be given a call."""
        return self.idle_since > 0


class Template:
    """The process that has archives imported.

    It is told, over ``control`` where the server is another process, of connections, which it passes to a child; of
    archives of other modules with equal code, which it takes in; and of archives of other code, for which it forks a
    template: what is equal is imported there at once.
    """

    def __init__(self, archive: str, control: socket.socket | None, compiled: Compiled) -> None:
        self._archives, self._control, self._compiled = [archive], control, compiled
        sys.path.insert(0, archive)
        with compiled.importing(archive):
            import_all(archive)
        self._workers: dict[int, Worker] = {}
        self._learn_fd, self._teach_fd = os.pipe()
        self._wake_fd, self._woken_fd = os.pipe()
        for fd in (self._wake_fd, self._woken_fd):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._woken_fd, warn_on_full_buffer=False)

    def _note(self) -> None:
        """Note what children begin with; what a collection does not walk through stays shared by all processes."""
        self._values = Values()
        gc.freeze()

    def begin(self, selector: selectors.BaseSelector) -> None:
        """Have ``selector`` tell what children and ``control`` say."""
        self._note()
        self._selector = selector
        if self._control is not None:
            selector.register(self._control, selectors.EVENT_READ, self._take)
        selector.register(self._learn_fd, selectors.EVENT_READ, self._learn)
        selector.register(self._wake_fd, selectors.EVENT_READ, self._reap)

    def serve(self) -> None:
        """Fork, learn and reap until the server has gone."""
        self.begin(selectors.DefaultSelector())
        while True:
            for key, _ in self._selector.select(self.send_away()):
                key.data()

    def ended(self) -> None:
        """Tell the server that a call has ended."""
        if self._control is not None:
            self._control.sendall(b"d")

    def _take(self) -> None:
        """Take a message of the server, whose end is this one's, too."""
        if self._control is None:
            return
        message, extra, _, _ = self._control.recvmsg(4096, socket.CMSG_SPACE(4))
        if not message:
            os._exit(0)
        if not extra:
            self.do(message, None)
            return
        with socket.socket(fileno=_descriptor(extra)) as passed:
            self.do(message, passed)

    def do(self, message: bytes, passed: socket.socket | None) -> None:
        """Do ``c<path>``, a call, or ``t<path>``, the control of a new template, or ``a<path>``, which comes alone."""
        kind, path = message[:1], message[1:].decode()
        if passed is None:
            self._take_in(path)
            return
        passed.settimeout(None)
        if kind == b"c" and self._pass_on(message, passed):
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        child = os.fork()
        if child == 0:
            ours.close()
            self._become(kind, path, passed, theirs)
        theirs.close()
        if kind == b"c":
            self._workers[child] = Worker(ours, len(self._archives))
            self._selector.register(ours, selectors.EVENT_READ, lambda: self._hear(child))
        else:
            ours.close()

    def _take_in(self, archive: str) -> None:
        """Know another archive's modules, too; children that wait do not, and end.

        They end first: what is imported while they are there, each page that it writes to exists twice.
        """
        for child, worker in list(self._workers.items()):
            if worker.waits:
                self._dismiss(worker)
                os.waitpid(child, 0)
                self._bury(child)
        share_imports(self._archives, archive)
        self._archives.append(archive)
        with self._compiled.importing(archive):
            import_all(archive)
        self._note()

    def _pass_on(self, data: bytes, connection: socket.socket) -> bool:
        """Have a child that waits run the call; returns whether there was one."""
        message = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [connection.fileno()]))]
        for worker in [one for one in self._workers.values() if one.waits]:
            worker.idle_since = 0.0
            with contextlib.suppress(OSError):  # it was killed
                worker.control.sendmsg([data], message)
                worker.is_busy = True
                return True
        return False

    def _hear(self, child: int) -> None:
        """A child says that its call has ended and it waits; its end comes by the signal."""
        worker = self._workers.get(child)
        if worker is None:  # its end was seen before its last word
            return
        said = b""
        with contextlib.suppress(OSError):
            said = worker.control.recv(1)
        if said:
            worker.is_busy, worker.idle_since = False, time.monotonic()
            self.ended()
            are_many = sum(one.waits for one in self._workers.values()) > MOST_WAITING
            if are_many or worker.archives < len(self._archives):
                self._dismiss(worker)
        else:
            self._selector.unregister(worker.control)

    def send_away(self) -> float | None:
        """End children that have waited for long; return the seconds until the next one has."""
        now, left = time.monotonic(), None
        for worker in [one for one in self._workers.values() if one.waits]:
            rest = worker.idle_since + STAY_S - now
            if rest <= 0:
                self._dismiss(worker)
            else:
                left = rest if left is None else min(left, rest)
        return left

    def _dismiss(self, worker: Worker) -> None:
        worker.idle_since = 0.0
        with contextlib.suppress(OSError):  # it was killed
            worker.control.shutdown(socket.SHUT_WR)

    def _become(self, kind: bytes, archive: str, passed: socket.socket, control: socket.socket) -> None:
        try:
            gc.disable()  # a sibling never collects: it would copy the pages it shares
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.close_all(passed)
            if kind == b"c":
                gc.enable()
                Child(control, self._teach_fd, self._values).run(passed, archive)
            else:
                control.close()
                os.close(self._teach_fd)
                sys.path[:] = [entry for entry in sys.path if entry not in self._archives]
                keep_imports(self._archives, archive)
                Template(archive, passed, self._compiled).serve()
        finally:
            os._exit(0)

    def close_all(self, kept: socket.socket) -> None:  # noqa: ARG002 - the server, as a template, has more to close
        """Close what a forked process is not to have, but ``kept``."""
        if self._control is not None:
            self._control.close()
        self._selector.close()
        for fd in (self._learn_fd, self._wake_fd, self._woken_fd):
            os.close(fd)
        for worker in self._workers.values():
            worker.control.close()
        self._workers.clear()

    def _learn(self) -> None:
        for line in os.read(self._learn_fd, 1 << 16).splitlines():
            with contextlib.suppress(ValueError):  # cut off
                import_names(json.loads(line))
        self._note()

    def _reap(self) -> None:
        """Bury children; tell the server of each call that has ended with one (a sibling is no call)."""
        os.read(self._wake_fd, 4096)
        with contextlib.suppress(ChildProcessError):
            while child := os.waitpid(-1, os.WNOHANG)[0]:
                self._bury(child)

    def _bury(self, child: int) -> None:
        worker = self._workers.pop(child, None)
        if worker is None:
            return
        with contextlib.suppress(KeyError):  # it was heard already
            self._selector.unregister(worker.control)
        worker.control.close()
        if worker.is_busy:
            self.ended()

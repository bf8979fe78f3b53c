"""Small files and file systems over one open sftp channel: enough of SFTP version 3 for that.

Source: draft-ietf-secsh-filexfer-02; file systems: OpenSSH ``PROTOCOL``, section 4.4. A channel is a process of ours
(``ssh -s … sftp`` through the node's master); each file is OPEN, READ or WRITE, CLOSE. Unlike the sftp command it needs
no local file, and no process per file.
"""

from __future__ import annotations

import selectors
import struct
import subprocess
import time
from collections.abc import Sequence
from typing import IO

from minik8s_modules.gateway.errors import FileRefused, NodeUnreachable

TIMEOUT_S = 10.0
_INIT, _VERSION, _OPEN, _CLOSE, _READ, _WRITE, _MKDIR, _STATUS, _HANDLE, _DATA = 1, 2, 3, 4, 5, 6, 14, 101, 102, 103
_REAL_PATH, _NAME = 16, 104
_EXTENDED, _EXTENDED_REPLY = 200, 201
_READ_ONLY = 0x01
_WRITE_CREATE_TRUNCATE = 0x02 | 0x08 | 0x10
_HAS_PERMISSIONS = 0x04
_OK, _END_OF_FILE, _NO_SUCH_FILE = 0, 1, 2
_LONGEST_READ = 32768
_LONGEST_PACKET = 34000  # the draft's limit for what a peer must accept


class SftpChannel:
    """One channel, opened at construction; one request at a time."""

    def __init__(self, argv: Sequence[str], timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
        self._number = 0
        self._ready = False

    def write_file(self, path: str, data: bytes) -> None:
        """Replace the content of ``path`` (mode 0644 when new), making its directory if only that is missing.

        Raises:
            NodeUnreachable: the channel is broken, or the node refused.
        """
        try:
            self._start()
            kind, answer = self._open(path)
            if kind == _STATUS and _code(answer) == _NO_SUCH_FILE:
                directory = _text(path.rpartition("/")[0])
                self._request(_MKDIR, directory + struct.pack(">II", _HAS_PERMISSIONS, 0o755))
                kind, answer = self._open(path)
            handle = self._handle((kind, answer), path)
            self._expect_ok(self._request(_WRITE, handle + struct.pack(">Q", 0) + _text(data)), path)
            self._expect_ok(self._request(_CLOSE, handle), path)
        except (OSError, struct.error) as error:
            raise NodeUnreachable(f"sftp: {error}") from error

    def read_file(self, path: str) -> bytes:
        """Return the first 32 KB of ``path``, which may lie in /proc.

        Raises:
            FileRefused: the node does not give it.
            NodeUnreachable: the channel is broken.
        """
        try:
            self._start()
            handle = self._handle(self._request(_OPEN, _text(path) + struct.pack(">II", _READ_ONLY, 0)), path)
            kind, answer = self._request(_READ, handle + struct.pack(">QI", 0, _LONGEST_READ))
            self._expect_ok(self._request(_CLOSE, handle), path)
            if kind == _STATUS and _code(answer) == _END_OF_FILE:
                return b""  # an empty file, as a container leaves that had no last words
            if kind != _DATA:
                raise FileRefused(f"sftp: cannot read {path}: status {_code(answer)}")
            return answer[4:]
        except (OSError, struct.error) as error:
            raise NodeUnreachable(f"sftp: {error}") from error

    def file_system(self, path: str) -> tuple[int, ...]:
        """Return f_bsize, f_frsize, f_blocks, f_bfree, f_bavail, f_files, f_ffree, … of statvfs(3).

        Raises:
            NodeUnreachable: the channel is broken, or the node's server does not know the request.
        """
        try:
            self._start()
            kind, answer = self._request(_EXTENDED, _text("statvfs@openssh.com") + _text(path))
            if kind != _EXTENDED_REPLY:
                raise NodeUnreachable(f"sftp: cannot look at the file system of {path}: status {_code(answer)}")
            return struct.unpack_from(">11Q", answer)
        except (OSError, struct.error) as error:
            raise NodeUnreachable(f"sftp: {error}") from error

    def beat(self) -> None:
        """Ask the smallest of questions.

        Raises:
            NodeUnreachable: there is no answer in time.
        """
        try:
            self._start()
            kind, _ = self._request(_REAL_PATH, _text("."))
        except (OSError, struct.error) as error:
            raise NodeUnreachable(f"sftp: {error}") from error
        if kind != _NAME:
            raise NodeUnreachable(f"sftp: the node answered packet {kind} instead of a name")

    @staticmethod
    def _handle(answer: tuple[int, bytes], path: str) -> bytes:
        kind, body = answer
        if kind != _HANDLE:
            raise FileRefused(f"sftp: cannot open {path}: status {_code(body)}")
        (length,) = struct.unpack_from(">I", body)
        return _text(body[4 : 4 + length])

    def close(self) -> None:
        """End the channel's process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _start(self) -> None:
        if self._ready:
            return
        self._send(_INIT, struct.pack(">I", 3))
        kind, _ = self._receive()
        if kind != _VERSION:
            raise NodeUnreachable(f"sftp: the node answered packet {kind} instead of its version")
        self._ready = True

    def _open(self, path: str) -> tuple[int, bytes]:
        attributes = struct.pack(">II", _HAS_PERMISSIONS, 0o644)
        return self._request(_OPEN, _text(path) + struct.pack(">I", _WRITE_CREATE_TRUNCATE) + attributes)

    def _request(self, kind: int, body: bytes) -> tuple[int, bytes]:
        self._number += 1
        self._send(kind, struct.pack(">I", self._number) + body)
        answer, data = self._receive()
        (number,) = struct.unpack_from(">I", data)
        if number != self._number:
            raise NodeUnreachable(f"sftp: an answer to {number} where {self._number} was asked")
        return answer, data[4:]

    def _send(self, kind: int, body: bytes) -> None:
        self._pipe(self._process.stdin).write(struct.pack(">IB", len(body) + 1, kind) + body)

    def _receive(self) -> tuple[int, bytes]:
        end = time.monotonic() + self._timeout_s
        (length,) = struct.unpack(">I", self._read(4, end))
        if not 0 < length <= _LONGEST_PACKET:
            raise NodeUnreachable(f"sftp: a packet of {length} bytes")
        packet = self._read(length, end)
        return packet[0], packet[1:]

    def _read(self, size: int, end: float) -> bytes:
        pipe, data = self._pipe(self._process.stdout), b""
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while len(data) < size:
                if not selector.select(end - time.monotonic()):
                    raise NodeUnreachable(f"sftp: no answer within {self._timeout_s:.0f} s")
                piece = pipe.read(size - len(data))
                if not piece:
                    raise NodeUnreachable("sftp: the channel was closed")
                data += piece
        return data

    def _expect_ok(self, answer: tuple[int, bytes], path: str) -> None:
        kind, body = answer
        if kind != _STATUS or _code(body) != _OK:
            raise NodeUnreachable(f"sftp: cannot write {path}: packet {kind}, status {_code(body)}")

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        if pipe is None:
            raise NodeUnreachable("sftp: the channel has no pipe")
        return pipe


def _text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">I", len(data)) + data


def _code(body: bytes) -> int:
    return int(struct.unpack_from(">I", body)[0])

"""``vmctl COMMAND``: asks the launcher of this pod; what it answers goes to standard output.

It is executed again for each probe and each console, so it imports next to nothing.
"""

import os
import select
import socket
import sys
import time

SOCKET = os.environ.get("VIRT_LAUNCHER_SOCKET", "/var/run/kubevirt/launcher.sock")
QUIET_S, LONGEST_S = 1.0, 10.0
"""After the end of its input, a console goes on until nothing came for so long, but not for ever."""
ATTEMPTS, PAUSE_S = 40, 0.1
"""A probe may come before the launcher listens."""


def main() -> int:
    """Return the exit status: 0, or 1 with the reason on standard error."""
    if len(sys.argv) != 2:  # noqa: PLR2004 - the program and its one argument
        return _no("usage: vmctl COMMAND")
    asked = sys.argv[1]
    with socket.socket(socket.AF_UNIX) as launcher:
        if error := _connect(launcher):
            return _no(f"the launcher does not answer: {error}")
        launcher.sendall(asked.encode() + b"\n")
        line = _line(launcher)
        if line != b"ok":
            return _no(line.removeprefix(b"no ").decode(errors="replace") or "the launcher has ended")
        if asked in {"console", "vnc"}:
            _pipe(launcher)
        else:
            while data := launcher.recv(65536):
                _write(data)
    return 0


def _connect(launcher: socket.socket) -> str:
    """Return why it cannot be, "" where it is."""
    told = ""
    for _ in range(ATTEMPTS):
        try:
            launcher.connect(SOCKET)
        except OSError as error:
            told = str(error.strerror)
            time.sleep(PAUSE_S)
        else:
            return ""
    return told


def _no(reason: str) -> int:
    os.write(2, reason.encode() + b"\n")
    return 1


def _line(launcher: socket.socket) -> bytes:
    found = b""
    while not found.endswith(b"\n"):
        data = launcher.recv(1)
        if not data:
            break
        found += data
    return found.rstrip(b"\n")


def _pipe(launcher: socket.socket) -> None:
    sources = [0, launcher.fileno()]
    until = 0.0
    while not until or time.monotonic() < until:
        ready = select.select(sources, [], [], None if 0 in sources else QUIET_S)[0]
        if not ready:
            return
        if launcher.fileno() in ready:
            data = launcher.recv(65536)
            if not data:
                return
            _write(data)
        if 0 in ready:
            data = os.read(0, 65536)
            if data:
                launcher.sendall(data)
            else:
                sources.remove(0)
                until = time.monotonic() + LONGEST_S


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    sys.exit(main())

"""A TCP proxy on loopback whose connections a test can cut, refuse or freeze."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading


class Proxy:
    """Forwards ``address``:``port`` to 127.0.0.1:``target``.

    ``cut()`` resets all connections and refuses new ones until ``heal()``; ``freeze()`` keeps them open but lets
    nothing through, as a lost link does.
    """

    def __init__(self, target: int, address: str = "127.0.0.1") -> None:
        self._target, self._address = target, address
        self._flowing = threading.Event()
        self._flowing.set()
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._is_cut = False
        self._listener = self._listen(0)
        self.port = int(self._listener.getsockname()[1])

    @property
    def endpoint(self) -> str:
        """The proxy's address as a URL."""
        return f"http://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Reset all connections and refuse new ones."""
        _close(self._listener)
        with self._lock:
            pairs, self._pairs = self._pairs, []
            self._is_cut = True
        for one in (one for pair in pairs for one in pair):
            with contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            _close(one)
        self._flowing.set()

    def heal(self) -> None:
        """Listen again, on the same port."""
        self._is_cut = False
        self._listener = self._listen(self.port)

    def freeze(self) -> None:
        """Let nothing through until ``thaw`` or ``cut``."""
        self._flowing.clear()

    def thaw(self) -> None:
        """Let what was held back through."""
        self._flowing.set()

    def _listen(self, port: int) -> socket.socket:
        listener = socket.create_server((self._address, port))
        threading.Thread(target=self._accept, args=(listener,), name="proxy", daemon=True).start()
        return listener

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    near.close()
                    continue
                with self._lock:
                    if self._is_cut:  # it was being connected meanwhile
                        near.close()
                        far.close()
                        continue
                    self._pairs.append((near, far))
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._flowing.wait()
                sink.sendall(data)
        for one in (source, sink):
            _close(one)


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()

"""One forked process per item: it runs the item's tasks in order and streams their results back.

ansible-core forks a worker per task and lets all workers share one queue with one lock. Here an item is one fork
(each further section saves about 10 ms of CPU), and each worker has a pipe of its own: a worker that is killed
in the middle of a write can neither keep a lock nor leave half a message before another worker's.
Frames are a 4-byte length and a pickle of (kind, payload), written by our own fork only.
"""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Callable, Iterator
from typing import Any

from ansible.executor.process.worker import WorkerProcess

from minik8s_modules.plugins.live import results
from minik8s_modules.plugins.live.process import die_with_parent

LENGTH = struct.Struct(">I")
READ_BYTES = 1 << 20


class PipeQueue:
    """ansible's FinalQueue towards one pipe: what a worker sends while it runs."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def send(self, kind: str, payload: object) -> None:
        """Write one whole frame; blocks while the pipe is full."""
        body = pickle.dumps((kind, payload), pickle.HIGHEST_PROTOCOL)
        view = memoryview(LENGTH.pack(len(body)) + body)
        while view:
            view = view[os.write(self._fd, view) :]

    def send_display(self, method: str, *args: Any, **kwargs: Any) -> None:
        """Have the play display a line."""
        self.send("display", (method, args, kwargs))

    def send_callback(self, method_name: str, *_task_result: Any) -> None:
        """Drop it: only loops, retries and async tasks send callbacks, and the strategy refuses those."""

    def send_prompt(self, **_kwargs: Any) -> None:
        """Refuse to ask.

        Raises:
            EOFError: always; nobody is there to answer.
        """
        raise EOFError("a live run has no terminal to ask on")


class FrameReader:
    """The play's end of a worker's pipe; never blocks."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd, self.ended = fd, False
        self._buffer = bytearray()

    def frames(self) -> Iterator[tuple[str, Any, int]]:
        """Yield (kind, payload, bytes) of each complete frame; sets ``ended`` when the worker has gone."""
        while True:
            try:
                data = os.read(self.fd, READ_BYTES)
            except BlockingIOError:
                break
            if not data:
                self.ended = True
                break
            self._buffer += data
        while len(self._buffer) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            kind, payload = pickle.loads(self._buffer[LENGTH.size : end])  # noqa: S301  our own fork wrote it
            del self._buffer[:end]
            yield kind, payload, end


class ItemWorker(WorkerProcess):  # type: ignore[misc]  # ansible is not typed
    """Runs ``tasks`` (section, ansible task) on one host, each as TaskExecutor does; stops at the first failure."""

    def __init__(
        self, *, tasks: list[tuple[str, Any]], prepare: Callable[[str, Any], None], parent: int, **kwargs: Any
    ) -> None:
        super().__init__(task=tasks[0][1], **kwargs)
        self.tasks, self._prepare, self._parent = tasks, prepare, parent

    def _run(self) -> None:
        if not die_with_parent(self._parent):
            os._exit(1)
        for section, task in self.tasks:
            self._prepare(section, task)
            result = self._execute(task)
            result.pop("invocation", None)  # repeats all options: large, and never needed
            self._final_q.send("result", (section, result))
            if result.get("failed") or result.get("unreachable"):
                break
        os._exit(0)  # all is sent; what multiprocessing would clean up ends with the process

    def _execute(self, task: Any) -> dict[str, Any]:
        return results.executed(
            task,
            self._host,
            self._task_vars,
            self._play_context,
            self._loader,
            self._shared_loader_obj,
            self._final_q,
            self._variable_manager,
        )

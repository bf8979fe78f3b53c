"""A forked process runs an item's tasks in order, streams their results back, and waits for its host's next item.

ansible-core forks a worker per task and lets all workers share one queue with one lock. Here an item is at most one
fork: two thirds of an item's CPU were the kernel's, for the fork, the pages it copies and its end, so a worker is kept
for the items that follow soon. Each worker has a pipe of its own each way: one that is killed in the middle of a write
can neither keep a lock nor leave half a message before another worker's.
Frames are a 4-byte length and a pickle, of (kind, payload) from a worker and of an item to it; only the play and its
own forks write them. An empty frame ends a worker.
"""

from __future__ import annotations

import os
import pickle
import select
import struct
from collections.abc import Callable, Iterator
from typing import Any

from ansible.executor.process.worker import WorkerProcess

from minik8s_modules.base import heap
from minik8s_modules.plugins.live import archives, play, results
from minik8s_modules.plugins.live.process import die_with_parent

LENGTH = struct.Struct(">I")
READ_BYTES = 1 << 20
PAUSE_MS = 300.0  # a worker that waits for longer keeps nothing that its items freed


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


class RequestReader:
    """The worker's end of the pipe that brings its next item."""

    def __init__(self, fd: int) -> None:
        self._fd, self._is_asked = fd, select.poll()
        self._is_asked.register(fd, select.POLLIN)

    def next(self) -> Any | None:
        """Wait for the next item; None is the end."""
        if not self._is_asked.poll(PAUSE_MS):
            heap.give_back()
        size = LENGTH.unpack(self._read(LENGTH.size))[0]
        return pickle.loads(self._read(size)) if size else None  # noqa: S301  the play wrote it

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = os.read(self._fd, size - len(data))
            if not piece:
                os._exit(0)  # the play has gone
            data += piece
        return bytes(data)


class ItemWorker(WorkerProcess):  # type: ignore[misc]  # ansible is not typed
    """Runs items on one host, the ``sections`` (ansible tasks by name) of each in play order as TaskExecutor does.

    An item stops at its first failure. ``prepare`` gives a task an item's options.
    """

    def __init__(
        self,
        *,
        item: Any,
        sections: dict[str, Any],
        prepare: Callable[..., None],
        requests: int,
        parent: int,
        **rest: Any,
    ) -> None:
        super().__init__(task=next(iter(sections.values())), **rest)
        self._item, self._sections, self._prepare, self._parent = item, sections, prepare, parent
        self._requests = RequestReader(requests)
        self._settled: dict[str, Any] = {}

    def _run(self) -> None:
        if not die_with_parent(self._parent):
            os._exit(1)
        heap.keep_for_calls()
        archives.keep()
        item = self._item
        while item is not None:
            self._run_item(item)
            item = self._requests.next()
        os._exit(0)  # all is sent; what multiprocessing would clean up ends with the process

    def _run_item(self, item: Any) -> None:
        for call in play.calls_of(self._sections, item):
            task = self._task_of(call.task)
            self._prepare(self._sections, item, call, task)
            result = self._execute(task)
            result.pop("invocation", None)  # repeats all options: large, and never needed
            last = result  # of the call: it may lack a section and say nothing of that
            for section, one in play.results_of(call, result):
                self._final_q.send("result", (section, one))
                last = one
            if any(found.get("failed") or found.get("unreachable") for found in (result, last)):
                break

    def _task_of(self, section: str) -> Any:
        """Return a copy: running a task puts values for its expressions.

        But for arguments these are the play's and the host's, so all later copies are of what the first run left.
        """
        task = self._settled.get(section, self._sections[section])
        copy = task.copy(exclude_parent=True, exclude_tasks=True)
        # as TaskExecutor copies the task of a loop
        copy._parent, copy._squashed = self._sections[section]._parent, task._squashed  # noqa: SLF001
        return copy

    def _execute(self, task: Any) -> dict[str, Any]:
        result = results.executed(
            task,
            self._host,
            dict(self._task_vars),
            self._play_context,
            self._loader,
            self._shared_loader_obj,
            self._final_q,
            self._variable_manager,
        )
        task.args = {}
        self._settled.setdefault(task.name, task)
        return result

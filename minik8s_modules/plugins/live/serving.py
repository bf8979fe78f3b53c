"""What a live run does: it converges a host whenever a work item for it arrives, until it is told to stop.

Items come as JSON lines on a Unix socket (`items.py`). An item names sections; a section is the task of that name. A
forked worker runs an item's tasks in play order with the item's options as module arguments and streams the results
back (`worker.py`); then it waits some seconds for its host's next item (`workers.py`). Each result becomes an ordinary
callback event that carries the item's id, and the item is answered with one JSON line ``{"id", "host", "status",
"message", "sections"}``. Hosts are never "failed" for the play: the next item tries again. With nothing to do the
process sleeps in select().

Who starts it gives it what it needs of Ansible: `program.py` by Ansible's Python API, `strategy/reconcile.py` as a
strategy plugin of ansible-playbook. `reconcile/executor/runner.py` is the other end of the socket.
"""

from __future__ import annotations

import functools
import gc
import os
import selectors
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ansible import context
from ansible.errors import AnsibleError
from ansible.plugins import loader as plugin_loader
from ansible.utils.display import Display

from minik8s_modules.plugins.live import items, lines, play, results
from minik8s_modules.plugins.live.worker import ItemWorker, PipeQueue
from minik8s_modules.plugins.live.workers import WaitingWorkers, Worker

MAX_RESULT_BYTES = 16 << 20  # of one section; a node's report of 1,000 containers is below 1 MB
display = Display()


class Ansible(NamedTuple):
    """What serving needs of Ansible: ``send_callback`` tells all callback plugins, ``play`` has the sections."""

    play: Any
    play_context: Any
    inventory: Any
    variables: Any
    loader: Any
    forks: int
    send_callback: Callable[..., None]


class HostData(NamedTuple):
    """A host's variables, and by section the options the playbook gives for it."""

    task_vars: dict[str, Any]
    options: dict[str, dict[str, Any]]


class Server:
    """Serves items until the socket says stop.

    Raises:
        AnsibleParserError: the play has a task that no item can run.
    """

    def __init__(self, ansible: Ansible) -> None:
        self._play, self._play_context, self._inventory, self._variables, self._loader, forks, self._send = ansible
        self._sections = play.sections_of(self._play.tasks)
        self._stamp = play.fingerprint(self._inventory._sources)  # noqa: SLF001  no accessor
        self._selector = selectors.DefaultSelector()
        self._queue = items.WorkQueue(max(1, forks))
        self._running: dict[str, Worker] = {}
        self._workers: set[Worker] = set()
        self._waiting = WaitingWorkers(self._queue.slots)
        self._senders: dict[str, lines.Client] = {}
        self._host_data: dict[str, HostData] = {}
        self._stopping = False

    def run(self) -> None:
        """Serve; whoever waits for the socket's file finds all loaded."""
        self._preload()
        listener = lines.Listener(Path(os.environ["MINIK8S_ITEM_SOCKET"]), self._selector)
        try:
            self._serve()
        finally:
            listener.close()
            for worker in self._workers:
                worker.kill()

    def _serve(self) -> None:
        while not self._stopping or self._queue or self._running:
            for key, events in self._selector.select(self._waiting.timeout(time.monotonic())):
                if isinstance(key.data, lines.Listener):
                    key.data.accept()
                elif isinstance(key.data, Worker):
                    self._read_worker(key.data)
                elif events & selectors.EVENT_WRITE:
                    key.data.flush()
                else:
                    for line in key.data.lines():
                        self._on_line(key.data, line)
            while item := self._queue.take():
                self._start(item)
            self._waiting.end(time.monotonic())

    def _preload(self) -> None:
        """Load what every worker would look up again, and keep its pages shared between all of them."""
        hosts = self._inventory.hosts.values()
        connections = {str(host.vars.get("ansible_connection", "ssh")) for host in hosts}
        tasks = [self._sections[name] for name in play.called(self._sections)]
        play.preload(tasks, connections, self._loader)
        # frozen objects are passed over by collections, which would write to each page and so copy it for the worker
        gc.collect()
        gc.freeze()

    # Requests

    def _on_line(self, client: lines.Client, line: bytes) -> None:
        try:
            request = items.parse(line)
        except items.BadLine as error:
            status = "failed" if error.item_id else "error"
            client.send(id=error.item_id, status=status, message=f"bad line: {error}", sections=[])
            return
        if isinstance(request, items.Stop):
            self._stopping = True
        elif isinstance(request, items.Cancel):
            self._cancel(request.id)
        else:
            self._accept(client, request)

    def _accept(self, client: lines.Client, item: items.Item) -> None:
        self._refresh_inventory()
        reason = self._refusal(item)
        if reason:
            client.send(id=item.id, host=item.host, status="failed", message=reason, sections=[])
            return
        self._senders[item.id] = client
        self._queue.add(item)

    def _refusal(self, item: items.Item) -> str:
        unknown = [name for name in item.sections if name not in self._sections]
        if self._stopping:
            return "the run is ending; send the item to the next one"
        if self._queue.knows(item.id):
            return f"item {item.id} is known already; ids must be unique"
        if item.host not in self._inventory.hosts:
            return f"node {item.host} is not in the inventory"
        if unknown:
            return f"section {unknown[0]} is not a task of the play; known: {', '.join(self._sections)}"
        return ""

    def _cancel(self, item_id: str) -> None:
        if item := self._queue.cancel(item_id):
            self._answer(item, "cancelled", "cancelled before it started", [])
        elif running := self._running.get(item_id):
            running.status, running.message = "cancelled", "cancelled while it ran"
            running.kill()

    def _answer(self, item: items.Item, status: str, message: str, sections: list[str]) -> None:
        sender = self._senders.pop(item.id)
        sender.send(id=item.id, host=item.host, status=status, message=message, sections=sections)

    def _refresh_inventory(self) -> None:
        """Read the inventory again when its files have changed; hosts that went lose all state."""
        stamp = play.fingerprint(self._inventory._sources)  # noqa: SLF001
        if stamp == self._stamp:
            return
        self._stamp, before = stamp, self._inventory._inventory  # noqa: SLF001
        try:
            self._inventory.refresh_inventory()
        except AnsibleError as error:
            # a file that is half written must not look as if nodes had gone
            self._inventory._inventory = before  # noqa: SLF001
            display.warning(f"inventory kept as it was, its new state cannot be read: {error}")
            return
        self._inventory.remove_restriction()
        self._host_data.clear()
        # workers hold the inventory of when they were forked
        self._waiting.end()
        for host in set(before.hosts) - set(self._inventory.hosts):
            self._variables.clear_facts(host)
            for item in self._queue.drop_waiting(host):
                self._answer(item, "failed", f"node {host} left the inventory", [])

    # Workers

    def _start(self, item: items.Item) -> None:
        worker = self._waiting.take(item.host)
        if worker is None or not worker.send(item):
            try:
                worker = self._fork(item)
            except Exception as error:  # noqa: BLE001  whatever an item causes is its own failure, not the run's
                display.warning(f"item {item.id}: {traceback.format_exc()}")
                self._queue.finish(item)
                self._answer(item, "failed", f"cannot start a worker: {error}", [])
                return
            self._workers.add(worker)
            self._selector.register(worker.reader.fd, selectors.EVENT_READ, worker)
        worker.begin(item, [name for name in self._sections if name in item.sections])
        self._running[item.id] = worker

    def _fork(self, item: items.Item) -> Worker:
        host = self._inventory.hosts.get(item.host)
        if host is None:
            raise AnsibleError(f"node {item.host} left the inventory")
        of_host = self._of_host(host)
        results, theirs = os.pipe()
        requests, ours = os.pipe()
        try:
            process = ItemWorker(
                item=item,
                sections=self._sections,
                prepare=functools.partial(play.prepare_task, of_host.options),
                requests=requests,
                parent=os.getpid(),
                final_q=PipeQueue(theirs),
                task_vars=of_host.task_vars,
                host=host,
                play_context=self._play_context,
                loader=self._loader,
                variable_manager=self._variables,
                shared_loader_obj=plugin_loader.get_plugin_loader_namespace(),
                worker_id=0,
                cliargs=context.CLIARGS,
            )
            process.start()
        except BaseException:
            os.close(results)
            os.close(ours)
            raise
        finally:
            # while the parent has a copy of them, the end of a worker would not end its pipe
            os.close(theirs)
            os.close(requests)
        return Worker(host, self._stamp, process, results, ours)

    def _of_host(self, host: Any) -> HostData:
        """Return what only depends on the host; it changes with the inventory, so it is computed once."""
        if host.name not in self._host_data:
            task_vars = self._variables.get_vars(
                play=self._play,
                host=host,
                task=next(iter(self._sections.values())),
                _hosts=[host.name],
                _hosts_all=[host.name],
            )
            options = {name: play.host_options(task, task_vars, self._loader) for name, task in self._sections.items()}
            self._host_data[host.name] = HostData(task_vars, options)
        return self._host_data[host.name]

    def _read_worker(self, worker: Worker) -> None:
        for kind, payload, size in worker.reader.frames():
            if kind == "display":
                method, args, kwargs = payload
                getattr(display, method)(*args, **kwargs)
            elif worker.item is not None:
                self._on_result(worker, worker.item, payload[0], payload[1], size)
        if worker.reader.ended:
            self._on_worker_end(worker)

    def _on_result(self, worker: Worker, item: items.Item, section: str, result: dict[str, Any], size: int) -> None:
        if size > MAX_RESULT_BYTES:
            result = {"failed": True, "msg": f"the result has {size} bytes; the limit is {MAX_RESULT_BYTES}"}
        worker.left.remove(section)
        self._publish(worker, item, section, result)
        if result.get("unreachable"):
            worker.status = "unreachable"
        elif result.get("failed"):
            worker.status = "failed"
        if worker.status in {"failed", "unreachable"}:
            worker.message = f"{section}: {result.get('msg', 'the module failed without a message')}"[:4096]
        # sections build on those before them: the first that fails ends the item
        if worker.status != "ok" or not worker.left:
            self._finish(worker, item)

    def _publish(self, worker: Worker, item: items.Item, section: str, result: dict[str, Any]) -> None:
        """Turn a result into a callback event that names host, section, module and item."""
        result["minik8s_item"] = item.id
        raw = results.for_callbacks(worker.host, self._sections[section], result)
        if result.get("unreachable"):
            self._send("v2_runner_on_unreachable", raw)
        elif result.get("failed"):
            self._send("v2_runner_on_failed", raw, ignore_errors=False)
        else:
            self._send("v2_runner_on_ok", raw)

    def _finish(self, worker: Worker, item: items.Item) -> None:
        """Answer the item; its worker waits for the host's next one, or ends in its own time."""
        worker.item = None
        del self._running[item.id]
        self._queue.finish(item)
        done = [name for name in worker.sections if name not in worker.left]
        self._answer(item, worker.status, worker.message, done)
        if worker.may_go_on() and worker.stamp == self._stamp and not worker.reader.ended:
            self._waiting.put(worker, time.monotonic())
        else:
            worker.end()

    def _on_worker_end(self, worker: Worker) -> None:
        self._selector.unregister(worker.reader.fd)
        self._workers.discard(worker)
        self._waiting.forget(worker)
        code, item = worker.bury(), worker.item
        if item is None:
            return
        if worker.status == "ok":
            section = worker.left.pop(0)
            sections = play.called_with(self._sections, item, section)
            why = play.in_one_call(sections, f"the worker died (exit code {code})")
            worker.status, worker.message = "failed", f"{section}: {why}"
            self._publish(worker, item, section, {"failed": True, "msg": worker.message})
        self._finish(worker, item)

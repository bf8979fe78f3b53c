"""The runner: items in, outcomes out, one long-lived ansible-runner run in between.

`AnsibleRunner` keeps one run current. A thread per run starts it, connects to its item socket (`live_run.py`) and
reads answers until it ends; results arrive as ansible-runner events. What is where stands in `ledger.py`. A run that
dies is started again with back-off and its items go out once more. After ``recycle_items`` items or ``recycle_s``
seconds a new run is started, gets the new items, and the old one drains (pexpect keeps all output of a run).
This is the only file that imports ansible-runner. Next step: `plugins/live/serving.py`.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible_runner.interface import run_async

from minik8s_modules.base.backoff import Backoff
from minik8s_modules.base.clock import Clock, SystemClock
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.reconcile.executor.ledger import Answer, Ledger
from minik8s_modules.reconcile.executor.live_run import STOP, Executor, Layout, LiveRun, RunFailed, encode_item
from minik8s_modules.reconcile.values.items import OnOutcome, Outcome, WorkItem

log = logging.getLogger(__name__)

PLAYBOOK = "playbooks/reconcile_node.yml"
RESTART = Backoff(initial_s=0.2, maximum_s=30.0)
RESULT_LATENESS_S = 60.0  # an event usually comes before its answer, at most some ms after it on an idle machine
MAX_SOCKET_PATH = 107  # sun_path, unix(7)
RESULT_EVENTS = {"runner_on_ok", "runner_on_failed", "runner_on_unreachable"}
DISPLAY_EVENTS = {"error": logging.ERROR, "warning": logging.WARNING, "system_warning": logging.WARNING}

Event = Mapping[str, Any]


class AnsibleRunner:
    """Realizes items through one live run; see `items.Runner` for the promises.

    Args:
        inventory: file or directory; read again by the run when it changes.
        private_data_dir: made with mode 0700 and emptied at the start; belongs to one runner at a time.
        project_dir: where ``ansible.cfg``, ``playbooks/`` and ``library/`` are.
        on_outcome: called once per item, from threads of the runner; must not block for long.
        on_event: called with every result event, before its item's outcome (audit, tests).
    """

    def __init__(
        self,
        *,
        inventory: Path,
        private_data_dir: Path,
        project_dir: Path,
        on_outcome: OnOutcome,
        on_event: Callable[[Event], None] | None = None,
        playbook: str = PLAYBOOK,
        executor: Executor = "python_api",
        forks: int = 20,
        recycle_items: int = 5000,
        recycle_s: float = 3600.0,
        drain_s: float = 120.0,
        environment: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._layout = Layout(
            private_data_dir.absolute(), project_dir.absolute(), inventory.absolute(), playbook, forks, executor
        )
        self._on_outcome, self._on_event = on_outcome, on_event
        self._recycle_items, self._recycle_s, self._drain_s = recycle_items, recycle_s, drain_s
        self._environment = dict(environment or {})
        self._clock = clock or SystemClock()
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._ledger = Ledger()
        self._runs: dict[int, LiveRun] = {}
        self._current: LiveRun | None = None
        self._starting: LiveRun | None = None
        self._generation = 0
        self._failures = 0
        self._restart_at_s: float | None = None
        self._stopping = False
        self._keeper = threading.Thread(target=self._keep, name="runner-keeper", daemon=True)
        self._lock_file: int | None = None

    # The Runner protocol

    def start(self) -> None:
        """Prepare the private directory and start the first run in the background.

        Raises:
            ConfigurationError: a path cannot be used, or another runner works in the private directory.
        """
        self._prepare()
        with self._lock:
            self._spawn()
        self._keeper.start()

    def submit(self, item: WorkItem) -> None:
        """Queue ``item``; exactly one outcome follows, from another thread.

        Raises:
            ValueError: an item with this id has no outcome yet, or its options are not JSON.
            RuntimeError: the runner has been stopped.
        """
        encode_item(item)  # a fault of the caller must not come up when it is sent, maybe by another thread
        with self._lock:
            if self._stopping:
                raise RuntimeError("the runner has been stopped")
            self._ledger.add(item)
            self._send_waiting(item.node)
            is_resting = self._lock_file is not None and not self._runs and self._restart_at_s is None
            if is_resting:
                self._restart_at_s = self._clock.monotonic()
        if is_resting or self._is_recycling_due():
            self._wake.set()

    def cancel(self, item_id: str) -> None:
        """Take a waiting item out, or end the worker of a running one; unknown ids are ignored."""
        with self._lock:
            found = self._ledger.cancel(item_id)
            run = self._runs.get(found) if isinstance(found, int) else None
        if run is not None:
            run.send(json.dumps({"op": "cancel", "id": item_id}).encode() + b"\n")
        if isinstance(found, Outcome):
            self._report([found])

    def stop(self, timeout_s: float = 10.0) -> None:
        """Let running items end for ``timeout_s`` at most, then kill; what is left comes back as cancelled."""
        with self._lock:
            self._stopping = True
            runs = list(self._runs.values())
        self._wake.set()
        for run in runs:
            # one that does not listen yet has nothing to end, and cannot be told
            if run.pid:
                run.send(STOP)
            else:
                run.kill()
        deadline = self._clock.monotonic() + timeout_s
        for run in runs:
            self._join(run, deadline)
        with self._lock:
            outcomes = self._ledger.close_all("the runner was stopped")
        self._report(outcomes)
        if self._keeper.is_alive() and self._keeper is not threading.current_thread():
            self._keeper.join(5)
        if self._lock_file is not None:
            self._clean()
            os.close(self._lock_file)
            self._lock_file = None

    def _join(self, run: LiveRun, deadline_s: float) -> None:
        if run.thread is not None:
            run.thread.join(max(0.0, deadline_s - self._clock.monotonic()))
            if run.thread.is_alive():
                run.kill()
                run.thread.join(10)

    # The private directory

    def _prepare(self) -> None:
        private = self._layout.private
        if len(str(self._layout.socket(10**6))) > MAX_SOCKET_PATH:
            raise ConfigurationError(f"private_data_dir {private} is too long for a socket: use a shorter path")
        if not self._layout.inventory.exists():
            raise ConfigurationError(f"inventory {self._layout.inventory} does not exist")
        try:
            private.mkdir(mode=0o700, parents=True, exist_ok=True)
            private.chmod(0o700)
            self._lock_file = _take_lock(private / "lock")
        except BlockingIOError as error:
            raise ConfigurationError(f"{private} is in use by another runner: stop it first") from error
        except OSError as error:
            raise ConfigurationError(f"private_data_dir {private} cannot be used: {error}") from error
        self._clean()
        # ansible-runner drops `settings` given as a parameter unless this file exists; it holds these constants only
        settings = private / "env/settings"
        settings.parent.mkdir(mode=0o700)
        settings.write_text(json.dumps({"suppress_output_file": True}))

    def _clean(self) -> None:
        """Remove all a run leaves; ssh masters (`ssh/`) serve the next one."""
        for name in ("artifacts", "ansible", "env"):
            shutil.rmtree(self._layout.private / name, ignore_errors=True)
        for path in self._layout.private.glob("items-*.sock"):
            path.unlink(missing_ok=True)

    # Runs

    def _spawn(self) -> None:
        self._generation += 1
        self._restart_at_s = None
        run = LiveRun(self._generation, self._layout.socket(self._generation), self._clock.monotonic())
        self._runs[run.generation] = self._starting = run
        threading.Thread(target=self._attend, args=(run,), name=f"run-{run.generation}", daemon=True).start()

    def _attend(self, run: LiveRun) -> None:
        """One run's life; a daemon thread, so that ansible-runner's thread below it is one too."""
        reason = "the play ended"
        try:
            self._launch(run)
            run.connect()
            self._on_ready(run)
            for line in run.lines():
                self._on_answer(run, line)
        except RunFailed as error:
            reason = str(error)
        except Exception as error:
            log.exception("run %d", run.generation)
            reason = f"{type(error).__name__}: {error}"
        self._finish(run, reason)

    def _launch(self, run: LiveRun) -> None:
        run.path.unlink(missing_ok=True)
        run.thread, _ = run_async(
            private_data_dir=str(self._layout.private),
            project_dir=str(self._layout.project),
            inventory=str(self._layout.inventory),
            ident=str(run.generation),
            **self._layout.command(),
            quiet=True,
            # safe, as no variables are passed: they would stand on the command line, where everybody sees them
            suppress_env_files=True,
            fact_cache_type="memory",
            envvars={**self._layout.environment(run.generation), **self._environment},
            event_handler=lambda event: self._on_any_event(run, event),
            cancel_callback=lambda: run.cancelled,
        )

    def _on_ready(self, run: LiveRun) -> None:
        with self._lock:
            log.info("run %d is ready (process %d)", run.generation, run.pid)
            old, self._current, self._starting, self._failures = self._current, run, None, 0
            self._send_waiting()
        if self._stopping:
            run.send(STOP)
        if old is not None:
            old.send(STOP)
            killer = threading.Timer(self._drain_s, old.kill)
            killer.daemon = True
            killer.start()

    def _finish(self, run: LiveRun, reason: str) -> None:
        run.kill()
        if run.thread is not None:
            run.thread.join(30)
        run.close()
        shutil.rmtree(self._layout.private / "artifacts" / str(run.generation), ignore_errors=True)
        with self._lock:
            del self._runs[run.generation]
            never_ready = self._starting is run
            if self._current is run:
                self._current = None
            if never_ready:
                self._starting = None
            outcomes = self._ledger.run_ended(run.generation, reason)
            if not self._stopping and self._current is None and self._starting is None:
                self._failures += 1
                if never_ready:
                    outcomes += self._ledger.start_failed(reason)
                if len(self._ledger) or not never_ready:  # else it rests until there is an item: no node, no run
                    self._restart_at_s = self._clock.monotonic() + RESTART.delay_s(self._failures)
                log.warning("run %d: %s", run.generation, reason)
            elif self._current is not None:
                self._send_waiting()
        self._wake.set()
        self._report(outcomes)

    def _send_waiting(self, node: str | None = None) -> None:
        """Send what may go to the current run; the caller holds the lock, so lines keep the ledger's order."""
        run = self._current
        if run is None:
            return
        for item in self._ledger.sendable(run.generation, node):
            run.sent += 1
            run.send(encode_item(item))

    # The keeper: restarts, recycling, lost results

    def _keep(self) -> None:
        while not self._stopping:
            self._clock.wait(self._wake, self._pause_s())
            self._wake.clear()
            with self._lock:
                now_s = self._clock.monotonic()
                if self._restart_at_s is not None and now_s >= self._restart_at_s and not self._stopping:
                    self._spawn()
                elif self._is_recycling_due() and not self._stopping:
                    log.info(
                        "run %d is recycled after %d items",
                        self._generation,
                        self._current.sent if self._current else 0,
                    )
                    self._spawn()
                # answered, but results never came; if the thread that reads them has ended, none will: the run is of
                # no use
                late = self._ledger.overdue(now_s - RESULT_LATENESS_S)
                deaf = [run for run in self._runs.values() if late and run.thread and not run.thread.is_alive()]
            for run in deaf:
                run.kill()
            self._report(late)

    def _pause_s(self) -> float:
        with self._lock:
            now_s = self._clock.monotonic()
            if self._restart_at_s is not None:
                return max(0.0, self._restart_at_s - now_s)
            if self._ledger.awaits_results():
                return 1.0
            if self._current is not None and self._current.sent:
                return max(1.0, self._current.started_s + self._recycle_s - now_s)
            return self._recycle_s

    def _is_recycling_due(self) -> bool:
        run = self._current
        if run is None or self._starting is not None or not run.sent:
            return False
        return run.sent >= self._recycle_items or self._clock.monotonic() - run.started_s >= self._recycle_s

    # What the run says

    def _on_any_event(self, run: LiveRun, event: dict[str, Any]) -> bool:
        """Take an event of ansible-runner; returns False: keep no file of it."""
        try:
            self._on_ansible_event(run, event)
        except Exception:  # it would end ansible-runner's thread, and with it all further events
            log.exception("event of run %d", run.generation)
        return False

    def _on_ansible_event(self, run: LiveRun, event: dict[str, Any]) -> None:
        kind = event.get("event", "")
        data = event.get("event_data") or {}
        result = data.get("res")
        if kind in RESULT_EVENTS and isinstance(result, dict) and "minik8s_item" in result:
            self._on_result(run, event, str(data.get("task")), result)
        elif kind in DISPLAY_EVENTS and event.get("stdout"):
            log.log(DISPLAY_EVENTS[kind], "run %d: %s", run.generation, event["stdout"])
        if not run.pid and event.get("stdout"):
            run.first_words.append(event["stdout"])

    def _on_result(self, run: LiveRun, event: Event, section: str, result: dict[str, Any]) -> None:
        data = event["event_data"]
        if result.get("changed"):
            log.info("item %s: %s changed %s", result["minik8s_item"], data.get("task_action"), data.get("host"))
        self._audit(event)
        failed = event["event"] != "runner_on_ok"
        with self._lock:
            checked = {**result, "failed": True} if failed else result  # the callback drops `failed`
            outcome = self._ledger.result(run.generation, result["minik8s_item"], section, checked)
            self._after(outcome)
        self._report([outcome])

    def _audit(self, event: Event) -> None:
        try:
            if self._on_event is not None:
                self._on_event(event)
        except Exception:  # its fault must not cost the item its result
            log.exception("on_event failed for item %s", event["event_data"]["res"]["minik8s_item"])

    def _on_answer(self, run: LiveRun, line: dict[str, Any]) -> None:
        if line.get("id") is None:
            log.error("run %d: %s", run.generation, line.get("message"))
            return
        answer = Answer(line["status"], line.get("message", ""), tuple(line.get("sections", ())))
        with self._lock:
            outcome = self._ledger.answered(run.generation, line["id"], answer, self._clock.monotonic())
            self._after(outcome)
        if outcome is None:
            self._wake.set()
        self._report([outcome])

    def _after(self, outcome: Outcome | None) -> None:
        """An item of an old run has ended: its host's next items may go to the current one."""
        if outcome is not None and len(self._runs) > 1:
            self._send_waiting(outcome.node)

    def _report(self, outcomes: Iterable[Outcome | None]) -> None:
        for outcome in outcomes:
            if outcome is not None:
                try:
                    self._on_outcome(outcome)
                except Exception:  # its fault must not cost other items their outcomes
                    log.exception("on_outcome failed for item %s", outcome.id)


def _take_lock(path: Path) -> int:
    """Return the open file that holds the lock; BlockingIOError when another process holds it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock

"""The hosts of the group: passes of ``minik8s_units`` by one live run of Ansible, and journals over plain ssh."""

from __future__ import annotations

import queue
import shutil
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Protocol

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.module_utils.minik8s.units.texts import unit_name
from minik8s_modules.reconcile.executor.runner import AnsibleRunner
from minik8s_modules.reconcile.values.items import Outcome, SectionRequest, WorkItem
from minik8s_modules.virtual.provider import ContainerLogOptions
from minik8s_modules.virtual.providers.ansible_runs.settings import Settings
from minik8s_modules.virtual.providers.slurm.login import chunks, private_folder, shell
from minik8s_modules.virtual.providers.slurm.settings import project_dir

SECTION = "units"
PLAYBOOK = "playbooks/units.yml"
FORKS = 10
PASS_S = 120.0
"""Of a pass at most; the module's commands have a limit of 30 s each, and begin nothing after 2 s."""
CANCELLED_S = 30.0


class MachineFault(TemporaryError):
    """A host was not reached, or its systemd gave no answer: nothing is known."""


class Machines(Protocol):
    """What is needed of the hosts."""

    def call(self, host: str, options: JsonObject) -> JsonObject:
        """Return the result of one pass. Raises MachineFault."""

    def journal(
        self, host: str, uid: str, options: ContainerLogOptions, follow: Callable[[], bool] | None
    ) -> Iterator[bytes]:
        """Yield what a unit has printed; goes on while ``follow()``, with b"" once a second."""

    def close(self) -> None:
        """Let go of them."""


class AnsibleMachines:
    """See ``Machines``; a host has one pass at a time, several hosts are asked at once."""

    def __init__(self, settings: Settings, state_dir: str) -> None:
        self._variables = settings.variables
        self._private = private_folder(state_dir)
        self._lock = threading.Lock()
        self._waiting: dict[str, queue.SimpleQueue[Outcome]] = {}
        self._runner = AnsibleRunner(
            inventory=settings.inventory,
            private_data_dir=self._private,
            project_dir=project_dir(PLAYBOOK),
            on_outcome=self._take,
            playbook=PLAYBOOK,
            forks=FORKS,
        )
        self._runner.start()

    def call(self, host: str, options: JsonObject) -> JsonObject:
        """See ``Machines``."""
        item = WorkItem(uuid.uuid4().hex, host, False, (), {SECTION: SectionRequest(options)})  # noqa: FBT003
        answer: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        with self._lock:
            self._waiting[item.id] = answer
        try:
            self._runner.submit(item)
            outcome = self._outcome(item.id, answer)
        except RuntimeError as error:
            raise MachineFault(str(error)) from error
        finally:
            with self._lock:
                self._waiting.pop(item.id, None)
        if outcome.status != "ok":
            raise MachineFault(f"{host}: {outcome.message or outcome.status}"[:1000])
        return dict(outcome.sections[SECTION])

    def _outcome(self, item_id: str, answer: queue.SimpleQueue[Outcome]) -> Outcome:
        try:
            return answer.get(timeout=PASS_S)
        except queue.Empty:
            self._runner.cancel(item_id)
        try:
            return answer.get(timeout=CANCELLED_S)
        except queue.Empty:
            raise MachineFault(f"a pass gave no answer in {PASS_S:g} s, and could not be ended") from None

    def _take(self, outcome: Outcome) -> None:
        with self._lock:
            answer = self._waiting.get(outcome.id)
        if answer is not None:
            answer.put(outcome)

    def journal(
        self, host: str, uid: str, options: ContainerLogOptions, follow: Callable[[], bool] | None
    ) -> Iterator[bytes]:
        """See ``Machines``."""
        variables = self._variables.get(host) or {}
        script = journal_script(uid, options, root=bool(variables.get("ansible_become")))
        argv = shell(variables, host, script, str(self._private / "ssh"))
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            yield from chunks(process, follow)
        finally:
            if process.stdin is not None:
                process.stdin.close()
            process.terminate()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def close(self) -> None:
        """See ``Machines``."""
        self._runner.stop()
        shutil.rmtree(self._private, ignore_errors=True)


def journal_script(uid: str, options: ContainerLogOptions, *, root: bool) -> str:
    """Return the shell's script that prints a unit's part of the journal; no word in it is a user's."""
    words = [*(["sudo", "-n"] if root else []), "journalctl", "--quiet", "--no-pager", "--output=cat"]
    words += [f"--lines={options.tail if options.tail >= 0 else 'all'}"]
    if options.since_time is not None:
        words += [f"--since=@{options.since_time.timestamp():.0f}"]
    elif options.since_seconds:
        words += [f"--since=-{options.since_seconds}s"]
    words += ["--follow"] if options.follow else []
    command = " ".join([*words, f"_SYSTEMD_UNIT={unit_name(uid)}"])
    # ends with its standard input: ssh's own end would leave a journalctl behind that waits for a line
    return f"{command} & reader=$!; cat >/dev/null; kill $reader" if options.follow else f"{command} || true"

"""The hosts of the group: passes of ``minik8s_units`` by one live run of Ansible, and journals over plain ssh."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.module_utils.minik8s.units.texts import unit_name
from minik8s_modules.virtual.provider import ContainerLogOptions
from minik8s_modules.virtual.providers.ansible_runs.settings import Settings
from minik8s_modules.virtual.providers.reaching import Passes, Play


class MachineFault(TemporaryError):
    """A host was not reached, or its systemd gave no answer: nothing is known."""


# of a pass at most: the module's commands have a limit of 30 s each, and begin nothing after 2 s
PLAY = Play("playbooks/units.yml", "units", forks=10, pass_s=120.0, cancelled_s=30.0, fault=MachineFault)


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
        self._passes = Passes(PLAY, settings.inventory, state_dir)

    def call(self, host: str, options: JsonObject) -> JsonObject:
        """See ``Machines``."""
        return self._passes.call(host, options)

    def journal(
        self, host: str, uid: str, options: ContainerLogOptions, follow: Callable[[], bool] | None
    ) -> Iterator[bytes]:
        """See ``Machines``."""
        variables = self._variables.get(host) or {}
        script = journal_script(uid, options, root=bool(variables.get("ansible_become")))
        return self._passes.printed(host, variables, script, follow)

    def close(self) -> None:
        """See ``Machines``."""
        self._passes.close()


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

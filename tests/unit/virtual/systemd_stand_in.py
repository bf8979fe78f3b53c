"""A systemd in memory, and hosts whose passes are made here: the real section on files below a folder."""

from __future__ import annotations

import pwd
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from minik8s_modules.module_utils.minik8s.core.section import Request, context_for, run_pass
from minik8s_modules.module_utils.minik8s.units.declared import Units
from minik8s_modules.module_utils.minik8s.units.systemd import Shown
from minik8s_modules.virtual.provider import ContainerLogOptions
from minik8s_modules.virtual.providers.ansible_units.machines import MachineFault

USER = pwd.getpwuid(0).pw_name


class Systemd:
    """Programs run until somebody says how they end; a stop takes as long as nobody says so."""

    def __init__(self) -> None:
        self.boots = 1
        self.units: dict[str, Shown] = {}
        self.enabled: set[str] = set()
        self.starts: list[str] = []
        self.reloads = 0

    def boot(self) -> str:
        """Return which boot it is."""
        return str(self.boots)

    def reboot(self) -> None:
        """Forget all; what is enabled is started."""
        self.boots += 1
        self.units = {}
        for unit in sorted(self.enabled):
            self.start(unit, at_boot=True)

    def show(self, units: Iterable[str]) -> dict[str, Shown]:
        """Return what is known."""
        return {unit: self.units.get(unit, Shown()) for unit in units}

    def reload(self) -> None:
        """Count it."""
        self.reloads += 1

    def start(self, unit: str, *, at_boot: bool) -> None:
        """Start it."""
        self.starts.append(unit)
        self.enabled |= {unit} if at_boot else set()
        self.units[unit] = Shown("active", "running", started_s=100.0, cpu_ns=5, memory_bytes=7)

    def stop(self, unit: str) -> None:
        """End it at once; systemd forgets it then."""
        self.units.pop(unit, None)

    def forget(self, unit: str) -> None:
        """Have nothing left."""
        self.units.pop(unit, None)
        self.enabled.discard(unit)


class Machines:
    """Hosts; each has a systemd, and files below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.systemds: dict[str, Systemd] = {}
        self.away: set[str] = set()
        self.passes: list[dict[str, Any]] = []

    def on(self, host: str) -> Systemd:
        """Return a host's systemd."""
        return self.systemds.setdefault(host, Systemd())

    def call(
        self, host: str, options: dict[str, Any], checkpoint: Callable[[str], None] | None = None
    ) -> dict[str, Any]:
        """Make a pass."""
        if host in self.away:
            raise MachineFault(f"{host}: unreachable")
        self.passes.append(options)
        units = self.folder / host / "units"
        units.mkdir(parents=True, exist_ok=True)
        request = Request(**{**options, "state_dir": str(self.folder / host / "state")})
        context = context_for(request, **({"checkpoint": checkpoint} if checkpoint else {}))
        return run_pass(Units(self.on(host), str(units)), request, context)

    def journal(
        self, host: str, uid: str, options: ContainerLogOptions, follow: Callable[[], bool] | None
    ) -> Iterator[bytes]:
        """Say who was asked."""
        yield f"{host} {uid} {options.tail} {follow is not None}\n".encode()

    def close(self) -> None:
        """Do nothing."""

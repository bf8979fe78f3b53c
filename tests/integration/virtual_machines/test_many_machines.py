"""Machines by the whole extension whose guests, launchers and controllers are killed, and ten guests at once."""

from __future__ import annotations

import os
import signal

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD
from minik8s_virtual_machines.api.kinds import VM, VMI
from tests.integration.virtual_machines.conftest import BOOT_S, Guests
from tests.support.machines_world import Machines

AGAIN_S = 3 * BOOT_S
"""A guest that ends soon after its start waits before it is started again."""


def test_what_is_killed_comes_back_as_its_strategy_says(guests: Guests, machines: Machines) -> None:
    strategies = {"always": "Always", "rerun": "RerunOnFailure", "manual": "Manual", "once": "Once"}
    for name, strategy in strategies.items():
        guests.machine(name, strategy=strategy)
    machines.act("manual", "start")
    for name in strategies:
        machines.wait(name, "Running", timeout_s=BOOT_S)
    before = {name: objects.uid(machines.vmi(name)) for name in strategies}

    machines.daemon.kill9()  # what happens now, it finds when it comes back
    for name in ("always", "manual"):
        os.kill(guests.kernel(guests.pod_of(name)), signal.SIGKILL)
    for name in ("rerun", "once"):
        os.kill(guests.launcher(guests.pod_of(name)), signal.SIGKILL)
    machines.daemon.start()

    for name in ("always", "rerun"):
        guests.cluster.until(lambda name=name: objects.uid(machines.vmi(name)) not in {"", before[name]}, AGAIN_S)  # type: ignore[misc]  # mypy cannot infer the default
        machines.wait(name, "Running", timeout_s=AGAIN_S)
        guests.cluster.until(lambda name=name: guests.http(guests.pod_of(name)) == "guest\n", BOOT_S)  # type: ignore[misc]  # as above
    for name, why in {"manual": "was killed by signal 9", "once": "exit code 137"}.items():
        left = machines.vmi(name)
        assert (objects.uid(left), objects.status(left)["phase"]) == (before[name], "Failed")
        assert why in (objects.condition(left, "Ready") or {})["message"]
        machines.act(name, "restart" if name == "manual" else "stop")
    machines.wait("once", "Stopped", timeout_s=BOOT_S)
    machines.wait("manual", "Running", timeout_s=AGAIN_S)


def test_a_daemon_killed_while_guests_start_makes_each_once(guests: Guests, machines: Machines) -> None:
    names = [f"twice{number}" for number in range(3)]
    for name in names:
        guests.cluster.until(lambda name=name: guests.machine(name), BOOT_S)  # type: ignore[misc]  # as above
        machines.daemon.kill9()
        machines.daemon.start()
    for name in names:
        machines.wait(name, "Running", timeout_s=BOOT_S)
    assert len(machines.admin.list(VMI, "default").items) == len(names)
    assert all(guests.pod_of(name) for name in names)


def test_ten_guests_at_once(guests: Guests, machines: Machines) -> None:
    names = [f"guest{number}" for number in range(10)]
    for name in names:
        guests.machine(name)
    for name in names:
        machines.wait(name, "Running", timeout_s=AGAIN_S)
    for name in names:
        guests.cluster.until(lambda name=name: guests.http(guests.pod_of(name)) == "guest\n", AGAIN_S)  # type: ignore[misc]  # mypy cannot infer the default
    for name in names:
        machines.admin.delete(VM, name, "default")
    guests.cluster.until(lambda: not machines.admin.list(POD, "default").items, AGAIN_S)
    guests.cluster.until(lambda: not machines.admin.list(VMI, "default").items, BOOT_S)
    assert guests.cluster.node.ids() == []
    assert guests.cluster.addresses() == []

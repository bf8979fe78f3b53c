"""kill -9 before every change that a pass makes for names and paths: the next one leaves what an undisturbed one does.

A child process runs the pass; an audit hook (PEP 578) kills it before change k of a file, a program's start or a
signal. That is finer than the sections' checkpoints: inside the staging of nginx' files, and between writing a file and
renaming it. k grows until the pass gets through. What follows is once the way back, once the same pass again.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import traceback
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.names.dns_files import without_serial
from minik8s_modules.module_utils.minik8s.names.dns_guard import NOWHERE, Place, guard, observe
from minik8s_modules.module_utils.minik8s.names.nginx import PROGRAM, STAGE
from minik8s_modules.module_utils.minik8s.pods.dns_host import has_address, remove_address
from tests.integration.naming import test_dns_section, test_ingress_section
from tests.integration.naming.conftest import nginx
from tests.integration.naming.test_dns_section import EXTERNAL, WEB
from tests.support.etcd import free_port
from tests.support.waiting import until

Run = Callable[..., JsonObject]
MOST_EFFECTS = 150
EFFECTS = frozenset(
    {
        "os.mkdir",
        "os.rename",
        "os.remove",
        "os.rmdir",
        "os.symlink",
        "os.chmod",
        "os.kill",
        "shutil.rmtree",
        "subprocess.Popen",
    }
)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CALM: JsonObject = {"budget_s": 60.0, "threads": 1}
"""A busy machine postpones nothing, and effects have one order."""
OF_NGINX = ("nginx/tmp", "nginx/nginx.pid", "nginx/loaded")


class Killer:
    """Kills its own process before effect number ``at``."""

    def __init__(self, at: int) -> None:
        self._left = at

    def heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take an audit event; what rmtree removes one by one, by its directory's descriptor, is one effect."""
        removed = event in {"os.remove", "os.rmdir"} and arguments[1] != -1
        if (event in EFFECTS and not removed) or (event == "open" and arguments[2] & WRITING):
            self._count()

    def take_checkpoint(self, effect: str) -> None:
        """Take a checkpoint; those of addresses alone, which no audit event tells."""
        if "-address" in effect:
            self._count()

    def _count(self) -> None:
        if self._left == 0:
            signal.raise_signal(signal.SIGKILL)
        self._left -= 1


def survives(at: int, run: Run) -> bool:
    """Run a pass in a child that dies before effect ``at``; return whether it got through."""
    pid = os.fork()
    if pid == 0:
        try:
            killer = Killer(at)
            sys.addaudithook(killer.heard)
            run(checkpoint=killer.take_checkpoint)
            os._exit(0)
        finally:
            traceback.print_exc()
            os._exit(4)
    status = os.waitpid(pid, 0)[1]
    assert status in {0, signal.SIGKILL}, status
    return status == 0


def picture(root: Path) -> dict[str, str]:
    """Return everything below ``root`` but what nginx makes for itself, and zones' serials."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if name == "log" or name.removeprefix("s/").startswith(OF_NGINX):
            continue
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_dir():
            found[name] = f"directory {path.stat().st_mode:o}"
        else:
            found[name] = f"{path.stat().st_mode:o} {without_serial(path.read_text())}"
    return found


def killed_everywhere(root: Path, back: Run, there: Run, check: Callable[[], None]) -> int:
    """Kill ``there``, which comes after ``back``, before each effect; return how many there are."""
    pictures = []
    for run in (there, back, there, back):
        assert set(_reasons(run())) <= {"ServerNotRunning"}
        pictures.append(picture(root))
    wanted, former = pictures[2:]
    for at in range(MOST_EFFECTS):
        through = survives(at, there)
        back()
        assert picture(root) == former, at
        survives(at, there)
        assert set(_reasons(there())) <= {"ServerNotRunning"}, at
        assert not there()["changed"], at
        assert picture(root) == wanted, at
        check()
        if through:
            return at
        back()
    pytest.fail(f"more than {MOST_EFFECTS} effects")


def _reasons(result: JsonObject) -> list[str]:
    return [error["reason"] for error in result["errors"].values()]


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder in memory: hundreds of passes would each wait for a busy disk."""
    with tempfile.TemporaryDirectory(prefix="mk8s-", dir="/dev/shm") as name:
        yield Path(name)


@pytest.fixture
def names(root: Path) -> Iterator[test_dns_section.Machine]:
    """A node's names, with an address that the section has to give to ``lo``."""
    made = test_dns_section.Machine(root)
    number = uuid.uuid4().int
    made.server = (f"169.254.{number % 200 + 30}.{(number >> 8) % 250 + 2}", free_port())
    try:
        yield made
    finally:
        remove_address(made.server[0])
        guard(made.node, NOWHERE)


@pytest.mark.parametrize("linked", [False, True], ids=["file", "link"])
@pytest.mark.parametrize("change", ["made", "changed", "removed"])
def test_names_killed_before_any_effect(names: test_dns_section.Machine, change: str, *, linked: bool) -> None:
    if linked:
        (names.root / "real").write_text(names.resolver.read_text())
        names.resolver.unlink()
        names.resolver.symlink_to("real")
    one = names.entries({"service/default/web": WEB}, host_resolver=change != "changed")
    two = names.entries({"service/default/out": EXTERNAL}, host_resolver=True)
    before, after = {"made": ({}, one), "changed": (one, two), "removed": (one, {})}[change]

    def check() -> None:
        assert has_address(names.server[0]) == bool(after)
        assert observe(names.node) == (Place(*names.server) if after else NOWHERE)

    effects = killed_everywhere(
        names.root, partial(names.run, before, **CALM), partial(names.run, after, **CALM), check
    )
    assert effects > 8, "the pass was not killed at its files and renames"


@pytest.fixture
def paths(root: Path) -> Iterator[test_ingress_section.Machine]:
    """A node's paths with a running nginx."""
    made = test_ingress_section.Machine(root)
    made.run(made.entries(a=made.host("a")), **CALM)
    with nginx(made.folder, made.root / "log"):
        until(lambda: made.get("a.test") == (200, "a"))
        yield made


@pytest.mark.parametrize("change", ["made", "changed", "removed"])
def test_paths_killed_before_any_effect(paths: test_ingress_section.Machine, change: str) -> None:
    one, two = paths.entries(a=paths.host("a")), paths.entries(b=paths.host("b"))
    before, after = {"made": ({}, two), "changed": (one, two), "removed": (one, {})}[change]

    def check() -> None:
        if after:
            until(lambda: paths.get("b.test") == (200, "b") and paths.get("a.test")[0] == 404)

    effects = killed_everywhere(
        paths.root, partial(paths.run, before, **CALM), partial(paths.run, after, **CALM), check
    )
    assert effects > (20 if after else 4), "the pass was not killed inside the staging"


def program(path: Path, script: str) -> str:
    """Return a program that does something else than ``nginx -t``."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def stages(machine: test_ingress_section.Machine) -> list[Path]:
    """Return the staged copies there are."""
    return list((machine.root / "r").glob(f"{STAGE}*"))


def test_a_check_killed_while_nginx_looks_is_cleared_away_by_the_next_pass(tmp_path: Path) -> None:
    machine = test_ingress_section.Machine(tmp_path)
    entries = machine.entries(a=machine.host("a"))
    machine.run(entries)
    deadly = program(tmp_path / "deadly", "kill -KILL $PPID")
    for changed in (machine.entries(b=machine.host("b")), machine.entries(c=machine.host("c"))):
        assert not survives(MOST_EFFECTS, partial(machine.run, changed, program=deadly))
    assert stages(machine)
    assert not machine.run(entries)["steps"]  # it checks nothing itself
    assert not stages(machine)


def test_the_copy_of_a_check_that_is_running_stays(tmp_path: Path) -> None:
    machine = test_ingress_section.Machine(tmp_path)
    entries = machine.entries(a=machine.host("a"))
    begun, go_on = tmp_path / "begun", tmp_path / "go-on"
    slow = program(
        tmp_path / "slow", f'touch {begun}; while ! [ -e {go_on} ]; do sleep 0.05; done; exec {PROGRAM} "$@"'
    )
    results: list[JsonObject] = []
    # the node has no state yet, so the check holds no lock of the node
    checking = threading.Thread(target=lambda: results.append(machine.run(entries, check=True, program=slow)))
    checking.start()
    try:
        until(begun.exists)
        (kept,) = stages(machine)
        machine.run(entries)
        assert stages(machine) == [kept]
    finally:
        go_on.touch()
        checking.join()
    assert [result["errors"] for result in results] == [{}]
    assert not stages(machine)


def test_a_resolver_emptied_by_a_killed_run_comes_back(tmp_path: Path) -> None:
    machine = test_dns_section.Machine(tmp_path)
    before = machine.resolver.read_text()
    machine.run(machine.entries(host_resolver=True))
    machine.resolver.write_text("")  # mounted ones cannot be renamed over: they are emptied, then written
    machine.run(machine.entries())
    assert machine.resolver.read_text() == before

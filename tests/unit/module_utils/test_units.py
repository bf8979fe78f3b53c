"""What the section units decides and writes, also when each pass is killed at each of its effects."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core.faults import KeyFault
from minik8s_modules.module_utils.minik8s.core.schema import with_defaults
from minik8s_modules.module_utils.minik8s.core.section import Request, context_for, run_pass
from minik8s_modules.module_utils.minik8s.units import texts
from minik8s_modules.module_utils.minik8s.units.declared import SCHEMA, Units
from minik8s_modules.module_utils.minik8s.units.systemd import Shown, parse_shown
from tests.unit.virtual.systemd_stand_in import USER, Machines, Systemd

UID = "4ab1c2d3-0000-4000-8000-000000000001"
UNIT = texts.unit_name(UID)
ENTRY = {"name": "default/one", "user": USER, "script": "#!/bin/sh\nexec sleep 600\n"}
HOST = "web1"


class Killed(Exception):
    """The pass was killed."""


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    return Machines(tmp_path)


def converge(machines: Machines, entries: dict[str, Any], kill_at: int = 0, **values: Any) -> dict[str, Any]:
    blob = base64.b64encode(json.dumps({UID: {"environment": values}} if values else {}).encode()).decode()
    left = [kill_at]

    def checkpoint(_effect: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Killed

    return machines.call(HOST, {"node": "web", "entries": entries, "blob": blob}, checkpoint)


def entry(**changes: Any) -> dict[str, dict[str, Any]]:
    return {UID: {**ENTRY, **changes}}


@pytest.mark.parametrize("restart", ["no", "on-failure", "always"])
def test_a_pass_killed_anywhere_starts_once_and_removes_all(machines: Machines, restart: str) -> None:
    wanted = entry(restart=restart, values="x")
    for declared in (wanted, {}):
        for kill_at in range(1, 12):
            try:
                converge(machines, declared, kill_at, WORD="secret")
            except Killed:
                continue
            break
        else:
            raise AssertionError("no pass came to its end")
        converge(machines, declared, WORD="secret")
        result = converge(machines, declared, WORD="secret")
        assert (result["steps"], result["errors"]) == ([], {})
        assert machines.on(HOST).starts == [UNIT]
    assert machines.on(HOST).units == {}
    assert list((machines.folder / HOST / "units").iterdir()) == []
    assert list((machines.folder / HOST / "state" / "pods").iterdir()) == []


def test_check_mode_shows_the_unit_and_changes_nothing(machines: Machines) -> None:
    units = machines.folder / "units"
    units.mkdir()
    request = Request("web", entries=entry(memory_bytes=1024), state_dir=str(machines.folder / "state"))
    systemd = Systemd()
    result = run_pass(Units(systemd, str(units)), request, context_for(request), check=True)
    assert [step["action"] for step in result["steps"]] == ["write", "start"]
    assert "MemoryMax=1024" in result["diff"]["after"]
    assert (systemd.starts, list(units.iterdir()), (machines.folder / "state").exists()) == ([], [], False)


def test_what_somebody_changed_by_hand_is_put_right(machines: Machines) -> None:
    converge(machines, entry(restart="always"))
    path = machines.folder / HOST / "units" / UNIT
    before = path.read_text()
    path.write_text("[Service]\nUser=root\n")
    machines.on(HOST).stop(UNIT)
    result = converge(machines, entry(restart="always"))
    assert [step["action"] for step in result["steps"]] == ["write", "start"]
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("restart", "after"),
    [("no", ["ended", 137, 1]), ("on-failure", ["running", 0, 2]), ("always", ["running", 0, 2])],
)
def test_a_reboot_starts_again_what_may_run_twice(machines: Machines, restart: str, after: list[Any]) -> None:
    converge(machines, entry(restart=restart))
    machines.on(HOST).reboot()
    converge(machines, entry(restart=restart))
    told = converge(machines, entry(restart=restart))["status"][UID]
    assert [told["state"], told["code"], len(machines.on(HOST).starts)] == after


def test_an_end_is_kept_over_a_reboot(machines: Machines) -> None:
    converge(machines, entry(restart="on-failure"))
    machines.on(HOST).units[UNIT] = Shown("active", "exited", code=0, started_s=1.0, ended_s=2.0)
    assert converge(machines, entry(restart="on-failure"))["status"][UID]["state"] == "ended"
    machines.on(HOST).reboot()
    told = converge(machines, entry(restart="on-failure"))["status"][UID]
    assert (told["state"], told["ended_s"]) == ("ended", 2.0)
    assert machines.on(HOST).starts == [UNIT]


def test_one_that_is_to_stop_has_its_own_grace_and_keeps_its_status(machines: Machines) -> None:
    converge(machines, entry(restart="always", grace_s=30))
    converge(machines, entry(restart="always", grace_s=3, stopping=True))
    assert "TimeoutStopSec=3\n" in (machines.folder / HOST / "units" / UNIT).read_text()
    told = converge(machines, entry(restart="always", grace_s=3, stopping=True))["status"][UID]
    assert (told["state"], told["result"]) == ("ended", "stopped")


def test_one_without_a_grace_is_killed_soon_and_not_waited_for_without_end(machines: Machines) -> None:
    """systemd.service(5): 0 is infinity."""
    converge(machines, entry(restart="always", grace_s=0))
    assert "TimeoutStopSec=1\n" in (machines.folder / HOST / "units" / UNIT).read_text()
    converge(machines, entry(restart="always", grace_s=0, stopping=True))
    assert "TimeoutStopSec=1\n" in (machines.folder / HOST / "units" / UNIT).read_text()


def test_values_are_asked_for_and_never_told(machines: Machines) -> None:
    result = converge(machines, entry(values="x"))
    assert result["errors"][UID]["reason"] == "ValuesMissing"
    result = converge(machines, entry(values="x"), WORD="secret")
    assert "secret" not in json.dumps(result)
    state = machines.folder / HOST / "state"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (state / "pods" / UID).iterdir()}
    assert modes == {"program": 0o755, "environment": 0o600, "record.json": 0o600}
    (state / "pods" / UID / "environment").unlink()
    assert converge(machines, entry(values="x"))["errors"][UID]["reason"] == "ValuesMissing"


BAD_VALUES = [{"environment": {"WORD": "a\0b"}}, {"environment": {"WORD": "a\udcff"}}, {"environment": ["x"]}, 1]


@pytest.mark.parametrize("bad", BAD_VALUES)
def test_values_that_cannot_be_used_stop_no_other_unit(machines: Machines, bad: Any) -> None:
    """As a former release let them through: its records still stand."""
    other = UID.replace("4ab1", "5ab1")
    blob = base64.b64encode(json.dumps({UID: bad, other: {"environment": {"WORD": "x"}}}).encode()).decode()
    entries = {UID: {**ENTRY, "values": "x"}, other: {**ENTRY, "values": "y"}}
    result = machines.call(HOST, {"node": "web", "entries": entries, "blob": blob})
    assert {uid: error["reason"] for uid, error in result["errors"].items()} == {UID: "InvalidEntry"}
    assert machines.on(HOST).starts == [texts.unit_name(other)]
    assert (result["status"][UID], result["status"][other]["state"]) == (None, "running")


def test_a_text_that_cannot_be_written_is_a_fault_of_its_unit(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machines.on(HOST), "start", lambda _unit, at_boot: f"{at_boot}\udcff".encode())
    assert converge(machines, entry())["errors"][UID]["reason"] == "NodeError"


def test_a_user_that_the_machine_does_not_have_is_named(machines: Machines) -> None:
    error = converge(machines, entry(user="minik8s-nobody-here"))["errors"][UID]
    assert error["reason"] == "NoSuchUser"
    assert machines.on(HOST).starts == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"script": "echo"}, "must begin with #!"),
        ({"script": "#!/bin/sh\necho \0"}, "no NUL"),
        ({"script": "#!/bin/sh\necho \udcff"}, "UTF-8"),
        ({"user": "root\nExecStartPre=/bin/id"}, "user"),
        ({"name": "a\n[Service]"}, "name"),
        ({"directory": "/a\nUser=root"}, "directory"),
        ({"directory": "/a\\"}, "directory"),
        ({"cpu_milli": 0}, "at least 1"),
        ({"restart": "sometimes"}, "restart"),
        ({"surprise": 1}, "unknown fields"),
    ],
)
def test_an_entry_that_cannot_be_meant_is_refused(change: dict[str, Any], says: str) -> None:
    section = Units(Systemd())
    with pytest.raises(KeyFault, match=says):
        section.check_entry(UID, {**ENTRY, **change})
    with pytest.raises(KeyFault, match="key"):
        section.check_entry("../x", ENTRY)
    section.check_entry(UID, ENTRY)


def test_systemd_takes_the_unit_as_it_is(tmp_path: Path) -> None:
    """systemd-analyze finds no fault, and no specifier of a user's is one."""
    program = tmp_path / "pods" / UID / "program"
    program.parent.mkdir(parents=True)
    program.write_text(ENTRY["script"])
    program.chmod(0o755)
    path = tmp_path / UNIT
    for restart in ("no", "on-failure", "always"):
        changes = {"restart": restart, "directory": "/a %n b", "cpu_milli": 15, "memory_bytes": 4096}
        complete = with_defaults({**ENTRY, **changes}, SCHEMA)
        path.write_text(texts.unit_text(complete, str(program.parent)))
        argv = ["systemd-analyze", "verify", "--man=no", str(path)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
        assert f"{UNIT}:" not in done.stderr, done.stderr
    assert "CPUQuota=2%" in path.read_text()
    assert "WorkingDirectory=/a %%n b" in path.read_text()


def test_what_systemd_shows_is_read() -> None:
    text = (
        "Id=a.service\nActiveState=active\nSubState=exited\nResult=success\nExecMainCode=2\nExecMainStatus=15\n"
        "ExecMainStartTimestampMonotonic=1000000\nExecMainExitTimestampMonotonic=3000000\nNRestarts=2\n"
        f"CPUUsageNSec={(1 << 64) - 1}\nMemoryCurrent=[not set]\n\n"
        "Id=b.service\nActiveState=inactive\nSubState=dead\nExecMainCode=0\nExecMainStatus=0\n"
        "ExecMainStartTimestampMonotonic=0\nExecMainExitTimestampMonotonic=0\n"
    )
    found = parse_shown(text, 1000.0)
    assert found["a.service"] == Shown("active", "exited", "success", 143, 1001.0, 1003.0, 2, 0, 0)
    assert (found["a.service"].has_run, found["a.service"].is_live) == (True, False)
    assert (found["b.service"].has_run, found["b.service"].is_live) == (False, False)

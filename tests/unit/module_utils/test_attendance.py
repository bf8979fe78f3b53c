"""Who attends a node: tests/cases/judge_attendance; the question to the API after a boot."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.module_utils.minik8s import reapply
from minik8s_modules.module_utils.minik8s.install import attendance
from minik8s_modules.module_utils.minik8s.install.attendance import Glance, Look, Record, judge

SCRIPT = Path(reapply.__file__).with_suffix(".sh")
CASES = sorted((Path(__file__).parents[2] / "cases" / "judge_attendance").glob("*.yml"))


def record_of(fields: dict[str, Any] | None) -> Record | None:
    if fields is None:
        return None
    return Record(fields.get("boot", "this"), fields["touched"], fields["since"], fields["looked"], fields["came"])


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_judge_attendance(path: Path):
    case = yaml.safe_load(path.read_text())
    result, before = case["look"], record_of(case.get("record"))
    if glance := case.get("glance"):
        seen = Look(glance.get("boot", "this"), glance["touched"], glance["wall"], glance["steady"])
        before = attendance.with_glance(before, Glance(seen, glance.get("before", glance["steady"] - 60)))
    look = Look("this", result["touched"], result["wall"], result["steady"])
    verdict, after = judge(look, before)
    assert (verdict, after.came_s) == (case["verdict"], case["came"])
    assert (after.boot, after.touched_s, after.looked_s) == ("this", result["touched"], result["steady"])
    assert after.since_s == (before.since_s if before and before.boot == "this" else result["steady"])
    assert judge(look, after)[0] == verdict, "looking twice tells the same"


class Time:
    """Passes when somebody sleeps or asks."""

    def __init__(self, costs_s: float = 0.0) -> None:
        self.now, self.costs_s = 0.0, costs_s
        self.asked: list[tuple[str, float]] = []

    def clock(self) -> float:
        """Return the time."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    def nobody(self, address: str, timeout_s: float) -> bool:
        """Answer nothing, after a while."""
        self.asked.append((address, timeout_s))
        self.now += min(self.costs_s, timeout_s)
        return False


def test_the_api_is_asked_for_ten_seconds_and_no_longer():
    refusing, silent = Time(), Time(costs_s=60)
    for time in (refusing, silent):
        assert not attendance.answers(["a:1", "b:2"], time.nobody, time.clock, time.sleep)
        assert time.now == attendance.ASKED_FOR_S
    assert len(refusing.asked) > len(silent.asked) > 2
    assert {address for address, _ in silent.asked} == {"a:1", "b:2"}


def test_one_answering_server_is_enough():
    time = Time()

    def second(address: str, timeout_s: float) -> bool:
        return address == "b:2" or time.nobody(address, timeout_s)

    assert attendance.answers(["a:1", "b:2"], second, time.clock, time.sleep)
    assert time.now == 0


def test_without_addresses_nobody_is_asked():
    assert not attendance.answers([], None, Time().clock)


@pytest.fixture
def place(tmp_path: Path) -> list[str]:
    (tmp_path / "state" / "documents").mkdir(parents=True)
    (tmp_path / "servers.json").write_text(json.dumps({"servers": ["192.0.2.1:6443"]}))
    argv = ["--state-dir", str(tmp_path / "state"), "--run-dir", str(tmp_path / "run")]
    return [*argv, "--control-plane", str(tmp_path / "servers.json"), "--docker-boots-s", "0"]


@pytest.mark.parametrize("alive", [True, False])
def test_after_a_boot_a_node_helps_itself_only_where_the_api_is_silent(place: list[str], *, alive: bool):
    asked: list[tuple[str, ...]] = []

    def answers(servers: tuple[str, ...]) -> bool:
        asked.append(servers)
        return alive

    assert reapply.is_wanted(reapply._arguments(place), answers) is not alive
    assert asked == [("192.0.2.1:6443",)]


def test_a_node_that_was_touched_asks_nobody(place: list[str], tmp_path: Path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "attended").touch()
    assert not reapply.is_wanted(reapply._arguments(place), lambda _servers: pytest.fail("asked"))
    known = attendance.read_record(str(tmp_path / "run"))
    assert known is not None
    assert known.came_s is not None
    os.utime(tmp_path / "run" / "attendance.json")
    (tmp_path / "run" / "attendance.json").write_text("{}")
    assert attendance.read_record(str(tmp_path / "run")) is None


class Timer:
    """What the timer starts, with a program in the place of reapply.py that says that it was started.

    The script reads a clock of its own, which runs ``late_s`` ahead of the machine's: that may have booted just now.
    """

    def __init__(self, folder: Path) -> None:
        self.run, self.glance, self.late_s = folder / "run", folder / "run.glance", 0
        self._script, self._uptime = folder / SCRIPT.name, folder / "uptime"
        before, _, behind = SCRIPT.read_text().partition("/proc/uptime")
        self._script.write_text(f"{before}{self._uptime}{behind}")
        (folder / "minik8s").mkdir()
        (folder / "minik8s" / "reapply.py").write_text("import sys; print(sys.argv[1:])")
        self.run.mkdir()
        self._environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder)}

    def starts(self) -> str:
        """Return what was started, and nothing else may be said."""
        self._uptime.write_text(f"{self.look().steady_s:.2f} 0.00\n")
        argv = ["/bin/sh", str(self._script), str(self.run), "--docker-socket=x y"]
        done = subprocess.run(argv, env=self._environment, capture_output=True, text=True, timeout=60, check=True)
        assert done.stderr == ""
        return done.stdout.strip()

    def touch(self, at_s: int) -> None:
        """Attend the node."""
        (self.run / "attended").touch()
        os.utime(self.run / "attended", (at_s, at_s))

    def pass_time(self, seconds: int) -> None:
        """Let time pass, by the clock that cannot be set."""
        self.late_s += seconds

    def look(self) -> Look:
        """Return what is seen now."""
        seen = attendance.look(str(self.run))
        return seen._replace(steady_s=seen.steady_s + self.late_s)


def test_where_a_glance_shows_a_new_touch_nothing_is_started(tmp_path: Path):
    timer = Timer(tmp_path)
    started = str([f"--run-dir={timer.run}", "--docker-socket=x y"])
    assert timer.starts() == started, "never touched"
    assert not timer.glance.exists()
    timer.touch(100)
    assert timer.starts() == started, "the first glance cannot tell when it was touched"
    assert timer.starts() == started, "not touched since"
    timer.touch(200)
    timer.pass_time(40)
    known = timer.glance.read_text().split()
    assert known[3] == "0"
    assert timer.starts() == ""
    assert timer.glance.read_text().split()[3] == known[2], "when it was glanced before"
    timer.touch(150)
    assert timer.starts() == "", "the clock was set back"
    timer.pass_time(60)
    before = timer.glance.read_text()
    assert timer.starts() == started
    assert timer.glance.read_text() == before, "what saw the touch stays known"
    timer.pass_time(100)
    timer.touch(300)
    assert timer.starts() == started, "it may have been touched more than two minutes ago"
    timer.touch(400)
    assert timer.starts() == ""


@pytest.mark.parametrize(
    "left", ["", "x", "{boot} 200", "{boot} 200 x[$(touch hole)]", "{boot} 200 -1", "earlier 200 1"]
)
def test_what_a_glance_left_half_or_somebody_wrote_is_no_attendance(tmp_path: Path, left: str):
    timer = Timer(tmp_path)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    timer.touch(300)
    timer.glance.write_text(left.replace("{boot}", boot))
    assert timer.starts() != ""
    timer.touch(400)
    assert timer.starts() == ""
    assert not Path("hole").exists()


def test_a_node_that_only_glances_attended_waits_two_minutes_from_the_touch(place: list[str], tmp_path: Path):
    timer, now_s = Timer(tmp_path), int(attendance.look(str(tmp_path)).wall_s)
    timer.touch(now_s - 3600)
    assert timer.starts()
    assert reapply.is_wanted(reapply._arguments(place), lambda _servers: pytest.fail("asked"))
    timer.touch(now_s - 1)
    assert timer.starts() == ""
    assert not reapply.is_wanted(reapply._arguments(place), lambda _servers: pytest.fail("asked"))
    known = attendance.read_record(str(timer.run))
    assert known is not None
    assert known.touched_s == now_s - 1
    assert known.came_s is not None
    assert known.looked_s - known.came_s < 60


def test_a_new_touch_that_is_older_than_two_minutes_is_no_attendance(place: list[str], tmp_path: Path):
    timer, now_s = Timer(tmp_path), int(attendance.look(str(tmp_path)).wall_s)
    timer.touch(now_s - 310)
    assert timer.starts()
    reapply.is_wanted(reapply._arguments(place), lambda _servers: pytest.fail("asked"))
    timer.pass_time(300)
    timer.touch(now_s - 250)
    assert timer.starts()
    known = attendance.read_record(str(timer.run)), attendance.read_glance(str(timer.run))
    assert known[1] is not None
    assert judge(timer.look(), attendance.with_glance(*known))[0] == attendance.UNATTENDED


def test_a_look_of_an_older_version_saw_the_touch_to_a_fraction_of_a_second(tmp_path: Path):
    (tmp_path / "attendance.json").write_text(json.dumps(Record("this", 990.7, 1.5, 2.5, 1.7)._asdict()))
    assert attendance.read_record(str(tmp_path)) == Record("this", 990.0, 1.5, 2.5, 1.7)


def test_a_server_that_does_not_speak_tls_is_not_ready(unused_tcp_address: str):
    assert not attendance.is_ready(unused_tcp_address, 0.5)
    assert not attendance.is_ready("no such host:nor port", 0.5)


@pytest.fixture
def unused_tcp_address() -> str:
    return "127.0.0.1:1"

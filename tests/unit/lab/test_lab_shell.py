"""The thin shell: real processes, locks, partial files; and the command line."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.lab import __main__ as command_line
from tests.lab import processes
from tests.lab.errors import LabUsage
from tests.lab.host import Host, HostCommandFailed, drop_lock
from tests.lab.parts import cache, kernels
from tests.lab.places import Places
from tests.lab.records import NodeSpec
from tests.support.waiting import until


def test_a_mark_tells_a_process_from_a_later_one_of_its_pid() -> None:
    with subprocess.Popen(["sleep", "60"]) as running:
        found = processes.mark(running.pid)
        assert found
        assert processes.alive(found)
        processes.kill(found._replace(start=found.start + 1))
        assert running.poll() is None
        processes.kill(found)
        running.wait(60)
    assert not processes.alive(found)


def test_a_record_of_another_boot_names_no_process(tmp_path: Path) -> None:
    own = processes.mark(os.getpid())
    assert own
    path = tmp_path / "process.json"
    assert processes.read_mark(path) is None
    path.write_text(own.to_json(), encoding="utf-8")
    assert processes.read_mark(path) == own
    path.write_text(own._replace(boot="another").to_json(), encoding="utf-8")
    assert processes.read_mark(path) is None


def test_descendants_are_found_at_every_depth() -> None:
    with subprocess.Popen(["sh", "-c", "sh -c 'sleep 60; :'; :"]) as top:
        own = processes.mark(top.pid)
        assert own
        deadline = time.monotonic() + 60
        while len(processes.descendants(own)) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        below = processes.descendants(own)
        assert len(below) == 2
        for one in [own, *below]:
            processes.kill(one)
        assert processes.wait_ended(below, 5) == []


def test_a_failed_program_is_shown_with_its_words() -> None:
    with pytest.raises(HostCommandFailed, match=r"sh -c 'echo why; exit 3'\nended with status 3:\nwhy"):
        Host().run(["sh", "-c", "echo why; exit 3"])


def test_a_lock_is_held_until_programs_started_under_it_have_ended(tmp_path: Path) -> None:
    lock, host = tmp_path / "a.lock", Host()
    program = f"""
import os
from pathlib import Path
from tests.lab.host import Host
host = Host()
with host.locked(Path({str(lock)!r})):
    if os.fork():
        host.run(["sh", "-c", "echo started; exec sleep 0.5"])
    else:
        host.run(["sh", "-c", "kill -9 " + str(os.getppid()) + "; sleep 0.5"])
"""
    begin = time.monotonic()
    killed = subprocess.run([sys.executable, "-c", program], check=False)
    assert killed.returncode == -9
    with host.locked(lock):
        assert time.monotonic() - begin > 0.5
    assert lock.exists()


def test_a_lock_file_that_was_removed_meanwhile_is_no_lock(tmp_path: Path) -> None:
    lock, order = tmp_path / "below" / "a.lock", list[str]()

    def second() -> None:
        with Host().locked(lock):
            order.append("second")
            assert lock.exists()

    host = Host()
    with host.locked(lock):
        assert Host.is_locked(lock)
        waiting = threading.Thread(target=second)
        waiting.start()
        time.sleep(0.1)
        order.append("first")
        drop_lock(lock)
    waiting.join(60)
    assert order == ["first", "second"]
    assert not Host.is_locked(lock)


def test_what_could_not_be_made_is_not_there_and_is_made_the_next_time(tmp_path: Path) -> None:
    target, host = tmp_path / "thing", Host()

    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise LabUsage("no")

    with pytest.raises(LabUsage):
        cache.once(host, target, "making it", fail)
    assert not target.exists()
    assert cache.once(host, target, "making it", lambda folder: (folder / "whole").touch()) == target
    assert cache.once(host, target, "making it", fail) == target
    assert [path.name for path in sorted(tmp_path.rglob("*"))] == ["thing", "whole"]


def test_what_a_killed_maker_left_is_tidied_away_but_not_one_at_work(tmp_path: Path) -> None:
    host = Host()
    for name in ("left.part", "busy.part"):
        (tmp_path / name).mkdir()
    with host.locked(tmp_path / "busy.lock"):
        cache.tidy(Host(), tmp_path)
        assert [path.name for path in tmp_path.glob("*.part")] == ["busy.part"]


def test_a_maker_ends_with_the_one_who_asked(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a lab needs root")
    held = tmp_path / "held"
    held.touch()
    program = f"""
from tests.lab.parts import cache
from tests.lab.host import Host
Host().run(cache.contained("flock", "{held}", "sh", "-c", "touch {tmp_path}/begun; sleep 3600"))
"""
    with subprocess.Popen([sys.executable, "-c", program]) as asking:
        while not (tmp_path / "begun").exists() and asking.poll() is None:
            time.sleep(0.01)
        assert Host.is_locked(held), "it does not run"
        asking.kill()
    until(lambda: not Host.is_locked(held))


@pytest.mark.parametrize("content", [["linux"], ["modules"], []])
def test_a_folder_that_is_no_kernel_is_refused(tmp_path: Path, content: list[str]) -> None:
    places = Places(tmp_path / "cache", tmp_path / "state")
    for name in content:
        (tmp_path / name).mkdir()
    with pytest.raises(LabUsage, match="is no kernel"):
        kernels.find(Host(), places, "", {kernels.VARIABLE: str(tmp_path)})


def test_the_neighbours_kernel_comes_before_one_that_was_built(tmp_path: Path) -> None:
    places = Places(tmp_path / "cache", tmp_path / "state", tmp_path / "project")
    neighbour, source = tmp_path / "shared" / "lab", tmp_path / "source"
    for folder in (neighbour, source / "modules", kernels.built_folder(places)):
        folder.mkdir(parents=True)
    (source / "linux").write_text("#!/bin/sh\necho 7.2-neighbour\n", encoding="ascii")
    (source / "linux").chmod(0o755)
    archive = neighbour / "uml-linux-7.2.tar.xz"
    subprocess.run(["tar", "-cJf", archive, "-C", source, "linux", "modules"], check=True)
    assert kernels.find(Host(), places, "", {}).version == "7.2-neighbour"
    archive.unlink()
    assert kernels.find(Host(), places, "", {}).folder == kernels.built_folder(places)


def test_molecules_platforms_become_nodes() -> None:
    text = '[{"name": "a", "kind": "native", "groups": ["g"]}, {"name": "b", "memory_mib": 512}]'
    assert command_line.platforms(text) == [NodeSpec("a", "native"), NodeSpec("b", "uml", 512)]


@pytest.mark.parametrize("text", ["{", "3", '["a"]', '[{"name": "a", "image": "debian"}]', '[{"kind": "uml"}]'])
def test_platforms_of_another_driver_are_refused(text: str) -> None:
    with pytest.raises(LabUsage, match="platforms are a list"):
        command_line.platforms(text)


@pytest.mark.parametrize("words", [[], ["up", "--kind", "docker"], ["slow-link", "node1"], ["fill-disk", "n", "x"]])
def test_a_command_that_is_none_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command_line.parser().parse_args(words)
    assert "usage:" in capsys.readouterr().err

"""Calls of one warm interpreter, with an archive in place of Ansible's: who answers each, and that none is lost."""

from __future__ import annotations

import base64
import contextlib
import io
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import psutil
import pytest

from minik8s_modules.plugins.warm import client
from minik8s_modules.plugins.warm.payload import Payload
from tests.support.processes import peer_pid
from tests.support.waiting import until

LOADER = """
import runpy
def run_module(*, json_params, profile, module_fqn, modlib_path, extensions):
    runpy.run_module(module_fqn, {"asked": json_params, "archive": modlib_path}, "__main__")
"""
MODULE = """
import json, os, sys, time
from ansible.module_utils.shared import VALUE
from ansible.module_utils import {name}
awaited = json.loads(asked).get("awaited")
if awaited:
    open(awaited + VALUE, "w").close()
while awaited and not os.path.exists(awaited):
    time.sleep(0.02)
os.stat(archive)
print(json.dumps({{"pid": os.getpid(), "asked": json.loads(asked), "is": {name}.NAME + VALUE, "in": archive}}))
json.loads(asked).get("dies") and os._exit(1)
sys.exit(json.loads(asked).get("code", 0))
"""
PACKAGES = (
    "ansible",
    "ansible/legacy",
    "ansible/module_utils",
    "ansible/module_utils/_internal",
    "ansible/module_utils/_internal/_ansiballz",
)


def archive(name: str, shared: str = "", wing: str = "", begins: str = "", ends: str = "") -> bytes:
    """Return the archive of one module, with a file of its own, which ``ends`` so; ``wing`` is in a package."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as file:
        for package in PACKAGES:
            file.writestr(f"{package}/__init__.py", "")
        file.writestr(f"{PACKAGES[-1]}/_loader.py", LOADER)
        file.writestr("ansible/module_utils/shared.py", f"VALUE = {shared!r}\n{begins}")
        file.writestr(f"ansible/module_utils/{name}.py", f"NAME = {name!r}\n{ends}")
        code = MODULE.format(name=name)
        if wing:
            file.writestr("ansible/module_utils/wing/__init__.py", "")
            file.writestr(f"ansible/module_utils/wing/{wing}.py", "")
            code = f"import ansible.module_utils.wing.{wing}\n{code}"
        file.writestr(f"ansible/legacy/{name}.py", code)
    return base64.b64encode(written.getvalue())


class Interpreter:
    """A running one, whose children take ``calls`` calls each; it passes each call on ``late_s`` late."""

    def __init__(self, folder: str, calls: int, late_s: float = 0.0) -> None:
        script = client.server_script(f"{folder}/w", 20.0).decode()
        assert "\\nMOST_CALLS = 200" in script
        script = script.replace("\\nMOST_CALLS = 200", f"\\nMOST_CALLS = {calls}")
        passes_on = 'handle.tell(b"c"'
        assert passes_on in script
        script = script.replace(passes_on, f"time.sleep({late_s}) or {passes_on}")
        subprocess.run([sys.executable, "-I", "-"], input=script, text=True, check=True, capture_output=True)
        self.path = client.server_path(f"{folder}/w")
        self.pid = peer_pid(Path(self.path))

    def call(
        self,
        name: str = "minik8s_thing",
        shared: str = "",
        wing: str = "",
        begins: str = "",
        ends: str = "",
        **asked: int | str,
    ) -> int:
        """Return the process that answered what was asked."""
        module = f"ansible.legacy.{name}"
        payload = Payload(archive(name, shared, wing, begins, ends), module, "legacy", json.dumps(asked))
        answer = client.call(self.path, payload)
        told = json.loads(answer.out)
        assert (told["asked"], told["is"], answer.err) == (asked, name + shared, b"")
        assert Path(told["in"]).name == f"{payload.key[:16]}.zip"
        return int(told["pid"])

    def templates(self) -> list[int]:
        """Return the processes that have archives imported: the server, and its children in its session."""
        children = [process.pid for process in psutil.Process(self.pid).children()]
        return [self.pid, *(pid for pid in children if _session(pid) == self.pid)]

    def hears_of_the_end_of(self, pid: int, template: int) -> None:
        """Wait until all know that the call of ``pid`` has ended: each wakes the next one before it sleeps."""
        for each in (pid, template, self.pid):
            until(partial(has_looked, each))


def _session(pid: int) -> int:
    """Return the session of a process, 0 if it has ended."""
    with contextlib.suppress(ProcessLookupError):
        return os.getsid(pid)
    return 0


def has_looked(pid: int) -> bool:
    """Return whether a process has looked at what its call left, and waits for another: it watches no caller."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return process.num_threads() == 1 and process.status() == psutil.STATUS_SLEEPING
    return False


@pytest.fixture
def folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="mk8s-") as found:  # sockets need short paths
        yield found


@pytest.fixture
def interpreter(folder: str) -> Iterator[Interpreter]:
    made = Interpreter(folder, calls=3)
    yield made
    with contextlib.suppress(ProcessLookupError):
        os.kill(made.pid, signal.SIGKILL)


def test_a_process_ends_with_its_last_call_and_none_is_lost(interpreter: Interpreter) -> None:
    found = [interpreter.call(number=number) for number in range(20)]
    counts = [len(list(group)) for _, group in itertools.groupby(sorted(found))]
    assert max(counts) <= 3
    assert len(counts) < len(found)


def test_what_is_not_ours_and_what_fails_is_followed_by_nobody(interpreter: Interpreter) -> None:
    foreign = [interpreter.call("command", number=number) for number in range(5)]
    failed = [interpreter.call(code=1) for _ in range(5)]
    assert len({*foreign, *failed}) == 10


def test_modules_of_one_release_follow_each_other_in_one_process(folder: str) -> None:
    interpreter = Interpreter(folder, calls=50)
    names = ("minik8s_a", "minik8s_b", "minik8s_c")
    for _ in range(2):  # the first round brings the archives; what was forked before one came knows nothing of it
        for name in names:
            interpreter.call(name)
    assert len(interpreter.templates()) == 1
    found = [(interpreter.call(name, number=number), name) for number in range(8) for name in names]
    # a call may come while the process of the one before still looks at what that has left
    assert len({pid for pid, _ in found}) < len(found) / 2
    assert max(len({name for pid, name in found if pid == each}) for each, _ in found) == len(names)
    os.kill(interpreter.pid, signal.SIGKILL)


def test_a_process_that_waits_has_ended_when_another_module_is_imported(folder: str, interpreter: Interpreter) -> None:
    first = interpreter.call()
    until(lambda: has_looked(first))
    children = "open('/proc/self/task/{}/children'.format(os.getpid())).read()"
    ends = f"import os\nopen({folder!r} + '/seen', 'w').write(str(os.getpid()) + ':' + {children})"
    assert interpreter.call("minik8s_other", ends=ends) != first
    assert Path(folder, "seen").read_text(encoding="ascii") == f"{interpreter.templates()[0]}:"


def test_a_package_may_have_come_with_any_of_the_archives_before(folder: str) -> None:
    interpreter = Interpreter(folder, calls=50)
    for _ in range(2):
        interpreter.call("minik8s_a")
        for name, wing in (("minik8s_b", "first"), ("minik8s_c", "second"), ("minik8s_d", "third")):
            interpreter.call(name, wing=wing)
    assert len(interpreter.templates()) == 1
    os.kill(interpreter.pid, signal.SIGKILL)


def test_modules_of_another_release_have_its_code(folder: str) -> None:
    interpreter = Interpreter(folder, calls=50)
    for _ in range(3):
        old = {interpreter.call(name, "old") for name in ("minik8s_a", "minik8s_b")}
        new = {interpreter.call(name, "new") for name in ("minik8s_a", "minik8s_b")}
        assert not old & new
    os.kill(interpreter.pid, signal.SIGKILL)


def test_a_template_that_was_killed_is_made_again_with_all_its_modules(interpreter: Interpreter) -> None:
    interpreter.call("minik8s_a", "old")
    first, last = (interpreter.call(name, "new") for name in ("minik8s_a", "minik8s_b"))
    assert first != last
    _, template = interpreter.templates()
    interpreter.hears_of_the_end_of(last, template)
    os.kill(template, signal.SIGKILL)
    until(lambda: interpreter.templates() == [interpreter.pid])
    interpreter.call("minik8s_b", "new")
    interpreter.call("minik8s_a", "new")

    interpreter.call("minik8s_a", "old")
    _, new = interpreter.templates()
    assert new != template


def test_a_call_that_comes_when_its_template_has_just_ended_is_run_by_another(
    interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpreter.call("minik8s_a", "old")
    last = interpreter.call("minik8s_a", "new")
    _, template = interpreter.templates()
    interpreter.hears_of_the_end_of(last, template)
    os.kill(interpreter.pid, signal.SIGSTOP)  # so that it hears of the call first, and of the end after that
    connected = threading.Event()
    monkeypatch.setattr(client, "_check_peer", lambda _connection: connected.set())
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(interpreter.call, "minik8s_a", "new", number=1)
        assert connected.wait(60)
        os.kill(template, signal.SIGKILL)
        until(lambda: psutil.Process(template).status() == psutil.STATUS_ZOMBIE)
        os.kill(interpreter.pid, signal.SIGCONT)
        answer.result(60)
    _, new = interpreter.templates()
    assert new != template


def test_a_server_that_a_template_has_spoilt_ends_when_the_calls_of_others_have(folder: str) -> None:
    interpreter = Interpreter(folder, calls=50)
    for shared in ("old", "new"):
        interpreter.call("minik8s_a", shared)
    _, template = interpreter.templates()
    awaited = Path(folder, "awaited")
    with ThreadPoolExecutor(2) as pool:
        stays, lost = (
            pool.submit(interpreter.call, "minik8s_a", shared, awaited=str(awaited)) for shared in ("old", "new")
        )
        until(lambda: all(Path(f"{awaited}{shared}").exists() for shared in ("old", "new")))
        os.kill(template, signal.SIGKILL)
        until(lambda: not Path(interpreter.path).exists())
        assert Interpreter(folder, calls=50).pid != interpreter.pid
        awaited.touch()
        stays.result(60)
        lost.exception(60)  # its process goes on, but nobody keeps its archive for it
    until(lambda: not psutil.pid_exists(interpreter.pid))
    assert [int(left.suffix[1:]) for left in Path(interpreter.path).parent.glob("*.archives.*")] == [
        peer_pid(Path(interpreter.path))
    ]
    os.kill(peer_pid(Path(interpreter.path)), signal.SIGKILL)


def test_the_first_release_has_no_process_but_the_server_and_its_calls(interpreter: Interpreter) -> None:
    found = {interpreter.call(name) for name in ("minik8s_a", "minik8s_b")}
    assert interpreter.templates() == [interpreter.pid]
    assert {process.pid for process in psutil.Process(interpreter.pid).children(recursive=True)} <= found


def test_a_caller_hears_that_its_process_has_ended_though_a_template_was_forked_for_it(
    interpreter: Interpreter,
) -> None:
    interpreter.call("minik8s_a", "old")
    with pytest.raises(client.CallLost):
        interpreter.call("minik8s_a", "new", dies=1)
    interpreter.call("minik8s_a", "new")


@pytest.mark.parametrize("late_s", [0.0, 0.3])  # by then the process has ended
def test_code_that_ends_a_process_which_had_other_code_runs_in_one_that_had_none(folder: str, late_s: float) -> None:
    interpreter = Interpreter(folder, calls=50, late_s=late_s)
    interpreter.call("minik8s_a", "old", begins="import os; os.environ['OLD'] = '1'")
    new = archive("minik8s_a", "new", begins="import os; 'OLD' in os.environ and os._exit(1)")
    payload = Payload(new, "ansible.legacy.minik8s_a", "legacy", "{}")

    def start() -> None:
        Interpreter(folder, calls=50, late_s=late_s)

    answer = client.run(interpreter.path, payload, start)
    assert answer is not None
    assert (answer.code, answer.err) == (0, b"")
    until(lambda: not psutil.pid_exists(interpreter.pid))
    os.kill(peer_pid(Path(interpreter.path)), signal.SIGKILL)

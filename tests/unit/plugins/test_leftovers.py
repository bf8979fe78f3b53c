"""What a call may leave behind, each in an interpreter of its own, as on a node; only what is put back lets it stay."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from minik8s_modules.plugins.warm import client

BEGIN = """
import os, signal, socket, subprocess, sys, threading, time, types
for name in ("ansible", "ansible.module_utils", "ansible.module_utils.thing"):
    sys.modules[name] = types.ModuleType(name)
thing = sys.modules["ansible.module_utils.thing"]
thing.ARGUMENTS, thing.warnings, thing.NAME, thing.table = None, {}, "a", [1]
os.chdir("/")
before = module.Before(module.Values())
"""


def after(left: str, times: int = 1) -> list[str]:
    """Return what is printed once ``left`` was left behind: whether the process is as it was, and two globals."""
    script = client.shipped("leftovers") + BEGIN
    for _ in range(times):
        script += f"{left}\nholds = before.holds_again()\n"
    script += "print(holds, thing.ARGUMENTS, thing.NAME, flush=True); os._exit(0)"
    argv = [sys.executable, "-I", "-S", "-"]
    done = subprocess.run(argv, input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_call_that_leaves_nothing_may_be_followed_by_another() -> None:
    assert after("len(open('/proc/self/stat').read())", times=3) == ["True", "None", "a"]


def test_replaced_values_are_put_back() -> None:
    assert after("thing.ARGUMENTS, thing.NAME = {'secret': 1}, 'b'", times=3) == ["True", "None", "a"]
    assert after("del thing.NAME", times=3) == ["True", "None", "a"]
    assert after("thing.table = [1, 2]; thing.new = 'plain'") == ["True", "None", "a"]


@pytest.mark.parametrize(
    "left",
    [
        "thing.warnings['w'] = 1",
        "thing.table.append(2)",
        "thing.new = {'cache': 1}",
        "del thing.NAME\nthing.new = {'cache': 1}\nthing.NAME = 'b'",
        "import colorsys\nsys.modules.pop('ansible.module_utils.thing')",
        "os.environ['LANG'] = 'xx'",
        "os.chdir('/tmp')",
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "running = subprocess.Popen(['sleep', '5'], start_new_session=True, stdout=-3, stderr=-3)",
        "child = os.fork()\nif child == 0: os._exit(0)",
        "import colorsys",
        "signal.signal(signal.SIGALRM, lambda *_: None)",
        "files = [socket.socket() for _ in range(3)]",
        "kept = bytearray(os.urandom(1)) * (64 << 20)",
    ],
)
def test_anything_else_ends_the_process(left: str) -> None:
    assert after(left)[0] == "False"


def test_a_file_that_is_opened_once_stays_and_one_a_call_is_a_leak() -> None:
    once = "log = globals().get('log') or socket.socket()"
    assert after(once, times=3)[0] == "True"
    assert after("kept = [*globals().get('kept', []), socket.socket()]", times=2)[0] == "False"


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone leaves its namespace or its user")
@pytest.mark.parametrize(
    "left",
    ["import ctypes\nctypes.CDLL(None).unshare(0x40000000)", "os.setegid(65534)"],
)
def test_neither_a_namespace_nor_a_user_is_kept(left: str) -> None:
    assert after(left)[0] == "False"

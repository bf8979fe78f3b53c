"""What was freed goes back before a process waits, or children share it; each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

from minik8s_modules.plugins.warm import client

HOLES = """
    import sys
    from pathlib import Path

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1])

    def leave_holes():
        held = [bytes(4000) for _ in range(20_000)]
        return bytes(4000)  # what stays behind them
"""
WORKER = """
    import os
    import threading
    import time
    from minik8s_modules.plugins.live.worker import LENGTH, RequestReader

    after_all = leave_holes()
    before, (asked, ask) = resident(), os.pipe()

    def ask_when_given_back():
        end = time.monotonic() + 20
        while resident() > before - 10_000 and time.monotonic() < end:
            time.sleep(0.01)
        print(resident() <= before - 10_000, flush=True)
        os.write(ask, LENGTH.pack(0))

    threading.Thread(target=ask_when_given_back).start()
    print(RequestReader(asked).next())
"""
INTERPRETER = """
    with module.Compiled("").importing(sys.argv[1]):
        after_all = leave_holes()
        before = resident()
    print(before - resident() > 10_000)
"""


def run(program: str, *arguments: str) -> list[str]:
    words = [sys.executable, "-c", program, *arguments]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()


def test_a_worker_that_waits_keeps_nothing_that_its_items_freed() -> None:
    assert run(textwrap.dedent(HOLES + WORKER)) == ["True", "None"]


def test_what_an_import_freed_in_the_interpreter_is_given_back(tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    zipfile.ZipFile(archive, "w").close()
    program = client.shipped("compiled") + textwrap.dedent(HOLES + INTERPRETER)
    assert run(program, str(archive)) == ["True"]

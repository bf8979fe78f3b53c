"""What the play does before its first item: in processes of their own what takes memory that nobody needs later."""

from __future__ import annotations

import os
from pathlib import Path

from minik8s_modules.plugins.live.play import in_child


def test_work_in_a_child_is_done_when_it_returns_and_takes_no_memory_here(tmp_path: Path) -> None:
    kept: list[bytes] = []
    found = tmp_path / "pid"

    def work() -> None:
        kept.append(b"x" * 1000)
        found.write_text(str(os.getpid()), encoding="ascii")

    in_child(work)
    assert int(found.read_text(encoding="ascii")) != os.getpid()
    assert not kept


def test_a_child_that_fails_ends_there(tmp_path: Path) -> None:
    def work() -> None:
        (tmp_path / "begun").touch()
        raise ValueError

    in_child(work)
    assert (tmp_path / "begun").exists()

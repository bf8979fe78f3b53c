"""Termination messages: from the file, else from the log, within kubelet's limits. What a container was killed for."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.gateway.errors import NodeUnreachable
from minik8s_modules.gateway.last_words import FILE_BYTES, LOG_BYTES, with_cause, with_message


def ended(policy: str = "File", exit_code: int = 1, **more: Any) -> dict[str, Any]:
    return {"id": "c", "state": "exited", "exit_code": exit_code, "message_source": f"{policy}:/m", **more}


def no_log(_container: str, _lines: int) -> bytes:
    raise AssertionError("the log is not to be read")


def test_the_file_is_read_and_cut():
    found = with_message(ended(), lambda _path: b"x" * 5000, no_log)
    assert found["message"] == "x" * FILE_BYTES


def test_an_empty_file_falls_back_to_the_end_of_the_log_on_an_error_only():
    for exit_code, message in ((1, "y" * LOG_BYTES), (0, "")):
        found = with_message(ended("FallbackToLogsOnError", exit_code), lambda _path: b"", lambda _c, _n: b"y" * 9000)
        assert found["message"] == message


def test_a_file_wins_over_the_log():
    assert with_message(ended("FallbackToLogsOnError"), lambda _path: b"said", no_log)["message"] == "said"


def test_what_cannot_be_read_is_not_told_as_empty():
    def refuse(_path: str) -> bytes:
        raise NodeUnreachable("no route")

    assert "message" not in with_message(ended(), refuse, no_log)


def test_a_live_container_has_said_nothing_yet():
    assert "message" not in with_message(ended(state="running"), lambda _path: b"early", no_log)


def killed(**more: Any) -> dict[str, Any]:
    return {"id": "c", "state": "exited", "oom_killed": False, "oom_source": "/sys/fs/cgroup/p/memory.events", **more}


@pytest.mark.parametrize(("kills", "expected"), [(b"oom_kill 2\n", True), (b"oom_kill 0\n", False), (b"", False)])
def test_what_docker_missed_is_counted_by_the_kernel(kills: bytes, *, expected: bool):
    assert with_cause(killed(), lambda _path: b"max 38\noom 1\n" + kills)["oom_killed"] is expected


def test_a_file_is_asked_only_where_docker_left_it_open():
    def never(_path: str) -> bytes:
        raise AssertionError("the file is not to be read")

    for more in ({"state": "running"}, {"oom_killed": True}, {"oom_source": ""}):
        assert with_cause(killed(**more), never) == killed(**more)


def test_a_cgroup_that_is_gone_says_nothing():
    def refuse(_path: str) -> bytes:
        raise NodeUnreachable("no such file")

    assert with_cause(killed(), refuse) == killed()

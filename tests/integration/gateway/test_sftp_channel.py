"""Small files over sftp, from OpenSSH's own server as a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from minik8s_modules.gateway.errors import FileRefused, NodeUnreachable
from minik8s_modules.gateway.sftp import SftpChannel

SERVER = "/usr/lib/openssh/sftp-server"


@pytest.fixture
def channel() -> Iterator[SftpChannel]:
    made = SftpChannel([SERVER])
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("data", [b"", b"last words\n"], ids=["empty", "some"])
def test_a_file_is_read_as_it_is(channel: SftpChannel, tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "message"
    path.write_bytes(data)
    assert channel.read_file(str(path)) == data
    assert channel.read_file(str(path)) == data


def test_a_file_that_is_not_there_cannot_be_read(channel: SftpChannel, tmp_path: Path) -> None:
    with pytest.raises(FileRefused, match="cannot open"):
        channel.read_file(str(tmp_path / "none"))


def test_a_channel_that_ended_says_nothing_of_a_file(tmp_path: Path) -> None:
    ended = SftpChannel(["true"])
    with pytest.raises(NodeUnreachable) as fault:
        ended.read_file(str(tmp_path / "none"))
    ended.close()
    assert not isinstance(fault.value, FileRefused)

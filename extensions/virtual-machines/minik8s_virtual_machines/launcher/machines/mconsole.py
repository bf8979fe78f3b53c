"""The management console of a User-Mode Linux: a datagram a request (``arch/um/drivers/mconsole.h``)."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from pathlib import Path

from minik8s_virtual_machines.launcher.errors import Refused

_MAGIC, _VERSION, _ROOM = 0xCAFEBABE, 2, 512
_HEAD = struct.Struct("<III")
_PATIENCE_S = 20.0


async def ask(kernel: Path, command: str, own: Path) -> str:
    """Return the kernel's answer to ``command``; ``own`` is where the answer comes to.

    Raises:
        Refused: it gives none, or says no.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as mine:
        own.unlink(missing_ok=True)
        mine.bind(str(own))
        try:
            request = _HEAD.pack(_MAGIC, _VERSION, len(command)) + command.encode().ljust(_ROOM, b"\0")
            mine.sendto(request, str(kernel))
            return await asyncio.wait_for(_answer(mine), _PATIENCE_S)
        except OSError as error:  # TimeoutError is one
            raise Refused(f"machine uml does not answer to {command}: {str(error) or 'no answer'}") from error
        finally:
            own.unlink(missing_ok=True)


async def _answer(mine: socket.socket) -> str:
    text = ""
    while True:
        data = await asyncio.get_running_loop().sock_recv(mine, _HEAD.size + _ROOM)
        failed, more, length = _HEAD.unpack_from(data)
        text += os.fsdecode(data[_HEAD.size : _HEAD.size + length]).rstrip("\0")
        if failed:
            raise Refused(f"machine uml says: {text.strip()}")
        if not more:
            return text

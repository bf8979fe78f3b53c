"""The launcher's Unix socket: a client sends one line, is answered ``ok`` or ``no REASON`` in one, and then bytes.

Who may open it may do everything with the guest: it is in a folder of the machine's user, in the pod. ``vmctl`` is the
client, run by ``kubectl exec`` or for the API group ``subresources.kubevirt.io``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from minik8s_virtual_machines.launcher.errors import LauncherError, Refused
from minik8s_virtual_machines.launcher.life import Life

_FREEZE_S = 30.0
_READY_S = 15.0
"""A probe that comes while the machine starts waits for it: probes are rare, as each is a process."""
_SHORT: dict[str, Callable[[Life], Awaitable[bytes]]] = {}


def _command(name: str) -> Callable[[Callable[[Life], Awaitable[bytes]]], Callable[[Life], Awaitable[bytes]]]:
    def declare(action: Callable[[Life], Awaitable[bytes]]) -> Callable[[Life], Awaitable[bytes]]:
        _SHORT[name] = action
        return action

    return declare


async def serve(life: Life, path: Path) -> asyncio.Server:
    """Listen."""
    path.unlink(missing_ok=True)

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.LimitOverrunError):
            await _serve(life, reader, writer)
        writer.close()

    server = await asyncio.start_unix_server(client, path)
    path.chmod(0o660)
    return server


async def _serve(life: Life, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    name = (await reader.readline()).decode(errors="replace").strip()
    try:
        if name == "console":
            _needs_console(life)
            writer.write(b"ok\n")
            await life.console.serve(reader, writer)
        elif name == "vnc":
            await _vnc(life, reader, writer)
        elif name in _SHORT:
            answer = await _SHORT[name](life)
            writer.write(b"ok\n" + answer)
            await writer.drain()
        else:
            raise Refused(f"there is no command {name}; there are console, vnc, {', '.join(sorted(_SHORT))}")
    except (LauncherError, OSError) as error:
        writer.write(b"no " + " ".join(str(error).split()).encode() + b"\n")
        await writer.drain()


def _needs_console(life: Life) -> None:
    if not life.guest.serial:
        raise Refused("the machine has no serial console: devices.autoattachSerialConsole is false")


async def _vnc(life: Life, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Join a client to the display until one of both goes."""
    from_display, to_display = await life.machine().display()
    writer.write(b"ok\n")
    ways = [asyncio.create_task(_copy(reader, to_display)), asyncio.create_task(_copy(from_display, writer))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        to_display.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()


def _as_line(found: Any) -> bytes:
    return json.dumps(found, separators=(",", ":")).encode() + b"\n"


@_command("status")
async def _status(life: Life) -> bytes:
    return _as_line(await life.told())


@_command("ready")
async def _ready(life: Life) -> bytes:
    await life.running(_READY_S)
    return b""


@_command("agent-ready")
async def _agent_ready(life: Life) -> bytes:
    await life.agent.ask("guest-ping")
    return b""


@_command("console-log")
async def _console_log(life: Life) -> bytes:
    return bytes(life.console.tail)


@_command("pause")
async def _pause(life: Life) -> bytes:
    await life.pause()
    return b""


@_command("unpause")
async def _unpause(life: Life) -> bytes:
    await life.unpause()
    return b""


@_command("softreboot")
async def _softreboot(life: Life) -> bytes:
    await life.reboot()
    return b""


@_command("freeze")
async def _freeze(life: Life) -> bytes:
    await life.agent.ask("guest-fsfreeze-freeze", patience_s=_FREEZE_S)
    return b""


@_command("unfreeze")
async def _unfreeze(life: Life) -> bytes:
    await life.agent.ask("guest-fsfreeze-thaw", patience_s=_FREEZE_S)
    return b""


@_command("screenshot")
async def _screenshot(life: Life) -> bytes:
    return await life.machine().screenshot()


@_command("guestosinfo")
async def _guest_os_info(life: Life) -> bytes:
    system = await life.agent.ask("guest-get-osinfo")
    names = {
        "name": "name", "kernel-release": "kernelRelease", "kernel-version": "kernelVersion", "machine": "machine",
        "id": "id", "version": "version", "version-id": "versionId", "pretty-name": "prettyName",
    }  # fmt: skip
    found: dict[str, Any] = {
        "guestAgentVersion": (await life.agent.ask("guest-info"))["version"],
        "hostname": (await life.agent.ask("guest-get-host-name"))["host-name"],
        "os": {ours: system[theirs] for theirs, ours in names.items() if theirs in system},
    }
    with contextlib.suppress(Refused):
        zone = await life.agent.ask("guest-get-timezone")
        found["timezone"] = f"{zone.get('zone', 'UTC')}, {zone['offset']}"
    return _as_line(found)


@_command("filesystemlist")
async def _file_systems(life: Life) -> bytes:
    found = await life.agent.ask("guest-get-fsinfo")
    rows = [
        {
            "diskName": each["name"],
            "mountPoint": each["mountpoint"],
            "fileSystemType": each["type"],
            "totalBytes": each.get("total-bytes", 0),
            "usedBytes": each.get("used-bytes", 0),
        }
        for each in found
    ]
    return _as_line({"items": rows})


@_command("userlist")
async def _users(life: Life) -> bytes:
    found = await life.agent.ask("guest-get-users")
    rows = [{"userName": each["user"], "loginTime": each["login-time"]} for each in found]
    return _as_line({"items": rows})


@_command("interfaces")
async def _interfaces(life: Life) -> bytes:
    return _as_line(await life.agent.ask("guest-network-get-interfaces"))

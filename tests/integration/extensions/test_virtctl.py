"""Virtual machines by upstream's virtctl, unmodified: a real API server, daemon and exec; guests are played."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
from collections.abc import Iterator

import pytest

from minik8s_modules.api import objects
from tests.support.etcd import free_port
from tests.support.machines_world import World, machine
from tests.support.terminal import Terminal
from tests.support.waiting import until


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("machines")) as found:
        yield found


def test_a_machine_is_stopped_and_started(world: World) -> None:
    world.apply(machine("one"))
    world.wait("one", "Running")
    world.virtctl("stop", "one")
    world.wait("one", "Stopped")
    assert not world.pods("one")
    world.virtctl("start", "one")
    world.wait("one", "Running")


def test_pause_unpause_restart_and_the_rest(world: World) -> None:
    world.apply(machine("acted"))
    world.wait("acted", "Running")
    until(lambda: (objects.condition(world.vmi("acted"), "AgentConnected") or {}).get("status") == "True")
    world.virtctl("pause", "vm", "acted")
    world.wait("acted", "Paused")
    assert "already paused" in world.virtctl("pause", "vm", "acted", check=False).stderr
    world.virtctl("unpause", "vm", "acted")
    world.wait("acted", "Running")
    assert "not paused" in world.virtctl("unpause", "vm", "acted", check=False).stderr
    world.virtctl("soft-reboot", "acted")
    assert "Debian" in world.virtctl("guestosinfo", "acted").stdout
    assert "root" in world.virtctl("userlist", "acted").stdout
    assert "not in this machine" in world.virtctl("fslist", "acted", check=False).stderr
    assert "VM is already running" in world.virtctl("start", "acted", check=False).stderr
    assert "live migration is not implemented" in world.virtctl("migrate", "acted", check=False).stderr
    assert "v1.4.0" in world.virtctl("version").stdout
    before = objects.uid(world.vmi("acted"))
    world.virtctl("restart", "acted")
    until(lambda: objects.uid(world.vmi("acted")) not in {"", before}, 120)
    world.wait("acted", "Running")
    assert len(world.pods("acted")) == 1


def test_the_console_carries_bytes_both_ways_and_a_newer_one_throws_it_out(world: World) -> None:
    world.apply(machine("talking"))
    world.wait("talking", "Running")
    with Terminal(world.virtctl_argv("console", "talking")) as first:
        first.expect(b"login: ")
        first.type(b"hello\n")
        first.expect(b"hello")
        with Terminal(world.virtctl_argv("console", "talking")) as second:
            second.expect(b"login: ")
            first.wait()
            second.type(b"\x1d")
            assert second.wait() == 0


def test_a_console_waits_for_its_machine(world: World) -> None:
    world.apply(machine("late", "Halted"))
    world.wait("late", "Stopped")
    assert "not found" in world.virtctl("console", "late", check=False).stderr
    world.virtctl("start", "late")
    until(lambda: world.vmi("late"))
    with Terminal(world.virtctl_argv("console", "late", "--timeout=2")) as terminal:
        terminal.expect(b"login: ")
        terminal.type(b"\x1d")


def test_vnc_and_ports_are_forwarded(world: World) -> None:
    seen = machine("seen")
    seen["spec"]["template"]["spec"]["domain"]["machine"]["type"] = "q35"
    world.apply(seen)
    world.wait("seen", "Running")
    with subprocess.Popen(
        world.virtctl_argv("vnc", "seen", "--proxy-only"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["port"]
        with socket.create_connection(("127.0.0.1", port), 60) as viewer:
            viewer.settimeout(60)
            assert viewer.recv(12) == b"RFB 003.008\n"
            viewer.sendall(b"RFB 003.008\n")
            assert viewer.recv(12) == b"RFB 003.008\n"
        process.terminate()
    screen = world.folder / "screen.png"
    world.virtctl("vnc", "screenshot", "seen", "-f", str(screen))
    assert screen.read_bytes().startswith(b"\x89PNG")
    local = free_port()
    with subprocess.Popen(
        world.virtctl_argv("port-forward", "vm/seen", f"{local}:22"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        greeting = until(lambda: _greeted(local))
        assert greeting.endswith(b":22\n")
        process.terminate()


def _greeted(port: int) -> bytes:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 60) as client:
        client.settimeout(60)
        return client.recv(4096)
    return b""


def test_expose_and_create_vm(world: World) -> None:
    world.apply(machine("shown"))
    world.virtctl("expose", "vm", "shown", "--name=shown", "--port=80", "--target-port=8080")
    service = json.loads(world.kubectl("get", "service", "shown", "-o", "json").stdout)
    assert service["spec"]["selector"] == {"app": "shown"}
    made = world.virtctl(
        "create", "vm", "--name=made", "--memory=64Mi", "--volume-containerdisk=src:guest:1", "--user=admin"
    ).stdout
    world.kubectl("apply", "-f", "-", stdin=made)
    world.wait("made", "Running")
    disks = objects.dig(world.vm("made"), "spec", "template", "spec", "domain", "devices", "disks")
    assert [each["disk"] for each in disks] == [{"bus": "virtio"}] * len(disks)

"""Who breaks into the process that parses streams has the streams that pass through it, and nothing else.

WebSocket, SPDY, Docker's frames, the text of logs and the answers to probes were parsed by the gateway: its user is in
Docker's group and may run any Python as root, so a defect in a parser was root on every node. Now the parsers run as a
user without rights. Here that user is the attacker: with the named socket of the gateway, with the connections it was
handed, and with everything that passed through it before.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psutil
import pytest

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.streams.requests import CERTIFICATE, SIGNED
from tests.integration.streams.conftest import PARSER, Streaming
from tests.support.node import SOCKET
from tests.support.pki import Authority, Certificate
from tests.support.servers.signed import now, signature_headers

API_SERVER = "system:minik8s:apiserver"
OPEN: list[socket.socket] = []
VERSION = b"GET /version HTTP/1.1\r\nHost: docker\r\n\r\n"


@contextmanager
def user(uid: int) -> Iterator[None]:
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture(autouse=True)
def closed_in_the_end() -> Iterator[None]:
    yield
    for each in OPEN:
        each.close()
    OPEN.clear()


class Attacker:
    """The user of the process of streams, who says what he likes."""

    def __init__(self, streaming: Streaming, uid: int = PARSER) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(60)
        OPEN.append(self.socket)
        with user(uid):
            self.socket.connect(str(streaming.folder / "streams.sock"))

    def says(self, message: JsonObject) -> tuple[JsonObject | None, list[int]]:
        """Return the answer and what came with it, None when he was cut off."""
        with suppress(BrokenPipeError):
            self.socket.send(json.dumps(message).encode())
        try:
            data, descriptors, _, _ = socket.recv_fds(self.socket, 1 << 18, 3)
        except ConnectionResetError:
            return None, []
        return json.loads(data) if data else None, descriptors

    def refused(self, message: JsonObject) -> str:
        """Return the words of the refusal of ``message``."""
        answer, descriptors = self.says(message)
        assert answer is not None
        assert not descriptors
        return str(answer["error"]["message"])


def signed(line: str, by: Certificate, at: Callable[[], datetime] = now, **changes: Any) -> JsonObject:
    """Return the first packet about ``line`` with a signature by the key of ``by``."""
    headers = signature_headers(line, by, at)
    return {"line": line, "signed": headers[SIGNED], "certificate": headers[CERTIFICATE], **changes}


@pytest.fixture(scope="module")
def caller(streaming: Streaming) -> Certificate:
    return streaming.authority.issue("signer", API_SERVER)


@pytest.fixture(scope="module")
def victim(streaming: Streaming) -> JsonObject:
    made = streaming.pod("victim", "echo to be read; sleep 3600")
    streaming.until(lambda: "to be read" in streaming.kubectl("logs", "victim").stdout)
    return made


def line_of(streaming: Streaming, pod: JsonObject, what: str, /, **options: Any) -> str:
    whole = {"namespace": "default", "pod": pod["metadata"]["name"], "container": "app", **options}
    path = f"/nodes/{streaming.node.name}/pods/{pod['metadata']['uid']}/{what}"
    return f"{'GET' if what == 'log' else 'POST'} {path}?{urlencode(whole, doseq=True)} HTTP/1.1"


def taken(descriptors: list[int]) -> socket.socket:
    (descriptor,) = descriptors
    found = socket.socket(fileno=descriptor)
    found.settimeout(60)
    OPEN.append(found)
    return found


def everything(connection: socket.socket) -> bytes:
    """Return what comes until the other side has ended it, politely or not."""
    got = b""
    with suppress(ConnectionResetError):
        while data := connection.recv(65536):
            got += data
    return got


# the process itself


def test_the_process_that_parses_has_no_group_and_no_way_to_docker_or_root(streaming: Streaming):
    assert streaming.parser is not None
    process = psutil.Process(streaming.parser.pid)
    assert set(process.uids()) == {PARSER}
    status = Path(f"/proc/{process.pid}/status").read_text()
    groups = next(line for line in status.splitlines() if line.startswith("Groups:"))
    assert groups.split()[1:] == []
    with user(PARSER), socket.socket(socket.AF_UNIX) as docker, pytest.raises(PermissionError):
        docker.connect(SOCKET)
    if sudo := shutil.which("sudo"):
        done = subprocess.run(
            [sudo, "-n", "python3", "-I", "-"], user=PARSER, group=PARSER, extra_groups=[], check=False
        )
        assert done.returncode != 0


def test_nobody_else_is_answered(streaming: Streaming, victim: JsonObject, caller: Certificate):
    for uid in (0, 1):
        stranger = Attacker(streaming, uid)
        assert stranger.says(signed(line_of(streaming, victim, "log"), caller)) == (None, [])


# requests


def test_no_request_can_be_invented(streaming: Streaming, victim: JsonObject, caller: Certificate):
    line = line_of(streaming, victim, "exec", command="id", stdout="true")
    other = streaming.authority.issue("other", "system:minik8s:reconciler")
    forged = Authority(streaming.folder / "forged", "streams").issue("forged", API_SERVER)
    for packet, why in (
        ({"line": line, "signed": "", "certificate": ""}, "the request is not signed by an API server"),
        (signed(line, caller, signed="1.2.3"), "the request is not signed by an API server"),
        (signed(line, other), "streams are for system:minik8s:apiserver, not for system:minik8s:reconciler"),
        (signed(line, forged), "the certificate was issued by another authority"),
        ({**signed(line, forged), "certificate": signed(line, caller)["certificate"]}, "the signature does not match"),
        ({"what": "exec", "container": "any"}, "a request must consist of line, signature and certificate"),
    ):
        assert why in Attacker(streaming).refused(packet)


def test_a_request_that_passed_through_cannot_be_changed(streaming: Streaming, victim: JsonObject, caller: Certificate):
    packet = signed(line_of(streaming, victim, "exec", command="id", stdout="true"), caller)
    changed = packet["line"].replace("command=id", "command=sh")
    assert "the signature does not match" in Attacker(streaming).refused({**packet, "line": changed})
    at, nonce, signature = packet["signed"].split(".")
    for later in (f"{int(at) + 1}.{nonce}.{signature}", f"{at}.{nonce[:-1]}x.{signature}"):
        assert "the signature does not match" in Attacker(streaming).refused({**packet, "signed": later})


def test_a_request_that_passed_through_cannot_be_repeated(
    streaming: Streaming, victim: JsonObject, caller: Certificate
):
    packet = signed(line_of(streaming, victim, "log"), caller)
    answer, descriptors = Attacker(streaming).says(packet)
    assert answer is not None
    assert b"to be read" in bytes.fromhex(answer["came"]) + everything(taken(descriptors))
    assert "already been served" in Attacker(streaming).refused(packet)
    old = signed(line_of(streaming, victim, "log"), caller, lambda: now() - timedelta(minutes=6))
    assert "signed at another time" in Attacker(streaming).refused(old)


@pytest.mark.parametrize("option", [{"privileged": "true"}, {"user": "0"}, {"detachKeys": "x"}, {"env": "A=B"}])
def test_no_option_outside_the_fixed_set_is_taken(
    streaming: Streaming, victim: JsonObject, caller: Certificate, option
):
    line = line_of(streaming, victim, "exec", command="id", stdout="true", **option)
    assert "no option of a stream" in Attacker(streaming).refused(signed(line, caller))


def test_containers_that_are_not_the_pods_are_not_reached(
    streaming: Streaming, victim: JsonObject, caller: Certificate
):
    """Not even an API server reaches what bears no label of ours, or another pod's."""
    foreign = f"foreign-{streaming.node.name}"
    run = [
        "docker",
        "run",
        "--detach",
        "--network=none",
        "--name",
        foreign,
        "--entrypoint",
        "sleep",
        "minik8s/busybox:1",
        "3600",
    ]
    identity = subprocess.run(run, check=True, capture_output=True, text=True).stdout.strip()
    try:
        other = streaming.pod("bystander", "sleep 3600")
        for wanted in (identity, streaming.inspect(other)["Id"], f"../containers/{identity}"):
            line = line_of(streaming, victim, "log", id=wanted)
            assert "is not available" in Attacker(streaming).refused(signed(line, caller))
        for named in ({"namespace": "kube-system"}, {"pod": "bystander"}, {"container": foreign}):
            line = line_of(streaming, victim, "exec", command="id", stdout="true", **named)
            assert "container not found" in Attacker(streaming).refused(signed(line, caller))
    finally:
        subprocess.run(["docker", "rm", "--force", foreign], check=True, capture_output=True)


# what was handed over


@pytest.mark.parametrize("follow", ["true", "false"])
def test_a_log_is_no_way_to_ask_docker_for_more(streaming: Streaming, caller: Certificate, follow: str):
    pod = streaming.pod(f"reader-{follow}", "echo begun; sleep 2; echo ended")
    streaming.until(lambda: "begun" in streaming.kubectl("logs", pod["metadata"]["name"]).stdout)
    answer, descriptors = Attacker(streaming).says(signed(line_of(streaming, pod, "log", follow=follow), caller))
    assert answer is not None
    connection = taken(descriptors)
    with suppress(BrokenPipeError):
        for _ in range(3):
            connection.sendall(VERSION)
            time.sleep(0.2)
    got = bytes.fromhex(answer["came"]) + everything(connection)
    assert b"begun" in got
    assert b"HTTP/" not in got
    assert b"ApiVersion" not in got


def test_a_command_is_no_way_to_ask_docker_for_more(streaming: Streaming, victim: JsonObject, caller: Certificate):
    attacker = Attacker(streaming)
    line = line_of(streaming, victim, "exec", command=["head", "-c", "4"], stdin="true", stdout="true")
    assert attacker.says(signed(line, caller)) == ({"tty": False}, [])
    answer, descriptors = attacker.says({"do": "start"})
    assert answer is not None
    connection = taken(descriptors)
    connection.sendall(VERSION * 3)
    got = bytes.fromhex(answer["came"]) + everything(connection)
    assert got == b"\x01\0\0\0\0\0\0\x04GET "
    assert attacker.says({"do": "exit"}) == ({"code": 0}, [])


def test_a_command_is_asked_about_in_the_fixed_words_only(
    streaming: Streaming, victim: JsonObject, caller: Certificate
):
    attacker = Attacker(streaming)
    attacker.says(signed(line_of(streaming, victim, "exec", command="id", stdout="true", tty="true"), caller))
    for message in (
        {},
        {"do": "kill"},
        {"do": "connect", "port": 80},
        {"do": "start", "id": "another"},
        {"do": "exit", "exec": "another"},
        {"do": "resize", "height": 10},
        {"do": "resize", "height": 10, "width": 10, "privileged": 1},
        {"do": "resize", "height": "10&h=1", "width": 10},
        {"do": "resize", "height": 10, "width": True},
        {"do": "resize", "height": 10, "width": -1},
    ):
        assert attacker.refused(message)
    answer, descriptors = attacker.says({"do": "start"})
    assert answer is not None
    assert b"uid=" in bytes.fromhex(answer["came"]) + everything(taken(descriptors))


def test_the_end_of_a_log_is_asked_for_in_the_fixed_words_only(streaming: Streaming, caller: Certificate):
    pod = streaming.pod("ended", "echo begun; echo ended; sleep 3600")
    attacker = Attacker(streaming)
    attacker.says(signed(line_of(streaming, pod, "log", follow="true", tailLines="1"), caller))
    container = streaming.inspect(pod)["Id"]
    said = ["docker", "logs", container]
    streaming.until(lambda: b"ended" in subprocess.run(said, check=True, capture_output=True).stdout)
    subprocess.run(["docker", "kill", container], check=True, capture_output=True)
    for message in (
        {"do": "rest"},
        {"do": "rest", "lines": 10},
        {"do": "rest", "lines": 10, "since": "0&follow=1"},
        {"do": "rest", "lines": "all", "since": 0},
        {"do": "rest", "lines": 10, "since": 0, "id": "another"},
        {"do": "rest", "lines": -1, "since": 0},
        {"do": "follow"},
        {"do": "follow", "lines": "1&since=0"},
        {"do": "follow", "lines": 1, "id": "another"},
        {"do": "log", "tail": "all"},
        {"do": "log", "id": "another"},
    ):
        assert attacker.refused(message)
    for message in ({"do": "rest", "lines": 1, "since": 0}, {"do": "follow", "lines": 1}, {"do": "log"}):
        answer, descriptors = attacker.says(message)
        assert answer is not None
        got = bytes.fromhex(answer["came"]) + everything(taken(descriptors))
        assert b"ended" in got
        assert b"begun" not in got


def test_ports_are_those_of_the_one_pod(streaming: Streaming, victim: JsonObject, caller: Certificate):
    attacker = Attacker(streaming)
    assert attacker.says(signed(line_of(streaming, victim, "portforward"), caller)) == ({}, [])
    for message in (
        {"do": "connect"},
        {"do": "connect", "port": "80"},
        {"do": "connect", "port": 1 << 16},
        {"do": "connect", "port": 80, "host": "127.0.0.1"},
        {"do": "start"},
    ):
        assert attacker.refused(message)


def test_what_cannot_be_read_ends_the_conversation_and_nothing_else(streaming: Streaming, victim: JsonObject):
    for data in (b"\xff", b"[]", b"{", b'{"line":' + b"[" * 5000, b"{}" + b" " * 100_000):
        attacker = Attacker(streaming)
        attacker.socket.send(data)
        with suppress(ConnectionResetError):
            result = attacker.socket.recv(1 << 18)
            assert not result or b"error" in result
    ours, theirs = socket.socketpair()
    OPEN.append(ours)
    attacker = Attacker(streaming)
    socket.send_fds(attacker.socket, [b"{}"], [theirs.fileno()])
    theirs.close()
    assert b"error" in attacker.socket.recv(1 << 18)
    ours.settimeout(60)
    assert ours.recv(1) == b""  # the gateway has not kept what it did not ask for
    assert "to be read" in streaming.kubectl("logs", "victim").stdout

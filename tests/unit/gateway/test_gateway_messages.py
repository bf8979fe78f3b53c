"""What the gateway takes from its socket."""

from __future__ import annotations

from pathlib import Path

import pytest

from minik8s_modules.gateway.engine import _reference
from minik8s_modules.gateway.inventory import NodeAddress
from minik8s_modules.gateway.messages import BadMessage, Cancel, PullRequest, Relist, encode, parse, state
from minik8s_modules.gateway.ssh import Paths, connection_options, master_argv, reach_argv, shell_argv


@pytest.mark.parametrize(
    ("line", "request_"),
    [
        (b'{"op":"relist","node":"n"}\n', Relist("n")),
        (b'{"op":"cancel","id":"7"}\n', Cancel("7")),
        (b'{"op":"pull","id":"7","node":"n","image":"a:1","auth":null}\n', PullRequest("7", "n", "a:1", ())),
        (
            b'{"op":"pull","id":"7","node":"n","image":"a","auth":{"username":"u"}}\n',
            PullRequest("7", "n", "a", ({"username": "u"},)),
        ),
    ],
)
def test_requests(line, request_):
    assert parse(line) == request_


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{\n", "not JSON"),
        (b"[]\n", "JSON object"),
        (b'{"op":"reboot"}\n', "unknown op 'reboot'"),
        (b'{"op":"relist"}\n', "relist: node must be a non-empty string"),
        (b'{"op":"pull","id":7,"node":"n","image":"a"}\n', "image|id must be a non-empty string"),
        (b'{"op":"pull","id":"7","node":"n","image":"a","auth":{"password":7}}\n', "auth must be null"),
        (b'{"op":"relist","node":"n"}', "an unterminated line"),
        (b"\xff\n", "not JSON"),
    ],
)
def test_what_is_no_request_is_refused_with_its_reason(line, message):
    with pytest.raises(BadMessage, match=message) as caught:
        parse(line)
    assert "password" not in str(caught.value)


def test_messages_are_one_line_whatever_they_hold():
    line = encode(state("n", [{"id": "a\nb\x00"}], ["x\ny"]))
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        ("busybox", ("busybox", "latest")),
        ("minik8s/busybox:1", ("minik8s/busybox", "1")),
        ("127.0.0.1:5000/a/b", ("127.0.0.1:5000/a/b", "latest")),
        ("127.0.0.1:5000/a/b:2", ("127.0.0.1:5000/a/b", "2")),
        ("a@sha256:00", ("a", "sha256:00")),
    ],
)
def test_an_image_name_is_split_as_docker_takes_it(image, reference):
    assert _reference(image) == reference


def test_what_the_inventory_says_stays_an_argument_of_ssh(tmp_path: Path):
    address = NodeAddress("n", "warm_ssh", host="-oProxyCommand=id", user="u; id", known_hosts="/k", key_file="/i")
    argv = master_argv(address, Paths(address, tmp_path))
    assert argv[-2:] == ["--", "-oProxyCommand=id"]
    options = connection_options(address, tmp_path / "c")
    assert {"StrictHostKeyChecking=yes", "UserKnownHostsFile=/k", "BatchMode=yes"} <= set(options)
    assert options[options.index("-l") + 1] == "u; id"


def test_a_command_for_a_node_goes_through_its_master(tmp_path: Path):
    address = NodeAddress("n", "warm_ssh", host="192.0.2.7", known_hosts="/k")
    argv = shell_argv(address, tmp_path)
    assert argv[-2:] == ["--", "192.0.2.7"], "what follows is the command"
    assert f"ControlPath={Paths(address, tmp_path).control}" in argv
    assert "ControlMaster=no" in argv
    assert "StrictHostKeyChecking=yes" in argv


def test_long_node_names_leave_room_for_a_sockets_path(tmp_path: Path):
    address = NodeAddress("n" * 200, "warm_ssh")
    paths = Paths(address, Path("/run/minik8s/gateway"))
    assert len(str(paths.control)) < 90
    assert paths.docker != Paths(NodeAddress("n" * 199, "warm_ssh"), Path("/run/minik8s/gateway")).docker


@pytest.mark.parametrize(("host", "shown"), [("10.244.0.7", "10.244.0.7:80"), ("fd00::7", "[fd00::7]:80")])
def test_an_address_and_a_port_are_told_apart(tmp_path: Path, host: str, shown: str):
    argv = reach_argv(NodeAddress("n1", "warm_ssh", host="fd00::21"), tmp_path, host, 80)
    assert argv[-4:] == ["-W", shown, "--", "fd00::21"]

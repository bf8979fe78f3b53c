"""The command line: help for everything, wrong use told in a line."""

from __future__ import annotations

import pytest

from minik8s_modules.cli.main import build_parser, main, parse

COMMANDS = ("get", "describe", "apply", "delete", "plan", "drift", "version", "api-resources")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as end:
        build_parser().parse_args([command, "--help"])
    assert end.value.code == 0
    assert command in capsys.readouterr().out


def test_an_unknown_command_is_refused_with_the_list_of_commands(capsys):
    with pytest.raises(SystemExit) as end:
        main(["frobnicate"])
    assert end.value.code == 2
    assert "frobnicate" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("get pod -n shop web", ["pod", "web"]),
        ("get -n shop pod web", ["pod", "web"]),
        ("describe pod web -n shop db", ["pod", "web", "db"]),
        ("delete pod --grace-period 0 -n shop web", ["pod", "web"]),
        ("drift --detailed-exitcode n1 n2", ["n1", "n2"]),
    ],
)
def test_names_may_stand_on_either_side_of_options(line, words):
    assert parse(line.split()).words == words


@pytest.mark.parametrize("line", ["get pods --nope", "version now", "plan -f web.yml web"])
def test_what_no_command_takes_is_refused(line, capsys):
    with pytest.raises(SystemExit) as end:
        parse(line.split())
    assert end.value.code == 2
    assert "unrecognized arguments" in capsys.readouterr().err


def test_the_kubeconfig_may_stand_before_or_after_the_command():
    assert parse(["--kubeconfig", "k", "get", "pods"]).kubeconfig == "k"
    assert parse(["get", "pods", "--kubeconfig", "k"]).kubeconfig == "k"
    assert parse(["get", "pods"]).kubeconfig == ""


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path, capsys):
    assert main(["--kubeconfig", str(tmp_path / "none"), "version"]) == 1
    assert f"{tmp_path}/none does not exist" in capsys.readouterr().err

"""The command line: help for everything, wrong use told in a line."""

from __future__ import annotations

import pytest

from minik8s_modules.cli.main import build_parser, main

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


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path, capsys):
    assert main(["--kubeconfig", str(tmp_path / "none"), "version"]) == 1
    assert f"{tmp_path}/none does not exist" in capsys.readouterr().err
